"""
How the gateway's charges become events of the usage journal, in files or in a topic.

On the event loop a charge costs packing ten numbers. What events have in common is an ``Origin``,
made once per connection, API and quota, and kept with the connection. The columns of an origin that
are the same for a client's other connections are worked out once for all of them.
"""

from __future__ import annotations

import logging
from math import inf, nan
from operator import attrgetter
from pathlib import Path
from struct import error as StructError
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from headgate.client.security import librdkafka_config
from headgate.gateway.charging.journal import NO_JOURNAL, Journal
from headgate.gateway.log import LIBRDKAFKA
from headgate.quota.entity import quota_id
from headgate.throttle.java import UNLIMITED
from headgate.throttle.registry import UNCHARGED
from headgate.usage.packing import NOTHING, PACK, ROW

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.charging.clients import ClientConnection
    from headgate.gateway.charging.contexts import Context
    from headgate.gateway.charging.managers import Sensors
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.quota.entity import QuotaEntity
    from headgate.quota.key import QuotaKey
    from headgate.throttle.registry import Throttle
    from headgate.usage.writer import EventWriter

_NO_PACKER: Final = SimpleNamespace(rows=SimpleNamespace(at=0, end=0))
_NO_ANSWER: Final = (None,) * 5
"""Told and upstream throttle, size, handler's time and producer ids, of what isn't a request."""
_NONE_SEEN: Final = (None,) * 6
_MOST_ORIGINS: Final = 256
"""Origins a session keeps; a client that changes its client id all the time makes new ones."""
_LONG: Final = 1_024
"""Characters of a client id, of which only the last one is kept: it may have 32,767."""
_MOST_SHARED: Final = 4_096
"""What connections have in common is kept for this many clients, and this many addresses."""
_FREED_AT_ONCE: Final = 16
"""Of what was kept before, this many are freed with each new one: all at once take 4 ms."""


class Latest:
    """
    What was made for the latest keys: at most ``_MOST_SHARED``, and as many that are to be freed.
    """

    def __init__(self) -> None:
        self._made: dict[Any, Any] = {}
        self._past: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self._made)

    def get(self, key: Any) -> Any:
        """Return what was kept for a key, or None."""
        return self._made.get(key)

    def keep(self, key: Any, made: Any) -> None:
        """Keep what was made for a key."""
        for _ in range(min(_FREED_AT_ONCE, len(self._past))):
            self._past.popitem()
        if len(self._made) >= _MOST_SHARED:  # of the past nothing is left by then
            self._made, self._past = self._past, self._made
        self._made[key] = made


class UsageJournal(Journal):
    """
    Write events with a writer of ``headgate.usage``.

    Args:
        writer: takes the events; started here.
        num_samples: ``quota.window.num``.
        window_ms: one sample, ms.
    """

    def __init__(self, writer: EventWriter, num_samples: int, window_ms: int) -> None:
        from headgate.usage.format import ORIGIN_COLUMNS, Origin

        self._writer = writer
        self._append = writer.append
        # A writer's rows, into which events are packed. A writer without rows never has room.
        self._packer: Any = writer if hasattr(writer, "rows") else _NO_PACKER
        self._origin = Origin
        self._columns = attrgetter(*ORIGIN_COLUMNS)
        self._own_columns = ORIGIN_COLUMNS.index("client_ip")  # and the next one, the connection
        self._windows: dict[str, Any] = {"num_samples": num_samples, "window_ms": window_ms}
        self._sensors: Sensors = {}
        self._shared = Latest()
        self._accepted = Latest()
        writer.start()

    def start(self, broker_id: int, t_ms: int, sensors: Sensors) -> None:
        """See ``Journal``."""
        self._sensors = sensors
        self._say(t_ms, "start", broker_id=broker_id, **self._windows)

    def quota(
        self, broker_id: int, key: QuotaKey, entity: QuotaEntity, value: float | None, t_ms: int
    ) -> None:
        """See ``Journal``."""
        limit = nan if value is None else value
        self._say(t_ms, "quota", key.name, broker_id, entity=entity.path, value=limit)

    def record(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan,
        quota_type: str,
        t_ms: int,
        amount: float,
        decision: Throttle,
        told_ms: int,
        upstream_ms: int,
        size: int,
        handler_ns: int,
        producer_ids: frozenset[int] | None,
    ) -> None:
        """See ``Journal``."""
        decided, planned, whose, origin, bound, ms = client.origin_seen.get(quota_type, _NONE_SEEN)
        # Mostly as before: all decisions of a quota-id that isn't throttled are one object.
        if not (decided is decision and planned is plan and whose is context):
            ms, user, client_id, bound = decision
            key = (quota_type, plan, context, user, client_id, decision is UNCHARGED)
            origin = client.origins.get(key)
            if origin is None:
                origin = self._of(client, key)
                _remember(client, context, key, origin)
            if bound >= UNLIMITED:
                bound = inf
            client.origin_seen[quota_type] = (decision, plan, context, origin, bound, ms)
        ids = NOTHING if producer_ids is None else len(producer_ids)
        rows = self._packer.rows
        at = rows.at
        if at < rows.end:
            if origin.token is not rows.token:
                rows.enter(origin)
            try:
                PACK(
                    rows.buffer, at, origin.index, t_ms, amount, bound, ms, told_ms, upstream_ms,
                    size, handler_ns / 1e6 if handler_ns else 0.0, ids,
                )  # fmt: skip
            except StructError:
                pass  # appending raises an error that says why
            else:
                rows.at = at + ROW
                return
        self._append(
            (
                origin,
                t_ms,
                amount,
                bound,
                ms,
                told_ms,
                upstream_ms,
                size,
                handler_ns / 1e6,
                None if producer_ids is None else ids,
            )
        )

    def note(
        self,
        kind: str,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan | None,
        quota_type: str,
        t_ms: int,
        amount: float | None,
        decision: Throttle | None = None,
        *,
        told_ms: int | None = None,
        upstream_ms: int | None = None,
        size: int | None = None,
    ) -> None:
        """See ``Journal``."""
        user = client_id = ""
        bound = ms = None
        if decision is not None:
            ms, user, client_id, bound = decision
            if bound >= UNLIMITED:
                bound = inf
            if plan is None or kind == "unrecord":  # nothing is decided
                ms = None
        if plan is None:  # there is one with every answer
            key = (kind, quota_type, context, user, client_id)
            origin = client.origins.get(key)
            if origin is None:
                origin = self._make(client, context, plan, kind, quota_type, user, client_id)
                _remember(client, context, key, origin)
        else:
            origin = self._make(client, context, plan, kind, quota_type, user, client_id)
        ids = 1 if kind == "producer_id" else None
        self._append((origin, t_ms, amount, bound, ms, told_ms, upstream_ms, size, None, ids))

    def bound(
        self, broker_id: int, key: QuotaKey, tags: tuple[str, str], value: float, t_ms: int
    ) -> None:
        """See ``Journal``."""
        limit = value if value < UNLIMITED else inf
        sensor = self._sensors[key.name](tags)
        self._say(t_ms, "bound", key.name, broker_id, value=limit, **_of_tags(tags), **sensor)

    def expire(self, broker_id: int, key: QuotaKey, tags: tuple[str, str], t_ms: int) -> None:
        """See ``Journal``."""
        self._say(t_ms, "expire", key.name, broker_id, **_of_tags(tags))

    def connection(
        self, broker_id: int, listener: str, client_ip: str, t_ms: int, throttle_ms: int
    ) -> None:
        """See ``Journal``."""
        key = (broker_id, listener, client_ip)
        origin = self._accepted.get(key)
        if origin is None:
            origin = self._origin(
                "connection", "connection_creation_rate", broker_id, listener, client_ip=client_ip
            )
            self._accepted.keep(key, origin)
        self._append((origin, t_ms, 1.0, None, throttle_ms, *_NO_ANSWER))

    def _of(self, client: ClientConnection, key: tuple[Any, ...]) -> Any:
        """Return a connection's origin; most columns are shared by its client's connections."""
        at = self._own_columns
        shared = self._shared.get((client.broker_id, client.listener, key))
        if shared is None:
            quota_type, plan, context, user, client_id, uncharged = key
            kind = "norecord" if uncharged else "record"
            made = self._make(client, context, plan, kind, quota_type, user, client_id)
            shared = self._columns(made)
            if len(context.client_id) <= _LONG:
                self._shared.keep((client.broker_id, client.listener, key), shared)
        columns = [*shared[:at], client.client_ip, client.connection, *shared[at + 2 :]]
        return self._origin(*columns)

    def _make(
        self,
        client: ClientConnection,
        context: Context,
        plan: RequestPlan | None,
        kind: str,
        quota_type: str,
        user: str,
        client_id: str,
    ) -> Any:
        return self._origin(
            kind,
            quota_type,
            client.broker_id,
            client.listener,
            user,
            client_id,
            quota_id(user, client_id) if user or client_id else "",
            context.principal,
            context.client_id,
            client.client_ip,
            client.connection,
            None if plan is None else plan.key,
            None if plan is None else plan.version,
            **self._sensors[quota_type]((user, client_id)),
        )

    def _say(self, t_ms: int, *columns: Any, **more: Any) -> None:
        """Append an event that has no numbers of its own; arguments are its origin's columns."""
        self._append((self._origin(*columns, **more), t_ms, None, None, None, *_NO_ANSWER))

    @property
    def events(self) -> tuple[int, int]:
        """See ``Journal``."""
        return (self._writer.written, self._writer.dropped)

    def close(self) -> None:
        """See ``Journal``."""
        self._writer.close()


def _remember(
    client: ClientConnection, context: Context, key: tuple[Any, ...], origin: Any
) -> None:
    """Keep an origin for a connection's next charges."""
    if len(client.origins) >= _MOST_ORIGINS or len(context.client_id) > _LONG:
        client.origins.clear()
    client.origins[key] = origin


def _of_tags(tags: tuple[str, str]) -> dict[str, str]:
    """Return the columns that name a quota-id."""
    return {
        "quota_user": tags[0],
        "quota_client_id": tags[1],
        "quota_id": quota_id(*tags),
    }


def open_journal(settings: Settings, worker_id: str) -> Journal:
    """
    Return the journal that ``headgate.usage`` names.

    Args:
        settings: target, batch and file sizes.
        worker_id: the worker's name; no other live worker may have it.
    """
    target = settings.usage
    if target.kind == "none":
        return NO_JOURNAL
    writer: EventWriter
    if target.kind == "files":
        from headgate.usage.writer import JournalWriter

        writer = JournalWriter(
            Path(target.place),
            worker_id,
            flush_ms=settings.usage_batch_ms,
            max_file_bytes=settings.usage_roll_bytes,
        )
    else:
        from headgate.usage.topic import TopicWriter

        writer = TopicWriter(
            target.place,
            worker_id,
            topic_config(settings),
            flush_ms=settings.usage_batch_ms,
        )
    return UsageJournal(writer, settings.quota_window_num, settings.quota_window_ms)


def topic_config(settings: Settings) -> dict[str, Any]:
    """Return confluent-kafka's settings for the gateway's own connections upstream."""
    servers = ",".join(str(a) for a in settings.upstream or ())
    return {
        **librdkafka_config(servers, settings.upstream_admin),
        "client.id": "headgate",
        "logger": logging.getLogger(LIBRDKAFKA),  # else it writes to stderr past all logging
    }
