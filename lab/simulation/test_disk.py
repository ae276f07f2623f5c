"""The simulated disk answers as the real one does, and loses only what wasn't synced."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simulation.disk import Disk, Disks

NAMES = ("a", "b", "c")


def operations(rng: random.Random, folder: Path) -> Iterator[Callable[[], Any]]:
    """Give random calls as the product makes them; what fails has to fail on both."""
    fds: list[int] = []

    def opened(flags: int) -> Any:
        fds.append(os.open(folder / rng.choice(NAMES), flags, 0o600))

    def with_fd(call: Callable[[int], Any]) -> Any:
        return call(rng.choice(fds)) if fds else None

    def closed() -> None:
        if fds:
            os.close(fds.pop(rng.randrange(len(fds))))

    def text() -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(folder / rng.choice(NAMES), flags), "w", encoding="utf-8") as file:
            file.write("é" * rng.randrange(2000))
            file.flush()
            os.fsync(file.fileno())

    def over() -> bytes:
        fd = os.open(folder / rng.choice(NAMES), os.O_RDWR | os.O_CREAT)
        with os.fdopen(fd, "r+b") as file:
            found = file.read()
            file.seek(0)
            file.truncate()
            file.write(b"x" * rng.randrange(50))
        return found

    def synced_folder() -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)

    create = os.O_RDWR | os.O_CREAT
    some: list[Callable[[], Any]] = [
        lambda: opened(create | os.O_EXCL),
        lambda: opened(create),
        lambda: opened(os.O_WRONLY | os.O_TRUNC),
        lambda: opened(os.O_RDWR | os.O_NOFOLLOW),
        lambda: with_fd(lambda fd: os.pwrite(fd, rng.randbytes(rng.randrange(900)), 100)),
        lambda: with_fd(lambda fd: os.ftruncate(fd, rng.randrange(500))),
        lambda: with_fd(os.fsync),
        lambda: (folder / rng.choice(NAMES)).rename(folder / rng.choice(NAMES)),
        lambda: (folder / rng.choice(NAMES)).replace(folder / rng.choice(NAMES)),
        lambda: (folder / rng.choice(NAMES)).unlink(),
        lambda: (folder / rng.choice(NAMES)).unlink(missing_ok=True),
        lambda: (folder / rng.choice(NAMES)).read_bytes(),
        lambda: (folder / "below").mkdir(),
        closed,
        text,
        over,
        synced_folder,
    ]
    for _ in range(200):
        yield rng.choice(some)
    while fds:
        yield closed


def outcomes(seed: int, folder: Path) -> list[Any]:
    """Make the calls of a seed; return what each gave, and the files at the end."""
    folder.mkdir()
    found: list[Any] = []
    for call in operations(random.Random(seed), folder):
        try:
            result = call()
            found.append(result.name if isinstance(result, Path) else result)
        except OSError as error:
            found.append((type(error), error.errno))
    return [*found, {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}]


@pytest.mark.parametrize("seed", range(30))
def test_without_a_fault_it_does_what_the_real_one_does(tmp_path: Path, seed: int) -> None:
    root = tmp_path / "machine"
    root.mkdir()
    disks = Disks()
    disks.add(Disk(root, random.Random(0)))
    with disks:
        simulated = outcomes(seed, root / "files")
    assert simulated == outcomes(seed, tmp_path / "real")


def write(path: Path, raw: bytes, *, sync: bool, sync_folder: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.pwrite(fd, raw, 0)
    if sync:
        os.fsync(fd)
    os.close(fd)
    if sync_folder:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)


def after_a_cut(tmp_path: Path, seed: int, work: Callable[[Path], None]) -> dict[str, bytes]:
    root = tmp_path / str(seed)
    root.mkdir()
    disk = Disk(root, random.Random(seed))
    disks = Disks()
    disks.add(disk)
    with disks:
        work(root)
        disk.power_cut()
    return {path.name: path.read_bytes() for path in root.iterdir()}


def test_what_was_synced_survives_and_what_was_not_can_be_lost_torn_or_reordered(
    tmp_path: Path,
) -> None:
    raw = bytes(range(1, 251)) * 20
    seen: set[str] = set()

    def work(root: Path) -> None:
        write(root / "kept", raw, sync=True, sync_folder=True)
        write(root / "torn", raw, sync=False, sync_folder=True)
        write(root / "nameless", raw, sync=True, sync_folder=False)
        (root / "kept").rename(root / "renamed")

    for seed in range(80):
        left = after_a_cut(tmp_path, seed, work)
        assert left.get("kept", left.get("renamed")) == raw
        assert ("kept" in left) != ("renamed" in left)
        seen.add("renamed" if "renamed" in left else "not renamed")
        seen.add("named" if "nameless" in left else "nameless")
        torn = left["torn"]
        whole = {raw: "whole", b"": "empty"}
        kind = whole.get(torn) or ("prefix" if raw.startswith(torn) else "reordered")
        seen.add(kind)
    assert seen == {"renamed", "not renamed", "named", "nameless", "whole", "empty", "prefix",
                    "reordered"}  # fmt: skip


def test_a_replaced_file_is_there_as_it_was_or_as_it_is(tmp_path: Path) -> None:
    def work(root: Path) -> None:
        write(root / "file", b"old", sync=True, sync_folder=True)
        write(root / "new", b"new", sync=True, sync_folder=False)
        (root / "new").replace(root / "file")

    found = {after_a_cut(tmp_path, seed, work)["file"] for seed in range(40)}
    assert found == {b"old", b"new"}


def test_a_killed_process_loses_what_it_had_not_written_and_its_locks(tmp_path: Path) -> None:
    disks = Disks()
    owner = object()
    disk = disks.add(Disk(tmp_path, random.Random(0), lambda: owner))
    with disks:
        fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
        file = os.fdopen(fd, "wb")
        file.write(b"written")
        file.flush()
        file.write(b" lost")
        disk.release(owner)
        file.close()
    assert (tmp_path / "file").read_bytes() == b"written"


@pytest.mark.parametrize(
    ("fault", "number"),
    [("room", errno.ENOSPC), ("read_only", errno.EROFS), ("broken", errno.EIO)],
)
def test_faults_say_what_the_system_says(tmp_path: Path, fault: str, number: int) -> None:
    disks = Disks()
    disk = disks.add(Disk(tmp_path, random.Random(0)))
    with disks:
        fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
        setattr(disk, fault, 3 if fault == "room" else True)
        with pytest.raises(OSError) as refused:
            written = os.pwrite(fd, b"12345", 0)
            assert written == 3  # as much as fits; then nothing does
            os.pwrite(fd, b"45", 3)
        os.close(fd)
    assert refused.value.errno == number
