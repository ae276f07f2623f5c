"""
Fill in whose quota a row is under, and its limit, in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from headgate.pipeline.quotas import Quotas, Resolved
from headgate.pipeline.table import Table


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
    out: Table

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
