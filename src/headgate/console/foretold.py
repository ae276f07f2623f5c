"""
How quota-ids would go under other quotas, in a closed loop: a client that waits sends later.

The demand is that of `headgate what-if --closed-loop` (``headgate.demand``), inferred from the last
hour of a journal. What can't be known is an interval, with its reason.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.demand.forecast import MARGINS, Forecast, Span, forecast
from headgate.pipeline.answers.advice import BYTES, Advice, round_up
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.plan import Plan
from headgate.quota.precedence import resolve
from headgate.words import amount, duration

if TYPE_CHECKING:
    from headgate.pipeline.answers.demand import Inferred

MOST_FORETOLD: Final = 8
"""Quota-ids that are played, the busiest first."""
MOST_CHARGES: Final = 40_000
"""Charges that they have in all; of one with more its latest. A play takes a second or two."""
LEAST_MS: Final = 1000.0 * Advice().min_history_s
"""From the first charge to the last; of less nothing is said, as `headgate recommend` does."""
_TRIED: Final = (1.0, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0)
"""What is tried as enough, by what is wanted on average: who sends in bursts needs more."""

_NEAR: Final = 1.5
"""What is wanted may be this many times the least of it, for the most to be proposed."""


class Between(NamedTuple):
    """A figure, None where it can't be known, and between which it lies; most None: no bound."""

    figure: float | None
    least: float
    most: float | None

    @classmethod
    def of(cls, span: Span) -> Between:
        """Return a span with None in place of what is infinite, which JSON doesn't have."""
        figure = None if span.figure == inf else span.figure
        return cls(figure, span.least, None if span.most == inf else span.most)


class Foretold(NamedTuple):
    """
    How a quota-id would go at one broker.

    Args:
        key: of the quota, as ``QuotaKey.name`` spells it.
        user, client_id: its tags under the changed quotas.
        broker_id: of the broker.
        limit: that it would have; None: none.
        span_ms: from its first charge to the last one.
        is_changed: a client of it gets another limit or quota-id; False: it is only touched.
        rate_per_s: at which it would go, in bytes; None: the journal holds too little of it.
        throttle_ms: that its requests would be told, in all of the time; None likewise.
        reason: why there is no figure; "" where there is one.
    """

    key: str
    user: str
    client_id: str
    broker_id: int
    limit: float | None
    span_ms: float
    is_changed: bool
    rate_per_s: Between | None
    throttle_ms: Between | None
    reason: str = ""

    @property
    def never_waits(self) -> bool:
        """Whether no request would be told to wait."""
        told = self.throttle_ms
        return told is not None and told.figure == 0 and _least_margin(told.most)

    @property
    def sentence(self) -> str:
        """How it would go, without its name."""
        if self.rate_per_s is None or self.throttle_ms is None:
            return f"can't be foretold: {self.reason}"
        went = f"would go at {_rate(self.rate_per_s)}"
        waits = "never wait" if self.never_waits else f"wait for {_time(self.throttle_ms)}"
        if not self.never_waits:
            waits += f" in {duration(self.span_ms)}"
        why = f"; it isn't known better, because {self.reason}" if self.reason else ""
        return f"{went} and {waits}{why}"


def _least_margin(most: float | None) -> bool:
    return most is not None and most <= MARGINS["throttle"][1]


def _rate(found: Between) -> str:
    least = amount(found.least, "B/s")
    if found.most is None:
        return f"{least} or more"
    between = f"{least} to {amount(found.most, 'B/s')}"
    if found.figure is None:
        return between
    figure = amount(found.figure, "B/s")
    return f"{figure} ({between})"


def _time(found: Between) -> str:
    least = duration(round(found.least))
    if found.most is None:
        return f"{least} or more"
    between = f"{least} to {duration(round(found.most))}"
    return between if found.figure is None else f"{duration(round(found.figure))} ({between})"


class _Asked:
    """
    Charges as a plan's changed quotas count them.

    Args:
        requests: charges, and answers to throttled ones: EMITTED_REQUESTS.
        ends: of each broker, when the observation ended, epoch ms.
        plan: the present and the changed quotas.
    """

    def __init__(self, requests: Any, ends: Mapping[int, float], plan: Plan) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        from headgate.pipeline.answers.demand import CHARGED, Assign, TakeCharged
        from headgate.pipeline.quotas import Quotas

        taken = list(TakeCharged()(iter(requests.to_batches())))
        charged = pa.Table.from_batches(taken, schema=CHARGED.arrow)
        charged = charged.filter(pc.is_valid(charged["quota_type"]))
        at = charged.column_names.index("end_ms")
        place = pc.index_in(charged["broker_id"], pa.array(list(ends), pa.int32()))
        until = pa.array(list(ends.values()), pa.float64()).take(place)
        charged = charged.set_column(at, CHARGED.arrow.field(at), until)
        sides = [Quotas.of(table) for table in (plan.current, plan.desired)]
        self._before, self._after = (side.resolver() for side in sides)
        batches = list(Assign((sides[1],))(iter(charged.to_batches())))
        self._table = pa.Table.from_batches(batches) if batches else None
        self._windows = _windows_of(requests)
        self._cut: set[_Group] = set()

    def groups(self, only: Collection[str]) -> Counter[_Group]:
        """Return the bytes that each quota-id of some quota types was charged at each broker."""
        if self._table is None:
            return Counter()
        names = [*_ID, "broker_id"]
        summed = self._table.group_by(names).aggregate([("amount", "sum")]).to_pylist()
        rows = {tuple(row[name] for name in names): row["amount_sum"] or 0 for row in summed}
        return Counter({group: size for group, size in rows.items() if group[0] in only})

    def clients(self) -> Iterator[tuple[_Id, str, str]]:
        """Yield each client with the quota-id that it is charged to."""
        if self._table is None:
            return
        names = [*_ID, "principal", "client_id"]
        for row in self._table.group_by(names).aggregate([]).to_pylist():
            *whose, user, client_id = (row[name] or "" for name in names)
            yield (whose[0], whose[1], whose[2]), user, client_id

    def changed(self) -> set[_Id]:
        """Return the quota-ids of which a client gets another limit or quota-id."""
        return {
            whose
            for whose, user, client_id in self.clients()
            if self._before.sensor(user, client_id, whose[0], 0.0)
            != self._after.sensor(user, client_id, whose[0], 0.0)
        }

    def inferred(self, chosen: Collection[_Group]) -> Iterator[Inferred]:
        """Yield what the clients of some groups want, by their latest charges."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from headgate.pipeline.answers.demand import in_groups, inferred

        assert self._table is not None
        most = MOST_CHARGES // len(chosen)
        for group in chosen:
            mine = self._table
            for name, value in zip((*_ID, "broker_id"), group, strict=True):
                mine = mine.filter(pc.equal(mine[name], value))
            ordered = pa.Table.from_batches(in_groups(mine))
            if len(ordered) > most:
                self._cut.add(group)
            yield from inferred(ordered.slice(max(len(ordered) - most, 0)).to_batches())

    def too_little(self, of: Inferred) -> str:
        """Return why nothing is said of a group; "" if there is enough of it."""
        span_ms = of.last_ms - of.first_ms
        if span_ms >= LEAST_MS:
            return ""
        if (of.quota_type, of.user, of.client_id, of.broker_id) in self._cut:
            return f"only its latest charges are looked at, those of {duration(round(span_ms))}"
        return f"the journal holds {duration(round(span_ms))} of it, too little"

    def under(self, of: Inferred, limit: float | None) -> Forecast:
        """Play a group under a limit."""
        return forecast(of.demand, limit, gated=of.gated, **self._windows)


_Id = tuple[str, str, str]
_Group = tuple[str, str, str, int]
"""Quota type and tags of a quota-id; and a broker."""
_ID: Final = ("quota_type", "quota_user", "quota_client_id")


def _windows_of(requests: Any) -> dict[str, int]:
    """Return the windows that the gateway measured over; Kafka's defaults where none is told."""
    import pyarrow as pa
    import pyarrow.compute as pc

    recorded = pa.Table.from_struct_array(requests["recorded"])
    found = {"num_samples": 11, "window_ms": 1000}
    for name in found:
        most = pc.max(recorded[name]).as_py()
        found[name] = most or found[name]
    return found


def foretell(
    requests: Any,
    ends: Mapping[int, float],
    plan: Plan,
    keys: Collection[QuotaKey],
    *,
    partial: bool = False,
) -> tuple[tuple[Foretold, ...], int]:
    """
    Say how quota-ids would go under the changed quotas of a plan.

    Args:
        requests: charges of those that the plan concerns, and answers: EMITTED_REQUESTS.
        ends: of each broker, when the observation ended, epoch ms.
        plan: the present and the changed quotas.
        keys: those that it changes.
        partial: some clients' charges are left out; quota-ids that have them as well aren't played.

    Returns:
        The busiest ones, those with another limit first, and how many more there are.
    """
    wanted = {key.name for key in keys} & set(BYTES)
    if not wanted or not requests.num_rows:
        return (), 0
    asked = _Asked(requests, ends, plan)
    groups = asked.groups(wanted)
    known = Counter({group: size for group, size in groups.items() if group[1] or not partial})
    chosen = [group for group, _ in known.most_common(MOST_FORETOLD)]
    if not chosen:
        return (), len(groups)
    changed = asked.changed()
    found = [
        _foretold(asked, of, of.quota, (of.quota_type, of.user, of.client_id) in changed)
        for of in asked.inferred(chosen)
    ]
    found.sort(key=lambda row: (not row.is_changed, row.key, row.user, row.client_id))
    return tuple(found), len(groups) - len(chosen)


def _foretold(
    asked: _Asked, of: Inferred, limit: float | None, is_changed: bool = True
) -> Foretold:
    span_ms = of.last_ms - of.first_ms
    row = Foretold(
        of.quota_type, of.user, of.client_id, of.broker_id, limit, span_ms, is_changed, None, None
    )
    too_little = asked.too_little(of)
    if too_little:
        return row._replace(reason=too_little)
    said = asked.under(of, limit)
    return row._replace(
        rate_per_s=Between.of(said.rate), throttle_ms=Between.of(said.throttle_ms),
        reason=said.reason,
    )  # fmt: skip


class Enough(NamedTuple):
    """
    The value under which nobody would wait.

    Args:
        key: of the quota.
        value: bytes per second; None: it can't be known.
        reason: why it isn't known, or not for sure; "" where it is.
        rows: how the quota-ids of the entity would go under it; bounded.
        more: how many more of them there are.
        since_ms: from when on requests were looked at, if not all of the last hour; 0: all were.
    """

    key: QuotaKey
    value: float | None
    reason: str = ""
    rows: tuple[Foretold, ...] = ()
    more: int = 0
    since_ms: int = 0


def enough(
    requests: Any, ends: Mapping[int, float], plan: Plan, entity: QuotaEntity, key: QuotaKey
) -> Enough:
    """
    Say which value of a quota would be enough for those that it counts.

    Args:
        requests: as for ``foretell``.
        ends: likewise.
        plan: sets the quota to some value, which shows the clients that it counts.
        entity: whose quota.
        key: of the quota.
    """
    if key.name not in BYTES:
        return Enough(key, None, f"what {key.name} needs isn't inferred, only rates of bytes are")
    none = Enough(key, None, "no request that it would count is in the journal's last hour")
    if not requests.num_rows:
        return none
    asked = _Asked(requests, ends, plan)
    counted = {
        whose
        for whose, user, client_id in asked.clients()
        if whose[0] == key.name and resolve(plan.desired, user, client_id, key).source == entity
    }
    groups = asked.groups({key.name})
    groups = Counter({group: n for group, n in groups.items() if group[:3] in counted})
    chosen = [group for group, _ in groups.most_common(MOST_FORETOLD)]
    if not chosen:
        return none
    wants = list(asked.inferred(chosen))
    if not wants:
        return none
    value, reasons = 0.0, list[str]()
    for of in wants:
        least, reason = _enough_for(asked, of)
        if least is None:
            return Enough(key, None, reason)
        value = max(value, least)
        reasons += [reason] if reason else []
    rows = tuple(_foretold(asked, of, value) for of in wants)
    return Enough(key, value, "; ".join(dict.fromkeys(reasons)), rows, len(groups) - len(chosen))


def _enough_for(asked: _Asked, of: Inferred) -> tuple[float | None, str]:
    """Return the least value tried under which a group never waits, and what isn't known."""
    wanted, too_little = of.demand.wanted, asked.too_little(of)
    if too_little:
        return None, too_little
    usual = wanted.most if wanted.figure is None else wanted.figure
    if wanted.figure is None and usual > _NEAR * wanted.least:
        bounds = _rate(Between.of(wanted))
        return None, f"they want {bounds}, not known better, because {of.demand.reason}"

    def is_enough(times: float) -> bool:
        told = asked.under(of, round_up(usual * times)).throttle_ms
        return told.most <= MARGINS["throttle"][1]

    at = bisect_left(_TRIED, True, key=is_enough)
    if at < len(_TRIED):
        known = wanted.figure is not None
        return round_up(usual * _TRIED[at]), "" if known else of.demand.reason
    value = round_up(usual * _TRIED[-1])
    return None, f"it sends in bursts, for which {amount(value, 'B/s')} would be too little"
