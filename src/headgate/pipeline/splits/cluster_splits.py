"""
Compute splits of cluster-wide quotas and shares from the fleet's journals, round by round.

Workers reduce journal events to one row per quota-id, broker and half second
(:func:`reduce_events`, :class:`SeenInMessages`); the driver turns the rows of a period into
demands, divides each ``bps`` quota (``headgate.throttle.cluster``) and contested capacity by
``shares`` (:class:`Rounds`).

A period is one of the events' own time. Journals come in batches, so the newest second is never
whole: a period ends ``lag_ms`` before the round, and what comes later counts in the next. Without
this a constant demand would seem to change by a batch's worth each round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.pipeline.table import make_table
from headgate.quota.key import (
    CONSUMER_BPS,
    CONSUMER_SHARES,
    PRODUCER_BPS,
    PRODUCER_SHARES,
    QuotaKey,
)
from headgate.quota.precedence import select_limit
from headgate.quota.table import QuotaTable
from headgate.throttle.cluster import ClusterSplitter
from headgate.throttle.observation import Observation
from headgate.throttle.shares import allocate
from headgate.usage.files import decode
from headgate.usage.splits import Split

BPS: Final[dict[str, QuotaKey]] = {key.name: key for key in (PRODUCER_BPS, CONSUMER_BPS)}
SHARES: Final[dict[str, QuotaKey]] = {key.name: key for key in (PRODUCER_SHARES, CONSUMER_SHARES)}
KEYS: Final = BPS | SHARES
# A split that isn't renewed for this many periods has expired; the gateways' own number.
PERIODS_VALID: Final = 3
# Journals are written once a second (headgate.usage.batch.ms), and take a moment to arrive.
LAG_MS: Final = 1500
SLOT_MS: Final = 500
# A quota-id without traffic for so long is forgotten: its splits have become equal parts by then,
# which is what a gateway falls back to.
IDLE_MS: Final = 120_000
Tags = tuple[str, str]

SEEN: Final = make_table(
    "seen",
    "One row per (quota key, quota-id, broker, half second).",
    ("quota_type", "string", "quota key's name: producer_byte_rate:bps"),
    ("quota_user", "string", "user tag"),
    ("quota_client_id", "string", "client-id tag"),
    ("broker_id", "int", "broker"),
    ("slot_ms", "long", "start of the half second, epoch ms"),
    ("used", "double", "units charged"),
    ("requests", "long", "charges"),
    ("throttled", "long", "charges told to wait"),
    ("waited_ms", "double", "time some charge's wait covered, ms"),
    ("waits_from_ms", "double", "when the first wait begins, epoch ms; 0: none"),
    ("waits_until_ms", "double", "when the last wait ends, epoch ms; 0: none"),
)
_WHERE: Final = ("quota_type", "quota_user", "quota_client_id", "broker_id")
_SUMS: Final = SEEN.names[5:]


def reduce_events(events: Any) -> list[dict[str, Any]]:
    """
    Reduce a journal's events to SEEN rows.

    Args:
        events: Arrow table of ``headgate.usage.format.SCHEMA``.
    """
    kind, quota_type = events["kind"].cast(pa.string()), events["quota_type"].cast(pa.string())
    charges = pc.is_in(kind, pa.array(["record", "unrecord"]))
    wanted = pc.and_(charges, pc.is_in(quota_type, pa.array(list(KEYS))))
    names = [*_WHERE, "t_ms", "amount", "bound", "throttle_time_ms", "kind"]
    names += ["window_ms", "max_throttle_ms"]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in events.filter(wanted).select(names).to_pylist():
        slot = int(row["t_ms"]) // SLOT_MS * SLOT_MS
        where = (*(row[n] for n in _WHERE), slot)
        sums = rows.get(where)
        if sums is None:
            same = dict(zip((*_WHERE, "slot_ms"), where, strict=True))
            sums = rows[where] = same | dict.fromkeys(_SUMS, 0)
        if row["kind"] == "unrecord":
            sums["used"] -= row["amount"] or 0.0
            continue
        sums["used"] += row["amount"] or 0.0
        sums["requests"] += 1
        wait = row["throttle_time_ms"] or 0
        if wait > 0:
            sums["throttled"] += 1
            end = row["t_ms"] + max(wait, _repaying_ms(row))
            # Waits of several connections overlap; the bucket was overdrawn in their union.
            begin = max(row["t_ms"], sums["waits_until_ms"])
            sums["waits_from_ms"] = sums["waits_from_ms"] or row["t_ms"]
            sums["waited_ms"] += max(end - begin, 0.0)
            sums["waits_until_ms"] = max(end, sums["waits_until_ms"])
    return list(rows.values())


def _repaying_ms(row: Mapping[str, Any]) -> float:
    """Return how long a charge is repaid at least, where what was told is capped, ms; else 0."""
    told_ms, cap_ms, bound = row["throttle_time_ms"], row["max_throttle_ms"], row["bound"]
    if cap_ms is None or told_ms < cap_ms or not bound:
        return 0.0
    return float(row["amount"] / bound * 1000.0 - (row["window_ms"] or 0))


@dataclass(frozen=True)
class SeenInMessages:
    """Reduce the messages of a journal's topic: (…, value) in, SEEN out. A ``mapInArrow``."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield a row per quota-id, broker and half second of each message."""
        for batch in batches:
            for value in batch.column(batch.schema.get_field_index("value")).to_pylist():
                if value is None:
                    continue
                rows = reduce_events(pa.Table.from_batches(decode(value)))
                if rows:
                    yield from pa.Table.from_pylist(rows, schema=SEEN.arrow).to_batches()


@dataclass
class Sight:
    """
    What one broker showed of one quota-id, half second by half second.

    Attributes:
        slots: sums of SEEN not yet looked at, by name, by their half second's start.
        covered_ms: until when the waits told so far last, epoch ms.
    """

    slots: dict[int, dict[str, float]] = field(default_factory=dict)
    covered_ms: float = 0.0

    def take(self, row: Mapping[str, Any]) -> None:
        """Add a SEEN row."""
        slot = self.slots.setdefault(row["slot_ms"], dict.fromkeys(_SUMS, 0.0))
        for name in ("used", "requests", "throttled"):
            slot[name] += row[name]
        begin, until, known = row["waits_from_ms"], row["waits_until_ms"], slot["waits_until_ms"]
        if until:
            overlap = max(min(known, until) - begin, 0.0) if known else 0.0
            slot["waited_ms"] += max(row["waited_ms"] - overlap, 0.0)
            slot["waits_from_ms"] = min(slot["waits_from_ms"] or begin, begin)
            slot["waits_until_ms"] = max(known, until)

    def show(self, from_ms: int, until_ms: int) -> Observation | None:
        """Return what the time between two moments showed, and late rows; None: nothing."""
        used = requests = throttled = 0.0
        waited = max(self.covered_ms - from_ms, 0.0)
        due = sorted(start for start in self.slots if start < until_ms)
        for start in due:
            slot = self.slots.pop(start)
            used += slot["used"]
            requests += slot["requests"]
            throttled += slot["throttled"]
            ends = slot["waits_until_ms"]
            if ends:
                overlap = max(min(self.covered_ms, ends) - slot["waits_from_ms"], 0.0)
                waited += max(slot["waited_ms"] - overlap, 0.0)
                self.covered_ms = max(self.covered_ms, ends)
        waited = waited - max(self.covered_ms - until_ms, 0.0)
        if not due and waited <= 0.0:
            return None
        length = until_ms - from_ms
        return Observation(
            max(used, 0.0) * 1000.0 / length,
            throttled > 0 or waited > 0.0,
            min(max(waited, 0.0) / length, 1.0),
            int(requests),
            None,
            self.covered_ms > until_ms,
        )


@dataclass
class Rounds:
    """
    Turns each round's SEEN rows into splits; keeps demands between rounds.

    Args:
        period_ms: of a round.
        brokers: those that share the quotas.
        lag_ms: how long events may be on their way.
        capacity: bytes per second of a broker's bandwidth by shares key; a key left out isn't
            divided here (gateways divide it alone).

    Attributes:
        newest_ms: time of the newest half second seen, epoch ms.
    """

    period_ms: int
    brokers: tuple[int, ...]
    lag_ms: int = LAG_MS
    capacity: Mapping[str, float] = field(default_factory=dict)
    newest_ms: int = 0
    _until_ms: int = 0
    _sights: dict[tuple[str, Tags, int], Sight] = field(default_factory=dict)
    _active_ms: dict[tuple[str, Tags], int] = field(default_factory=dict)
    _splitters: dict[str, ClusterSplitter[int]] = field(default_factory=dict)

    def round(
        self, seen: Iterable[Mapping[str, Any]], table: QuotaTable, now_ms: int, epoch: int
    ) -> list[Split]:
        """
        Return the splits of the next round; without traffic the ones before, renewed.

        Args:
            seen: SEEN rows that came since the last round.
            table: the quotas now.
            now_ms: epoch ms.
            epoch: the writer's.
        """
        until = (now_ms - self.lag_ms) // SLOT_MS * SLOT_MS
        since = self._until_ms or until - self.period_ms
        if until <= since:  # a clock that stepped back, or a round begun at once
            until = since + SLOT_MS
        self._until_ms = until
        for row in seen:
            tags = (row["quota_user"], row["quota_client_id"])
            self._sights.setdefault((row["quota_type"], tags, row["broker_id"]), Sight()).take(row)
            self._active_ms[row["quota_type"], tags] = now_ms
            self.newest_ms = max(self.newest_ms, row["slot_ms"])
        self._forget(now_ms)
        observed: dict[str, dict[int, dict[Tags, Observation]]] = {name: {} for name in KEYS}
        for (name, tags, broker), sight in self._sights.items():
            shown = sight.show(since, until)
            if shown is not None:
                observed[name].setdefault(broker, {})[tags] = shown
        valid = PERIODS_VALID * self.period_ms
        out: list[Split] = []
        for name in BPS:
            quotas = self._limits(name, table)
            splitter = self._splitters.setdefault(name, ClusterSplitter(self.period_ms))
            splits = splitter.round(quotas, self.brokers, observed[name])
            for tags, of_broker in splits.items():
                quota = quotas[tags] or None
                out += [
                    Split(*tags, name, broker, split, epoch, now_ms, valid, quota)
                    for broker, split in of_broker.items()
                ]
        for name, capacity in self.capacity.items():
            weights = self._limits(name, table)
            # Each broker's contested capacity is divided by weight; what isn't contested is free.
            for broker in self.brokers:
                allocation = allocate(capacity, observed[name].get(broker, {}), weights)
                out += [
                    Split(*tags, name, broker, allocation.get(tags, inf), epoch, now_ms, valid)
                    for tags in weights
                ]
        return out

    def _limits(self, name: str, table: QuotaTable) -> dict[Tags, float]:
        """Return the limits of a quota key for the quota-ids seen lately."""
        limits = table.for_key(KEYS[name])
        found: dict[Tags, float] = {}
        for of_key, tags in self._active_ms:
            source = select_limit(limits, *tags) if of_key == name else None
            if source is not None:
                found[tags] = limits[source]
        return found

    def _forget(self, now_ms: int) -> None:
        for at in [at for at, last in self._active_ms.items() if now_ms - last > IDLE_MS]:
            del self._active_ms[at]
            for broker in {b for name, tags, b in self._sights if (name, tags) == at}:
                del self._sights[*at, broker]
