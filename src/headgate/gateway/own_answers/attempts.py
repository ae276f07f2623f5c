"""
What users without permission tried, for the audit log: which entities, values and address.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import HeadgateError
from headgate.gateway.charging.plans import RequestKind
from headgate.gateway.own_answers.denials import SMALL_BYTES
from headgate.quota.key import format_value
from headgate.store.broker_rules import BROKER_SETTINGS, base_setting
from headgate.wire import apis
from headgate.wire.messages import configs, decode_request, draft
from headgate.wire.messages.live import LIVE

if TYPE_CHECKING:
    from headgate.gateway.session.commands import Ask

_MOST: Final = 300
"""Characters of each part. 10,000 audit lines are kept, and the refused user chose their text."""


def attempted(ask: Ask) -> tuple[str, str]:
    """
    Return subject and detail of an audit line.

    Args:
        ask: what was asked. Only a small request is read, so that users without permission can't
            make the loop read more.
    """
    origin = f"from {ask.client_ip}" if ask.client_ip else ""
    if len(ask.frame) > SMALL_BYTES:
        return "", _joined([f"a request of {len(ask.frame)} bytes", origin], " ")
    try:
        subject, values = _named(ask)
    except HeadgateError:  # it doesn't parse: its connection will be closed
        subject, values = (), ()
    return _joined(subject), _joined([_joined(values), origin], " ")


def _named(ask: Ask) -> tuple[Iterable[str], Iterable[str]]:
    key = ask.plan.key
    if key == LIVE:
        asked = decode_request(LIVE, 0, ask.frame, ask.body_offset)
        return ("everybody" if asked.user is None else f"user={asked.user}",), ()
    if ask.plan.kind == RequestKind.DRAFT:
        if key != draft.ALTER_QUOTAS:
            return (), ()
        request: Any = draft.decode_request(key, ask.frame, draft.body_offset(ask.frame))
        return (
            (_entity(entry.entity) for entry in request.entries),
            (
                f"{op.type}:{op.units}={'none' if op.remove else op.value}"
                for entry in request.entries
                for op in entry.ops
            ),
        )
    if key == apis.ALTER_CLIENT_QUOTAS:
        request = decode_request(key, ask.plan.version, ask.frame, ask.body_offset)
        return (
            (_entity(entry.entity) for entry in request.entries),
            (
                f"{op.key}={'none' if op.remove else format_value(op.value)}"
                for entry in request.entries
                for op in entry.ops
            ),
        )
    if key in (apis.ALTER_CONFIGS, apis.INCREMENTAL_ALTER_CONFIGS):
        request = decode_request(key, ask.plan.version, ask.frame, ask.body_offset)
        brokers = [r for r in request.resources if r.resource_type == configs.BROKER]
        return (
            (f"broker {r.resource_name}" if r.resource_name else "all brokers" for r in brokers),
            (_setting(c.name, c.value) for r in brokers for c in r.configs),
        )
    return (), ()


def _setting(name: str, value: str | None) -> str:
    """Return a setting with its value, if it is one of ours: others may be secrets."""
    return f"{name}={value}" if base_setting(name) in BROKER_SETTINGS else name


def _entity(parts: Any) -> str:
    """Return an entity as the request spelled it; a null name is the default."""
    names = (f"{part.entity_type}={part.entity_name or '<default>'}" for part in parts)
    return "{" + ", ".join(names) + "}"


def _joined(parts: Iterable[str], between: str = ", ") -> str:
    text = between.join(part for part in parts if part)
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"
