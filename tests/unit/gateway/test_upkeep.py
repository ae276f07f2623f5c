"""The journal's folder stays within its bound; splits from the topic are assigned and fenced."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.gateway import periodic_work
from headgate.gateway.periodic_work import tidy
from headgate.gateway.splits.streamed import put_in_force
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER_BPS
from headgate.steps import finish
from headgate.usage.format import Event, Origin
from headgate.usage.splits import Split
from headgate.usage.writer import JournalWriter
from kit.playbook import START_MS

from .conftest import Setup


@pytest.fixture(autouse=True)
def ordinary_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compact at the tests' own priority: at the lowest it waits until all other tests wait."""
    lowest = "os.nice(19)"
    assert lowest in periodic_work._COMPACT
    monkeypatch.setattr(periodic_work, "_COMPACT", periodic_work._COMPACT.replace(lowest, ""))


def write(folder: Path, worker: str, count: int) -> None:
    writer = JournalWriter(folder, worker)
    origin = Origin("record", "producer_byte_rate", 1)
    for number in range(count):
        writer.append(tuple(Event(origin, START_MS + number, 1.0)))
    writer.close()


def test_closed_files_become_parquet_and_the_oldest_go(tmp_path: Path) -> None:
    for age, worker in enumerate(("new", "middle", "old")):
        write(tmp_path, worker, 2_000)
        assert tidy(tmp_path, 0) == (0, 0, None)
        found = next(tmp_path.glob(f"{worker}-*.parquet"))
        os.utime(found, (1_000_000 - age, 1_000_000 - age))
    sizes = {path.name: path.stat().st_size for path in tmp_path.glob("*.parquet")}
    assert len(sizes) == 3
    assert not list(tmp_path.glob("*.arrow"))
    keep = sum(size for name, size in sizes.items() if not name.startswith("old"))
    assert tidy(tmp_path, keep) == (1, 0, None)
    left = sorted(path.name.split("-")[0] for path in tmp_path.glob("*.parquet"))
    assert left == ["middle", "new"]
    assert sum(1 for _ in tmp_path.glob("*.parquet")) == 2


def test_what_cannot_be_compacted_is_said_and_kept(tmp_path: Path) -> None:
    write(tmp_path, "w", 10)
    [closed] = tmp_path.iterdir()
    closed.with_suffix(".parquet-tmp").mkdir()  # in the way
    write(tmp_path, "x", 10)
    for limit in (0, 10**9):
        done = tidy(tmp_path, limit)
        assert done.removed == 0
        assert str(done.problem).startswith("compacting failed: ")
        assert "w-0000000000000001.arrow: " in str(done.problem)
        assert "parquet-tmp" in str(done.problem)
    assert closed.exists()
    assert [path.name for path in tmp_path.glob("x-*")] == ["x-0000000000000001.parquet"]


def test_the_oldest_go_even_while_nothing_can_be_compacted(tmp_path: Path) -> None:
    for age, worker in enumerate(("new", "old")):
        write(tmp_path, worker, 10)
        closed = tmp_path / f"{worker}-0000000000000001.arrow"
        closed.with_suffix(".parquet-tmp").mkdir()  # as if there were no room
        os.utime(closed, (1_000_000 - age, 1_000_000 - age))
    done = tidy(tmp_path, closed.stat().st_size)
    assert done.removed == 1
    assert done.problem is not None
    assert [path.name for path in tmp_path.glob("*.arrow")] == ["new-0000000000000001.arrow"]


def test_a_damaged_file_is_set_aside_said_counted_and_goes_with_the_oldest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for worker in ("cut", "fine", "garbage"):
        write(tmp_path, worker, 10)
    cut = tmp_path / "cut-0000000000000001.arrow"
    cut.write_bytes(cut.read_bytes()[:-10])
    garbage = tmp_path / "garbage-0000000000000001.arrow"
    garbage.write_bytes(b"\0" * 4_000)
    for age, path in enumerate((garbage, cut)):
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
    assert tidy(tmp_path, 10**9) == (0, 2, None)
    said = [r.getMessage() for r in caplog.records if "is damaged" in r.getMessage()]
    assert len(said) == 2
    assert "events_read=10" in said[0]
    assert "events_read=0" in said[1]
    sizes = {p.name: p.stat().st_size for p in tmp_path.iterdir()}
    assert sorted(sizes) == [
        "cut-0000000000000001.bad",
        "cut-0000000000000001.parquet",
        "fine-0000000000000001.parquet",
        "garbage-0000000000000001.bad",
    ]
    with caplog.at_level(logging.INFO):
        assert tidy(tmp_path, sum(sizes.values()) - 1) == (1, 0, None)
    assert not garbage.with_suffix(".bad").exists()
    assert "files removed  files=1 damaged=1" in caplog.messages[-1]
    assert tidy(tmp_path, 1) == (3, 0, None)
    assert not [p for p in tmp_path.iterdir() if p.suffix != ".next"]


def test_a_split_is_in_force_until_it_expires(gateway: Callable[..., Setup]) -> None:
    setup = gateway({QuotaEntity.of(user="alice"): {PRODUCER_BPS: 300.0}})
    managers = setup.rules.managers
    managers.produce_bps.set_brokers(3, START_MS)
    split = Split("alice", "", "producer_byte_rate:bps", 1, 250.0, 7, START_MS, 15_000)
    assert finish(put_in_force([split], {1: managers}, lambda: START_MS)) == 1
    assert managers.produce_bps.record("alice", "app", 1, START_MS + 1).bound == 250.0
    assert managers.produce_bps.record("alice", "app", 1, START_MS + 15_001).bound == 100.0
    assert not finish(put_in_force([split], {1: managers}, lambda: START_MS + 20_000))
    other = split._replace(key="producer_byte_rate")
    assert not finish(put_in_force([other], {1: managers}, lambda: START_MS))
