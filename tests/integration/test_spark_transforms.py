"""Every transform on row literals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.pipeline import frames, schema
from headgate.pipeline.answers import chargeback, effective, recommend, replay, storms, usage
from headgate.pipeline.answers.advice import Advice
from headgate.pipeline.answers.usage import DAY_MS, HOUR_MS
from headgate.pipeline.answers.what_if import options_of, what_if_packed
from headgate.pipeline.emitted import ACTIVITY
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.packed_format import PackOptions
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import (
    CONNECTION,
    CONSUMER,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    REQUEST,
)
from headgate.quota.table import QuotaTable
from kit.pipeline_rows import S, asked, did, frame, ordered, rows_of, same_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
P, C, R = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
ALICE, BOB_ETL = QuotaEntity.of(user="alice"), QuotaEntity.of(user="bob", client_id="etl")
QUOTAS = Quotas.of(
    QuotaTable.of(
        {
            ALICE: {PRODUCER: 1000.0, REQUEST: 50.0},
            BOB_ETL: {PRODUCER: 500.0},
            QuotaEntity.of(user="carol"): {CONSUMER: 9.0, MUTATION: 2.0},
        }
    ),
    "now",
)


def test_usage_counts_each_request_in_one_row(spark: SparkSession) -> None:
    activity = frame(
        spark,
        ACTIVITY,
        [
            did(0, "alice", "x", P, requests=3, bytes=300, amount=300.0),
            did(0, "alice", "y", P, throttle_time_ms=70, throttled_requests=1)
            | {"max_throttle_time_ms": 70, "bytes_estimated": 100},
            did(0, "alice", "y", R, handler_ns=2_000_000, request_ns=2_000_000),
            did(1, "alice", "y", P),
            did(0, "alice", "y", P, broker_id=2),
            did(0, "bob", "etl", P),
            did(0, "bob", "other", P),
            did(0, "alice", "x", C, is_charged=False),
        ],
    )
    found = activity.transform(usage.usage(QUOTAS))
    assert same_schema(found, schema.USAGE)
    sums = ("requests", "bytes", "bytes_estimated", "amount", "handler_ms", "throttle_time_ms")
    columns = ("quota_type", "quota_id", "broker_id", "second_ms", *sums)
    assert rows_of(found, *columns, "throttled_requests", "max_throttle_time_ms") == ordered(
        [
            (P, ":other", 1, S, 1, 100, 0, 100.0, 1.0, 0, 0, 0),
            (P, "alice:", 1, S + 1000, 1, 100, 0, 100.0, 1.0, 0, 0, 0),
            (P, "alice:", 1, S, 4, 400, 100, 400.0, 2.0, 70, 1, 70),
            (P, "alice:", 2, S, 1, 100, 0, 100.0, 1.0, 0, 0, 0),
            (P, "bob:etl", 1, S, 1, 100, 0, 100.0, 1.0, 0, 0, 0),
            # thread time of all of alice's requests; only the metadata one counts as a request here
            (R, "alice:", 1, S + 1000, 0, 0, 0, 0.1, 0.0, 0, 0, 0),
            (R, "alice:", 1, S, 1, 0, 0, pytest.approx(0.4), 2.0, 0, 0, 0),
            (R, "alice:", 2, S, 0, 0, 0, 0.1, 0.0, 0, 0, 0),
            (R, "bob:", 1, S, 0, 0, 0, 0.2, 0.0, 0, 0, 0),
        ]
    )
    quotas = rows_of(
        found.where("quota_type = 'producer_byte_rate'").distinct(), "quota_id", "quota"
    )
    assert set(quotas) == {(":other", None), ("alice:", 1000.0), ("bob:etl", 500.0)}


def test_a_journals_own_quota_id_wins(spark: SparkSession) -> None:
    own = {"quota_id": "q:", "quota_user": "q", "quota_client_id": "", "quota": 7.0}
    activity = frame(spark, ACTIVITY, [did(0, "alice", "x", P, **own), did(0, "alice", "x", P)])
    found = activity.transform(usage.usage(QUOTAS)).where("quota_type = 'producer_byte_rate'")
    assert rows_of(found, "quota_id", "quota") == [("alice:", 1000.0), ("q:", 7.0)]


def test_rollups_have_peaks_and_percentiles(spark: SparkSession) -> None:
    seconds = [
        did(s, "alice", "x", P, bytes=b, amount=float(b), request_ns=0)
        for s, b in [(0, 100), (1, 200), (2, 300), (3, 400), (4, 10_000), (3600, 5)]
    ]
    activity = frame(spark, ACTIVITY, seconds)
    hours = activity.transform(usage.usage(QUOTAS, schema.USAGE_HOUR))
    assert same_schema(hours, schema.USAGE_HOUR)
    columns = ("period_ms", "requests", "bytes", "active_seconds", "peak_per_s", "p50_per_s")
    hour = S - S % HOUR_MS
    assert rows_of(hours, *columns, "p95_per_s") == ordered(
        [
            (hour + HOUR_MS, 1, 5, 1, 5.0, 5.0, 5.0),
            (hour, 5, 11_000, 5, 10_000.0, 300.0, pytest.approx(8080.0)),
        ]
    )
    days = activity.transform(usage.usage(QUOTAS, schema.USAGE_DAY))
    assert rows_of(days, "requests", "bytes", "active_seconds") == [(6, 11_005, 6)]


def test_activity_of_requests(spark: SparkSession) -> None:
    requests = frame(
        spark,
        schema.REQUESTS,
        [
            asked(0, "alice", "x", 100, throttle_time_ms=5),
            asked(999.9, "alice", "x", 50, bytes_exact=False),
            asked(1000, "alice", "x", 7),
            asked(0, "alice", "x", 9, source="journal", decided_throttle_time_ms=3)
            | {"throttle_time_ms": 8},
            asked(0, "alice", "x", 0, source="journal", quota_type=R, amount=0.5)
            | {"is_request": False, "handler_ms": 0.0},
        ],
    )
    found = requests.transform(frames.activity)
    assert same_schema(found, ACTIVITY)
    columns = ("quota_type", "second_ms", "requests", "bytes", "bytes_estimated")
    columns += ("throttle_time_ms", "throttled_requests", "max_throttle_time_ms", "request_ns")
    assert rows_of(found, *columns) == ordered(
        [
            (P, S + 1000, 1, 7, 0, 0, 0, 0, 1_000_000),
            (P, S, 3, 159, 50, 8, 2, 5, 2_000_000),
            (R, S, 0, 0, 0, 0, 0, 0, 5_000_000),
        ]
    )


def replayed(requests: DataFrame) -> DataFrame:
    """REPLAY of a frame's rows."""
    options = PackOptions((QUOTAS,))
    packed = requests.transform(replay.pack_requests(options))
    return packed.transform(replay.replay_packed(options))


def what_if(requests: DataFrame, plans: Sequence[Quotas]) -> DataFrame:
    """WHAT_IF of a frame's rows; the first plan's quota-ids are those of plan `logged`."""
    options = options_of(plans)
    packed = requests.transform(replay.pack_requests(options))
    return packed.transform(what_if_packed(options))


def test_replay_of_a_frame(spark: SparkSession) -> None:
    rows = [asked(0, "alice", "x", 30_000), asked(2000, "alice", "y", 1, throttle_time_ms=9)]
    found = replayed(frame(spark, schema.REQUESTS, rows))
    assert same_schema(found, schema.REPLAY)
    columns = ("seq", "quota_id", "quota_bps", "logged_throttle_time_ms")
    assert rows_of(found, *columns, "replayed_throttle_time_ms") == ordered(
        [
            (0, "alice:", 1000.0, 0, 20_000),
            (2000, "alice:", 1000.0, 9, 20_001),
        ]
    )
    sums = replay.agreement(found)
    assert [tuple(r.values()) for r in sums] == [(P, 2, 1, 1, 0, 0, 9, 40_001)]


def test_agreement_counts_requests_that_are_replayable_by_quota_type(spark: SparkSession) -> None:
    throttled = {"quota_type": P, "replayable": True}
    throttled |= {"logged_throttle_time_ms": 7, "replayed_throttle_time_ms": 8}
    free = throttled | {"logged_throttle_time_ms": 0, "replayed_throttle_time_ms": 0}
    equal = throttled | {"replayed_throttle_time_ms": 7}
    rows = [throttled, free, throttled | {"quota_type": "other"}, throttled | {"replayable": False}]
    found = replay.agreement(frame(spark, schema.REPLAY, [*rows * 50, equal]))
    assert [tuple(row.values()) for row in found] == [
        ("other", 50, 50, 50, 0, 50, 350, 400),
        (P, 101, 101, 51, 1, 51, 357, 407),
    ]
    assert replay.agreement(frame(spark, schema.REPLAY, [])) == []


def test_what_if_shows_plans_side_by_side(spark: SparkSession) -> None:
    rows = [asked(0, "alice", "x", 30_000, throttle_time_ms=4), asked(1, "alice", "y", 1)]
    rows += [asked(0, "bob", "etl", 10_000), asked(0, "bob", "etl", 10, quota_type=R)]
    half = Quotas.of(QuotaTable.of({ALICE: {PRODUCER: 500.0}}), "half")
    found = what_if(frame(spark, schema.REQUESTS, rows), [QUOTAS, half])
    assert same_schema(found, schema.WHAT_IF)
    columns = ("plan", "quota_id", "client_id", "quota", "requests", "bytes", "throttled_requests")
    assert rows_of(
        found, *columns, "throttle_time_ms", "delayed_bytes", "delayed_share"
    ) == ordered(
        [
            ("half", "alice:", "x", 500.0, 1, 30_000, 1, 50_000, 30_000, 1.0),
            ("half", "alice:", "y", 500.0, 1, 1, 1, 50_001, 1, 1.0),
            ("half", "bob:", "etl", None, 1, 10_000, 0, 0, 0, 0.0),
            ("logged", "alice:", "x", 1000.0, 1, 30_000, 1, 4, 0, 0.0),
            ("logged", "alice:", "y", 1000.0, 1, 1, 0, 0, 0, 0.0),
            ("logged", "bob:etl", "etl", 500.0, 1, 10_000, 0, 0, 0, 0.0),
            ("now", "alice:", "x", 1000.0, 1, 30_000, 1, 20_000, 30_000, 1.0),
            ("now", "alice:", "y", 1000.0, 1, 1, 1, 20_000, 1, 1.0),
            ("now", "bob:etl", "etl", 500.0, 1, 10_000, 1, 10_000, 10_000, 1.0),
        ]
    )


def test_plans_of_all_levels_together_give_what_each_gives_alone(spark: SparkSession) -> None:
    whose = [("alice", "x"), ("alice", "y"), ("bob", "x"), ("carol", ""), ("bob", "z")]
    rows = [
        asked(7 * i // 2, who, client, 100 + 37 * i, broker_id=1 + i % 2)
        for i in range(60)
        for who, client in whose[i % 3 : i % 3 + 3]
    ]
    levels: list[dict[str, Any]] = [
        {"user": DEFAULT},
        {"user": DEFAULT, "client_id": DEFAULT},
        {"client_id": DEFAULT},
        {"user": "alice", "client_id": "x"},
        {"user": "bob"},
    ]
    plans = [
        Quotas.of(QuotaTable.of({QuotaEntity.of(**level): {PRODUCER: 40.0 + n}}), f"p{n}")
        for n, level in enumerate(levels)
    ]
    requests = frame(spark, schema.REQUESTS, rows)
    columns = [n for n in schema.WHAT_IF.names if n != "plan"]
    together = what_if(requests, plans).collect()
    for plan in plans[:3]:  # one of each level: a run of its own takes seconds
        alone = what_if(requests, [plan]).where("plan <> 'logged'")
        mine = ordered([tuple(r[n] for n in columns) for r in together if r["plan"] == plan.name])
        assert mine == rows_of(alone, *columns)
        assert sum(r["throttle_time_ms"] for r in together if r["plan"] == plan.name) > 100_000


def test_chargeback_sums_and_prices(spark: SparkSession) -> None:
    activity = frame(
        spark,
        ACTIVITY,
        [
            did(0, "alice", "x", P, bytes=3 * 10**9, requests=10),
            did(0, "alice", "y", P, bytes=10**9, broker_id=2),
            did(1, "alice", "x", P, bytes=10**9, throttle_time_ms=5, throttled_requests=1),
            did(1, "carol", "x", C, bytes=5 * 10**9),
            did(90_000, "carol", "x", R, requests=1_000_000, handler_ns=3600 * 10**9),
            did(1, "dave", "x", C, is_charged=False, bytes=10**12),
        ],
    )
    alice = chargeback.Prices("EUR", bytes_in_per_gb=3.0, fixed_per_period=10.0)
    prices = chargeback.Prices(
        "EUR", 2.0, 0.5, 4.0, 1.5, fixed_per_period=10.0, principals={"alice": alice}
    )
    found = activity.transform(chargeback.chargeback(QUOTAS, period="day", prices=prices))
    assert same_schema(found, schema.CHARGEBACK)
    day = S - S % DAY_MS
    columns = ("principal", "period_ms", "requests", "bytes_in", "bytes_out", "throttled_requests")
    assert rows_of(found, *columns) == ordered(
        [
            ("alice", day, 12, 5 * 10**9, 0, 1),
            ("carol", day, 1, 0, 5 * 10**9, 0),
            ("carol", day + DAY_MS, 1_000_000, 0, 0, 0),
        ]
    )
    columns = ("principal", "peak_in_bps", "peak_out_bps", "peak_in_quota_share", "cluster_share")
    assert rows_of(found.where(f"period_ms = {day}"), *columns, "currency") == ordered(
        [
            ("alice", 4e9, 0.0, 3e6, 0.5, "EUR"),
            ("carol", 0.0, 5e9, None, 0.5, "EUR"),
        ]
    )
    parts = ("price_in", "price_out", "price_requests", "price_handler", "price_fixed", "price")
    by_who = {(r[0], r[1]): r[2:] for r in rows_of(found, "principal", "period_ms", *parts)}
    assert by_who["alice", day][0] == 15.0
    assert by_who["carol", day][1] == 2.5
    assert by_who["carol", day + DAY_MS] == (0.0, 0.0, 4.0, 1.5, 10.0, 15.5)


def test_effective_explains_and_finds_dead_quotas(spark: SparkSession) -> None:
    quotas = Quotas.of(
        QuotaTable.of(
            {
                ALICE: {PRODUCER: 1000.0},
                QuotaEntity.of(user="alice", client_id="x"): {PRODUCER: 7.0},
                QuotaEntity.of(user=DEFAULT): {PRODUCER: 1.0},
                QuotaEntity.of(user="gone"): {PRODUCER: 3.0},
            }
        )
    )
    rows = [did(0, "alice", "x", P), did(9, "alice", "x", P), did(0, "zoe", "z", P)]
    found = frame(spark, ACTIVITY, rows).transform(effective.effective(quotas))
    assert same_schema(found, schema.EFFECTIVE)
    hidden = "{user=alice}=1000; {user=<default>}=1"
    columns = ("kind", "principal", "client_id", "quota_id", "value", "source", "overridden")
    assert rows_of(found, *columns, "requests", "bytes") == ordered(
        [
            ("applied", "alice", "x", "alice:x", 7.0, "{user=alice, client-id=x}", hidden, 2, 200),
            ("applied", "zoe", "z", "zoe:", 1.0, "{user=<default>}", "", 1, 100),
            ("dead", None, None, None, 1000.0, "{user=alice}", None, 0, 0),
            ("dead", None, None, None, 3.0, "{user=gone}", None, 0, 0),
        ]
    )


def test_effective_knows_what_else_binds_a_request(spark: SparkSession) -> None:
    everyone, gone = QuotaEntity.of(user=DEFAULT), QuotaEntity.of(user="gone")
    quotas = Quotas.of(
        QuotaTable.of(
            {
                everyone: {PRODUCER_BPS: 500.0, REQUEST: 50.0, PRODUCER_IDS: 2.0},
                gone: {PRODUCER_BPS: 9.0, CONNECTION: 1.0},
            }
        )
    )
    rows = [did(0, "alice", "x", P), did(1, "alice", "x", R, requests=3, bytes=0)]
    found = frame(spark, ACTIVITY, rows).transform(effective.effective(quotas))
    assert rows_of(found, "kind", "quota_key", "value", "source", "requests", "bytes") == ordered(
        [
            ("applied", "producer_byte_rate:broker_bps", None, None, 1, 100),
            ("applied", "producer_byte_rate:bps", 500.0, "{user=<default>}", 1, 100),
            ("applied", "producer_ids_rate:per_s", 2.0, "{user=<default>}", 1, 0),
            ("applied", "request_percentage:percent", 50.0, "{user=<default>}", 4, 0),
            ("dead", "producer_byte_rate:bps", 9.0, "{user=gone}", 0, 0),
            ("dead", "connection_creation_rate:per_s", 1.0, "{user=gone}", 0, 0),
        ]
    )


def test_storms_are_runs_of_seconds_above_threshold_and_habit(spark: SparkSession) -> None:
    connections = [
        (1, "L", "10.0.0.1", f"c{s}-{i}", float(S + s * 1000 + i))
        for s, n in [(0, 1), (5, 1), (10, 40), (11, 60), (14, 20), (60, 30), (90, 9)]
        for i in range(n)
    ]
    connections += connections[:50]  # seen again in the next piece of the log
    names = "broker_id int, listener string, client_ip string, connection string, first_ms double"
    seen = storms.connections_by_second(spark.createDataFrame(connections, names))
    busy = [did(s, "alice", "x", P, requests=3000) for s in range(20)]
    burst = [did(s, "bob", "y", P, requests=20) for s in range(20)]
    burst += [did(30, "bob", "y", P, requests=2500, handler_ns=5 * 10**8)]
    burst += [did(31, "eve", "", P, producer_ids=500)]
    # What a Produce held isn't new; what was charged or given out is: the larger, not the sum.
    burst += [did(40, "eve", "", "producer_ids_rate", amount=300.0, producer_ids=900)]
    given = did(40, "eve", "", "", requests=0, producer_ids=400)
    burst.append({**given, "quota_type": None})
    activity = frame(spark, ACTIVITY, [*busy, *burst])
    found = storms.storms()(activity, seen)
    assert same_schema(found, schema.STORMS)
    per_ip, ids = "connection_creation_rate", "producer_ids_rate"
    columns = ("kind", "entity", "start_ms", "end_ms", "count", "peak_per_s", "quota_type", "quota")
    assert rows_of(found, *columns) == ordered(
        [
            ("connection", "{ip=10.0.0.1}", S + 10_000, S + 15_000, 120, 60.0, per_ip, 10.0),
            ("connection", "{ip=10.0.0.1}", S + 60_000, S + 61_000, 30, 30.0, per_ip, 10.0),
            ("producer_id", "{user=eve}", S + 40_000, S + 41_000, 400, 400.0, ids, 10.0),
            ("request", "{user=bob, client-id=y}", S + 30_000, S + 31_000, 2500, 2500.0, R, 20.0),
        ]
    )
    reasons = [r["reason"] for r in found.orderBy("start_ms").collect()]
    assert reasons[0] == (
        "120 in 5 s, up to 60/s, usually 1/s; the larger of 5 times that and the threshold of 10/s"
    )
    assert reasons[1] == (
        "2500 requests in 1 s, up to 2500/s, usually 20/s; the larger of 5 times that and the "
        "threshold is 1000/s, at 0.200 ms of a thread each"
    )


def test_recommend_proposes_with_the_throttling_it_would_cause(spark: SparkSession) -> None:
    quotas = Quotas.of(
        QuotaTable.of(
            {
                ALICE: {PRODUCER: 1000.0},
                QuotaEntity.of(user="bob"): {PRODUCER: 100_000.0},
                QuotaEntity.of(user="gone"): {PRODUCER: 3.0},
            }
        ),
        "now",
    )
    rows = [
        asked(s * 1000.0, who, client, size, seq=s)
        for s in range(60)
        for who, client, size in (("alice", "big", 1900), ("alice", "small", 100), ("bob", "b", 5))
    ]
    rows += [asked(s * 1000.0, "carol", "c", 70_000, seq=s) for s in range(0, 60, 20)]
    requests = frame(spark, schema.REQUESTS, rows).persist()
    transform = recommend.recommend(
        quotas,
        lambda options: requests.transform(replay.pack_requests(options)),
        Advice(max_request_bytes=10_000),
    )
    found = requests.transform(frames.activity).transform(transform)
    assert same_schema(found, schema.RECOMMEND)
    by_action: dict[str, dict[str, Any]] = {
        f"{r['action']} {r['entity']}": r.asDict() for r in found.collect()
    }
    assert set(by_action) == {
        "set {user=alice}",
        "set {user=bob}",
        "split {user=alice, client-id=big}",
        "remove {user=gone}",
        "wait {user=carol}",
    }
    alice = by_action["set {user=alice}"]
    assert (alice["current"], alice["recommended"]) == (1000.0, 2400.0)
    assert (alice["observed_percentile"], alice["observed_peak"]) == (2000.0, 2000.0)
    assert alice["throttled_requests_current"] > 80
    assert alice["throttled_requests_recommended"] == 0
    assert alice["reason"] == (
        "95% of the time at most 2,000 B/s over 10 s (peak 2,000), times 1.2, rounded up: 2,400; "
        "1,000 now"
    )
    assert by_action["set {user=bob}"]["recommended"] == 1000.0
    assert by_action["set {user=bob}"]["reason"] == (
        "95% of the time at most 5 B/s over 10 s (peak 5), times 1.2, rounded up: 6, raised to the "
        "floor of 1,000, at which one request of 10,000 bytes in 10 s isn't throttled; 100,000 now"
    )
    carol = by_action["wait {user=carol}"]
    assert (carol["recommended"], carol["observed_peak"]) == (None, 7000.0)
    assert carol["throttled_requests_recommended"] == carol["throttled_requests_current"] == 0
    assert carol["reason"] == (
        "too little history: 3 seconds with use, in 41 s from first to last; a figure needs 10 in "
        "60 s; no limit now"
    )
    piece = by_action["split {user=alice, client-id=big}"]
    assert piece["recommended"] == 2300.0
    assert piece["throttle_time_ms_current"] == alice["throttle_time_ms_current"]
    assert piece["throttle_time_ms_recommended"] == 0


def test_what_a_quota_id_used_is_added_up_once_for_its_brokers_and_its_days(
    spark: SparkSession,
) -> None:
    rows = [
        did(day * 86_400 + second, "alice", "x", P, broker_id=broker, bytes=size << day)
        for day in range(3)
        for broker, second, size in ((1, 0, 100), (1, 10, 100), (2, 0, 300))
    ]
    activity = frame(spark, ACTIVITY, rows)
    seen = activity.transform(usage.usage(QUOTAS)).transform(recommend.observe(Advice()))
    (alice,) = seen.collect()
    # The busier broker's rates over 10 s are 30, 60 and 120.
    assert tuple(alice[:5]) == (P, "alice", "", pytest.approx(114.0), 120.0)
    assert tuple(alice[5:]) == (pytest.approx(1.0), 1000.0, 2 * 86_400 + 11, 6, 0.0)
    plan = seen._jdf.queryExecution().executedPlan().toString()
    assert plan.count("MapInArrow Resolve(") == 1


def test_who_was_told_to_wait_most_of_the_time_isnt_said_to_wait_no_longer(
    spark: SparkSession,
) -> None:
    limits = {QuotaEntity.of(user=who): {PRODUCER: 1000.0} for who in ("held", "once")}
    # Every 5 s more than the limit lets through; waits that overlap count once.
    rows = [
        asked(s * 1000.0 + at, who, "c", 2750, seq=2 * s + at, throttle_time_ms=told)
        for s in range(0, 60, 5)
        for who, waits in (("held", (2000, 4900)), ("once", (300, 1000)))
        for at, told in enumerate(waits)
    ]
    requests = frame(spark, schema.REQUESTS, rows).persist()
    transform = recommend.recommend(
        Quotas.of(QuotaTable.of(limits), "now"),
        lambda options: requests.transform(replay.pack_requests(options)),
        Advice(max_request_bytes=0, min_history_s=50),
    )
    found = requests.transform(frames.activity).transform(transform).collect()
    held, once = sorted(found, key=lambda r: str(r["user"]))
    assert (held["action"], held["recommended"]) == (once["action"], once["recommended"])
    assert held["recommended"] > 1000.0
    # From second 0 to 55 there are 56; the last wait goes on beyond them.
    assert (held["held_share"], once["held_share"]) == (1.0, 12 / 56)
    assert once["throttled_requests_recommended"] < once["throttled_requests_current"]
    assert held["throttled_requests_recommended"] is held["throttle_time_ms_recommended"] is None
    assert held["throttle_time_ms_current"] > 0
    assert "told to wait 100% of the time: what it would have sent isn't seen" in held["reason"]
    assert "isn't seen" not in once["reason"]


def test_the_jvm_has_room_for_what_many_queries_compile(spark: SparkSession) -> None:
    # With 48 MB, Java's own choice for its first compiler alone, a session of all tests died.
    jvm: Any = spark._jvm
    management = jvm.java.lang.management.ManagementFactory
    assert "-XX:ReservedCodeCacheSize=240m" in management.getRuntimeMXBean().getInputArguments()
