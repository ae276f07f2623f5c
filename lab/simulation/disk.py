"""A machine's disk: real files in a folder, its faults, and the part that a power cut leaves."""

from __future__ import annotations

import errno
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

SECTOR: Final = 512
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def nobody() -> Any:
    """Return who uses the disk now: nobody in particular."""


class Node:
    """
    A file's bytes, whatever name it has.

    Attributes:
        synced: what was put on disk by fsync.
        path: where it is; None: it has no name any more.
        last: what it held when it lost its name.
        poisoned: an fsync of it failed, so that later ones promise nothing.
    """

    __slots__ = ("last", "path", "poisoned", "synced")

    def __init__(self, path: Path) -> None:
        self.synced = b""
        self.path: Path | None = path
        self.last = b""
        self.poisoned = False

    def now(self) -> bytes:
        """Return what a reader sees."""
        return self.last if self.path is None else self.path.read_bytes()

    def survived(self, rng: random.Random) -> bytes:
        """Return what a power cut leaves: all, nothing or a part of what wasn't synced."""
        old, new = self.synced, self.now()
        if old == new:
            return old
        how = rng.randrange(4)
        if how == 0:
            return old
        if how == 1:
            return new
        same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
        same = min(len(old), len(new)) if same is None else same
        if how == 2:  # torn at any byte
            return new[: rng.randint(same, len(new))] if len(new) >= len(old) else old
        # Reordered: each sector for itself, what isn't there is zeros or what was there before.
        left = bytearray(new)
        for at in range(same - same % SECTOR, len(new), SECTOR):
            if rng.random() < 0.5:
                before = old[at : at + SECTOR]
                count = len(left[at : at + SECTOR])
                left[at : at + SECTOR] = before.ljust(count, b"\0")[:count]
        return bytes(left)


class Disk:
    """
    The files of one machine.

    What is read is what the operating system has. Names are durable once their folder was synced,
    bytes once their file was. Of the changes of names since then a power cut leaves the first few,
    and of each file's bytes all, none or some.

    Args:
        root: an empty folder; everything below is this disk's.
        rng: decides what a power cut leaves, and how much of a write fits.
        owner: returns who uses the disk now; a process that is killed loses what it has open.

    Attributes:
        on_step: called before every change with its kind and path; it may raise, or wait.
        room: bytes that are free; None: enough.
        read_only: nothing can be changed.
        broken: every change fails with an I/O error.
        steps: changes asked for so far.
    """

    def __init__(self, root: Path, rng: random.Random, owner: Callable[[], Any] = nobody) -> None:
        self.root = root
        self._prefix = f"{root}{os.sep}"
        self._rng = rng
        self._owner = owner
        self.on_step: Callable[[str, Path], None] = lambda kind, path: None
        self.room: int | None = None
        self.read_only = False
        self.broken = False
        self.steps = 0
        self._names: dict[Path, Node] = {}
        self._durable: dict[Path, Node] = {}
        self._pending: list[tuple[Path, Path | None, Node]] = []
        self._open: dict[int, tuple[Node | Path, Any]] = {}
        self._files: list[tuple[Raw, Any]] = []

    def has(self, path: str) -> bool:
        """Whether a path is on this disk."""
        return path.startswith(self._prefix) or path == str(self.root)

    # --- faults

    def release(self, owner: Any) -> None:
        """A process is killed: what it had open is closed, what it hadn't written yet is lost."""
        for raw, whose in self._files:
            if whose is owner:
                raw.dead = True
        self._files = [item for item in self._files if item[1] is not owner]
        for fd in [fd for fd, (_, whose) in self._open.items() if whose is owner]:
            del self._open[fd]
            _close(fd)

    def power_cut(self) -> None:
        """The machine loses its power, and comes back with what was on its disk."""
        for owner in {id(whose): whose for _, whose in self._open.values()}.values():
            self.release(owner)
        kept = self._rng.randint(0, len(self._pending))
        for change in self._pending[:kept]:
            _apply(self._durable, *change)
        self._pending.clear()
        left = {path: node.survived(self._rng) for path, node in self._durable.items()}
        for path in self._names:
            _unlink(path)
        self._names.clear()
        self._durable.clear()
        for path, raw in left.items():
            path.write_bytes(raw)
            node = self._names[path] = self._durable[path] = Node(path)
            node.synced = raw

    def durable(self) -> list[Path]:
        """Return the files whose names a power cut can't take away."""
        return [path for path, node in self._durable.items() if self._names.get(path) is node]

    def _step(self, kind: str, path: Path) -> None:
        self.steps += 1
        self.on_step(kind, path)
        if self.broken:
            raise _error(errno.EIO, path)
        if self.read_only and kind != "fsync":
            raise _error(errno.EROFS, path)

    # --- the calls of the operating system

    def open(self, path: Path, flags: int, mode: int) -> int:
        """See ``os.open``."""
        new = not path.exists()
        if flags & _WRITES:
            self._step("create" if new else "open", path)
        fd = _open(path, flags, mode)
        if new:
            self._named(path)
        what: Node | Path = path if path.is_dir() else self._node(path)
        self._open[fd] = what, self._owner()
        return fd

    def _named(self, path: Path) -> Node:
        node = self._names[path] = Node(path)
        self._pending.append((path, None, node))
        return node

    def _node(self, path: Path) -> Node:
        """Return the file at a path; one that came past this disk is durable."""
        node = self._names.get(path)
        if node is None:
            node = self._names[path] = self._durable[path] = Node(path)
            node.synced = node.now()
        return node

    def close(self, fd: int) -> None:
        """See ``os.close``."""
        self._open.pop(fd, None)
        _close(fd)

    def opened(self, fd: int) -> bool:
        """Whether a descriptor is of this disk."""
        return fd in self._open

    def _path(self, fd: int) -> Path:
        what = self._open[fd][0]
        path = what.path if isinstance(what, Node) else what
        return self.root if path is None else path

    def write(self, fd: int, data: Any, at: int | None = None) -> int:
        """See ``os.pwrite``, or ``os.write`` without a place."""
        path = self._path(fd)
        self._step("write", path)
        raw = memoryview(data).cast("B")
        if self.room is not None:
            if not self.room and len(raw):
                raise _error(errno.ENOSPC, path)
            raw = raw[: self.room]
            self.room -= len(raw)
        return _write(fd, raw) if at is None else _pwrite(fd, raw, at)

    def truncate(self, fd: int, size: int) -> None:
        """See ``os.ftruncate``."""
        self._step("truncate", self._path(fd))
        _ftruncate(fd, size)

    def fsync(self, fd: int, path: Path | None = None) -> None:
        """See ``os.fsync``; a path says which file it is where the descriptor isn't known."""
        what = self._open[fd][0] if path is None else self._node(path)
        try:
            self._step("fsync", path or self._path(fd))
        except OSError:
            if isinstance(what, Node):
                what.poisoned = True
            raise
        if isinstance(what, Path):
            for change in self._pending:
                if change[0].parent == what:
                    _apply(self._durable, *change)
            self._pending = [change for change in self._pending if change[0].parent != what]
        elif not what.poisoned:
            what.synced = what.now()

    def rename(self, source: Path, target: Path) -> None:
        """See ``os.replace``."""
        self._step("rename", source)
        node = self._node(source) if source.exists() else None
        self._forget(target)
        _replace(source, target)
        assert node is not None
        del self._names[source]
        self._names[target] = node
        node.path = target
        self._pending.append((source, target, node))

    def unlink(self, path: Path) -> None:
        """See ``os.unlink``."""
        self._step("unlink", path)
        node = self._node(path) if path.exists() else None
        self._forget(path)
        _unlink(path)
        assert node is not None
        self._names.pop(path, None)
        self._pending.append((path, path, node))

    def _forget(self, path: Path) -> None:
        """A name goes: remember what stood there, for it may come back at a power cut."""
        node = self._names.get(path)
        if node is not None and path.exists():
            node.last = node.now()
            node.path = None
            if self.room is not None:
                self.room += len(node.last)

    def file(self, fd: int, mode: str, encoding: str | None) -> io.IOBase:
        """See ``os.fdopen``."""
        raw = Raw(self, fd)
        self._files.append((raw, self._owner()))
        if "b" not in mode:
            return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, write_through=False)
        if "+" in mode:
            return io.BufferedRandom(raw)
        return io.BufferedReader(raw) if "r" in mode else io.BufferedWriter(raw)

    def changed_dir(self, path: Path, mode: int) -> None:
        """See ``os.mkdir``; a folder is durable at once, as journaling file systems have it."""
        self._step("mkdir", path)
        _mkdir(path, mode)


class Raw(io.RawIOBase):
    """A descriptor of a disk as Python's buffers want it."""

    def __init__(self, disk: Disk, fd: int) -> None:
        self._disk = disk
        self._fd = fd
        self.dead = False

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        raw = os.read(self._fd, len(buffer))
        buffer[: len(raw)] = raw
        return len(raw)

    def write(self, data: Any) -> int:
        # Of a process that was killed: what stands in its buffers is lost.
        return len(data) if self.dead else self._disk.write(self._fd, data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0 if self.dead else os.lseek(self._fd, offset, whence)

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        if not self.dead:
            self._disk.truncate(self._fd, size)
        return size

    def close(self) -> None:
        if not self.closed:
            super().close()
            if not self.dead:
                self._disk.close(self._fd)


def _apply(names: dict[Path, Node], path: Path, target: Path | None, node: Node) -> None:
    """Put one change of names on disk: made (no target), removed (the same) or renamed."""
    if target is None:
        names[path] = node
        return
    if names.get(path) is node:
        del names[path]
    if target != path:
        names[target] = node


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))


_open, _close, _write, _pwrite = os.open, os.close, os.write, os.pwrite
_ftruncate, _fsync, _replace, _rename = os.ftruncate, os.fsync, os.replace, os.rename
_unlink, _fdopen, _mkdir = os.unlink, os.fdopen, os.mkdir


class Disks:
    """
    Several machines' disks, in place of the operating system's for paths below their roots.

    A context: while it is entered, the calls of ``os`` that change files go to the disk whose path
    or descriptor it is; all others go to the operating system. Reading isn't touched.
    """

    _CALLS: Final = (
        "open", "close", "write", "pwrite", "ftruncate", "fsync", "rename", "replace", "unlink",
        "fdopen", "mkdir",
    )  # fmt: skip

    def __init__(self) -> None:
        self._disks: list[Disk] = []
        self._before: dict[str, Any] = {}

    def add(self, disk: Disk) -> Disk:
        """Have one more disk."""
        self._disks.append(disk)
        return disk

    def __enter__(self) -> Disks:
        for name in self._CALLS:
            self._before[name] = getattr(os, name)
            setattr(os, name, getattr(self, f"_{name}"))
        return self

    def __exit__(self, *_exc: object) -> None:
        for name, call in self._before.items():
            setattr(os, name, call)

    def _at(self, path: Any) -> Disk | None:
        if not isinstance(path, (str, os.PathLike)):
            return None
        text = os.fspath(path)
        return next((d for d in self._disks if isinstance(text, str) and d.has(text)), None)

    def _of(self, fd: int) -> Disk | None:
        return next((disk for disk in self._disks if disk.opened(fd)), None)

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        disk = self._at(path)
        if disk is None:
            return _open(path, flags, mode, dir_fd=dir_fd)
        return disk.open(Path(path), flags, mode)

    def _close(self, fd: int) -> None:
        disk = self._of(fd)
        (_close if disk is None else disk.close)(fd)

    def _write(self, fd: int, data: Any) -> int:
        disk = self._of(fd)
        return _write(fd, data) if disk is None else disk.write(fd, data)

    def _pwrite(self, fd: int, data: Any, at: int) -> int:
        disk = self._of(fd)
        return _pwrite(fd, data, at) if disk is None else disk.write(fd, data, at)

    def _ftruncate(self, fd: int, size: int) -> None:
        disk = self._of(fd)
        (_ftruncate if disk is None else disk.truncate)(fd, size)

    def _fsync(self, fd: Any) -> None:
        disk = self._of(fd)
        if disk is not None:
            disk.fsync(fd)
            return
        path = str(Path(f"/proc/self/fd/{fd}").readlink())  # opened by Python itself, for reading
        disk = self._at(path)
        if disk is None:
            _fsync(fd)
        else:
            disk.fsync(fd, Path(path))

    def _rename(self, source: Any, target: Any, **more: Any) -> None:
        disk = self._at(source)
        if disk is None:
            _rename(source, target, **more)
        else:
            disk.rename(Path(source), Path(target))

    def _replace(self, source: Any, target: Any, **more: Any) -> None:
        self._rename(source, target, **more)

    def _unlink(self, path: Any, *, dir_fd: Any = None) -> None:
        disk = self._at(path)
        if disk is None:
            _unlink(path, dir_fd=dir_fd)
        else:
            disk.unlink(Path(path))

    def _fdopen(self, fd: int, mode: str = "r", buffering: int = -1, encoding: Any = None,
                *more: Any, **named: Any) -> Any:  # fmt: skip
        disk = self._of(fd)
        if disk is None:
            return _fdopen(fd, mode, buffering, encoding, *more, **named)
        return disk.file(fd, mode, encoding)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: Any = None) -> None:
        disk = self._at(path)
        if disk is None or Path(path).exists():
            _mkdir(path, mode, dir_fd=dir_fd)
        else:
            disk.changed_dir(Path(path), mode)
