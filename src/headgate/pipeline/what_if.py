"""
Replay the same requests under other quotas: who would be throttled, for how long, how much of it.

All plans go through one pass: a charge is packed once per distinct sensor it has under any plan,
and the kernel runs once per plan over the same arrays. Open-loop: a client that had been throttled
would have sent later, and a log says nothing of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.pipeline import schema
from headgate.pipeline.pack import PackOptions
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replay import pack_requests, replay_packed
from headgate.quota.entity import quota_id
from headgate.throttle.java import UNLIMITED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOGGED = "logged"


@dataclass(frozen=True)
class NamePlans:
    """Give SUMS rows their plan's name, quota-id and source. A ``mapInArrow`` function."""

    plans: tuple[Quotas, ...]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield WHAT_IF rows."""
        import pyarrow as pa

        resolvers = [q.resolver() for q in self.plans]
        for batch in batches:
            rows = batch.to_pylist()
            for row in rows:
                plan = row["plan"]
                found = resolvers[max(plan, 0)](
                    row["principal"] or "",
                    row["client_id"] or "",
                    row["quota_type"],
                    row["last_ms"],
                )
                row["plan"] = LOGGED if plan < 0 else self.plans[plan].name
                row["quota_id"] = quota_id(row["quota_user"], row["quota_client_id"])
                row["quota_source"] = found.quota_source
                row["quota"] = row["quota"] if row["quota"] < UNLIMITED else None
                row["delayed_bytes"] = round(row["delayed"])
                row["delayed_share"] = row["delayed"] / row["bytes"] if row["bytes"] else 0.0
            yield from pa.Table.from_pylist(rows, schema=schema.WHAT_IF.arrow).to_batches()


def options_of(
    plans: Sequence[Quotas],
    *,
    num_samples: int = 11,
    window_ms: int = 1000,
    capacities: Mapping[str, float] | None = None,
    split_period_ms: int = 5000,
) -> PackOptions:
    """
    Return what to pack for a comparison of plans.

    Args:
        plans: named quotas.
        num_samples: quota.window.num.
        window_ms: quota.window.size.seconds x 1000.
        capacities: by byte-rate type, a broker's bytes per second; without one, shares of the type
            aren't replayed, as a gateway doesn't enforce them.
        split_period_ms: headgate.splits.period.ms: twice that caps a throttle of a cluster-wide
            rate.
    """
    return PackOptions(
        tuple(plans),
        False,
        num_samples,
        window_ms,
        own=False,
        capacities=tuple(sorted((capacities or {}).items())),
        split_period_ms=split_period_ms,
    )


def what_if_packed(options: PackOptions) -> Callable[[DataFrame], DataFrame]:
    """Compare plans on packed charges: PACKED -> WHAT_IF."""
    from pyspark.sql import functions as F

    def transform(packed: DataFrame) -> DataFrame:
        sums = packed.transform(replay_packed(options))
        keys = ("plan", "quota_type", "quota_user", "quota_client_id", "broker_id")
        # A sensor is replayed in one task; its workers (journals) and moments come together here.
        joined = sums.groupBy(*keys, "principal", "client_id").agg(
            F.max_by("quota", "last_ms").alias("quota"),
            F.sum("requests").alias("requests"),
            F.sum("bytes").alias("bytes"),
            F.sum("throttled_requests").alias("throttled_requests"),
            F.sum("throttle_time_ms").alias("throttle_time_ms"),
            F.max("max_throttle_time_ms").alias("max_throttle_time_ms"),
            F.sum("delayed").alias("delayed"),
            F.min("first_ms").alias("first_ms"),
            F.max("last_ms").alias("last_ms"),
        )
        # Who has no weight only takes from what is shared.
        infinite = F.col("quota") >= UNLIMITED
        weighed = joined.where(~(F.col("quota_type").endswith(":shares") & infinite))
        return weighed.mapInArrow(NamePlans(options.plans), schema.WHAT_IF.struct)

    return transform


def what_if(plans: Sequence[Quotas], **windows: Any) -> Callable[[DataFrame], DataFrame]:
    """
    Compare plans: requests -> WHAT_IF.

    Args:
        plans: named quotas; the first one's quota-ids are those of plan ``logged``.
        windows: as ``options_of`` takes them.
    """
    options = options_of(plans, **windows)
    return lambda requests: requests.transform(pack_requests(options)).transform(
        what_if_packed(options)
    )
