"""
Row literals for Spark tests, and a comparison that shows the cells that differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.pipeline.emitted import ACTIVITY
from headgate.pipeline.schema import REQUESTS
from headgate.pipeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

S = 1_000_000_000_000  # an hour's start would be 999_997_200_000


def frame(spark: SparkSession, table: Table, rows: list[dict[str, Any]]) -> DataFrame:
    """Return a frame of row literals; columns left out are null."""
    return spark.createDataFrame(
        [tuple(row.get(n) for n in table.names) for row in rows], table.struct
    )


def did(second: int, who: str, client: str, quota_type: str, **other: Any) -> dict[str, Any]:
    """Return a row of ACTIVITY: one request of 100 bytes in a second, charged, unless said."""
    base = {
        "broker_id": 1,
        "listener": "L",
        "principal": who,
        "client_id": client,
        "quota_type": quota_type,
        "is_charged": True,
        "second_ms": S + second * 1000,
        "requests": 1,
        "bytes": 100 if quota_type.endswith("byte_rate") else 0,
        "bytes_estimated": 0,
        "amount": 100.0 if quota_type.endswith("byte_rate") else 0.0,
        "handler_ns": 1_000_000,
        "request_ns": 1_000_000,
        "throttle_time_ms": 0,
        "throttled_requests": 0,
        "max_throttle_time_ms": 0,
        "producer_ids": 0,
    }
    assert set(other) <= set(ACTIVITY.names)
    return base | other


def asked(at_ms: float, who: str, client: str, size: int, **other: Any) -> dict[str, Any]:
    """Return a row of REQUESTS: a produce request of ``size`` bytes, unless said otherwise."""
    base = {
        "record_ms": float(S + at_ms),
        "broker_id": 1,
        "listener": "L",
        "connection": f"a:1-10.0.0.1:{len(client)}-0-0",
        "principal": who,
        "client_id": client,
        "api_name": "PRODUCE",
        "api_version": 11,
        "is_forwarded": False,
        "bytes_charged": size,
        "bytes_exact": True,
        "handler_ms": 1.0,
        "throttle_time_ms": 0,
        "quota_type": "producer_byte_rate",
        "amount": float(size),
        "is_charged": True,
        "is_request": True,
        "client_ip": "10.0.0.1",
        "source": "log",
        "seq": int(at_ms),
        "file": "f",
    }
    assert set(other) <= set(REQUESTS.names)
    return base | other


def rows_of(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows as tuples of the named columns, in order of their text."""
    return ordered([tuple(row) for row in frame.select(*columns).collect()])


def ordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows in order of their text, as ``rows_of`` gives them."""
    return sorted(rows, key=lambda row: [str(cell) for cell in row])


def same_schema(frame: DataFrame, table: Table) -> bool:
    """Say whether a frame has exactly a table's columns, in order and in type."""
    return bool(frame.schema.simpleString() == table.struct.simpleString())
