"""
Replay the same requests under other quotas: who would be throttled, for how long, how much of it.

All plans go through one pass: a charge is packed once, under what its sensors of all plans have
in common (``roots``), and the kernel runs once for each layer of sensors (``packed_format``), over
the same arrays. The replay is open-loop: requests keep their times, though a client that is
throttled would have sent later.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headgate.pipeline import schema
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.packed_format import PackOptions
from headgate.pipeline.table import largest, sums
from headgate.quota.entity import quota_id
from headgate.throttle.java import UNLIMITED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOGGED = "logged"
_TAGS = ("quota_user", "quota_client_id")


@dataclass(frozen=True)
class NamePlans:
    """
    Give SUMS rows their plan's name, quota-id, source and bounds. A ``mapInArrow`` function.

    Args:
        plans: in the order of their numbers.
        in_force: the first of them was in force when the log was written.
    """

    plans: tuple[Quotas, ...]
    in_force: bool = False

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield WHAT_IF rows."""
        resolvers = [q.resolver() for q in self.plans]
        names = [q.name for q in self.plans]
        fixed = all(len(q.starts_ms) == 1 for q in self.plans)

        @functools.lru_cache(maxsize=1 << 16)
        def source(plan: int, quota_type: str, user: str, client: str, at_ms: int) -> str | None:
            return resolvers[plan].source((user, client), quota_type, at_ms)

        for batch in batches:
            plan = batch["plan"].to_numpy()
            columns = [batch[n].to_pylist() for n in ("quota_type", *_TAGS)]
            at_ms = repeat(0) if fixed else batch["last_ms"].to_pylist()
            whose = zip(np.maximum(plan, 0).tolist(), *columns, at_ms, strict=False)
            delayed, bytes_ = batch["delayed"].to_numpy(), batch["bytes"].to_numpy()
            quota = batch["quota"].to_numpy()
            least, most = self._bounds(batch, quota)
            made: dict[str, Any] = {
                "plan": [LOGGED if n < 0 else names[n] for n in plan.tolist()],
                "quota_id": list(map(quota_id, *columns[1:])),
                "quota_source": [source(*who) for who in whose],
                "quota": pa.array(quota, mask=quota >= UNLIMITED),
                "delayed_bytes": np.rint(delayed).astype(np.int64),
                "delayed_share": np.divide(
                    delayed, bytes_, out=np.zeros(len(plan)), where=bytes_ != 0
                ),
                "withheld_requests": batch["withheld"],
                "least_throttle_time_ms": least,
                "most_throttle_time_ms": pa.array(most, from_pandas=True),
            }
            same = {n: batch[n] for n in schema.WHAT_IF.names if n in batch.schema.names}
            yield schema.WHAT_IF.batch(len(plan), same | made)

    def _bounds(self, batch: Any, quota: Any) -> tuple[Any, Any]:
        """
        Return the least and the most throttling of each row; NaN: not known.

        What was withheld of a throttled fetch isn't logged, and no plan is charged with it. Under
        the limit in force, the log says how long such fetches were throttled. A lower limit
        throttles them at least as long, a higher one at most as long.
        """
        told = batch["throttle_time_ms"].to_numpy().astype(np.float64)
        most, least = told.copy(), told.copy()
        withheld = batch["withheld_ms"].to_numpy()
        concerned = (batch["plan"].to_numpy() >= 0) & (withheld > 0) & (quota < UNLIMITED)
        force = self.plans[0].resolver() if self.in_force else None
        columns = (batch[n] for n in ("principal", "client_id", "quota_type", *_TAGS))
        whose = list(zip(*(c.to_pylist() for c in columns), strict=True)) if force else []
        at_ms = batch["last_ms"].to_pylist()
        for i in np.flatnonzero(concerned).tolist():
            logged, limit = float(withheld[i]), None
            if force is not None:
                principal, client_id, quota_type, *tags = whose[i]
                found = force(principal or "", client_id or "", quota_type, at_ms[i])
                if ":" not in quota_type and [found.quota_user, found.quota_client_id] == tags:
                    limit = found.quota
            if limit is None:
                most[i] = np.nan
            elif quota[i] <= limit:
                least[i] = max(told[i], logged)
                most[i] = least[i] if quota[i] == limit else np.nan
            else:
                most[i] = max(told[i], logged)
        return least.astype(np.int64), most


def options_of(
    plans: Sequence[Quotas], *, capacities: Mapping[str, float] | None = None, **periods: int
) -> PackOptions:
    """
    Return what to pack for a comparison of plans.

    Args:
        plans: named quotas.
        capacities: by byte-rate type, a broker's bytes per second; without one, shares of the type
            aren't replayed, as a gateway doesn't enforce them.
        periods: ``num_samples``, ``window_ms`` and ``split_period_ms``, as in `PackOptions`. Twice
            the last caps a throttle of a cluster-wide rate.
    """
    given = tuple(sorted((capacities or {}).items()))
    return PackOptions(tuple(plans), rows=False, own=False, capacities=given, **periods)


def what_if_packed(
    options: PackOptions, *, in_force: bool = False
) -> Callable[[DataFrame], DataFrame]:
    """
    Compare plans on packed charges: PACKED -> WHAT_IF.

    Args:
        options: what was packed.
        in_force: the first plan was in force when the logs were written.
    """
    from pyspark.sql import functions as F

    from headgate.pipeline.answers.replay import replay_packed

    def transform(packed: DataFrame) -> DataFrame:
        replayed = packed.transform(replay_packed(options))
        keys = ("plan", "quota_type", "quota_user", "quota_client_id", "broker_id")
        # One sensor's client may have several rows: of workers (journals), of moments. Add them up.
        joined = replayed.groupBy(*keys, "principal", "client_id").agg(
            F.max_by("quota", "last_ms").alias("quota"),
            *sums("requests", "bytes", "throttled_requests", "throttle_time_ms", "delayed"),
            *sums("withheld", "withheld_ms"),
            *largest("max_throttle_time_ms", "last_ms"),
            F.min("first_ms").alias("first_ms"),
        )
        # A client without a weight has no limit; it was replayed because it uses capacity.
        infinite = F.col("quota") >= UNLIMITED
        weighed = joined.where(~(F.col("quota_type").endswith(":shares") & infinite))
        return weighed.mapInArrow(NamePlans(options.plans, in_force), schema.WHAT_IF.struct)

    return transform
