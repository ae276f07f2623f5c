"""
Broker settings that a store keeps for gateways: which they are, and what values they take.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.errors import ApiError, KafkaError
from headgate.store.base import AuditEvent


def broker_event(
    broker: str, before: Mapping[str, str], ops: Mapping[str, str | None], who: str, tool: str
) -> AuditEvent:
    """Return the audit line of a change of broker settings."""
    detail = ", ".join(
        f"{key}: {before.get(key, 'unset')} -> {'unset' if value is None else value}"
        for key, value in ops.items()
    )
    subject = f"broker {broker}" if broker else "default of brokers"
    return AuditEvent(who, tool, "alter_broker_configs", "done", subject, detail)


#: Broker settings that belong to the gateway (KIP-612, KIP-402, socket server), each with its least
#: value, or None for a list of host:count.
BROKER_SETTINGS: Mapping[str, int | None] = {
    "max.connection.creation.rate": 0,
    "max.connections": 0,
    "max.connections.per.ip": 0,
    "max.connections.per.ip.overrides": None,
}


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
) -> None:
    """
    Check broker settings as Kafka checks dynamic ones.

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
        raise ApiError(
            KafkaError.INVALID_REQUEST,
            "Node id must be an integer, but it is: " + broker,
        )
    for name, value in ops.items():
        base = base_setting(name)
        if base not in BROKER_SETTINGS:
            known = ", ".join(BROKER_SETTINGS)
            raise ApiError(
                KafkaError.INVALID_CONFIG,
                f"{name} isn't a setting kept here; brokers take {known}, each also under "
                "listener.name.<listener>.",
            )
        if value is None:
            continue
        if BROKER_SETTINGS[base] is None:
            _check_overrides(name, value)
        else:
            _check_int(name, value.strip())
            if int(value) == 0 and base in _ABOVE_0:
                raise ApiError(
                    KafkaError.INVALID_REQUEST,
                    "Invalid value org.apache.kafka.common.config.ConfigException: "
                    f"Invalid {base} {int(value)} for configuration Invalid dynamic configuration",
                )
    _check_addresses(broker, ops, stored)


def _check_addresses(
    broker: str, ops: Mapping[str, str | None], stored: Mapping[str, Mapping[str, str]]
) -> None:
    """Refuse 0 connections for each address without exceptions: nobody could connect."""
    per_ip, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    if not {per_ip, overrides} & set(ops):
        return
    layers = [stored.get("", {}), *([stored.get(broker, {})] if broker else [])]

    def in_force(name: str) -> str | None:
        found = ops.get(name)
        if found is None:
            below = layers[:-1] if name in ops else layers
            found = next((layer[name] for layer in reversed(below) if layer.get(name)), None)
        return found

    if (in_force(per_ip) or "").strip() in ("0", "+0", "-0") and not in_force(overrides):
        raise ApiError(
            KafkaError.INVALID_REQUEST,
            f"requirement failed: {per_ip} can be set to zero only if {overrides} property is set.",
        )


def _check_int(name: str, value: str) -> None:
    digits = value[1:] if value[:1] in ("-", "+") else value
    if not (digits.isascii() and digits.isdigit()) or not -(2**31) <= int(value) < 2**31:
        raise ApiError(
            KafkaError.INVALID_REQUEST,
            f"Invalid value {value} for configuration {name}: Not a number of type INT",
        )
    if int(value) < 0:
        raise ApiError(
            KafkaError.INVALID_REQUEST,
            f"Invalid value {value} for configuration {name}: Value must be at least 0",
        )


def _check_overrides(name: str, value: str) -> None:
    for part in filter(None, (p.strip() for p in value.split(","))):
        host, _, count = part.rpartition(":")
        if not host or not (count.isascii() and count.isdigit()):
            raise ApiError(
                KafkaError.INVALID_REQUEST,
                f"Invalid value {value} for configuration {name}: "
                f"{part} isn't of the form host:count",
            )
