"""A real Prometheus scrapes a real gateway, by the guide's own words, and raises our alerts."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from headgate.cli.main import main
from headgate.gateway import GatewayThread
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from kit.prometheus import program

from .gateway_kit import make_gateway, set_quota, topic, wait_for

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4
GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "monitoring.md"
WITH_LOAD = {
    "tenant: Produced against the quota",
    "tenant: Produced: part of the quota used",
    "tenant: Throttle time told",
    "tenant: Quotas in force",
    "fleet: Gateways",
    "fleet: Version of the quota table in force",
    "fleet: Quota store answers, splits are out of date",
    "fleet: Usage journal",
    "connections: Connections open",
    "connections: Connections accepted",
    "connections: Connections closed",
    "connections: Time in which accepting was blocked",
}
UNTROUBLED = {
    "HeadgateProducerIdStorm",
    "HeadgateStaleSplits",
    "HeadgateStoreUnreachable",
    "HeadgateJournalDropping",
}
Ask = Callable[..., Any]


@pytest.fixture
def ask(
    make_gateway: Callable[..., GatewayThread], tmp_path: Path, free_port: int
) -> Iterator[tuple[GatewayThread, Ask]]:
    """A gateway, and ``ask(path, **parameters)``: what the Prometheus that scrapes it answers."""
    gateway = make_gateway(headgate__http__listener="127.0.0.1:0", quota__window__num="2")
    http = gateway.gateway.http
    assert http is not None
    assert main(["monitoring", str(tmp_path / "monitoring")]) == 0
    rules = tmp_path / "monitoring" / "headgate-rules.yml"
    # A quarter of an hour is long for a test: seconds in place of minutes.
    quick = re.sub(r"for: \d+m", "for: 1s", rules.read_text("utf-8")).replace("[5m]", "[20s]")
    rules.write_text(quick)
    [block] = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text("utf-8"), re.S)
    config = yaml.safe_load(block)
    [job] = config["scrape_configs"]
    job["scrape_interval"] = "1s"
    job["static_configs"] = [{"targets": [f"127.0.0.1:{http.address[1]}"]}]
    (tmp_path / "prometheus.yml").write_text(
        yaml.safe_dump({"global": {"evaluation_interval": "1s"}, **config})
    )
    at = f"127.0.0.1:{free_port}"

    def asked(path: str, **parameters: str) -> Any:
        url = f"http://{at}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found = json.load(answer)
        assert found["status"] == "success"
        return found["data"]

    def up() -> bool:
        assert prometheus.poll() is None, "Prometheus ended; see its log above"
        try:
            return bool(asked("status/buildinfo"))
        except OSError:
            return False

    command = [program("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    command += ["--log.level=warn"]
    with subprocess.Popen([*command, f"--web.listen-address={at}"], cwd=tmp_path) as prometheus:
        try:
            wait_for(up, "Prometheus to answer", 120)
            yield gateway, asked
        finally:
            prometheus.terminate()


def test_prometheus_sees_the_gateway_and_raises_the_alert_on_a_client_that_is_throttled(
    ask: tuple[GatewayThread, Ask], unique: Callable[[str], str], tmp_path: Path
) -> None:
    gateway, prometheus = ask
    bootstrap, client = gateway.bootstrap("PLAINTEXT"), unique("greedy")
    name = topic(bootstrap, unique("watched"))
    set_quota(gateway, QuotaEntity.of(client_id=client), {PRODUCER: 50_000.0})
    stop = threading.Event()

    def load() -> None:
        # Small requests against a short window: throttled again and again, never for long.
        settings = {"client.id": client, "batch.size": 10_000, "queue.buffering.max.messages": 100}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        while not stop.is_set():
            try:
                producer.produce(name, bytes(1_000))
            except BufferError:
                producer.poll(0.1)
        producer.purge()

    loading = threading.Thread(target=load)
    loading.start()
    try:
        wait_for(
            lambda: _throttled_long(prometheus, client), "the alert on the throttled client", 180
        )
        [target] = prometheus("targets")["activeTargets"]
        assert (target["health"], target["labels"]["job"]) == ("up", "headgate")
        loaded = {
            rule["name"]: rule["health"]
            for group in prometheus("rules")["groups"]
            for rule in group["rules"]
        }
        assert len(loaded) == 11
        assert set(loaded.values()) == {"ok"}
        used = f'kafka_server_produce_quota_utilization{{client_id="{client}"}}'
        # By the moment: while the client is muted, the window empties.
        wait_for(
            lambda: max(_value(prometheus, used), default=0.0) > 50, "a quota that is used", 180
        )
        asked = _panels(tmp_path / "monitoring")
        answered = {title for title, query in asked if _value(prometheus, query)}
        assert {title for title, _ in asked if title.startswith("headgate-now: ")} <= answered
        assert {f"headgate-{title}" for title in WITH_LOAD} <= answered
        firing = {one["labels"]["alertname"] for one in _firing(prometheus)}
        assert not firing & UNTROUBLED
    finally:
        stop.set()
        loading.join()


def _firing(prometheus: Ask) -> list[dict[str, Any]]:
    return [alert for alert in prometheus("alerts")["alerts"] if alert["state"] == "firing"]


def _throttled_long(prometheus: Ask, client: str) -> bool:
    time.sleep(0.3)  # Prometheus looks once a second
    labels = [alert["labels"] for alert in _firing(prometheus)]
    wanted = ("HeadgateThrottledLong", client)
    return wanted in [(one["alertname"], one.get("client_id")) for one in labels]


def _value(prometheus: Ask, query: str) -> list[float]:
    return [float(found["value"][1]) for found in prometheus("query", query=query)["result"]]


def _panels(folder: Path) -> list[tuple[str, str]]:
    """Every panel's queries, as Grafana would ask them with All chosen."""
    return [
        (
            f"{path.stem}: {panel['title']}",
            re.sub(r"\$\w+", ".*", target["expr"].replace("$__rate_interval", "20s")),
        )
        for path in folder.glob("*.json")
        for panel in json.loads(path.read_text("utf-8"))["panels"]
        for target in panel["targets"]
    ]
