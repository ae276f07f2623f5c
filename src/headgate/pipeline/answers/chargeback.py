"""
Say what each principal used in a period, and what it costs.

The price file is YAML or JSON; every price is optional::

    currency: EUR
    bytes_in_per_gb: 0.05       # 1 GB = 10^9 bytes
    bytes_out_per_gb: 0.02
    per_million_requests: 0.40
    handler_per_hour: 1.50      # of one handler thread's time
    fixed_per_period: 10
    principals:                 # other prices for some
      alice: {bytes_in_per_gb: 0.03}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.errors import ConfigError
from headgate.pipeline import schema
from headgate.pipeline.answers.usage import DAY_MS, HOUR_MS, resolve
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.table import largest, sums
from headgate.yaml_reading import read_yaml_file, typed_yaml

PERIODS: Final = ("hour", "day", "month")
_DIRECTIONS: Final = {"in": "producer_byte_rate", "out": "consumer_byte_rate"}


@dataclass(frozen=True)
class Prices:
    """Prices in ``currency``; see the module for units."""

    currency: str | None = None
    bytes_in_per_gb: float = 0.0
    bytes_out_per_gb: float = 0.0
    per_million_requests: float = 0.0
    handler_per_hour: float = 0.0
    fixed_per_period: float = 0.0
    principals: Mapping[str, Prices] = field(default_factory=dict)


def load_prices(path: str) -> Prices:
    """
    Read a price file.

    Raises:
        ConfigError: with every mistake at once.
    """
    data = read_yaml_file(path, flag="--prices", parse=typed_yaml)
    wrong: list[str] = []
    prices = _prices(data, path, wrong, Prices())
    if wrong:
        raise ConfigError("\n".join(wrong))
    return prices


def _prices(data: Any, where: str, wrong: list[str], base: Prices) -> Prices:
    if not isinstance(data, dict):
        wrong.append(f"--prices {where}: expected names and prices, found {type(data).__name__}")
        return base
    known = {f.name for f in fields(Prices)}
    found: dict[str, Any] = {}
    for name, value in data.items():
        if name not in known:
            wrong.append(f"--prices {where}: no price is called {name!r}; known: {sorted(known)}")
        elif name == "currency":
            found[name] = str(value)
        elif name == "principals":
            continue
        elif isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            wrong.append(f"--prices {where}: {name} is {value!r}; give a number, 0 or more")
        else:
            found[name] = float(value)
    own = replace(base, **found)
    others = data.get("principals") or {}
    if not isinstance(others, dict):
        wrong.append(f"--prices {where}: principals must hold names with their prices")
        return own
    inside = {str(n): _prices(v, f"{where}, {n}", wrong, own) for n, v in others.items()}
    return replace(own, principals=inside)


def period_start(period: str, ms: Column) -> Column:
    """Return the start in UTC of the period that holds ``ms``, epoch ms."""
    if period not in PERIODS:
        raise ConfigError(f"--period {period}: choose {', '.join(PERIODS)}")
    if period == "hour":
        return F.floor(ms / HOUR_MS) * HOUR_MS
    # By dates, which no session's time zone moves.
    day = F.date_from_unix_date(F.floor(ms / DAY_MS).cast("int"))
    start = F.trunc(day, "month") if period == "month" else day
    return F.unix_date(start).cast("long") * DAY_MS


def chargeback(
    quotas: Quotas, *, period: str = "day", prices: Prices | None = None
) -> Callable[[DataFrame], DataFrame]:
    """
    Sum up and price per principal and period: activity -> CHARGEBACK.

    Args:
        quotas: for peaks against limits.
        period: hour, day or month (UTC).
        prices: see the module; None = no prices, ``currency`` null.
    """
    price = prices or Prices()

    def per_second(frame: DataFrame) -> DataFrame:
        """Return the peaks per principal and period, and against the limits, of both directions."""
        second = ("principal", "period_ms", "second_ms", "quota_type")
        # A limit holds for a quota-id on a broker; a peak is of the principal on all brokers.
        seconds = (
            frame.where(F.col("quota_type").isin(*_DIRECTIONS.values()))
            .groupBy(*second, "quota_id", "broker_id")
            .agg(*sums("bytes"), *largest("quota"))
            .withColumn("share", F.col("bytes") / F.col("quota"))
            .groupBy(*second)
            .agg(*sums("bytes"), *largest("share"))
        )
        peaks = []
        for name, quota_type in _DIRECTIONS.items():
            is_mine = F.col("quota_type") == quota_type
            most, share = (F.max(F.when(is_mine, F.col(n))) for n in ("bytes", "share"))
            peaks.append(most.cast("double").alias(f"peak_{name}_bps"))
            peaks.append(share.alias(f"peak_{name}_quota_share"))
        return seconds.groupBy("principal", "period_ms").agg(*peaks)

    def priced(name: str, divisor: float, column: str) -> Column:
        """Return amount x price, with the prices of some principals of their own."""
        amount = F.col(column) / divisor if column else F.lit(1.0)
        rate = F.lit(float(getattr(price, name)))
        for principal, own in price.principals.items():
            other = F.lit(float(getattr(own, name)))
            rate = F.when(F.col("principal") == principal, other).otherwise(rate)
        return amount * rate

    def transform(activity: DataFrame) -> DataFrame:
        charged = (
            activity.where(F.col("is_charged"))
            .transform(resolve(quotas))
            .withColumn("period_ms", period_start(period, F.col("second_ms")))
        )
        moved = {
            f"bytes_{name}": F.when(F.col("quota_type") == of, F.col("bytes")).otherwise(0)
            for name, of in _DIRECTIONS.items()
        }
        added = charged.groupBy("principal", "period_ms").agg(
            *sums("requests", "throttle_time_ms", "throttled_requests", **moved),
            (F.sum("handler_ns") / 1e6).alias("handler_ms"),
        )
        bytes_ = F.col("bytes_in") + F.col("bytes_out")
        whole = added.groupBy("period_ms").agg(*sums(cluster_bytes=bytes_))
        joined = added.join(whole, ["period_ms"], "left")
        joined = joined.join(per_second(charged), ["principal", "period_ms"], "left")
        prices_of = {
            "price_in": priced("bytes_in_per_gb", 1e9, "bytes_in"),
            "price_out": priced("bytes_out_per_gb", 1e9, "bytes_out"),
            "price_requests": priced("per_million_requests", 1e6, "requests"),
            "price_handler": priced("handler_per_hour", 3.6e6, "handler_ms"),
            "price_fixed": priced("fixed_per_period", 1.0, ""),
        }
        figures = {
            "period": F.lit(period),
            "peak_in_bps": F.coalesce("peak_in_bps", F.lit(0.0)),
            "peak_out_bps": F.coalesce("peak_out_bps", F.lit(0.0)),
            "cluster_share": F.when(
                F.col("cluster_bytes") > 0, bytes_ / F.col("cluster_bytes")
            ).otherwise(0.0),
            "price": sum(map(F.col, prices_of), F.lit(0.0)),
            "currency": F.lit(price.currency),
        }
        return schema.CHARGEBACK.select(joined.withColumns(prices_of).withColumns(figures))

    return transform
