"""Answers where quotas changed while the log was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate.pipeline import schema
from headgate.pipeline.answers import effective
from headgate.pipeline.emitted import ACTIVITY
from headgate.pipeline.quotas import Quotas
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.file import QuotaEvent
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable
from kit.pipeline_rows import S, did, frame, ordered, rows_of, same_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ALICE, BOB = QuotaEntity.of(user="alice"), QuotaEntity.of(user="bob")


def test_effective_gives_each_limit_the_requests_it_bound(spark: SparkSession) -> None:
    changes = [(5, ALICE, 100.0), (7, ALICE, None), (9, ALICE, 100.0), (50, BOB, 1.0)]
    quotas = Quotas.with_history(
        QuotaTable.of({QuotaEntity.of(user=DEFAULT): {PRODUCER: 9.0}}),
        [QuotaEvent(S + 1000 * at, who, PRODUCER, value) for at, who, value in changes],
    )
    rows = [did(s, "alice", "x", "producer_byte_rate") for s in (0, 5, 6, 7, 8, 9, 49)]
    rows.append(did(49, "bob", "y", "producer_byte_rate"))
    found = frame(spark, ACTIVITY, rows).transform(effective.effective(quotas))
    assert same_schema(found, schema.EFFECTIVE)
    columns = ("kind", "principal", "value", "source", "overridden", "requests", "bytes")
    assert rows_of(found, *columns) == ordered(
        [
            ("applied", "alice", 9.0, "{user=<default>}", "", 3, 300),
            ("applied", "alice", 100.0, "{user=alice}", "{user=<default>}=9", 4, 400),
            ("applied", "bob", 9.0, "{user=<default>}", "", 1, 100),
            ("dead", None, 1.0, "{user=bob}", None, 0, 0),
        ]
    )
