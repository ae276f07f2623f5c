"""The ZooKeeper store under kills, pauses and partitions, of its writers and of the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from faults import workload
from faults.injection import Proxy
from faults.trial import Trial
from faults.workload import Plan
from headgate.embedded import EmbeddedZooKeeper
from headgate.store import open_store

pytestmark = pytest.mark.kafka3

# Keys of both homes: Kafka's znodes and our own.
GROUPS = [("consumer_byte_rate", "producer_byte_rate", "producer_ids_rate")]


def trial(folder: Path, zookeeper: EmbeddedZooKeeper, proxies: list[Proxy], seed: int) -> Trial:
    chroot = folder.name
    openers = [partial(open_store, f"zookeeper://127.0.0.1:{p.port}/{chroot}") for p in proxies]
    clean = partial(open_store, f"zookeeper://{zookeeper.address}/{chroot}")
    # Of one entity's history the latest 1,000 changes are kept.
    names = workload.entities(3 + seed // 1_500, "zookeeper")
    return Trial(folder, openers, clean, Plan(names, GROUPS, folder / "stop"), seed)


def proxies_to(zookeeper: EmbeddedZooKeeper, opened: ExitStack) -> list[Proxy]:
    host, _, port = zookeeper.address.partition(":")
    return [opened.enter_context(closing(Proxy(host, int(port)))) for _ in range(4)]


def test_eight_writers_are_killed_paused_and_parted_from_it(
    zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    calls = 300
    with ExitStack() as opened:
        proxies = proxies_to(zookeeper, opened)
        tried = trial(tmp_path, zookeeper, proxies, calls)
        parted = partial(tried.part, proxies, 0.5)
        done = tried.run(calls, [tried.kill, parted, lambda: tried.pause(0.3), parted] * 2)
    assert done.wrong == []
    assert (done.faults["kill"], done.faults["pause"], done.faults.total()) == (2, 2, 8)
    assert done.outcomes["alter ok"] > calls / 4
    assert done.outcomes["alter refused"] > 0


@pytest.mark.slow
def test_thousands_of_calls_while_the_server_too_is_killed_and_paused(
    make_zookeeper: Callable[..., EmbeddedZooKeeper], tmp_path: Path
) -> None:
    calls = 6_000
    zookeeper = make_zookeeper()
    with ExitStack() as opened:
        proxies = proxies_to(zookeeper, opened)
        tried = trial(tmp_path, zookeeper, proxies, calls)

        def restarted() -> str:
            zookeeper.kill()
            zookeeper.start()
            return "server killed"

        def frozen() -> str:
            zookeeper.pause()
            time.sleep(tried.chance.uniform(0.1, 2.0))
            zookeeper.resume()
            return "server paused"

        parted = partial(tried.part, proxies, 1.0)
        faults = [tried.kill, parted, lambda: tried.pause(0.5), parted, restarted, frozen] * 5
        tried.chance.shuffle(faults)
        done = tried.run(calls, faults)
    assert done.wrong == []
    assert done.faults["server killed"] == done.faults["server paused"] == 5
    assert done.outcomes["alter ok"] > calls / 4
    assert done.outcomes["alter unknown"] > 0
