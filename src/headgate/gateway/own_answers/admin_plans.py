"""
How the admin listener handles its APIs; the same key may mean another API elsewhere.
"""

from __future__ import annotations

from typing import Final

from headgate.gateway.charging.plans import NO_FIELD, RequestKind, RequestPlan
from headgate.gateway.own_answers.draft_answers import ADMIN_APIS
from headgate.wire import apis
from headgate.wire.messages import draft
from headgate.wire.messages.live import LIVE, LIVE_NAME

DRAFT_NAMES: Final = {
    draft.DESCRIBE_QUOTAS: "DescribeQuotas",
    draft.DESCRIBE_EFFECTIVE_QUOTAS: "DescribeEffectiveQuotas",
    draft.ALTER_QUOTAS: "AlterQuotas",
}
"""What KIP-546's draft calls these keys, on the admin listener alone; Kafka gave two of them other
names, and 50 to another API."""


def admin_plans() -> dict[int, RequestPlan]:
    """
    Return how the admin listener handles its six APIs, and ``LIVE``, which it doesn't advertise.

    Any other API is refused.
    """
    plans: dict[int, RequestPlan] = {}
    for key in ADMIN_APIS:
        api = apis.API[key]
        if key in (apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE):
            kind, newest = RequestKind.SASL, api.max_version
        elif key == apis.API_VERSIONS:
            kind, newest = RequestKind.OWN_VERSIONS, 64
        else:
            kind, newest = RequestKind.DRAFT, 0
        throttle_at = 8 if kind is RequestKind.DRAFT else NO_FIELD
        for version in range(newest + 1):
            name = DRAFT_NAMES.get(key, api.name)
            plans[key << 16 | version] = RequestPlan(
                key, version, kind, name, whole=True, throttle_at=throttle_at
            )
    plans[LIVE << 16] = RequestPlan(
        LIVE, 0, RequestKind.DRAFT, LIVE_NAME, whole=True, throttle_at=8
    )
    return plans
