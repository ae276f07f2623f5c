"""A store on a full disk says so, loses nothing it acknowledged, and goes on when there is room."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FILL = """
import json, os, resource, signal, sqlite3, sys, time
from pathlib import Path
from headgate.errors import StoreError
from headgate.gateway.store_link.guard import Snapshot, load_snapshot, save_snapshot
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store
from types import SimpleNamespace

folder, how = Path(sys.argv[1]), sys.argv[2]
url = f"sqlite:{folder / 'q.db'}"
settings = SimpleNamespace(store_snapshot=str(folder / "snapshot.json"))
store = open_store(url)
save_snapshot(settings, Snapshot(store.snapshot(), {}, store.home.identity()))
ballast = folder / "ballast"
if how == "limit":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
else:
    room = os.statvfs(folder)
    ballast.write_bytes(bytes(room.f_bavail * room.f_frsize - 1_500_000))
done, said = [], ""
watch = store.watch(lambda table, delta: None)


def until(met):
    for _ in range(1_200):
        if met():
            return True
        time.sleep(0.05)
    return False


calm = store.availability.trouble is None
lease = store.leases.take("broker-1", "worker", 60_000)
for number in range(20_000):
    entity = QuotaEntity.of(user=f"user-{number}")
    try:
        store.alter([QuotaAlteration(entity, (Op(PRODUCER, 1.0 + number),))])
    except StoreError as error:
        said = str(error)
        retriable = error.retriable
        break
    done.append(number)
troubled = until(lambda: store.availability.trouble is not None)
table = store.snapshot()
try:
    save_snapshot(settings, Snapshot(store.snapshot().apply([QuotaAlteration(
        QuotaEntity.of(user="x" * 200_000), (Op(PRODUCER, 1.0),))])[0], {}, store.home.identity()))
    kept = "saved"
except OSError as error:
    kept = error.strerror
known = load_snapshot(settings)
if how == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
else:
    ballast.unlink()
calmed = until(lambda: store.availability.trouble is None)
store.alter([QuotaAlteration(QuotaEntity.of(user="late"), (Op(PRODUCER, 5.0),))])
store.close()
with_room = open_store(url)
after = with_room.snapshot()
print(json.dumps({
    "acknowledged": len(done), "said": said, "retriable": retriable,
    "trouble": [calm, troubled, calmed],
    "in the full store": len(table), "snapshot": kept, "known": known is not None,
    "later": len(after), "history": len(with_room.history.entries()),
    "whole": sqlite3.connect(folder / "q.db").execute("PRAGMA integrity_check").fetchone()[0],
    "left": sorted(p.name for p in folder.iterdir() if p.name.startswith(".snapshot")),
}))
"""


def fill(folder: Path, how: str, *before: str) -> dict[str, object]:
    done = subprocess.run(
        [*before, sys.executable, "-c", FILL, str(folder), how],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(found: dict[str, object]) -> None:
    acknowledged = found["acknowledged"]
    assert isinstance(acknowledged, int)
    assert acknowledged > 3
    assert found["in the full store"] == acknowledged
    assert found["later"] == found["history"] == acknowledged + 1
    assert found["whole"] == "ok"
    assert found["known"]
    assert found["left"] == []
    assert found["retriable"] is True
    assert found["trouble"] == [True, True, True]


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    check(fill(tmp_path, "limit"))


@pytest.mark.slow
def test_a_disk_without_room(tmp_path: Path) -> None:
    """On a small file system of its own. The system has to let any user mount one."""
    mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=4m tmpfs "$0" && exec "$@"']
    found = fill(tmp_path, "disk", *mount, str(tmp_path))
    check(found)
    assert "the disk is full" in str(found["said"])
    assert found["snapshot"] in ("No space left on device", "saved")
