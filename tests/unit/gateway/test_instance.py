"""Workers' names: one live holder each; a dead one's lease is taken at once, a live one's never."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.config import Settings
from headgate.gateway import Gateway
from headgate.gateway.fleet.worker_name import WorkerName
from headgate.store import open_store
from headgate.store.leases import Lease
from headgate.store.watched import QuotaStore

AN_HOUR_MS = 3_600_000
WORKER = """
import sys, signal
from pathlib import Path
from headgate.gateway.fleet.worker_name import WorkerName
from headgate.store import open_store
folder = Path(sys.argv[1])
instance = WorkerName(folder / "workers", "worker")
store = open_store(f"sqlite:{folder / 'quotas.db'}")
leases = [
    instance.take(lambda owner: store.leases.take(f"broker/{n}", owner, 3_600_000)) for n in (1, 2)
]
print(*(lease and lease.epoch for lease in leases), flush=True)
signal.pause()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], tuple[subprocess.Popen[str], str]]]:
    """``start()``: a worker process that takes what leases it can, and reports them."""
    running: list[subprocess.Popen[str]] = []

    def run() -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        running.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield run
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QuotaStore]:
    with open_store(f"sqlite:{tmp_path / 'quotas.db'}") as opened:
        yield opened


def lease(store: QuotaStore, instance: WorkerName, broker: int = 1) -> Lease | None:
    return instance.take(lambda owner: store.leases.take(f"broker/{broker}", owner, AN_HOUR_MS))


def test_a_killed_worker_has_its_leases_back_at_once_under_new_epochs(
    start: Callable[[], tuple[subprocess.Popen[str], str]],
) -> None:
    first, said = start()
    assert said == "1 1"
    first.send_signal(signal.SIGKILL)
    first.wait()
    _, said = start()
    assert said == "2 2"  # the lease would have lasted for an hour


def test_a_standby_inherits_every_lease_of_a_dead_worker_and_fences_it(
    start: Callable[[], tuple[subprocess.Popen[str], str]], store: QuotaStore, tmp_path: Path
) -> None:
    active, said = start()
    assert said == "1 1"
    standby = WorkerName(tmp_path / "workers", "standby")
    assert [lease(store, standby, n) for n in (1, 2)] == [None, None]
    active.send_signal(signal.SIGKILL)
    active.wait()
    for broker in (1, 2):
        taken = lease(store, standby, broker)
        assert taken is not None
        assert taken.epoch == 2
    # What it has inherited, a third one can't.
    third = WorkerName(tmp_path / "workers", "third")
    assert [lease(store, third, n) for n in (1, 2)] == [None, None]
    standby.close()
    third.close()


def test_a_worker_that_hangs_keeps_its_lease(
    start: Callable[[], tuple[subprocess.Popen[str], str]], store: QuotaStore, tmp_path: Path
) -> None:
    hung, _ = start()
    os.kill(hung.pid, signal.SIGSTOP)
    other = WorkerName(tmp_path / "workers", "other")
    assert lease(store, other) is None
    _, said = start()
    assert said == "None None"
    other.close()


def test_two_workers_named_alike_never_hold_one_lease(store: QuotaStore, tmp_path: Path) -> None:
    one = WorkerName(tmp_path / "workers", "gateway")
    two = WorkerName(tmp_path / "workers", "gateway")
    nameless = WorkerName(None, "gateway")
    assert len({one.owner, two.owner, nameless.owner}) == 3
    assert lease(store, one) is not None
    assert lease(store, two) is None
    assert lease(store, nameless) is None
    for each in (one, two):
        each.close()


def test_of_many_that_race_for_a_dead_workers_lease_one_gets_it(
    store: QuotaStore, tmp_path: Path
) -> None:
    for _ in range(10):
        dead = WorkerName(tmp_path / "workers", "dead")
        before = lease(store, dead)
        assert before is not None
        rivals = [WorkerName(tmp_path / "workers", f"rival-{n}") for n in range(8)]
        dead.close()  # what the kernel does when it ends
        barrier = threading.Barrier(len(rivals))
        taken: list[Lease] = []

        def race(rival: WorkerName, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            found = lease(store, rival)
            if found is not None:
                taken.append(found)  # noqa: B023 - the threads end within the round

        threads = [threading.Thread(target=race, args=(rival,)) for rival in rivals]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1
        assert taken[0].epoch > before.epoch
        assert not before.renew()
        taken[0].release()
        for rival in rivals:
            rival.close()


def test_a_name_of_another_boot_or_host_proves_nothing(store: QuotaStore, tmp_path: Path) -> None:
    folder = tmp_path / "workers"
    elsewhere = WorkerName(folder, "gateway", boot="another-kernel")
    assert lease(store, elsewhere) is not None
    elsewhere.close()  # as seen through a network file system that doesn't share locks
    here = WorkerName(folder, "gateway")
    assert here.owner != elsewhere.owner
    assert lease(store, here) is None
    here.close()
    unknown = WorkerName(folder, "gateway", boot="")
    assert lease(store, unknown) is None


def test_a_file_that_was_cut_short_or_a_folder_that_cant_be_made_costs_only_time(
    store: QuotaStore, tmp_path: Path
) -> None:
    folder = tmp_path / "workers"
    folder.mkdir()
    (folder / "0.json").write_bytes(b'{"own')
    one = WorkerName(folder, "gateway")
    assert lease(store, one) is not None
    one.close()
    (tmp_path / "file").write_text("x")
    two = WorkerName(tmp_path / "file" / "workers", "gateway")
    assert lease(store, two) is None
    assert lease(store, two, 2) is not None


def gateway(folder: Path, brokers: frozenset[int] | None = None, **more: str) -> Gateway:
    """Return a gateway that has its name and nothing else."""
    named = {
        "headgate.upstream": "127.0.0.1:9092",
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "3",
        "headgate.data.dir": str(folder),
        **more,
    }
    made = Gateway(Settings.from_properties(named), only_brokers=brokers)
    made._take_name()
    return made


async def test_a_journals_name_outlives_its_process_and_is_nobody_elses(tmp_path: Path) -> None:
    one, two = gateway(tmp_path), gateway(tmp_path)
    assert one.name != two.name
    one.instance.close()  # what the kernel does when it ends
    again = gateway(tmp_path)
    assert again.name == one.name
    third = gateway(tmp_path)
    assert third.name not in (one.name, two.name)
    for each in (two, again, third):
        each.instance.close()


async def test_processes_that_read_one_file_dont_share_a_journals_name(tmp_path: Path) -> None:
    named = {"headgate.worker.id": "edge"}
    workers = [gateway(tmp_path, frozenset({n}), **named) for n in (1, 2)]
    assert [worker.name for worker in workers] == ["edge-1", "edge-2"]
    alone = gateway(tmp_path, **named)
    assert alone.name == "edge"
    for each in (*workers, alone):
        each.instance.close()


def test_what_was_had_in_a_dead_name_is_kept_though_the_name_cant_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = WorkerName(tmp_path, "dead", "boot")
    owner = dead.owner
    dead.close()
    other = WorkerName(tmp_path, "other", "boot")  # takes the dead one's name
    assert other.owner == owner
    third = WorkerName(tmp_path, "third", "boot")
    other.close()

    def full(path: Path, owner: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(third, "_write", full)
    assert third.take(lambda name: name if name == owner else None) == owner
    assert third.take(lambda name: name if name == owner else None) == owner  # still its own
    third.close()
