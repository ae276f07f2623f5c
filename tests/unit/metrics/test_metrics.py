"""Names, labels, values: what a scrape shows, and that showing it changes nothing."""

import csv
import itertools
import math
import random
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.metrics import BY_NAME, METRICS, BrokerView, Meters, prometheus_name
from headgate.metrics.expose import draw, page
from headgate.metrics.meters import BlockedMeter, Mean
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import (
    CONSUMER,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
    QuotaType,
)
from headgate.steps import finish
from headgate.throttle.bps import BpsQuotaManager
from headgate.throttle.controller_mutation import ControllerMutationQuotaManager
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.pacing import PacedQuotaManager
from headgate.throttle.producer_id import ProducerIdQuotaManager
from headgate.throttle.request import RequestQuotaManager
from headgate.throttle.shares import SharesQuotaManager
from kit.metrics_page import metrics_page
from kit.samples import read_samples

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data" / "gateway"
RATES_OF_KAFKA = {
    "one_minute": "OneMinuteRate",
    "five_minute": "FiveMinuteRate",
    "fifteen_minute": "FifteenMinuteRate",
}
T0 = 1_795_262_069_485


def producer(**quotas: float) -> ClientQuotaManager:
    manager = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE, start_ms=T0)
    for user, value in quotas.items():
        manager.update_quota(QuotaEntity.of(user=user), value, T0)
    return manager


def shown(view: BrokerView, now_ms: int) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (s.name, tuple(label for label in s.labels if label[0] != "broker")): s.value
        for s in read_samples(view, now_ms)
    }


@pytest.mark.parametrize(
    ("group", "metric", "name"),
    [
        ("Produce", "byte-rate", "kafka_server_produce_byte_rate"),
        ("ControllerMutation", "tokens", "kafka_server_controllermutation_tokens"),
        ("ProducerIds", "throttle-time", "kafka_server_producerids_throttle_time"),
        (
            "socket-server-metrics",
            "connection-accept-rate",
            "kafka_server_socket_server_metrics_connection_accept_rate",
        ),
    ],
)
def test_55_6_one_rule_names_kafkas_metrics(group: str, metric: str, name: str) -> None:
    assert prometheus_name("kafka.server", group, metric) == name
    assert name in BY_NAME


def test_55_6_a_series_carries_only_the_tags_that_apply_user_encoded_client_id_raw() -> None:
    manager = producer(alice=1000)
    manager.update_quota(QuotaEntity.of(user="CN=a b,O=*", client_id="x/y"), 500, T0)
    manager.update_quota(QuotaEntity.of(client_id=DEFAULT), 700, T0)
    manager.record("alice", "any", 10, T0)
    manager.record("CN=a b,O=*", "x/y", 10, T0)
    manager.record("bob", "c d", 10, T0)
    rates = {
        labels
        for name, labels in shown(BrokerView(1, {PRODUCER: manager}), T0)
        if name == "kafka_server_produce_byte_rate"
    }
    assert rates == {
        (("user", "alice"),),
        (("user", "CN%3Da%20b%2CO%3D%2A"), ("client_id", "x/y")),
        (("client_id", "c d"),),
    }


def test_936_7_producer_ids_have_kafkas_style_of_names_and_the_tag_user() -> None:
    for metric in ("rate", "tokens", "throttle_time"):
        assert BY_NAME[f"kafka_server_producerids_{metric}"].labels == ("user",)


def test_612_8_kafkas_released_connection_metrics_are_exported() -> None:
    meters = Meters()
    meters.listeners["PLAINTEXT"].throttle_time.record(400, T0)
    meters.listeners["PLAINTEXT"].ip_throttle_time.record(100, T0)
    blocked = meters.listeners["PLAINTEXT"].blocked = BlockedMeter(T0 - 60_000)
    blocked.mark(6_000, T0)
    rates = {
        ("broker", ""): (3.0, None),
        ("listener", "PLAINTEXT"): (2.0, 5.0),
        ("ip", "127.0.0.1"): (1.0, 4.0),
    }
    found = shown(BrokerView(1, meters=meters, connection_rates=rates), T0)
    server = "kafka_server_socket_server_metrics"
    at = (("listener", "PLAINTEXT"),)
    assert found[f"{server}_broker_connection_accept_rate", ()] == 3.0
    assert found[f"{server}_connection_accept_rate", at] == 2.0
    assert found[f"{server}_connection_accept_rate", (("ip", "127.0.0.1"),)] == 1.0
    assert found[f"{server}_connection_accept_throttle_time", at] == 400
    assert found[f"{server}_ip_connection_accept_throttle_time", at] == 100
    mean = (*at, ("rate", "mean"))
    assert found["kafka_network_acceptor_acceptorblockedpercent", mean] == 0.1
    ip = (("quota_type", "connection_creation_rate"), ("unit", "per_s"), ("ip", "127.0.0.1"))
    assert found["headgate_quota_utilisation", ip] == 0.25


def test_values_are_the_managers() -> None:
    manager = producer(alice=1000)
    manager.record("alice", "c", 5_000, T0)
    labels = (("quota_type", "producer_byte_rate"), ("unit", "broker_bps"), ("user", "alice"))
    found = shown(BrokerView(1, {PRODUCER: manager}), T0)
    assert found["kafka_server_produce_byte_rate", (("user", "alice"),)] == 500.0
    assert found["headgate_quota_value", labels] == 1000.0
    assert found["headgate_quota_utilisation", labels] == 0.5


@pytest.mark.parametrize(
    ("key", "group"), [(PRODUCER, "produce"), (CONSUMER, "fetch"), (REQUEST, "request")]
)
def test_kip_1373_utilisation_is_in_percent_of_the_quota_and_nan_without_one(
    key: QuotaKey, group: str
) -> None:
    manager: ClientQuotaManager = {
        PRODUCER: lambda: producer(alice=1000, eve=0),
        CONSUMER: lambda: producer(alice=1000, eve=0),
        REQUEST: lambda: RequestQuotaManager(start_ms=T0),
    }[key]()
    manager.update_quota(QuotaEntity.of(user="alice"), 1000, T0)
    manager.update_quota(QuotaEntity.of(user="eve"), 0, T0)
    for user in ("alice", "bob", "eve"):
        manager.record(user, "c", 5_000, T0)
    found = shown(BrokerView(1, {key: manager}), T0)
    name = f"kafka_server_{group}_quota_"
    assert found[f"{name}utilization", (("user", "alice"),)] == 50.0
    assert found[f"{name}value", (("user", "alice"),)] == 1000.0
    assert math.isnan(found[f"{name}utilization", (("user", "bob"),)])
    assert (f"{name}value", (("user", "bob"),)) not in found
    assert math.isnan(found[f"{name}utilization", (("user", "eve"),)])  # of nothing, as Kafka's
    assert found[f"{name}value", (("user", "eve"),)] == 0


def test_no_limit_shows_no_quota_and_no_utilisation() -> None:
    manager = producer(alice=1000)
    manager.record("bob", "c", 5_000, T0)
    rates = {("ip", "127.0.0.1"): (1.0, None), ("ip", "127.0.0.2"): (0.0, 0.0)}
    found = shown(BrokerView(1, {PRODUCER: manager}, connection_rates=rates), T0)
    nothing = (("quota_type", "connection_creation_rate"), ("unit", "per_s"), ("ip", "127.0.0.2"))
    assert found.pop(("headgate_quota_value", nothing)) == 0
    assert found["kafka_server_produce_byte_rate", (("user", "bob"),)] == 500.0
    assert not {"headgate_quota_value", "headgate_quota_utilisation"} & {name for name, _ in found}


def test_a_cluster_wide_quota_shows_beside_the_brokers_own() -> None:
    own, cluster = producer(alice=1000), producer(alice=4000)
    for manager in (own, cluster):
        manager.record("alice", "c", 5_000, T0)
    samples = read_samples(BrokerView(1, {PRODUCER: own, PRODUCER_BPS: cluster}), T0)
    assert len({(s.name, s.labels) for s in samples}) == len(samples)
    units = {dict(s.labels)["unit"] for s in samples if s.name == "headgate_quota_value"}
    assert units == {"broker_bps", "bps"}


def test_request_and_mutation_managers_show_kafkas_metrics() -> None:
    request, mutation = RequestQuotaManager(start_ms=T0), ControllerMutationQuotaManager()
    request.update_quota(QuotaEntity.of(user="u"), 50, T0)
    mutation.update_quota(QuotaEntity.of(user="u"), 2, T0)
    request.record_ns("u", "c", 1_000_000_000, T0)
    request.record_exempt_ns(3_000_000_000, T0)
    mutation.record("u", "c", 30, T0)
    found = shown(BrokerView(1, {REQUEST: request, MUTATION: mutation}), T0)
    user = (("user", "u"),)
    assert found["kafka_server_request_request_time", user] == pytest.approx(10.0)
    assert found["kafka_server_request_exempt_request_time", ()] == pytest.approx(10.0)
    assert found["kafka_server_controllermutation_mutation_rate", user] == 1.0
    assert found["kafka_server_controllermutation_tokens", user] == -8.0


def test_producer_ids_show_rate_and_tokens_by_user() -> None:
    manager = ProducerIdQuotaManager(start_ms=T0)
    manager.update_quota(QuotaEntity.of(user="u v"), 2, T0)
    manager.record("u v", range(30), T0)
    found = shown(BrokerView(1, {PRODUCER_IDS: manager}), T0)
    user = (("user", "u%20v"),)
    assert found["kafka_server_producerids_rate", user] > 0
    assert found["kafka_server_producerids_tokens", user] < 0
    own = (("quota_type", "producer_ids_rate"), ("unit", "per_s"), *user)
    assert found["headgate_quota_value", own] == 2
    assert ("headgate_quota_tokens", own) not in found


def test_a_cluster_wide_quota_shows_its_whole_and_this_brokers_part() -> None:
    manager = BpsQuotaManager(QuotaType.PRODUCER_BYTE_RATE, 2, start_ms=T0)
    manager.update_quota(QuotaEntity.of(user="u"), 4_000, T0)
    manager.record("u", "c", 100, T0)
    own = (("quota_type", "producer_byte_rate"), ("unit", "bps"), ("user", "u"))
    found = shown(BrokerView(1, {PRODUCER_BPS: manager}), T0)
    assert found["headgate_quota_value", own] == 4_000
    assert found["headgate_quota_split", own] == 2_000
    assert found["headgate_quota_tokens", own] == 1_900
    assert not [name for name, _ in found if name.startswith("kafka_server_produce_byte")]


def test_shares_show_their_weight_and_no_limit_while_nothing_is_contested() -> None:
    manager = SharesQuotaManager(QuotaType.PRODUCER_BYTE_RATE, 1e6, start_ms=T0)
    manager.update_quota(QuotaEntity.of(user="u"), 3, T0)
    manager.record("u", "c", 100, T0)
    own = (("quota_type", "producer_byte_rate"), ("unit", "shares"), ("user", "u"))
    found = shown(BrokerView(1, {PRODUCER_SHARES: manager}), T0)
    assert found["headgate_quota_value", own] == 3
    assert ("headgate_quota_split", own) not in found


def test_smooth_pacing_shows_the_bucket() -> None:
    manager = PacedQuotaManager(QuotaType.PRODUCER_BYTE_RATE, start_ms=T0)
    manager.update_quota(QuotaEntity.of(user="u"), 1_000, T0)
    manager.record("u", "c", 1_500, T0)
    own = (("quota_type", "producer_byte_rate"), ("unit", "broker_bps"), ("user", "u"))
    found = shown(BrokerView(1, {PRODUCER: manager}), T0)
    assert found["headgate_quota_tokens", own] == -500
    assert found["headgate_quota_value", own] == 1_000


def test_reading_never_changes_a_decision() -> None:
    rng = random.Random(7)
    read, unread = producer(alice=1000), producer(alice=1000)
    now = T0
    for _ in range(2_000):
        now += rng.choice((0, 1, 40, 900, 5_000, 11_000))
        amount = rng.randrange(20_000)
        read_samples(BrokerView(1, {PRODUCER: read}), now)
        assert read.record("alice", "c", amount, now) == unread.record("alice", "c", amount, now)


def test_a_mean_covers_a_minute_and_reading_leaves_it() -> None:
    mean = Mean()
    assert mean.peek(T0) is None
    mean.record(100, T0)
    mean.record(300, T0 + 20_000)
    mean.record(800, T0 + 35_000)
    assert mean.peek(T0 + 35_000) == mean.peek(T0 + 35_000) == 400
    assert mean.peek(T0 + 61_000) == 800
    assert mean.peek(T0 + 200_000) is None


def test_612_11_blocked_time_is_kafkas_meter() -> None:
    # Yammer's Meter and EWMA as they are written, moved every five seconds.
    alphas = [1 - math.exp(-5 / 60 / minutes) for minutes in (1, 5, 15)]
    rng = random.Random(5)
    blocked = BlockedMeter(T0)
    assert set(blocked.peek(T0).values()) == {0.0}
    rates: list[float] | None = None
    uncounted = total = now = ticks = 0
    for _ in range(3_000):
        now += rng.choice((1, 40, 700, 4_999, 5_000, 5_001, 31_000))
        while now >= (ticks + 1) * 5_000:
            ticks += 1
            instant, uncounted = uncounted / 5_000, 0
            if rates is None:
                rates = [instant] * 3
            else:
                rates = [r + a * (instant - r) for r, a in zip(rates, alphas, strict=True)]
        if rng.random() < 0.4:
            waited = rng.randrange(3_000)
            blocked.mark(waited, T0 + now)
            uncounted, total = uncounted + waited, total + waited
        found = blocked.peek(T0 + now)
        assert found == blocked.peek(T0 + now)
        assert list(found) == ["mean", "one_minute", "five_minute", "fifteen_minute"]
        assert found["mean"] == total / now
        assert list(found.values())[1:] == pytest.approx(rates or [0.0] * 3, rel=1e-9, abs=1e-12)


def test_612_11_the_figures_are_a_real_brokers() -> None:
    # tests/data/gateway/blocked.py asked a broker four times a second. Its waits are known from
    # what they added to Count between two answers, its meter's start from Count and MeanRate.
    lines = (DATA / "blocked.csv").read_text(encoding="ascii").splitlines()
    asked = [{n: float(v) for n, v in row.items()} for row in csv.DictReader(lines)]
    blocked = [row for row in asked if row["Count"]]
    first = blocked[-1]
    start_ms = round(first["time"] - first["Count"] / first["MeanRate"] / 1e6)
    meter = BlockedMeter(start_ms)
    told_ms = compared = 0
    for before, row in itertools.pairwise(asked):
        now_ms, count_ms = round(row["time"]), round(row["Count"] / 1e6)
        if count_ms > told_ms:
            meter.mark(count_ms - told_ms, now_ms)
            told_ms = count_ms
        ticks = [(int(at["time"]) - start_ms) // 5_000 for at in (before, row)]
        if ticks[0] != ticks[1]:
            continue  # the broker moved its averages before or after this answer
        found = meter.peek(now_ms)
        assert found["mean"] == pytest.approx(row["MeanRate"], rel=0.01)
        for rate, theirs in RATES_OF_KAFKA.items():
            assert found[rate] == pytest.approx(row[theirs], rel=0.05, abs=1e-6), (row, rate)
        compared += found["one_minute"] > 0
    assert compared > 100


def test_throttles_are_counted_by_quota_id_and_forgotten_with_it() -> None:
    meters = Meters()
    meters.throttle(QuotaType.PRODUCER_BYTE_RATE, "alice", "", 100, T0)
    meters.throttle(QuotaType.PRODUCER_BYTE_RATE, "alice", "", 300, T0)
    user = (("user", "alice"),)
    own = (("quota_type", "producer_byte_rate"), *user)
    found = shown(BrokerView(1, meters=meters), T0)
    assert found["kafka_server_produce_throttle_time", user] == 200
    assert found["headgate_throttled_total", own] == 2
    assert found["headgate_throttle_ms_total", own] == 400
    meters.forget(QuotaType.PRODUCER_BYTE_RATE, "alice", "")
    assert ("headgate_throttled_total", own) not in shown(BrokerView(1, meters=meters), T0)


def test_the_text_is_prometheus_own_and_every_family_is_in_the_table() -> None:
    manager = producer(alice=1000)
    manager.record("alice", "c", 5_000, T0)
    meters = Meters()
    meters.listeners["PLAINTEXT"].closed["idle"] += 1
    meters.throttle(QuotaType.PRODUCER_BYTE_RATE, "alice", "", 100, T0)
    views = [
        BrokerView(1, {PRODUCER: manager}, meters, info={"version": "1"}),
        BrokerView(2, {CONSUMER: producer(bob=1)}),
    ]
    text = page(finish(draw(read_samples(view, T0))) for view in views).decode()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    assert {s.name for s in samples} <= set(BY_NAME)
    assert 'kafka_server_produce_byte_rate{broker="1",user="alice"} 500.0' in text.splitlines()
    closed = 'headgate_connections_closed_total{broker="1",listener="PLAINTEXT",reason="idle"} 1.0'
    assert closed in text.splitlines()
    assert {s.labels["broker"] for s in samples} == {"1", "2"}
    allowed = {name: {"broker", *BY_NAME[name].labels} for name in BY_NAME}
    assert all(set(s.labels) <= allowed[s.name] for s in samples)


def test_every_metric_of_the_table_is_complete() -> None:
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert metric.doc.endswith(".")
        assert metric.name.startswith(("kafka_", "headgate_"))
        assert bool(metric.kafka) == metric.name.startswith("kafka_")
        assert (metric.kind == "counter") == metric.name.endswith("_total")


def test_the_reference_page_is_the_tables() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert page == metrics_page()


QUOTA_TAGS = ("user", "client_id")
KAFKAS_NAMES = {  # Kafka's group and metric, and the tags that may apply; as its sources spell them
    ("Produce", "byte-rate"): QUOTA_TAGS,
    ("Produce", "quota-utilization"): QUOTA_TAGS,
    ("Produce", "quota-value"): QUOTA_TAGS,
    ("Produce", "throttle-time"): QUOTA_TAGS,
    ("Produce", "queue-size"): (),
    ("Fetch", "byte-rate"): QUOTA_TAGS,
    ("Fetch", "quota-utilization"): QUOTA_TAGS,
    ("Fetch", "quota-value"): QUOTA_TAGS,
    ("Fetch", "throttle-time"): QUOTA_TAGS,
    ("Fetch", "queue-size"): (),
    ("Request", "request-time"): QUOTA_TAGS,
    ("Request", "quota-utilization"): QUOTA_TAGS,
    ("Request", "quota-value"): QUOTA_TAGS,
    ("Request", "throttle-time"): QUOTA_TAGS,
    ("Request", "queue-size"): (),
    ("Request", "exempt-request-time"): (),
    ("ControllerMutation", "mutation-rate"): QUOTA_TAGS,
    ("ControllerMutation", "tokens"): QUOTA_TAGS,
    ("ControllerMutation", "throttle-time"): QUOTA_TAGS,
    ("ControllerMutation", "queue-size"): (),
    ("ProducerIds", "rate"): ("user",),
    ("ProducerIds", "tokens"): ("user",),
    ("ProducerIds", "throttle-time"): ("user",),
    ("ProducerIds", "queue-size"): (),
    ("socket-server-metrics", "broker-connection-accept-rate"): (),
    ("socket-server-metrics", "connection-accept-rate"): ("listener", "ip"),
    ("socket-server-metrics", "connection-accept-throttle-time"): ("listener",),
    ("socket-server-metrics", "ip-connection-accept-throttle-time"): ("listener",),
}
OF_A_SUPERVISOR = {
    "headgate_worker_up",
    "headgate_worker_kills_total",
    "headgate_worker_restarts_total",
}


def test_612_7_936_7_55_6_kafkas_names_and_tags_are_these() -> None:
    found = {metric.name: metric for metric in METRICS if metric.kafka}
    wanted = {prometheus_name("kafka.server", *name): name for name in KAFKAS_NAMES}
    blocked = found.pop("kafka_network_acceptor_acceptorblockedpercent")
    assert blocked.labels == ("listener", "rate")
    assert blocked.kafka == "kafka.network:type=Acceptor,name=AcceptorBlockedPercent,listener=…"
    assert set(found) == set(wanted)
    for name, metric in found.items():
        group, attribute = wanted[name]
        assert metric.labels == KAFKAS_NAMES[group, attribute]
        assert metric.kafka.startswith(f"kafka.server:type={group}")
        assert metric.kafka.endswith(f" {attribute}")


def test_every_metric_of_the_table_is_shown_by_a_busy_gateway_with_its_labels() -> None:
    user, pair = QuotaEntity.of(user="u"), QuotaEntity.of(user="u", client_id="c")
    managers: dict[Any, Any] = {
        PRODUCER: PacedQuotaManager(QuotaType.PRODUCER_BYTE_RATE, start_ms=T0),
        CONSUMER: ClientQuotaManager(QuotaType.CONSUMER_BYTE_RATE, start_ms=T0),
        PRODUCER_BPS: BpsQuotaManager(QuotaType.PRODUCER_BYTE_RATE, 2, start_ms=T0),
        MUTATION: ControllerMutationQuotaManager(start_ms=T0),
    }
    for manager in managers.values():
        if isinstance(manager, PacedQuotaManager):
            manager.shows_rates = True
        manager.update_quota(pair, 5, T0)
        manager.record("u", "c", 50, T0)
    for n in range(5):  # more than have series of their own
        managers[CONSUMER].record("u", f"c{n}", 1, T0)
    request, ids = RequestQuotaManager(start_ms=T0), ProducerIdQuotaManager(start_ms=T0)
    request.update_quota(pair, 5, T0)
    request.record_ns("u", "c", 1_000_000, T0)
    ids.update_quota(user, 5, T0)
    ids.record("u", range(30), T0)
    meters = Meters()
    for kind in (QuotaType(key.type) for key in (*managers, REQUEST)):
        meters.throttle(kind, "u", "c", 100, T0)
    meters.throttle(QuotaType.PRODUCER_IDS_RATE, "u", "", 100, T0)
    meters.throttle(QuotaType.PRODUCER_IDS_RATE, "gone", "", 100, T0)
    meters.forget(QuotaType.PRODUCER_IDS_RATE, "gone", "")
    listener = meters.listeners["L"]
    listener.closed["idle"] += 1
    listener.blocked = BlockedMeter(T0)
    listener.throttle_time.record(1, T0)
    listener.ip_throttle_time.record(1, T0)
    meters.upstream_failures["connect"] += 1
    rates = {("broker", ""): (3.0, None), ("listener", "L"): (2.0, None), ("ip", "::1"): (1.0, 4.0)}
    info = dict.fromkeys(BY_NAME["headgate_info"].labels, "x")
    view = BrokerView(1, {**managers, REQUEST: request, PRODUCER_IDS: ids}, meters, rates, info, 4)
    labels: dict[str, set[str]] = {}
    for sample in read_samples(view, T0):
        labels.setdefault(sample.name, set()).update(dict(sample.labels))
    assert set(labels) == set(BY_NAME) - OF_A_SUPERVISOR
    without = {"headgate_quota_split": {"ip"}, "headgate_quota_tokens": {"ip"}}
    for name, shown_labels in labels.items():
        assert shown_labels == {"broker", *BY_NAME[name].labels} - without.get(name, set()), name
