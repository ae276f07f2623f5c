"""
The last hour of a gateway's usage journal: the charges of clients that a plan concerns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.quota.key import QuotaKey
from headgate.quota.plan import Plan

if TYPE_CHECKING:
    from headgate.usage.files import JournalFile

PERIOD_MS: Final = 3_600_000
MOST_EVENTS: Final = 1_000_000
"""Some 200 MB while they are read. Files are read whole, newest first, until there are as many."""
_WANTED: Final = (
    "seq", "worker_id", "broker_id", "kind", "quota_type", "t_ms", "amount", "quota_user",
    "quota_client_id", "bound", "principal", "client_id", "api_key", "throttle_time_ms",
    "told_throttle_time_ms", "upstream_throttle_time_ms", "connection", "bytes",
    "num_samples", "window_ms", "value", "rule", "max_throttle_ms",
)  # fmt: skip


class LastHour(NamedTuple):
    """
    What was read.

    Args:
        events: charges of the quota types asked for, and the answers to those that were throttled.
        ends: of each broker, its last event whichever client's, epoch ms.
        since_ms: from when on events were read, or the first event if the journal begins later.
        is_whole: whether that is the whole hour, or all of the journal.
    """

    events: Any
    ends: dict[int, float]
    since_ms: int
    is_whole: bool


def read_hour(journal: Path, types: Collection[str], now_ms: int, most: int) -> LastHour:
    """
    Read the last hour.

    Args:
        journal: a gateway's directory of usage journals.
        types: of the quotas whose charges are wanted.
        now_ms: the wall clock, epoch ms.
        most: once this many events were read, no further file is begun.

    Raises:
        OSError: the journal can't be read.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from headgate.usage.format import SCHEMA
    from headgate.usage.reader import latest_files, read_file

    since = now_ms - PERIOD_MS
    schema = pa.schema([SCHEMA.field(name) for name in _WANTED])
    wanted, kept, count = pa.array(sorted(types), pa.string()), [], 0
    whole, first_ms = True, math.inf
    ends: dict[int, float] = {}
    for written_ms, file in latest_files(journal, since):
        if count >= most:
            # What is in the files left was written before this one was.
            since, whole = int(written_ms) + 1, False
            break
        for batch in _batches(read_file(file), file):
            part = batch.select(_WANTED)
            if part.num_rows:
                first_ms = min(first_ms, pc.min(part["t_ms"]).as_py())
                _note_ends(part, ends)
            of_type = pc.is_in(part["quota_type"].cast(pa.string()), wanted)
            part = part.filter(pc.and_(of_type, pc.greater_equal(part["t_ms"], float(since))))
            kept.append(part)
            count += part.num_rows
    table = pa.Table.from_batches(kept, schema=schema)
    if not whole:
        table = table.filter(pc.greater_equal(table["t_ms"], float(since)))
    if whole and first_ms < math.inf:
        since = max(since, int(first_ms))
    return LastHour(table, ends, since, whole)


def _batches(batches: Iterable[Any], file: JournalFile) -> Iterator[Any]:
    """Yield a file's batches; one that is damaged is an OSError with its name."""
    import pyarrow as pa

    try:
        yield from batches
    except pa.ArrowException as error:
        raise OSError(f"{file.path.name} is damaged: {error}") from error


def _note_ends(part: Any, ends: dict[int, float]) -> None:
    import pyarrow as pa

    latest = pa.Table.from_batches([part]).group_by("broker_id").aggregate([("t_ms", "max")])
    for row in latest.to_pylist():
        if row["broker_id"] is not None:
            ends[row["broker_id"]] = max(row["t_ms_max"], ends.get(row["broker_id"], 0.0))


def requests_of_events(events: Any) -> Any:
    """Return events as the pipeline reads them: EMITTED_REQUESTS."""
    import pyarrow as pa

    from headgate.pipeline.sources.journal import requests_of
    from headgate.usage.format import SCHEMA

    for field in SCHEMA:
        if field.name not in _WANTED:
            events = events.append_column(field, pa.nulls(events.num_rows, field.type))
    return requests_of(events, "", {})


def concerned(
    events: Any, plan: Plan, keys: Collection[QuotaKey], principals: Collection[str] | None
) -> Any:
    """
    Say which events are replayed: those of clients whose quota-id or limit would change.

    Events of clients that share one of their quota-ids, before or after, are replayed too, because
    they are charged there.
    """
    import numpy as np

    from headgate.pipeline.quotas import Quotas

    if not events.num_rows:
        return np.zeros(0, np.bool_)
    users, clients = (coded(events[name]) for name in ("principal", "client_id"))
    both = users[0].astype(np.int64) * len(clients[1]) + clients[0]
    distinct, pair = np.unique(both, return_inverse=True)
    names = [(users[1][c // len(clients[1])], clients[1][c % len(clients[1])]) for c in distinct]
    sides = [Quotas.of(table).resolver() for table in (plan.current, plan.desired)]
    chosen = np.zeros(len(names), np.bool_)
    for key in keys:
        found = [[side.sensor(*name, key.name, 0.0) for name in names] for side in sides]
        # If neither side has a limit, another quota-id changes nothing.
        moved = [a != b and not a[1] is b[1] is None for a, b in zip(*found, strict=True)]
        for side in found:
            shared = {s for s, other in zip(side, moved, strict=True) if other and s[1] is not None}
            chosen |= np.fromiter((sensor in shared for sensor in side), np.bool_, len(names))
        chosen |= np.array(moved, np.bool_)
    if principals is not None:
        chosen &= np.fromiter((user in principals for user, _ in names), np.bool_, len(names))
    return chosen[pair.reshape(-1)]


def coded(column: Any) -> tuple[Any, list[str]]:
    """Return a column's codes, and what each means."""
    import pyarrow.compute as pc

    found = pc.fill_null(column, "").combine_chunks().dictionary_encode()
    return found.indices.to_numpy(), found.dictionary.to_pylist()
