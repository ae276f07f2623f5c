"""
How each API and version is handled: a table made at the start, and looked up for each request.

A plan says what is special about a request, whether its answer passes in pieces or is taken whole,
and where the answer's ``throttle_time_ms`` lies.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.throttle.controller_mutation import STRICT_SINCE
from headgate.wire import apis
from headgate.wire.header import is_flexible
from headgate.wire.messages.live import LIVE, LIVE_NAME
from headgate.wire.throttle import NOT_FIRST

NO_FIELD: Final = -1
"""The answer has no ``throttle_time_ms`` at this version."""
WALK: Final = -2
"""The field isn't at a fixed offset; ``wire.throttle`` finds it in a whole answer."""


class RequestKind(enum.IntEnum):
    """What is special about a request."""

    RELAY = 0
    PRODUCE = 1
    FETCH = 2
    SHARE_FETCH = 3
    VERSIONS = 4
    SASL = 5
    ASK = 6
    MUTATION = 7
    NEW_PRODUCER_ID = 8
    DRAFT = 9
    OWN_VERSIONS = 10


@dataclass(frozen=True, slots=True, eq=False)  # one object per API and version: told by identity
class RequestPlan:
    """
    The handling of one API at one version.

    Args:
        key: API key.
        version: API version.
        kind: what is special about it.
        name: Kafka's name of the API, for logs and metrics.
        whole: the answer is collected whole.
        throttle_at: offset of ``throttle_time_ms`` in the answer's frame, NO_FIELD or WALK.
        mask: the answer passes in pieces through the masker of node endpoints.

    Attributes:
        owes: the kind of request whose debts it waits for. Mutations that are refused while their
            quota is used up wait only for debts of request time: reconnecting gains nothing there.
        bit: ``1 << owes``.
        alone: goes alone in flight where request time is limited: its answer is read whole, which
            takes time that isn't known before. A Produce's answer mostly isn't.
    """

    key: int
    version: int
    kind: RequestKind
    name: str
    whole: bool = False
    throttle_at: int = NO_FIELD
    mask: bool = False
    owes: RequestKind = field(init=False)
    bit: int = field(init=False)
    alone: bool = field(init=False)

    def __post_init__(self) -> None:
        refused = self.kind is RequestKind.MUTATION and self.version >= STRICT_SINCE.get(
            self.key, 0
        )
        object.__setattr__(self, "owes", RequestKind.RELAY if refused else self.kind)
        object.__setattr__(self, "bit", 1 << self.owes)
        alone = self.whole and self.kind is not RequestKind.PRODUCE
        object.__setattr__(self, "alone", alone)


_KINDS: Final = {
    apis.PRODUCE: RequestKind.PRODUCE,
    apis.FETCH: RequestKind.FETCH,
    apis.API_VERSIONS: RequestKind.VERSIONS,
    apis.SASL_HANDSHAKE: RequestKind.SASL,
    apis.SASL_AUTHENTICATE: RequestKind.SASL,
    apis.CREATE_TOPICS: RequestKind.MUTATION,
    apis.DELETE_TOPICS: RequestKind.MUTATION,
    apis.CREATE_PARTITIONS: RequestKind.MUTATION,
    apis.INIT_PRODUCER_ID: RequestKind.NEW_PRODUCER_ID,
    apis.DESCRIBE_CONFIGS: RequestKind.ASK,
    apis.ALTER_CONFIGS: RequestKind.ASK,
    apis.INCREMENTAL_ALTER_CONFIGS: RequestKind.ASK,
    apis.DESCRIBE_CLIENT_QUOTAS: RequestKind.ASK,
    apis.ALTER_CLIENT_QUOTAS: RequestKind.ASK,
    apis.SHARE_FETCH: RequestKind.SHARE_FETCH,
}
_WHOLE: Final = {
    RequestKind.PRODUCE,
    RequestKind.VERSIONS,
    RequestKind.SASL,
    RequestKind.ASK,
    RequestKind.MUTATION,
    RequestKind.SHARE_FETCH,
    RequestKind.NEW_PRODUCER_ID,
}


def _plan(api: apis.Api, version: int) -> RequestPlan:
    kind = _KINDS.get(api.key, RequestKind.RELAY)
    throttle_at = NO_FIELD
    if apis.has_throttle(api.key, version):
        # length, correlation id, and the empty tag section of a flexible answer's header
        throttle_at = 9 if is_flexible(api.key, version) else 8
        if api.key in NOT_FIRST:
            throttle_at = WALK
    whole = kind in _WHOLE or throttle_at == WALK or (api.has_addresses and api.key != apis.FETCH)
    mask = api.key == apis.FETCH and version >= 16
    return RequestPlan(api.key, version, kind, api.name, whole, throttle_at, mask)


RAW_TOKEN: Final = RequestPlan(-1, 0, RequestKind.SASL, "SaslToken", whole=True)
"""A bare SASL token after a handshake of version 0: no header says what it is."""
MAX_VERSION: Final = 64
"""Far above any Kafka API's newest version; a request above it is refused, ApiVersions apart."""


@functools.cache
def build_plans(*, pass_unknown: bool = False) -> Mapping[int, RequestPlan]:
    """
    Work out the plan of every API and version that may pass; the table is made once.

    Args:
        pass_unknown: ``headgate.unknown.apis=pass``: unknown keys are relayed untouched.

    Returns:
        Plans by ``key << 16 | version``, the 32 bits as they stand in a request's header. APIs
        that carry addresses or are charged stop at the newest version we can read; ApiVersions
        doesn't, since a broker answers what it doesn't know with its own range.
    """
    plans: dict[int, RequestPlan] = {}
    for api in apis.API.values():
        if not api.proxied:
            continue
        # Differs: APIs with addresses or charges are advertised as far as they are read here.
        newest = MAX_VERSION if api.passes_until is None else api.passes_until
        if api.key == apis.API_VERSIONS:
            newest = MAX_VERSION
        oldest = 0 if api.passes_until is None else api.min_version
        for version in range(oldest, newest + 1):
            known = api.min_version <= version <= api.max_version
            if not known and api.key != apis.API_VERSIONS:
                plan = RequestPlan(api.key, version, RequestKind.RELAY, api.name)
            else:
                plan = _plan(api, version)
            plans[api.key << 16 | version] = plan
    plans[LIVE << 16] = RequestPlan(LIVE, 0, RequestKind.ASK, LIVE_NAME, whole=True, throttle_at=8)
    # Differs: APIs unknown here are hidden from clients, unless headgate.unknown.apis=pass.
    if pass_unknown:
        for key in range(1024):
            if key in apis.API:
                continue
            for version in range(MAX_VERSION):
                plans[key << 16 | version] = RequestPlan(
                    key, version, RequestKind.RELAY, f"Unknown{key}"
                )
    return plans
