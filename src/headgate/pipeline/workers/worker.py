"""
What Spark's Python workers run: read a piece of a log, parse it, and hand over little.

Two ways out of the same parse. ``EmitRequests`` gives a row per request. ``EmitActivity`` adds up
by second before anything enters the JVM, which is most of what makes ``usage`` cheap. Both hand
bad lines and counts over as rows of their own ``kind``. Everything here is importable and
picklable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from headgate.pipeline import schema
from headgate.pipeline.logs.linesums import Sums
from headgate.pipeline.logs.logline import LogRow
from headgate.pipeline.quotas import Quotas, Resolved
from headgate.pipeline.sources.pieces import Split
from headgate.pipeline.workers.blobs import pack
from headgate.pipeline.workers.emitted import (
    ACTIVITY,
    EMITTED_ACTIVITY,
    EMITTED_REQUESTS,
    Columns,
    client_ip,
)
from headgate.pipeline.workers.reading import ActivityOfLogs, ReadPlan, RequestsOfLogs
from headgate.pipeline.workers.rowgroups import (
    completed,
    pa_numbers,
    pa_table,
    read_row_group,
    read_table,
    stat_of,
)

__all__ = [
    "ACTIVITY",
    "EMITTED_ACTIVITY",
    "EMITTED_REQUESTS",
    "Columns",
    "EmitActivity",
    "EmitRequests",
    "ReadPlan",
    "Resolve",
    "Sums",
    "client_ip",
    "completed",
    "pa_numbers",
    "pa_table",
    "read_row_group",
    "stat_of",
]


def _own_splits(plan: ReadPlan, batches: Iterator[Any]) -> Iterator[Split]:
    """Yield the splits whose numbers Spark handed over (column ``id``)."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield plan.splits[number]


@dataclass(frozen=True)
class EmitRequests:
    """Hand over a row per request (``EMITTED_REQUESTS``). A ``mapInArrow`` function."""

    plan: ReadPlan

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read the splits numbered in ``batches``."""
        logs = RequestsOfLogs(self.plan)
        for split in _own_splits(self.plan, batches):
            if split.kind == "journal":
                from headgate.pipeline.sources.journal import request_batches

                yield from request_batches(split)
            elif split.kind == "requests":
                yield from read_table(split)
            else:
                yield from logs.read(split)


@dataclass(frozen=True)
class EmitActivity:
    """
    Hand over sums by second (``EMITTED_ACTIVITY``). A ``mapInArrow`` function.

    ``parts`` asks for ``blobs`` in place of rows of sums, for that many parts of the answer.
    """

    plan: ReadPlan
    parts: int = 0

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read the splits numbered in ``batches``; sums go on over the splits of a task."""
        rows = self._rows(batches)
        return pack(rows, self.parts) if self.parts else rows

    def _rows(self, batches: Iterator[Any]) -> Iterator[Any]:
        logs = ActivityOfLogs(self.plan)
        for split in _own_splits(self.plan, batches):
            if split.kind == "journal":
                from headgate.pipeline.sources.journal import activity_batches

                yield from activity_batches(split, connections=self.plan.connections)
            elif split.kind == "requests":
                from headgate.pipeline.sources.journal import sums_of_rows

                for batch in read_table(split, replayed=True):
                    _add_rows(batch, logs.sums, logs.side)
                    yield from sums_of_rows(batch)
            else:
                yield from logs.add(split)
        yield from logs.take()


def _add_rows(batch: Any, sums: Sums, side: Columns) -> None:
    """Add up rows of a table; those of a journal have their own way of counting."""
    for row in batch.to_pylist():
        if row["kind"] == "stat":
            side.add(**{n: row[n] for n in ("kind", "file", "lines", "input_bytes")})
        elif row["source"] != "journal":
            values = {n: row[n] for n in LogRow._fields}
            sums.add(row["broker_id"], LogRow(**values))


@dataclass(frozen=True)
class Resolve:
    """
    Fill quota_id, quota_user, quota_client_id, quota and quota_source where they're null.

    A journal's own limit has the source that these quotas give it, if they say the same, and else
    ``FROM_JOURNAL``.

    A ``mapInArrow`` function over any frame with principal, client_id, quota_type and a time
    (``at``); each distinct (principal, client-id) of a batch is resolved once.
    """

    quotas: Quotas
    at: str
    out: schema.Table

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Resolve the rows of ``batches``."""
        import pyarrow as pa

        resolve = self.quotas.resolver()
        for batch in batches:
            have = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
            found = [
                resolve(p or "", c or "", t, at)
                for p, c, t, at in zip(
                    have["principal"].to_pylist(),
                    have["client_id"].to_pylist(),
                    have["quota_type"].to_pylist(),
                    have[self.at].to_pylist(),
                    strict=True,
                )
            ]
            own = have["quota_id"].to_pylist() if "quota_id" in have else [None] * len(found)
            columns = {}
            for i, name in enumerate(
                ("quota_id", "quota_user", "quota_client_id", "quota", "quota_source")
            ):
                kept = have[name].to_pylist() if name in have else [None] * len(found)
                columns[name] = [
                    f[i] if o is None else k for f, o, k in zip(found, own, kept, strict=True)
                ]
            columns["quota_source"] = [
                source if o is None else _source(f, o, quota)
                for f, o, quota, source in zip(
                    found, own, columns["quota"], columns["quota_source"], strict=True
                )
            ]
            arrays = [
                pa.array(columns[f.name], f.type) if f.name in columns else have[f.name]
                for f in self.out.arrow
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.out.arrow)


FROM_JOURNAL: Final = "journal"
"""Source of a limit that a journal tells, and the quotas given don't."""


def _source(found: Resolved, own_id: str, own_quota: Any) -> str | None:
    """Return the source of a journal's own limit."""
    if own_quota is None:
        return None
    same = (found[0], found[3]) == (own_id, own_quota)
    return found[4] if same else FROM_JOURNAL
