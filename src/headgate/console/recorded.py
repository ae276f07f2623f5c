"""
What was used, by a gateway's usage journals: a principal's last hours, everybody's last month.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.console.readings import Readings
from headgate.console.recent import Point, fullness
from headgate.quota.key import MUTATION

if TYPE_CHECKING:
    from headgate.usage.sums import JournalSums, PeriodUse

PERIOD_MS: Final = 3 * 3_600_000
STEP_MS: Final = 30_000
"""The time between points; a step without use has no point."""
LATE_MS: Final = 5_000
"""Events are in the journal by then; a gateway writes them each second."""
MOST_EVENTS: Final = 5_000_000
"""A reading that has looked at this many begins no further file. A million take 0.4 s."""
MOST_S: Final = 5.0
"""A reading that has taken this long begins no further file."""
MOST_IDS: Final = 24
"""Quota-ids of one reading, those with the most requests: twice what a page draws."""

Id = tuple[str, str, str]
"""Key, user tag, client-id tag."""


class PrincipalUse(NamedTuple):
    """
    A principal's use by the journals.

    Args:
        since_ms: from when on events were read, epoch ms.
        is_whole: whether that is the whole period.
        points: of each quota-id, oldest first: at the broker that had the least room.
        own: of quota-ids that others may share, the principal's own part.
        problem: why nothing was read; "": it was.
    """

    since_ms: int
    is_whole: bool
    points: dict[Id, list[Point]]
    own: dict[Id, list[Point]]
    problem: str = ""


class Journals:
    """
    Readings of a gateway's journals.

    Args:
        journal: the directory.
        clock_ms: the wall clock, epoch ms.
    """

    def __init__(self, journal: Path, clock_ms: Callable[[], int]) -> None:
        self._journal = journal
        self._clock_ms = clock_ms
        self._readings = Readings()
        self._sums: JournalSums | None = None

    def of(self, user: str, client_id: str | None, shared: Collection[str]) -> PrincipalUse | None:
        """
        Return the last reading about a principal; if it is old, start another.

        Args:
            user: the principal, raw.
            client_id: only quota-ids of this client-id and of all; None: any.
            shared: client-ids whose quota-ids have no user and are wanted, too.

        Returns:
            The last reading; None: there is none yet.
        """
        return self._readings.of((user, client_id), self._of(user, client_id, frozenset(shared)))

    async def soon(
        self, user: str, client_id: str | None, shared: Collection[str]
    ) -> PrincipalUse | None:
        """Return the same as ``of``, but wait a moment for a first reading."""
        reading = self._of(user, client_id, frozenset(shared))
        return await self._readings.soon((user, client_id), reading)

    async def used_in(self, period_ms: int) -> PeriodUse | str | None:
        """
        Return what everybody used in the last minutes, hours or days.

        Args:
            period_ms: how long, up to now.

        Returns:
            The last reading, however much of the period it is of; why the journal can't be read;
            None: there is no reading yet.
        """
        return await self._readings.soon(period_ms, lambda: self._used_in(period_ms))

    def _of(
        self, user: str, client_id: str | None, shared: frozenset[str]
    ) -> Callable[[], PrincipalUse]:
        def reading() -> PrincipalUse:
            now_ms = self._clock_ms()
            try:
                return recorded(self._journal, user, client_id, shared, now_ms)
            except (OSError, ImportError, ValueError) as error:
                return PrincipalUse(now_ms, False, {}, {}, str(error) or type(error).__name__)

        return reading

    def _used_in(self, period_ms: int) -> PeriodUse | str:
        try:
            from headgate.usage.sums import JournalSums

            if self._sums is None:
                self._sums = JournalSums(self._journal)
            return self._sums.since(self._clock_ms() - period_ms)
        except (OSError, ImportError, ValueError) as error:
            return str(error) or type(error).__name__


def recorded(
    journal: Path,
    user: str,
    client_id: str | None,
    shared: Collection[str],
    now_ms: int,
    *,
    most_events: int = MOST_EVENTS,
) -> PrincipalUse:
    """
    Read the last hours' use of a principal's quota-ids.

    Args:
        journal: a gateway's directory of usage journals.
        user: the principal, raw.
        client_id: only quota-ids of this client-id and of all; None: any.
        shared: client-ids whose quota-ids have no user and are wanted, too.
        now_ms: the wall clock, epoch ms.
        most_events: once this many were looked at, no further file is begun.

    Raises:
        OSError: the journal can't be read.
        ModuleNotFoundError: packages of the console's extra are missing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from headgate.usage.reader import latest_files, read_file

    since = now_ms - PERIOD_MS
    last = (now_ms - LATE_MS) // STEP_MS * STEP_MS  # the last step that is over
    clients = None if client_id is None else pa.array([client_id, ""])
    kept: list[Any] = []
    is_whole, ends, count = True, time.monotonic() + MOST_S, 0
    for written_ms, file in latest_files(journal, since):
        if count >= most_events or time.monotonic() > ends:
            # What is in the files left was written before this one was.
            since, is_whole = int(written_ms) + 1, False
            break
        parts = []
        for batch in read_file(file):
            count += batch.num_rows
            part = batch.select(_COLUMNS)
            wanted = pc.equal(part["quota_user"], user)
            if clients is not None:
                wanted = pc.and_(wanted, pc.is_in(part["quota_client_id"], clients))
            everyones = pc.and_(
                pc.equal(part["quota_user"], ""),
                pc.is_in(part["quota_client_id"], pa.array(sorted(shared), pa.string())),
            )
            parts.append(part.filter(pc.or_(wanted, everyones)))
        if parts:
            kept.append(_steps(pa.Table.from_batches(parts), user))
    if not kept:
        return PrincipalUse(since, is_whole, {}, {})
    whole_steps = pa.concat_tables(kept)
    first = -(-since // STEP_MS) * STEP_MS
    inside = pc.and_(
        pc.greater_equal(whole_steps["begin_ms"], first), pc.less(whole_steps["begin_ms"], last)
    )
    points, own = _points(whole_steps.filter(inside))
    return PrincipalUse(since, is_whole, points, own)


_COLUMNS: Final = (
    "kind", "worker_id", "broker_id", "quota_type", "t_ms", "amount", "quota_user",
    "quota_client_id", "bound", "principal", "throttle_time_ms",
)  # fmt: skip
_ID: Final = ["quota_type", "quota_user", "quota_client_id"]
_SUMS: Final = ["amount", "held", "own", "own_held", "own_charges"]


def _steps(events: Any, user: str) -> Any:
    """Return what a file's events add up to in each step, by quota-id, worker and broker."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from headgate.usage.sums import charged

    kind = events["kind"].cast(pa.string())
    waits = pc.greater(pc.fill_null(events["throttle_time_ms"], 0), 0)
    is_charged, amount = charged(events)
    is_own = pc.fill_null(pc.equal(events["principal"], user), False).cast(pa.int64())
    held = waits.cast(pa.int64())
    begin = pc.multiply(pc.floor(pc.divide(events["t_ms"], STEP_MS)), STEP_MS).cast(pa.int64())
    columns = {
        **{n: pc.fill_null(events[n].cast(pa.string()), "") for n in (*_ID, "worker_id")},
        "broker_id": events["broker_id"], "begin_ms": begin, "bound": events["bound"],
        "amount": amount, "held": held, "own": pc.multiply(amount, is_own),
        "own_held": pc.multiply(held, is_own),
        "own_charges": pc.multiply(is_charged.cast(pa.int64()), is_own),
    }  # fmt: skip
    of_topics = pc.equal(events["quota_type"].cast(pa.string()), MUTATION.name)
    told = pc.and_(pc.equal(kind, "told"), of_topics)  # any other was held since its charge
    said = pc.or_(pc.is_in(kind, pa.array(["record", "unrecord", "strict"])), told)
    return _added(pa.table(columns).filter(said))


def _added(steps: Any) -> Any:
    keys = [*_ID, "worker_id", "broker_id", "begin_ms"]
    found = steps.group_by(keys, use_threads=False).aggregate(
        [("bound", "max"), *((name, "sum") for name in _SUMS)]
    )
    return found.select([*keys, "bound_max", *(f"{name}_sum" for name in _SUMS)]).rename_columns(
        [*keys, "bound", *_SUMS]
    )


def _points(steps: Any) -> tuple[dict[Id, list[Point]], dict[Id, list[Point]]]:
    """Return the points of the quota-ids with the most requests, and the principal's own part."""
    busiest = steps.group_by(_ID).aggregate([("own_charges", "sum")])
    busiest = busiest.sort_by([("own_charges_sum", "descending")]).slice(0, MOST_IDS).select(_ID)
    steps = _added(steps.join(busiest, _ID, join_type="inner"))
    all_of: dict[Id, dict[int, Point]] = {}
    own_of: dict[Id, dict[int, Point]] = {}
    for row in steps.sort_by("begin_ms").to_pylist():
        quota_id = (row["quota_type"], row["quota_user"], row["quota_client_id"])
        _note(all_of.setdefault(quota_id, {}), row, "amount", "held")
        if not row["quota_user"] and row["own_charges"]:
            _note(own_of.setdefault(quota_id, {}), row, "own", "own_held")
    return (
        {quota_id: list(points.values()) for quota_id, points in all_of.items()},
        {quota_id: list(points.values()) for quota_id, points in own_of.items()},
    )


def _note(points: dict[int, Point], row: dict[str, Any], amount: str, held: str) -> None:
    """Keep the step of the broker with the least room; waits of all brokers are added up."""
    at_ms, bound = row["begin_ms"] + STEP_MS, row["bound"]
    limit = None if bound is None or bound == float("inf") else bound
    point = Point(at_ms, max(0.0, row[amount]) * 1000 / STEP_MS, limit, row[held])
    old = points.get(at_ms)
    if old is not None:
        worst = max(old, point, key=lambda p: fullness(p.rate, p.limit))
        point = worst._replace(held=old.held + point.held)
    points[at_ms] = point
