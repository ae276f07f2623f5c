"""
Say what throttled clients want, and how they'd fare under other quotas in a closed loop.

Charges are grouped by plan, quota-id and broker and ordered by Spark. A worker then reads one group
after the other: it infers and plays each with ``headgate.demand``. Of a group it keeps the latest
charges only, so its memory has a bound whatever the data.

The console does the same to the last hour of a journal, in its own process: what workers do is
imported without Spark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headgate.demand.forecast import QuotaIdDemand, Span, forecast, infer
from headgate.demand.rhythm import Answer, Charge, with_answers
from headgate.pipeline import schema
from headgate.pipeline.answers.advice import BYTES
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.table import make_table
from headgate.pipeline.workers.emit import EmitRequests, refuse_again
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.pipeline.workers.resolve import resolved
from headgate.quota.entity import quota_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_CHARGES: Final = 100_000
"""Charges of a quota-id that are looked at, the latest: some 60 MB, and a few seconds of work."""
_ROWS: Final = 1_000
"""Rows of a batch that is handed over."""
_READ: Final = (
    *("principal", "client_id", "record_ms", "amount", "throttle_ms", "told_ms", "connection"),
    *("answer_ms", "is_exact", "quota", "end_ms"),
)
_KEY: Final = ("quota_type", "quota_user", "quota_client_id")
_WHOSE: Final = ("plan", *_KEY, "broker_id")
CHARGED: Final = make_table(
    "charged",
    "One row per charge for bytes, and per answer to one that was throttled.",
    """
    principal string: who was charged
    client_id string: its client-id
    quota_type string: quota type; null: the row tells a broker's last request so far
    broker_id int: broker
    record_ms double: when it was charged
    file string: file it is from
    seq long: order within it
    amount double: bytes; less than 0: taken back; null: an answer
    throttle_ms long: decided by the quota
    told_ms long: told to the client, or how long its connection is muted
    answer_ms long: how long after the charge at record_ms its answer came
    connection string: its connection
    is_exact bool: its bytes are what was charged
    end_ms double: the broker's last request, whichever client's
    """,
)
_ASKED: Final = make_table(
    "asked",
    "One row per plan and charge.",
    *CHARGED.columns,
    """
    plan int: the plan's number
    quota_user string: user tag under this plan
    quota_client_id string: client-id tag under this plan
    quota double: limit under this plan; null = none
    """,
)


LOOKED_AT: Final = (
    *("principal", "client_id", "quota_type", "broker_id", "record_ms", "file", "seq", "amount"),
    *("connection", "bytes_exact", "event", "is_request", "is_charged", "throttle_time_ms"),
    *("decided_throttle_time_ms", "muted_ms", "answer_ms"),
)
"""Columns of REQUESTS that tell whether, when and how a request was charged for its bytes."""


@dataclass(frozen=True)
class TakeCharged:
    """
    Take what `demand` looks at. A ``mapInArrow`` function over REQUESTS, or the numbers of pieces.

    Args:
        read: the pieces, if rows are to be read: a log's other rows and columns don't enter the
            JVM; None: rows are given.
    """

    read: ReadOptions | None = None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield CHARGED rows; of each batch also the last request of each broker."""
        if self.read is not None:
            read = EmitRequests(self.read)(batches)
            batches = (b.filter(pc.equal(b["kind"], "request")) for b in read)
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            rows = rows.filter(pc.invert(pc.is_in(rows["event"], pa.array(schema.EVENTS))))
            last = rows.group_by("broker_id").aggregate([("record_ms", "max")])
            ends = {"broker_id": last["broker_id"], "end_ms": last["record_ms_max"]}
            yield CHARGED.batch(len(last), ends)
            taken = pc.is_in(rows["event"], pa.array(["unrecord", "told"]))
            counts = pc.or_(rows["is_request"].fill_null(True), taken)
            is_bytes = pc.is_in(rows["quota_type"], pa.array(BYTES))
            rows = rows.filter(pc.and_(pc.and_(rows["is_charged"], is_bytes), counts))
            said = rows["throttle_time_ms"]
            columns = {name: rows[name] for name in CHARGED.names if name in rows.column_names}
            columns["is_exact"] = rows["bytes_exact"].fill_null(True)
            columns["throttle_ms"] = pc.coalesce(rows["decided_throttle_time_ms"], said)
            columns["told_ms"] = pc.coalesce(rows["muted_ms"], said)
            # An answer tells what is left of a charge before, and has no amount of its own.
            answers = pc.equal(rows["event"], "told").fill_null(False)
            columns["amount"] = pc.if_else(answers, None, rows["amount"])
            yield CHARGED.batch(len(rows), columns)


@dataclass(frozen=True)
class Assign:
    """
    Give charges the quota-id and limit that each plan gives them. A ``mapInArrow`` function.

    Args:
        plans: in the order of their numbers.
        only: (type, user tag, client-id tag) of the quota-ids wanted; None: all.
    """

    plans: tuple[Quotas, ...]
    only: frozenset[tuple[str, str, str]] | None = None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield a row per plan and charge."""
        resolvers = [plan.resolver() for plan in self.plans]
        for batch in batches:
            charges = pa.Table.from_batches([batch])
            for number, resolve in enumerate(resolvers):
                asked = resolved(charges, resolve, "record_ms")
                columns = {name: asked[name] for name in _ASKED.names if name != "plan"}
                made = _ASKED.batch(len(asked), columns | {"plan": pa.repeat(number, len(asked))})
                if self.only is not None:
                    keys = zip(*(made[name].to_pylist() for name in _KEY), strict=True)
                    made = made.filter(pa.array([key in self.only for key in keys], pa.bool_()))
                yield made


class _Seen(NamedTuple):
    """A charge of a group, or the answer to one: then the charge has no amount."""

    whose: tuple[Any, ...]
    charge: Charge
    answer_ms: int | None
    is_exact: bool
    quota: float | None
    end_ms: float


def _read(batches: Iterable[Any]) -> Iterator[_Seen]:
    """Yield the charges of batches; names that repeat are one object."""
    names: dict[str, str] = {}
    for batch in batches:
        if len(names) > MOST_CHARGES:
            names.clear()
        columns = [batch[name].to_pylist() for name in _READ]
        whose = zip(*(batch[name].to_pylist() for name in _WHOSE), strict=True)
        for who, principal, client_id, t_ms, amount, throttle, told, connection, *rest in zip(
            whose, *columns, strict=True
        ):
            decided, client = throttle or 0, f"{principal or ''}\0{client_id or ''}"
            name = names.setdefault(connection or client, connection or client)
            owner = names.setdefault(client, client)
            charge = Charge(t_ms, amount, decided, max(told or 0, decided), name, owner)
            yield _Seen(who, charge, *rest)


class Inferred(NamedTuple):
    """
    What the clients of one quota-id on one broker want.

    Attributes:
        plan: the plan's number.
        quota_type: of the quota.
        user, client_id: the quota-id's tags under the plan.
        broker_id: of the broker.
        quota: the limit under the plan; None: none.
        first_ms, last_ms: its first and last charge, epoch ms.
        demand: what they want.
    """

    plan: int
    quota_type: str
    user: str
    client_id: str
    broker_id: int
    quota: float | None
    first_ms: float
    last_ms: float
    demand: QuotaIdDemand

    @property
    def gated(self) -> bool:
        """Whether they fetch."""
        return self.quota_type == "consumer_byte_rate"


def inferred(batches: Iterable[Any]) -> Iterator[Inferred]:
    """Infer one group after the other from ordered rows of ``Assign``."""
    before: set[Any] = set()
    for whose, group in groupby(_read(batches), key=lambda seen: seen.whose):
        refuse_again(whose, before)
        found = _inferred(whose, group)
        if found is not None:
            yield found


def _inferred(whose: tuple[Any, ...], group: Iterable[_Seen]) -> Inferred | None:
    """Return what a group wants; None: nothing was charged."""
    kept = list(deque(group, MOST_CHARGES))
    answers = [
        Answer(seen.charge.t_ms, seen.charge.connection, after_ms)
        for seen in kept
        if (after_ms := seen.answer_ms) is not None
    ]
    kept = [seen for seen in kept if seen.charge.amount is not None]
    charges = with_answers((s.charge for s in kept if s.charge.amount >= 0), answers)
    if not charges:
        return None
    plan, quota_type, user, client_id, broker = whose
    gated = quota_type == "consumer_byte_rate"
    withheld = gated and any(seen.charge.amount < 0 or not seen.is_exact for seen in kept)
    last = kept[-1]
    wants = infer(charges, last.end_ms, gated=gated, withheld=withheld)
    first_ms, last_ms = charges[0].t_ms, charges[-1].t_ms
    return Inferred(plan, quota_type, user, client_id, broker, last.quota, first_ms, last_ms, wants)


@dataclass(frozen=True)
class Foretell:
    """
    Infer and play one group after the other. A ``mapInArrow`` function over ordered groups.

    Args:
        names: of the plans.
        num_samples: quota.window.num.
        window_ms: quota.window.size.seconds x 1000.
    """

    names: tuple[str, ...]
    num_samples: int
    window_ms: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield DEMAND rows."""
        rows = map(self._row, inferred(batches))
        while made := list(islice(rows, _ROWS)):
            yield from schema.DEMAND.from_rows(made).to_batches()

    def _row(self, of: Inferred) -> dict[str, Any]:
        windows = {"num_samples": self.num_samples, "window_ms": self.window_ms}
        demand = of.demand
        said = forecast(demand, of.quota, gated=of.gated, **windows)
        row: dict[str, Any] = {
            "plan": self.names[of.plan],
            "quota_type": of.quota_type,
            "quota_id": quota_id(of.user, of.client_id),
            "quota_user": of.user,
            "quota_client_id": of.client_id,
            "broker_id": of.broker_id,
            "quota": of.quota,
            "connections": len(demand.clients),
            "kind": demand.kind,
            "first_ms": int(of.first_ms),
            "span_s": demand.end_ms / 1000.0,
            "seen_per_s": demand.seen,
            "seen_throttle_time_ms": round(demand.throttle_ms),
            "reason": said.reason or demand.reason or None,
        }
        row |= _columns("wanted", "_per_s", demand.wanted, 1.0)
        row |= _columns("rate", "_per_s", said.rate, 1.0)
        row |= _columns("throttle", "_s", said.throttle_ms, 1000.0)
        row |= _columns("finish", "_s", said.finish_ms or Span(None, inf, inf), 1000.0)
        return row


def _columns(name: str, unit: str, span: Span, divisor: float) -> dict[str, float | None]:
    """Return a span as three columns; null where nothing bounds it."""
    values = {"": span.figure, "_least": span.least, "_most": span.most}
    return {
        f"{name}{which}{unit}": None if value is None or value == inf else value / divisor
        for which, value in values.items()
    }


def demand(
    plans: Sequence[Quotas],
    *,
    num_samples: int = 11,
    window_ms: int = 1000,
    only: Iterable[tuple[str, str, str]] | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """
    Say what clients want, and how they'd fare: REQUESTS, or CHARGED -> DEMAND.

    The observation ends with a broker's last request, whichever client's.

    Args:
        plans: named quotas.
        num_samples: quota.window.num.
        window_ms: quota.window.size.seconds x 1000.
        only: (type, user tag, client-id tag) of the quota-ids wanted; None: all.
    """
    from headgate.pipeline.frames import sorted_by_key

    assign = Assign(tuple(plans), None if only is None else frozenset(only))

    def transform(requests: DataFrame) -> DataFrame:
        asked = charged(requests).mapInArrow(assign, _ASKED.struct)
        ordered = sorted_by_key(asked, _WHOSE, ("record_ms", "file", "seq"))
        names = tuple(plan.name for plan in plans)
        return ordered.mapInArrow(Foretell(names, num_samples, window_ms), schema.DEMAND.struct)

    return transform


def in_groups(asked: Any) -> Iterator[Any]:
    """Return rows of ``Assign``, an Arrow table, as ordered batches for ``inferred``."""
    order = [(name, "ascending") for name in (*_WHOSE, "record_ms", "file", "seq")]
    return iter(asked.sort_by(order).to_batches())


def charged(requests: DataFrame) -> DataFrame:
    """Return what `demand` looks at of a frame of requests: REQUESTS, or CHARGED -> CHARGED."""
    if requests.columns == list(CHARGED.names):
        return requests
    return _ended(requests.select(*LOOKED_AT).mapInArrow(TakeCharged(), CHARGED.struct))


def charged_of(spark: SparkSession, options: ReadOptions) -> DataFrame:
    """Return the CHARGED rows of logs and journals, for `demand`."""
    from headgate.pipeline.frames import spread

    return _ended(spread(spark, options.pieces).mapInArrow(TakeCharged(options), CHARGED.struct))


def _ended(taken: DataFrame) -> DataFrame:
    """Give charges the time of their broker's last request: CHARGED, as it was taken -> CHARGED."""
    from pyspark.sql import functions as F

    ends = taken.groupBy(F.col("broker_id").alias("of")).agg(F.max("end_ms").alias("last_ms"))
    of_broker = F.col("broker_id").eqNullSafe(F.col("of"))
    charges = taken.where("quota_type is not null").join(F.broadcast(ends), of_broker)
    return CHARGED.select(charges.withColumn("end_ms", F.col("last_ms")))
