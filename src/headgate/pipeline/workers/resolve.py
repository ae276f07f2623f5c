"""
Add to each row the quota-id that it is charged to, and the limit, in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.pipeline.quotas import Quotas, Resolved, TimedResolver
from headgate.pipeline.table import Table


@dataclass(frozen=True)
class Resolve:
    """
    Fill quota_id, quota_user, quota_client_id, quota and quota_source where they're null.

    A journal's own limit has the source that these quotas give it, if they say the same, and else
    ``FROM_JOURNAL``.

    A ``mapInArrow`` function over any frame with principal, client_id, quota_type and a time
    (``at``); each distinct (principal, client-id) of a batch is resolved once.

    Args:
        quotas: who shares what.
        at: name of the time, epoch ms.
        out: the columns to hand over.
        thread_time: add a row for the thread time of each row that is charged to another quota;
            rows are ACTIVITY's.
    """

    quotas: Quotas
    at: str
    out: Table
    thread_time: bool = False

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Resolve the rows of ``batches``."""
        resolve = self.quotas.resolver()
        for batch in batches:
            table = pa.Table.from_batches([batch])
            if self.thread_time:
                table = pa.concat_tables([table, thread_time_of(table)])
            table = resolved(table, resolve, self.at)
            yield from table.select(self.out.names).cast(self.out.arrow).to_batches()


TIME_ONLY: Final[dict[str, Any]] = {
    **dict.fromkeys(("requests", "bytes", "bytes_estimated", "amount", "handler_ns"), 0),
    **dict.fromkeys(("throttle_time_ms", "throttled_requests", "max_throttle_time_ms"), 0),
    "quota_type": "request_percentage",
    **dict.fromkeys(("quota_id", "quota_user", "quota_client_id", "quota")),
}
"""Columns of the row that charges a request's thread time beside its bytes."""


def thread_time_of(activity: Any) -> Any:
    """
    Return the rows that charge thread time: an Arrow table of ACTIVITY's columns.

    Thread time is charged to the request quota whatever else a request is charged to.
    """
    is_other = pc.not_equal(activity["quota_type"], TIME_ONLY["quota_type"])
    rows = activity.filter(pc.and_(is_other, pc.greater(activity["request_ns"], 0)))
    for name, value in TIME_ONLY.items():
        at = rows.schema.get_field_index(name)
        kind = rows.schema.field(at)
        rows = rows.set_column(at, kind, pa.repeat(pa.scalar(value, kind.type), rows.num_rows))
    return rows


FROM_JOURNAL: Final = "journal"
"""Source of a limit that a journal tells, and the quotas given don't."""


def resolved(table: Any, resolve: TimedResolver, at: str) -> Any:
    """
    Fill quota_id, quota_user, quota_client_id, quota and quota_source where they're null.

    Args:
        table: an Arrow table with principal, client_id, quota_type and a time.
        resolve: returns the quota-id and the limit of a client.
        at: name of the time, epoch ms.
    """
    coded = [
        table[name].combine_chunks().fill_null("").dictionary_encode()
        for name in ("principal", "client_id", "quota_type")
    ]
    # A number for each distinct (principal, client-id, type, table in force).
    times = table[at].to_numpy()
    number = np.searchsorted(resolve.starts_ms, times, "right") - 1
    for column in coded:
        number = number * len(column.dictionary) + column.indices.to_numpy()
    _, first, inverse = np.unique(number, return_index=True, return_inverse=True)
    who = [column.take(pa.array(first)).to_pylist() for column in coded]
    found = [resolve(*each) for each in zip(*who, times[first].tolist(), strict=True)]
    given = {}
    for i, name in enumerate(Resolved._fields):
        kind = pa.float64() if name == "quota" else pa.string()
        given[name] = pa.array([f[i] for f in found], kind).take(pa.array(inverse))
    if "quota_id" in table.column_names and table["quota_id"].null_count < len(table):
        own = {n: table[n].combine_chunks() for n in Resolved._fields[:4]}
        same = pc.and_(
            pc.equal(given["quota_id"], own["quota_id"]), pc.equal(given["quota"], own["quota"])
        )
        source = pc.if_else(pc.fill_null(same, False), given["quota_source"], FROM_JOURNAL)
        own["quota_source"] = pc.if_else(pc.is_null(own["quota"]), None, source)
        is_own = pc.is_valid(own["quota_id"])
        given = {n: pc.if_else(is_own, own[n], given[n]) for n in Resolved._fields}
    for name, column in given.items():
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, column)
        else:
            table = table.append_column(name, column)
    return table
