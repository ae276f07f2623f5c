"""
Say which quota applied to which client, and which configured quotas matched none (dead quotas).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.pipeline import schema
from headgate.pipeline.quotas import KEY_OF_TYPE, Quotas, TimedResolver
from headgate.pipeline.table import sums
from headgate.quota.key import (
    CONSUMER_BPS,
    CONSUMER_SHARES,
    PRODUCER_BPS,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
    format_value,
)
from headgate.quota.precedence import EffectiveQuota

# Which other keys bind a request that is charged to a type; reported only where configured.
_ALSO: Final[dict[str, tuple[QuotaKey, ...]]] = {
    "producer_byte_rate": (PRODUCER_BPS, PRODUCER_SHARES, PRODUCER_IDS, REQUEST),
    "consumer_byte_rate": (CONSUMER_BPS, CONSUMER_SHARES, REQUEST),
    "controller_mutation_rate": (REQUEST,),
}
_MATCHED: Final = {*map(str, KEY_OF_TYPE.values()), *(str(k) for ks in _ALSO.values() for k in ks)}
_BYTES: Final = ("producer_byte_rate", "consumer_byte_rate")


@dataclass(frozen=True)
class Explain:
    """
    Explain which quota binds which client. A ``mapInArrow`` function.

    A row per (principal, client-id, quota key) in, EFFECTIVE rows out.
    """

    quotas: Quotas

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield a row per distinct (principal, client_id, quota_key)."""
        resolve = self.quotas.resolver()
        for batch in batches:
            rows = [self._row(resolve, row) for row in batch.to_pylist()]
            yield from pa.Table.from_pylist(rows, schema=schema.EFFECTIVE.arrow).to_batches()

    @staticmethod
    def _row(resolve: TimedResolver, row: dict[str, Any]) -> dict[str, Any]:
        key = QuotaKey.parse(row["quota_key"])
        found: EffectiveQuota = resolve.effective(
            row["principal"] or "", row["client_id"] or "", key, row["last_ms"]
        )
        return {
            "kind": "applied",
            "quota_key": str(key),
            "principal": row["principal"],
            "client_id": row["client_id"],
            "quota_id": found.quota_id,
            "value": found.value,
            "source": None if found.source is None else str(found.source),
            "overridden": "; ".join(
                f"{o.source}={format_value(o.value)}" for o in found.overridden
            ),
            "requests": row["requests"],
            "bytes": row["bytes"],
            "note": found.note,
        }


def effective(quotas: Quotas) -> Callable[[DataFrame], DataFrame]:
    """
    Explain every (principal, client-id) and find dead quotas: activity -> EFFECTIVE.

    With a history of quotas, a client has a row for each limit that it had, with the requests under
    it, and only quotas of the last table can be dead. A Produce is bound by a byte rate and, where
    they are configured, by a cluster-wide rate, shares, producer ids and thread time: each is a
    row.
    """

    def transform(activity: DataFrame) -> DataFrame:
        spark = activity.sparkSession
        who = (
            activity.where(F.col("is_charged") & F.col("quota_type").isin(*KEY_OF_TYPE))
            .withColumn("epoch", _epoch(quotas))
            .withColumn("quota_key", F.explode(_keys(quotas)))
            .groupBy("principal", "client_id", "quota_key", "epoch")
            .agg(
                *sums("requests", bytes=F.when(_is_bytes(), F.col("bytes")).otherwise(0)),
                F.max("second_ms").alias("last_ms"),
            )
        )
        applied = who.mapInArrow(Explain(quotas), schema.EFFECTIVE.struct)
        if len(quotas.tables) > 1:
            same = [n for n in schema.EFFECTIVE.names if n not in ("requests", "bytes")]
            applied = schema.EFFECTIVE.select(
                applied.groupBy(*same).agg(*sums("requests", "bytes"))
            )
        table = quotas.tables[-1]
        configured = [
            (str(key), str(entity), value, _dead_note(str(key), entity.shape))
            for entity, values in table.entities.items()
            for key, value in values.items()
        ]
        if not configured:
            return applied
        names = "quota_key string, source string, value double, note string"
        written = spark.createDataFrame(configured, names)
        # Requests don't match quotas of addresses; the notes of these say so (``_dead_note``).
        matched = applied.where(F.col("source").isNotNull()).select("quota_key", "source")
        dead = written.join(matched.distinct(), ["quota_key", "source"], "left_anti")
        rows = dead.withColumns(
            {
                "kind": F.lit("dead"),
                "requests": F.lit(0),
                "bytes": F.lit(0),
                **{
                    n: F.lit(None).cast("string")
                    for n in ("principal", "client_id", "quota_id", "overridden")
                },
            }
        )
        return applied.unionByName(schema.EFFECTIVE.select(rows))

    return transform


def _epoch(quotas: Quotas) -> Column:
    """Return a column: the number of the table in force at each row's ``second_ms``."""
    changes = F.array(*[F.lit(at_ms) for at_ms in quotas.starts_ms[1:]])
    return F.size(
        F.filter(changes.cast("array<double>"), lambda at_ms: at_ms <= F.col("second_ms"))
    )


def keys_of_types(quotas: Quotas) -> dict[str, list[QuotaKey]]:
    """Return by quota type the keys that bind a request that is charged to it."""
    configured = {key for table in quotas.tables for v in table.entities.values() for key in v}
    return {
        quota_type: [key, *(k for k in _ALSO.get(quota_type, ()) if k in configured)]
        for quota_type, key in KEY_OF_TYPE.items()
    }


def _keys(quotas: Quotas) -> Column:
    """Return a column: the quota keys, as texts, for each row's quota type."""
    keys = F.array()
    for quota_type, mine in keys_of_types(quotas).items():
        texts = F.array(*[F.lit(str(k)) for k in mine])
        keys = F.when(F.col("quota_type") == quota_type, texts).otherwise(keys)
    return keys


def _is_bytes() -> Column:
    return F.split_part(F.col("quota_key"), F.lit(":"), F.lit(1)).isin(*_BYTES)


def _dead_note(key: str, shape: str) -> str:
    """Say what "nobody matched" means for this kind of quota."""
    if shape == "ip" or key not in _MATCHED:
        return "bounds connections by address, which requests don't match"
    return "no request in this data was bound by it"
