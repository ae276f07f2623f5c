"""Gateways as the chart arranges them: for each broker its own, of which one is ready."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from headgate.embedded import EmbeddedKafka
from kit.scripts import ROOT

from .gateway_kit import wait_for

pytestmark = [pytest.mark.kafka4, pytest.mark.slow]
TTL_MS = 2_000


class Pod:
    """
    A gateway with the settings and the arguments that the chart gives it.

    Args:
        folder: of its own, as pods of different hosts have.
        broker: the broker's id.
        settings: the chart's, at places of this test.
        http: the port of health and metrics.
    """

    def __init__(self, folder: Path, broker: int, settings: str, http: int) -> None:
        folder.mkdir()
        file = folder / "headgate.properties"
        file.write_text(settings.replace("/var/lib/headgate", str(folder)))
        self.url = f"http://127.0.0.1:{http}"
        words = ["serve", "--config", file, "--brokers", broker, "--http", f"127.0.0.1:{http}"]
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headgate", *map(str, words)], cwd=folder, stderr=self.log
        )

    def says(self, path: str) -> str:
        """Return what a path answers, with any status; empty before it does."""
        assert self.process.poll() is None, Path(self.log.name).read_text()
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            return refused.read().decode()
        except OSError:
            return ""

    def ready(self) -> bool:
        """Whether it fronts its broker, by quotas that it can read."""
        return self.says("/readyz").startswith("ready")

    def close(self, number: int = signal.SIGKILL) -> int:
        """End it."""
        self.process.send_signal(number)
        self.log.close()
        return self.process.wait(120)


@pytest.fixture
def start(
    tmp_path: Path, make_kafka: Callable[..., EmbeddedKafka], free_ports: Callable[..., list[int]]
) -> Iterator[tuple[int, Callable[[str, int], Pod]]]:
    """The listeners' first port, and ``start(name, broker)``: a gateway of the chart."""
    kafka = make_kafka(brokers=2)
    first, _, *free = free_ports(5, consecutive=True)
    rendered = yaml.safe_load_all((ROOT / "deploy" / "install.yaml").read_text("utf-8"))
    (config,) = (found for found in rendered if found["kind"] == "ConfigMap")
    settings = config["data"]["headgate.properties"]
    for theirs, ours in (
        ("kafka-bootstrap:9092", kafka.bootstrap()),
        ("listeners=PLAINTEXT://:9092", f"listeners=PLAINTEXT://127.0.0.1:{first}"),
        ("broker.id.max=3", "broker.id.max=2"),
    ):
        assert theirs in settings
        settings = settings.replace(theirs, ours)
    settings += f"headgate.lease.ttl.ms={TTL_MS}\n"
    with contextlib.ExitStack() as ended:

        def started(name: str, broker: int) -> Pod:
            pod = Pod(tmp_path / name, broker, settings, free.pop())
            ended.callback(pod.close)
            return pod

        yield first, started


def test_one_gateway_of_a_broker_is_ready_and_the_other_is_when_that_one_ends(
    start: tuple[int, Callable[[str, int], Pod]],
) -> None:
    first, pod = start
    pods = [pod("one", 1), pod("again", 1)]
    other = pod("two", 2)
    wait_for(lambda: any(one.ready() for one in pods), "a gateway of broker 1 to be ready", 120)
    active, standby = sorted(pods, key=lambda one: not one.ready())
    wait_for(lambda: standby.says("/readyz") == "standing by\n", "the other to stand by", 120)
    assert standby.says("/healthz") == "ok\n"  # so nobody restarts it
    wait_for(other.ready, "the gateway of broker 2 to be ready", 120)

    told = AdminClient({"bootstrap.servers": f"127.0.0.1:{first}"}).list_topics(timeout=60).brokers
    assert {(one.host, one.port) for one in told.values()} == {
        ("headgate-1.headgate.svc", 9092),
        ("headgate-2.headgate.svc", 9093),
    }

    assert active.close(signal.SIGTERM) == 0
    wait_for(standby.ready, "the standby to take over", 120)
    wait_for(other.ready, "the gateway of broker 2 to have gone on", 120)
