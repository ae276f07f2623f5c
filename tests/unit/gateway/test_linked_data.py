"""Links where the gateway writes: what they lead to stays as it was."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.gateway.fleet.worker_name import WorkerName
from headgate.gateway.store_link.guard import Snapshot, load_snapshot, save_snapshot
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable
from headgate.usage import files
from headgate.usage.format import Event, Origin
from headgate.usage.reader import compact, read_events
from headgate.usage.retention import NEXT, note_number, noted_number
from headgate.usage.writer import JournalWriter

KEPT = b"not the gateway's"
KEPT_QUOTAS = Snapshot(QuotaTable.of({QuotaEntity.of(user="alice"): {PRODUCER: 1e6}}))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_bytes(KEPT)
    return path


def test_a_workers_name_is_kept_beside_a_link(tmp_path: Path, victim: Path) -> None:
    folder = tmp_path / "workers"
    folder.mkdir()
    (folder / "0.json").symlink_to(victim)
    (folder / "1.json").symlink_to(tmp_path / "nowhere")
    instance = WorkerName(folder, "host")
    assert victim.read_bytes() == KEPT
    assert not (tmp_path / "nowhere").exists()
    assert instance.owner in (folder / "2.json").read_text()
    assert instance.take(lambda owner: owner) == instance.owner
    instance.close()


def test_a_snapshot_replaces_a_link(tmp_path: Path, victim: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.symlink_to(victim)
    settings: Any = SimpleNamespace(store_snapshot=str(path))
    save_snapshot(settings, KEPT_QUOTAS)
    assert victim.read_bytes() == KEPT
    assert not path.is_symlink()
    assert load_snapshot(settings) is not None


def test_the_journals_note_goes_past_a_link(tmp_path: Path, victim: Path) -> None:
    folder = tmp_path / "usage"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 77)
        (folder / f"w{NEXT}-77.tmp").symlink_to(victim)
        note_number(folder, "w", 5)
    assert noted_number(folder, "w") == 5
    assert victim.read_bytes() == KEPT


def test_compacting_goes_past_links(tmp_path: Path, victim: Path) -> None:
    folder = tmp_path / "usage"
    journal = JournalWriter(folder, "w", max_file_bytes=1)
    origin = Origin("record", "producer_byte_rate", 1)
    for n in range(3):
        journal.append(Event(origin, 1_700_000_000_000.0 + n, 1.0, 10.0, n, n, 0, 300, 0.25, 1))
    journal.close()
    closed = [path for path in folder.iterdir() if path.suffix == files.CLOSED]
    assert closed
    for path in closed:
        path.with_suffix(".parquet-tmp").symlink_to(victim)
    compact(folder)
    assert victim.read_bytes() == KEPT
    assert read_events(folder).num_rows == 3
    parquet = [path for path in folder.iterdir() if path.suffix == files.PARQUET]
    assert len(parquet) == len(closed)
    assert not any(path.is_symlink() for path in parquet)


def test_a_data_folder_that_is_a_link_is_as_good(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "real")
    path = tmp_path / "data" / "snapshot.json"
    settings: Any = SimpleNamespace(store_snapshot=str(path))
    save_snapshot(settings, KEPT_QUOTAS)
    assert (tmp_path / "real" / "snapshot.json").exists()
    instance = WorkerName(tmp_path / "data" / "workers", "host")
    assert (tmp_path / "real" / "workers" / "0.json").exists()
    instance.close()
