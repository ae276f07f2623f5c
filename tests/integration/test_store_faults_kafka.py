"""The Kafka store under kills, pauses and partitions, of its writers and of brokers."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from faults import workload
from faults.kafka import SIDES, PartedKafka
from faults.trial import Trial
from faults.workload import Plan
from headgate.store.kafka.store import KafkaStore

pytestmark = pytest.mark.kafka4

# One alteration has keys of one home; the entities have keys of both.
GROUPS = [
    ("consumer_byte_rate", "producer_byte_rate"),
    ("producer_byte_rate", "request_percentage"),
    ("producer_byte_rate:bps", "producer_ids_rate"),
]


def opened(bootstrap: str, topic: str) -> KafkaStore:
    return KafkaStore(bootstrap, topic=topic, poll_ms=500)


def trial(folder: Path, kafka: PartedKafka, seed: int) -> Trial:
    openers = [partial(opened, kafka.side(side), folder.name) for side in SIDES]
    clean = partial(opened, kafka.bootstrap(), folder.name)
    names = workload.entities(3, folder.name)
    return Trial(folder, openers, clean, Plan(names, GROUPS, folder / "stop"), seed)


@pytest.mark.slow
def test_eight_writers_are_killed_paused_and_parted_from_it(tmp_path: Path) -> None:
    calls = 80
    with PartedKafka() as kafka:
        tried = trial(tmp_path, kafka, calls)
        parted = partial(tried.part, list(kafka.proxies.values()), 0.5)
        done = tried.run(calls, [tried.kill, parted, lambda: tried.pause(0.3)])
    assert done.wrong == []
    assert (done.faults["kill"], done.faults["pause"], done.faults.total()) == (1, 1, 3)
    assert done.outcomes["alter ok"] > calls / 4
    assert done.outcomes["alter refused"] > 0


@pytest.mark.slow
def test_thousands_of_calls_while_brokers_too_are_killed_and_paused(tmp_path: Path) -> None:
    calls = 2_000
    with PartedKafka(brokers=2) as kafka:
        tried = trial(tmp_path, kafka, calls)

        def restarted(broker: int) -> str:
            kafka.kill(broker)
            kafka.start(broker)
            return "server killed"

        def frozen(broker: int) -> str:
            kafka.pause(broker)
            time.sleep(tried.chance.uniform(0.1, 2.0))
            kafka.resume(broker)
            return "server paused"

        parted = partial(tried.part, list(kafka.proxies.values()), 1.0)
        faults: list[Callable[[], str]] = [tried.kill, parted, lambda: tried.pause(0.5)] * 6
        for broker in kafka.broker_ids:
            faults += [partial(restarted, broker), partial(frozen, broker)] * 2
        tried.chance.shuffle(faults)
        done = tried.run(calls, faults)
    assert done.wrong == []
    assert done.faults["server killed"] == done.faults["server paused"] == 4
    assert done.outcomes["alter ok"] > calls / 4
    assert done.outcomes["alter unknown"] > 0
