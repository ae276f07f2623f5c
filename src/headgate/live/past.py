"""
Make a picture of a past moment from the events of usage journals.

Rates are summed from the charges themselves, over the windows that each event names. A connection
waited as long as it was told to. It was open if it was charged within a minute before.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from headgate.live.effective import effective_of
from headgate.live.picture import (
    MOST_ADDRESSES,
    MOST_CLIENTS,
    PAUSE_MS,
    BrokerPicture,
    ClientUse,
    Picture,
    QuotaChange,
    QuotaUse,
    WaitTold,
)
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, entity_from_path
from headgate.quota.key import CONSUMER, QuotaKey
from headgate.quota.precedence import resolve, select_limit
from headgate.quota.table import QuotaTable
from headgate.throttle.sensor import SampledRate

LOOK_BACK_MS: Final = 3_600_000
"""Events older than this don't count: a gateway forgets the sensors of idle clients, too."""
SEEN_MS: Final = 60_000
"""A connection that was charged at most this long before counts as open."""
MOST_CHANGES: Final = 1_000
"""Changes of quotas that are remembered, the latest."""
_COLUMNS: Final = (
    "kind", "t_ms", "broker_id", "quota_type", "quota_user", "quota_client_id", "amount", "bound",
    "principal", "client_id", "client_ip", "connection", "throttle_time_ms",
    "told_throttle_time_ms", "upstream_throttle_time_ms", "num_samples", "window_ms", "rule",
)  # fmt: skip
_CHARGES: Final = ("record", "unrecord", "strict", "told", "held")
_Pair = tuple[str, str]


class _Connection:
    """What a connection did under one quota-id."""

    __slots__ = ("address", "held_from_ms", "held_until_ms", "last_ms", "told")

    def __init__(self, address: str) -> None:
        self.address = address
        self.told: WaitTold | None = None
        self.last_ms = self.held_from_ms = self.held_until_ms = 0


class _Bucket:
    """A quota-id of a broker, as its events tell."""

    def __init__(self, row: dict[str, Any]) -> None:
        sampled = row["rule"] == "sampled"
        samples, window_ms = (row["num_samples"], row["window_ms"]) if sampled else (11, 1_000)
        self.rate = SampledRate(samples or 11, window_ms or 1_000)
        self.bound = math.inf
        self.throttled = self.throttled_ms = self.since_ms = self.until_ms = 0
        self.clients: dict[_Pair, dict[str, _Connection]] = {}
        self.told: WaitTold | None = None
        self._is_sampled = sampled

    def take(self, row: dict[str, Any]) -> None:
        """Count an event."""
        kind, t_ms, amount = row["kind"], int(row["t_ms"]), row["amount"]
        waits, told = row["throttle_time_ms"] or 0, row["told_throttle_time_ms"] or 0
        links = self.clients.setdefault((row["principal"], row["client_id"]), {})
        link = links.get(row["connection"])
        if link is None:
            link = links[row["connection"]] = _Connection(row["client_ip"])
        link.last_ms = t_ms
        if kind == "held":
            link.held_from_ms, link.held_until_ms = t_ms - int(amount), t_ms
            last = self.told if self.told and self.told.at_ms <= link.held_from_ms else None
            link.told = last and replace(last, told_to="gate")
            return
        if row["bound"] is not None:
            self.bound = row["bound"]
        if kind == "record" or (kind == "strict" and waits <= 0):
            self.rate.record(amount, t_ms)
        elif kind == "unrecord":
            self.rate.record(-amount, t_ms)
        if waits <= 0 or (kind != "told" and told != waits):  # another quota decided
            return
        # What is told is waited for since the charge, mostly.
        if kind != "told" or t_ms + waits > link.held_until_ms:
            link.held_from_ms, link.held_until_ms = t_ms, t_ms + waits
            link.told = self.told = self._why(waits, t_ms)
            if t_ms - self.until_ms > PAUSE_MS:
                self.since_ms = t_ms
            self.until_ms = max(self.until_ms, t_ms + waits)
        if kind == "told" or row["upstream_throttle_time_ms"] is not None:
            self.throttled += 1
            self.throttled_ms += waits

    def _why(self, throttle_ms: int, t_ms: int) -> WaitTold:
        """Return what a wait was told for: the rate by the charges, at least by the wait."""
        bound = self.bound if self.bound < math.inf else None
        if bound is None:
            return WaitTold(t_ms)
        if not self._is_sampled:
            return WaitTold(t_ms, bound, bound, owed=bound * throttle_ms / 1000)
        # The journal may begin after what is still in the window.
        most_ms = self.rate.num_samples * self.rate.window_ms
        least = bound * (1 + throttle_ms / most_ms)
        return WaitTold(t_ms, bound, bound, rate=max(self.rate.peek(t_ms)[0], least))


class Past:
    """
    The picture of one moment, built from events.

    Args:
        at_ms: the moment, epoch ms.
        user: the principal asked about, raw.
        client_id: its client-id; None: any.

    Attributes:
        first_ms, last_ms: of the events taken, epoch ms; None before the first.
    """

    def __init__(self, at_ms: int, user: str, client_id: str | None) -> None:
        self.at_ms = at_ms
        self._user = user
        self._client_id = client_id
        self._buckets: dict[tuple[int, str, str, str], _Bucket] = {}
        # By worker and broker: when the gateway began, and its quotas since.
        self._quotas: dict[tuple[str, int], tuple[float, QuotaTable]] = {}
        # Of the quotas that may be the principal's: the values, and the latest changes.
        self._values: dict[tuple[str, str], float | None] = {}
        self._changed: deque[QuotaChange] = deque(maxlen=MOST_CHANGES)
        self.first_ms: float | None = None
        self.last_ms: float | None = None

    def take(self, batch: pa.RecordBatch) -> None:
        """
        Take a worker's events, in their order.

        Events after the moment count only if they are about a wait that had begun by then.
        """
        if not batch.num_rows:
            return
        times = batch.column("t_ms")
        first_ms, last_ms = pc.min(times).as_py(), pc.max(times).as_py()
        self.first_ms = first_ms if self.first_ms is None else min(self.first_ms, first_ms)
        self.last_ms = last_ms if self.last_ms is None else max(self.last_ms, last_ms)
        kinds = batch.column("kind").cast(pa.string())
        before = pc.less_equal(times, self.at_ms)
        changes = pc.and_(before, pc.is_in(kinds, pa.array(["start", "quota"])))
        if changes.true_count:
            self._changes(batch.filter(changes))
        fresh = pc.greater(times, self.at_ms - LOOK_BACK_MS)
        wanted = pc.and_(pc.and_(before, fresh), pc.is_in(kinds, pa.array(_CHARGES)))
        # A wait's event is written when the wait is over; its amount is its length.
        began = pc.subtract(times, batch.column("amount"))
        waited = pc.and_(pc.equal(kinds, "held"), pc.less_equal(began, self.at_ms))
        wanted = pc.or_(wanted, pc.and_(pc.fill_null(waited, False), fresh))
        # Other users' quota-ids aren't needed; a shared quota-id has no user.
        own = pc.is_in(batch.column("quota_user"), pa.array([self._user, ""]))
        for row in batch.select(_COLUMNS).filter(pc.and_(wanted, own)).to_pylist():
            self._charge(row)

    def _changes(self, batch: pa.RecordBatch) -> None:
        columns = ("kind", "t_ms", "worker_id", "broker_id", "quota_type", "entity", "value")
        ops: dict[tuple[str, int], list[QuotaAlteration]] = defaultdict(list)
        for row in batch.select(columns).to_pylist():
            whose = (row["worker_id"], row["broker_id"])
            if row["kind"] == "start":
                self._quotas[whose] = (row["t_ms"], QuotaTable())
                ops.pop(whose, None)
                continue
            value = None if math.isnan(row["value"]) else row["value"]
            op = Op(QuotaKey.parse(row["quota_type"]), value)
            entity = entity_from_path(row["entity"])
            ops[whose].append(QuotaAlteration(entity, (op,)))
            if entity.user in (self._user, DEFAULT, None):
                self._note(op.key.name, entity.path, value, int(row["t_ms"]))
        for whose, alterations in ops.items():
            began_ms, table = self._quotas.get(whose, (-math.inf, QuotaTable()))
            self._quotas[whose] = (began_ms, table.apply(alterations)[0])

    def _note(self, key: str, entity: str, value: float | None, t_ms: int) -> None:
        """Note a quota's value; every broker writes its changes down, the first one counts."""
        before = self._values.get((key, entity))
        if value == before:
            return
        self._values[key, entity] = value
        self._changed.append(QuotaChange(key, entity, t_ms, before, value))

    def _charge(self, row: dict[str, Any]) -> None:
        tags = (row["quota_user"], row["quota_client_id"])
        if row["kind"] == "held":  # it names no quota-id: the client's fetch quotas
            pair = (row["principal"], row["client_id"])
            for (broker, name, *_), bucket in self._buckets.items():
                fetches = QuotaKey.parse(name).type == CONSUMER.type
                if broker == row["broker_id"] and fetches and pair in bucket.clients:
                    bucket.take(row)
            return
        at = (row["broker_id"], row["quota_type"], *tags)
        if at not in self._buckets:
            self._buckets[at] = _Bucket(row)
        self._buckets[at].take(row)

    def picture(self, table: QuotaTable | None = None) -> Picture:
        """
        Return the picture of the moment.

        Args:
            table: the quotas at that moment; None: those in the events.
        """
        note = ""
        if table is None:
            began_ms, table = max(
                self._quotas.values(), key=lambda told: told[0], default=(-math.inf, QuotaTable())
            )
            if began_ms == -math.inf:
                note = (
                    "The journal doesn't go back to the start of its gateway, so quotas that were "
                    "set before aren't known: give --quotas or --store."
                )
        uses: dict[int, list[QuotaUse]] = defaultdict(list)
        for (broker, key, *tags), bucket in self._buckets.items():
            if any(self._asked(pair) for pair in bucket.clients):
                uses[broker].append(self._use(QuotaKey.parse(key), tags[0], tags[1], bucket, table))
        brokers = (BrokerPicture(broker, quotas=tuple(uses[broker])) for broker in sorted(uses))
        return Picture(
            self.at_ms,
            "events",
            tuple(brokers),
            self._user,
            self._client_id,
            effective=effective_of(table, self._user, self._client_id),
            note=note,
            changes=tuple(self._changed),
        )

    def _asked(self, pair: _Pair) -> bool:
        return pair[0] == self._user and self._client_id in (None, pair[1])

    def _quota_now(
        self, key: QuotaKey, tags: _Pair, bucket: _Bucket, table: QuotaTable
    ) -> tuple[float | None, float | None]:
        """Return a quota-id's quota and the broker's part, by its last charge or later changes."""
        bound = bucket.bound if bucket.bound < math.inf else None
        if key.is_divided:
            return resolve(table, self._user, self._client_id or tags[1], key).value, bound
        last_ms = max(link.last_ms for links in bucket.clients.values() for link in links.values())
        ended = any(
            change.key == key.name and change.at_ms >= last_ms and change.before == bound
            for change in self._changed
        )
        if not ended:
            return bound, None
        quotas = table.for_key(key)
        source = select_limit(quotas, *tags)
        return (None if source is None else quotas[source]), None

    def _use(
        self, key: QuotaKey, user: str, client_id: str, bucket: _Bucket, table: QuotaTable
    ) -> QuotaUse:
        at_ms = self.at_ms
        clients = []
        quota, split = self._quota_now(key, (user, client_id), bucket, table)
        for pair, links in bucket.clients.items():
            open_ = [link for link in links.values() if at_ms - link.last_ms <= SEEN_MS]
            held = [x for x in links.values() if x.held_from_ms <= at_ms < x.held_until_ms]
            if open_ or held:
                last = max(held, key=lambda link: link.held_until_ms, default=None)
                told = None if last is None else last.told
                if told is not None and key.is_divided:  # journals hold the broker's part only
                    told = replace(told, quota=quota)
                addresses = Counter(link.address for link in open_)
                clients.append(
                    ClientUse(
                        *pair,
                        len(open_),
                        len(held),
                        0 if last is None else last.held_until_ms,
                        tuple(addresses.most_common(MOST_ADDRESSES)),
                        told=told,
                    )
                )
        clients.sort(key=lambda client: (client.held, client.connections), reverse=True)
        rate, window_ms = bucket.rate.peek(at_ms)
        throttled = at_ms - bucket.until_ms <= PAUSE_MS
        return QuotaUse(
            key.name,
            user=user,
            client_id=client_id,
            quota=quota,
            rate=rate,
            split=split,
            held=sum(client.held for client in clients),
            held_until_ms=max((client.held_until_ms for client in clients), default=0),
            held_since_ms=bucket.since_ms if throttled else 0,
            throttled=bucket.throttled,
            throttled_ms=bucket.throttled_ms,
            window_ms=window_ms,
            clients=tuple(clients[:MOST_CLIENTS]),
            other_clients=max(len(clients) - MOST_CLIENTS, 0),
        )
