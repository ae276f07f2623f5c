"""
A worker's name, which no other live worker has; and the names of dead ones that it may take over.

A worker's name in leases and in its journal is made once and kept in a file of
``headgate.data.dir`` that the worker holds locked while it lives. The kernel releases the lock when
the process ends, in whatever way, and not before. So a worker that gets a file's lock knows that
its last holder is dead. It may use the name, and under that name it takes the leases at once, with
a new epoch, instead of waiting until they run out. A worker that hangs still holds its lock; its
lease must run out.

A lock proves this only within one kernel. A file that was written under another boot of this host,
or by another host that shares the folder, proves nothing; its leases must run out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, TypeVar

import msgspec

from headgate.gateway.log import get_logger

log = get_logger("headgate.gateway")

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_MOST_FILES: Final = 1024
_SHOWN: Final = 8
"""Digits of a name that are shown; among the workers of a host these tell them apart."""

T = TypeVar("T")


class _Written(msgspec.Struct):
    """What a file says: the name, the process that has it, and the boot that it runs under."""

    owner: str
    pid: int
    boot: str


def boot_id() -> str:
    """Return this kernel's boot id; "" where it has none: then no worker is known to be dead."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class WorkerName:
    """
    One worker's name, held while it lives.

    Args:
        folder: where workers of this host keep their names; None: nowhere.
        label: what the name begins with, for people: ``headgate.worker.id`` or the host's name.
        boot: of this kernel.

    Attributes:
        owner: the name; no other live worker has it.
    """

    def __init__(self, folder: Path | None, label: str, boot: str | None = None) -> None:
        self._folder = folder
        self._boot = boot_id() if boot is None else boot
        self._held: dict[Path, IO[bytes]] = {}
        self._mutex = threading.Lock()
        self.owner = f"{label}/{uuid.uuid4()}"
        if folder is not None and self._boot:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self.owner = self._settle(folder, self.owner)
            except OSError as error:
                log.warning("this worker's name can't be kept; after a kill its lease must run out",
                            folder=str(folder), error=error.strerror)  # fmt: skip
        self._names = [self.owner]

    @property
    def number(self) -> str:
        """What tells this worker from others of its label: the same after a restart."""
        return self.owner.rpartition("/")[2][:_SHOWN]

    def take(self, take: Callable[[str], T | None]) -> T | None:
        """
        Try something in this worker's name, then in the name of each worker known to be dead.

        Args:
            take: called with a name that no other process can use meanwhile; None: it failed.

        Returns:
            The first result; its name stays this worker's as long as it lives. None: there is none.
        """
        with self._mutex:
            for owner in self._names:
                found = take(owner)
                if found is not None:
                    return found
            if self._folder is None or not self._boot:
                return None
            for path in sorted(self._folder.glob("*.json")):
                if path not in self._held:
                    found = self._inherit(path, take)
                    if found is not None:
                        return found
        return None

    def _inherit(self, path: Path, take: Callable[[str], T | None]) -> T | None:
        owner = None
        with contextlib.suppress(OSError):
            owner = self._lock(path)
        if owner is None:
            return None
        found = None
        try:
            found = take(owner) if owner else None
        finally:
            if found is None:
                self._held.pop(path).close()
        if found is not None:
            self._names.append(owner)
            try:
                self._write(path, owner)
            except OSError as error:  # it is taken all the same
                log.warning("a name can't be kept; after a kill its lease must run out",
                            file=str(path), error=error.strerror)  # fmt: skip
        return found

    def close(self) -> None:
        """Let go of every name."""
        for file in self._held.values():
            file.close()
        self._held.clear()

    def _settle(self, folder: Path, fresh: str) -> str:
        """Take the first name that is free, or write a new one down."""
        for number in range(_MOST_FILES):
            path = folder / f"{number}.json"
            owner = self._lock(path)
            if owner is not None:
                owner = owner or fresh
                self._write(path, owner)
                return owner
        return fresh

    def _lock(self, path: Path) -> str | None:
        """Lock a file; return the name of its dead holder, "" if unknown, None if one lives."""
        try:
            # Never through a link: what it leads to isn't ours to write over.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.fdopen(os.open(path, flags, 0o600), "r+b")
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                written = msgspec.json.decode(file.read(), type=_Written)
            except (msgspec.DecodeError, UnicodeDecodeError):
                written = _Written("", 0, "")
        except BaseException as error:
            file.close()
            if isinstance(error, BlockingIOError):
                return None
            raise
        self._held[path] = file
        return written.owner if written.boot == self._boot else ""

    def _write(self, path: Path, owner: str) -> None:
        file = self._held[path]
        file.seek(0)
        file.truncate()
        file.write(msgspec.json.encode(_Written(owner, os.getpid(), self._boot)))
        file.flush()
