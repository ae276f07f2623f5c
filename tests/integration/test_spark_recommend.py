"""Recommendations where quotas were changed in the period, and what may never be proposed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.pipeline import frames, schema
from headgate.pipeline.answers import recommend, replay
from headgate.pipeline.answers.advice import Advice
from headgate.pipeline.emitted import ACTIVITY
from headgate.pipeline.quotas import Quotas
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.file import QuotaEvent
from headgate.quota.key import PRODUCER, QuotaType
from headgate.quota.table import QuotaTable
from headgate.throttle.manager import ClientQuotaManager
from kit.pipeline_rows import S, asked, did, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
DAVE, PAIR = QuotaEntity.of(user="dave"), QuotaEntity.of(user="dave", client_id=DEFAULT)
IN_FORCE = QuotaTable.of({DAVE: {PRODUCER: 1_000_000.0}})
BARE = Advice(max_request_bytes=0)


def advised(
    activity: DataFrame, requests: DataFrame, quotas: Quotas, how: Advice = BARE
) -> dict[str, dict[str, Any]]:
    """Return the recommendations by action and entity."""
    transform = recommend.recommend(
        quotas,
        lambda options: requests.transform(replay.pack_requests(options)),
        how,
        requests=lambda: requests,
    )
    found = activity.transform(transform).collect()
    return {f"{r['action']} {r['entity']}": r.asDict() for r in found}


def steady(spark: SparkSession) -> DataFrame:
    """Return five minutes of a client that sends 100 kB/s, 3 kB/s of it in the middle minute."""
    rows = [
        asked(s * 1000.0, "dave", "app", 3_000 if 120 <= s < 180 else 100_000, seq=s)
        for s in range(300)
    ]
    return frame(spark, schema.REQUESTS, rows).persist()


def test_a_quota_that_was_removed_in_the_period_isnt_the_one_in_force(spark: SparkSession) -> None:
    requests = steady(spark)
    history = [
        QuotaEvent(S + 120_000, PAIR, PRODUCER, 3000.0),
        QuotaEvent(S + 180_000, PAIR, PRODUCER, None),
    ]
    quotas = Quotas.with_history(IN_FORCE, history)
    found = advised(requests.transform(frames.activity), requests, quotas)
    assert list(found) == ["set {user=dave}"]
    dave = found["set {user=dave}"]
    assert (dave["current"], dave["recommended"]) == (1_000_000.0, 120_000.0)
    assert "(for a part of the time 3,000, which is no longer in force)" in dave["reason"]


def test_a_journals_quota_ids_whose_quota_is_gone_are_left_out(spark: SparkSession) -> None:
    own = {"quota_user": "dave", "quota_client_id": "app", "quota": 3000.0, "quota_id": "dave:app"}
    activity = frame(
        spark,
        ACTIVITY,
        [
            did(s, "dave", "app", "producer_byte_rate", bytes=3000, amount=3000.0, **own)
            if s >= 240
            else did(s, "dave", "app", "producer_byte_rate", bytes=100_000, amount=100_000.0)
            for s in range(300)
        ],
    )
    found = advised(activity, steady(spark), Quotas.of(IN_FORCE))
    assert list(found) == ["set {user=dave}"]
    assert found["set {user=dave}"]["current"] == 1_000_000.0
    assert "3,000, which is no longer in force" in found["set {user=dave}"]["reason"]
    # Without any quotas given a journal's last ones are in force.
    found = advised(activity, steady(spark), Quotas.of(QuotaTable()))
    ((name, only),) = found.items()
    assert name.endswith("{user=dave, client-id=app}")
    assert only["current"] == 3000.0
    assert "(for a part of the time none, which is no longer in force)" in only["reason"]


def closed_loop(sizes: list[int], limit: float | None) -> list[dict[str, Any]]:
    """Return requests of a saturated producer under a limit, as Kafka's manager would hold it."""
    manager = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE)
    if limit is not None:
        manager.update_quota(DAVE, limit, 0)
    rows, now = [], 0.0
    for n, size in enumerate(sizes):
        told = manager.record("dave", "app", float(size), round(now)).throttle_time_ms
        rows.append(asked(now, "dave", "app", size, seq=n, throttle_time_ms=max(told, 0)))
        now += max(told, 0) + 50.0
    return rows


def test_nothing_is_set_that_would_throttle_more_than_now(spark: SparkSession) -> None:
    # A burst of 15 s every two minutes: 95 % of the time hardly anything, and nobody waits now.
    rows = [
        asked(s * 1000.0, "dave", "app", 500_000 if s % 400 < 15 else 2_000, seq=s)
        for s in range(800)
    ]
    requests = frame(spark, schema.REQUESTS, rows).persist()
    found = advised(requests.transform(frames.activity), requests, Quotas.of(IN_FORCE))
    ((name, only),) = found.items()
    assert only["throttle_time_ms_current"] == 0
    # The percentile alone would have been lower; the peak is 500 kB/s.
    assert name == "set {user=dave}"
    assert only["recommended"] == 600_000.0
    assert only["throttle_time_ms_recommended"] == 0
    assert "so its peak counts" in only["reason"]


def test_the_figure_under_another_limit_is_the_closed_loops(spark: SparkSession) -> None:
    limited = QuotaTable.of({DAVE: {PRODUCER: 50_000.0}})
    requests = frame(spark, schema.REQUESTS, closed_loop([100_000] * 100, 50_000.0)).persist()
    found = advised(requests.transform(frames.activity), requests, Quotas.of(limited))
    ((_, only),) = found.items()
    assert only["demand"] == "saturated"
    assert only["throttle_time_ms_current"] > 100_000
    # A saturated client waits under a limit a fifth higher too: a replay said 0.
    assert only["recommended"] > 50_000.0
    then = only["throttle_time_ms_recommended"]
    assert then is None or then > 0.5 * only["throttle_time_ms_current"]
    assert only["throttled_requests_recommended"] is None
