"""
What a quota store promises, whatever keeps the quotas: one contract, three homes.

``tests/contract`` holds every home to this page. A store is used from several threads; it is not
used across a fork. Names of entities are raw here and sanitised only inside a home.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from headgate.errors import ApiError, KafkaError
from headgate.quota.alteration import AlterResult, QuotaAlteration, is_ip_literal
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.table import Change, QuotaTable, TableDelta

QuotaCallback = Callable[[QuotaTable, TableDelta], None]
BrokerConfigs = Mapping[str, Mapping[str, str]]
BrokerCallback = Callable[[BrokerConfigs], None]

#: Where a change came from when nobody told: another tool wrote to the home directly.
UNKNOWN = "unknown"
#: The most ops in one request to Kafka's controller (QuorumController.MAX_RECORDS_PER_BATCH).
MAX_RECORDS_PER_REQUEST = 10_000


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """
    One change of one key of one entity.

    Args:
        t_ms: when the store acknowledged it, epoch milliseconds.
        who: the principal, ``unknown`` where the change came past Headgate.
        tool: the program that asked, such as ``kafka-configs``.
        before: the value until then; None where the key wasn't set.
        after: the value since; None where the key was removed.
    """

    t_ms: int
    who: str
    tool: str
    entity: QuotaEntity
    key: QuotaKey
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """
    Something that was tried or done beside quotas: a refused attempt, a broker's setting changed.

    Args:
        who: the principal that tried.
        tool: the program or listener it came by.
        action: what was tried, such as ``alter_client_quotas``.
        outcome: ``refused`` or ``done``.
        subject: what it was about, such as an entity or ``broker 1``.
        detail: one line for a reader.
        t_ms: epoch milliseconds; 0 lets the store put its own clock's.
    """

    who: str
    tool: str
    action: str
    outcome: str
    subject: str = ""
    detail: str = ""
    t_ms: int = 0


class Watch(Protocol):
    """A running watch; nothing is called after ``close`` has returned."""

    def close(self) -> None:
        """Stop calling back. May be called twice, and from the callback."""
        ...


class Lease(Protocol):
    """
    The right to be the only one doing something, for a while.

    ``epoch`` grows with every holder, so whoever acts for a lease can be fenced: a reader that
    has seen a higher epoch ignores the lower one.
    """

    name: str
    owner: str
    epoch: int

    def renew(self) -> bool:
        """Extend by the lease's ttl; False when somebody else has it, and then for ever."""
        ...

    def held(self) -> bool:
        """Return whether this holder's epoch is still the store's latest and not run out."""
        ...

    def release(self) -> None:
        """Give it up at once; does nothing when it is no longer ours."""
        ...


@runtime_checkable
class QuotaStore(Protocol):
    """Where quotas live: SQLite, ZooKeeper or a KRaft cluster."""

    url: str

    def snapshot(self) -> QuotaTable:
        """
        Return every quota as of now; includes every change this store has acknowledged.

        Raises:
            StoreError: the home can't be reached.
        """
        ...

    def alter(
        self,
        alterations: Sequence[QuotaAlteration],
        *,
        validate_only: bool = False,
        who: str = "",
        tool: str = "",
    ) -> list[AlterResult]:
        """
        Set and clear keys, each entity all or nothing.

        Args:
            alterations: one per entity; a second one of the same entity is refused as Kafka does.
            validate_only: check, and change nothing.
            who: the principal, for the history.
            tool: the program, for the history.

        Returns:
            One result per alteration, in their order, with Kafka's error where one was refused.

        Raises:
            StoreError: the home can't be reached or took nothing; ``retriable`` says which.
        """
        ...

    def watch(self, callback: QuotaCallback) -> Watch:
        """
        Call back with the table and what changed, now and after every change.

        Args:
            callback: called once before this returns, with the whole table and the delta from an
                empty one; after that from a thread of the store, in order, never twice at a time.
                It must not wait for another thread that uses this store.
        """
        ...

    def history(
        self, *, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """
        Return who changed what, oldest first.

        Args:
            entity: only changes of this entity.
            limit: only the latest so many.
        """
        ...

    def broker_configs(self) -> BrokerConfigs:
        """Return the gateway's dynamic broker settings; "" is the cluster's default."""
        ...

    def alter_broker_configs(
        self,
        broker: str,
        ops: Mapping[str, str | None],
        *,
        validate_only: bool = False,
        who: str = "",
        tool: str = "",
    ) -> None:
        """
        Set or remove (None) settings of one broker, all or nothing.

        Args:
            broker: the broker's id as text, or "" for the cluster's default.
            ops: setting to its new value, or None to remove it.
            validate_only: check, and change nothing.
            who: the principal, for the audit.
            tool: the program, for the audit.

        Raises:
            ApiError: INVALID_CONFIG, naming the setting and what it takes.
        """
        ...

    def watch_broker_configs(self, callback: BrokerCallback) -> Watch:
        """Call back with all broker settings, now (before this returns) and after every change."""
        ...

    def audit(self, event: AuditEvent) -> None:
        """Keep a line about something refused or done."""
        ...

    def audit_log(self, *, limit: int | None = None) -> list[AuditEvent]:
        """Return the kept lines, oldest first; with a limit, only the latest so many."""
        ...

    def lease(self, name: str, owner: str, ttl_ms: int) -> Lease | None:
        """
        Take a lease, or None while somebody else holds it.

        Args:
            name: what only one may do.
            owner: who asks; the same owner takes its own lease over with a new epoch (it
                restarted), which fences the older holder.
            ttl_ms: how long it lasts unless renewed.
        """
        ...

    def close(self) -> None:
        """Stop watches and let go of the home. May be called twice."""
        ...


def now_ms() -> int:
    """Return the wall clock, epoch milliseconds."""
    return time.time_ns() // 1_000_000


def whole(table: QuotaTable) -> TableDelta:
    """Return the delta from an empty table: what a watch is given first."""
    changes = tuple(
        Change(entity, key, None, value)
        for entity, values in table.entities.items()
        for key, value in values.items()
    )
    return TableDelta(changes, 0, table.version)


def resolvable(host: str) -> bool:
    """Return whether an ip entity's name is an address or a host that resolves (InetAddress)."""
    if is_ip_literal(host):
        return True
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True


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


#: Broker settings that belong to the gateway (KIP-612, KIP-402, socket server): least value, or
#: None for a list of host:count.
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
    Check broker settings as Kafka does those that change while it runs.

    Args:
        broker: its id as text, or "" for the default of all.
        ops: new values; None removes.
        stored: what is set now, by broker.

    Raises:
        ApiError: INVALID_REQUEST for a broker that is no id or a value that can't be,
            INVALID_CONFIG for a setting that isn't the gateway's.

    Source: SocketServerConfigs (INT, at least 0), SocketServer.validateReconfiguration (above 0,
    or nobody could connect, to undo it neither) and KafkaConfig in Apache Kafka; texts of 4.3.1.
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
    """See that somebody may connect: 0 for each address makes sense with exceptions only."""
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
