"""
Broker settings that a store keeps for gateways: which they are, and what values they take.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Final

from headgate.config import MOST_ADDRESSES
from headgate.errors import ApiError, KafkaError, invalid_request
from headgate.store.base import AuditEvent

Told = Callable[[Mapping[str, str], Mapping[str, str | None]], AuditEvent]
"""Returns the audit line of a change of one broker, given what was set before, and the change."""


def broker_event(
    broker: str,
    who: str,
    tool: str,
    t_ms: int,
    before: Mapping[str, str],
    ops: Mapping[str, str | None],
) -> AuditEvent:
    """Return the audit line of a change of broker settings."""
    detail = ", ".join(
        f"{key}: {before.get(key, 'unset')} -> {'unset' if value is None else value}"
        for key, value in ops.items()
    )
    subject = f"broker {broker}" if broker else "default of brokers"
    return AuditEvent(who, tool, "alter_broker_configs", "done", subject, detail, t_ms)


_PER_IP: Final = "max.connections.per.ip"
OVERRIDES: Final = "max.connections.per.ip.overrides"
"""The one setting that is a list of host:count; the others are numbers."""
BROKER_SETTINGS: Final[Mapping[str, str]] = {
    "max.connection.creation.rate": "2147483647",
    "max.connections": "2147483647",
    _PER_IP: "2147483647",
    OVERRIDES: "",
}
"""Broker settings that belong to the gateway (KIP-612, KIP-402, socket server), each with Kafka's
own default (SocketServerConfigs)."""
MOST_SETTINGS: Final = 1_000
"""Settings kept for one broker: four, and two for each of its listeners, are all that count."""
_LONGEST_HOST: Final = 255
"""Characters of a host's name in the DNS."""
_MOST_QUOTED: Final = 200
_ABOVE_0 = frozenset({"max.connections", "max.connection.creation.rate"})


def base_setting(name: str) -> str:
    """Return a broker setting's name without its ``listener.name.X.`` prefix."""
    if name.startswith("listener.name."):
        _listener, _, rest = name.removeprefix("listener.name.").partition(".")
        return rest
    return name


def validate_broker_configs(
    broker: str,
    ops: Mapping[str, str | None],
    stored: Mapping[str, Mapping[str, str]],
) -> dict[str, str | None]:
    """
    Check broker settings as Kafka checks dynamic ones; return them as they are kept.

    What Kafka reads as a number is kept as its plain digits, which is what gateways apply.

    Args:
        broker: its id as text, or "" for the default of all.
        ops: new values; None removes.
        stored: what is set now, by broker.

    Raises:
        ApiError: INVALID_REQUEST for a broker that isn't an id or a value that isn't allowed,
            INVALID_CONFIG for a setting that isn't the gateway's.

    Source: SocketServerConfigs (INT, at least 0), SocketServer.validateReconfiguration (above 0:
    otherwise nobody could connect, not even to undo it) and KafkaConfig in Apache Kafka; texts of
    4.3.1.
    """
    if broker and not (broker.isascii() and broker.isdigit()):
        raise invalid_request("Node id must be an integer, but it is: " + broker)
    before = stored.get(broker, {})
    after = {**before, **ops}
    count = sum(value is not None for value in after.values())
    if count > max(MOST_SETTINGS, len(before)):
        # Differs: more than 1,000 settings of connections for one broker are refused.
        raise invalid_request(
            f"{count} settings kept here of one broker; {MOST_SETTINGS} are possible at most"
        )
    kept: dict[str, str | None] = {}
    for name, value in ops.items():
        base = base_setting(name)
        if base not in BROKER_SETTINGS:
            known = ", ".join(BROKER_SETTINGS)
            raise ApiError(
                KafkaError.INVALID_CONFIG,
                f"{name} isn't a setting kept here; brokers take {known}, each also under "
                "listener.name.<listener>.",
            )
        kept[name] = value
        if value is None:
            continue
        # Differs: more than 1,000 addresses of max.connections.per.ip.overrides are refused.
        if base == OVERRIDES and (addresses := value.count(",") + 1) > MOST_ADDRESSES:
            raise invalid_request(
                f"Invalid value for configuration {name}: {addresses} addresses; "
                f"{MOST_ADDRESSES} are possible at most"
            )
        kept[name] = _checked(name, value)
        if kept[name] == "0" and base in _ABOVE_0:
            raise invalid_request(
                "Invalid value org.apache.kafka.common.config.ConfigException: "
                f"Invalid {base} 0 for configuration Invalid dynamic configuration"
            )
    _check_addresses(kept, {**before, **kept}, stored.get("", {}) if broker else {})
    return kept


def as_applied(
    stored: Mapping[str, str], unreadable: Callable[[str, str], None] = lambda name, value: None
) -> dict[str, str]:
    """
    Return a broker's settings as gateways apply them.

    Others than Headgate may have written them: Kafka's tools keep ``+5`` as it is, and nobody
    checks what is put into a znode or a topic. A value that isn't one is left out, as in Kafka. One
    with more addresses than are taken today is applied: to leave it out would lift limits.

    Args:
        stored: a store's settings of one broker.
        unreadable: called with the name and value of each setting that is left out.

    Source: DynamicBrokerConfig.processReconfiguration in Apache Kafka.
    """
    applied: dict[str, str] = {}
    for name, value in stored.items():
        if base_setting(name) not in BROKER_SETTINGS:
            continue
        try:
            applied[name] = _checked(name, value)
        except ApiError:
            unreadable(name, value)
    return applied


def _check_addresses(
    ops: Mapping[str, str | None], own: Mapping[str, str | None], default: Mapping[str, str]
) -> None:
    """
    Refuse 0 connections for each address without exceptions: nobody could connect.

    Args:
        ops: what changes.
        own: the broker's settings after that; None: not set.
        default: those of all brokers.
    """

    def in_force(name: str) -> str | None:
        value = own.get(name)
        return default.get(name) if value is None else value

    touched = {_PER_IP, OVERRIDES} & set(ops)
    if touched and _java_int(in_force(_PER_IP) or "") == 0 and not in_force(OVERRIDES):
        raise invalid_request(
            f"requirement failed: {_PER_IP} can be set to zero only if {OVERRIDES} property is set."
        )


def _java_int(text: str) -> int | None:
    """Return the number that Kafka reads (Integer.parseInt of the trimmed text); None for none."""
    found = re.fullmatch(r"([+-]?)0*([0-9]{1,10})", text.strip())
    value = int(found[1] + found[2]) if found else 2**31
    return value if -(2**31) <= value < 2**31 else None


def _checked(name: str, value: str) -> str:
    """Return a setting's value as it is kept: what Kafka reads as a number, as its digits."""
    if base_setting(name) == OVERRIDES:
        return _checked_overrides(name, value)
    number = _java_int(value)
    told = f"Invalid value {_cut(value.strip())} for configuration {name}"
    if number is None:
        raise invalid_request(f"{told}: Not a number of type INT")
    if number < 0:
        raise invalid_request(f"{told}: Value must be at least 0")
    return str(number)


def _cut(text: str) -> str:
    """Cut a text that a message quotes: a value may be as long as a request."""
    return text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}…"


@functools.lru_cache(8)
def _checked_overrides(name: str, value: str) -> str:
    parts = []
    for part in filter(None, (p.strip() for p in value.split(","))):
        host, _, count = part.rpartition(":")
        number = _java_int(count)
        if not 0 < len(host.strip()) <= _LONGEST_HOST or number is None or number < 0:
            raise invalid_request(
                f"Invalid value {_cut(value)} for configuration {name}: "
                f"{_cut(part)} isn't of the form host:count"
            )
        parts.append(f"{host.strip()}:{number}")
    return ",".join(parts)
