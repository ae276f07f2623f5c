"""Faults put into the product on purpose, to see that the simulator finds each."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from headgate import files
from headgate.clock import now_ms
from headgate.gateway.fleet.leases import Leases
from headgate.gateway.splits import streamed
from headgate.gateway.splits.dividing import Splitter
from headgate.gateway.store_link.guard import Snapshot, StoreGuard, save_snapshot
from headgate.gateway.store_link.link import StoreLink
from headgate.store import leases
from headgate.store.hub import Hub
from headgate.store.identity import StoreIdentity
from headgate.usage import disk, writer
from headgate.usage.splits import Fence
from simulation import doors, stores

Plant = Callable[[], Any]
PLANTS: dict[str, tuple[Plant, int, str]] = {}
"""By name: what plants it, the seed that finds it, and how the law begins that it breaks."""


def plant(name: str, seed: int, law: str) -> Callable[[Callable[[], Iterator[None]]], Plant]:
    """Name a fault, with the seed that finds it and the law that it breaks."""

    def take(function: Callable[[], Iterator[None]]) -> Plant:
        made = contextlib.contextmanager(function)
        PLANTS[name] = made, seed, law
        return made

    return take


def _instead(where: Any, name: str, what: Any) -> Any:
    return mock.patch.object(where, name, what)


@plant("a journal file is closed without fsync", 9, "journal:")
def lost_fsync() -> Iterator[None]:
    real = disk.OpenFile.close

    def close(self: Any) -> None:
        lost = [self._fd]

        def fsync(fd: int) -> None:
            if fd not in lost:
                system(fd)

        system = disk.os.fsync
        with mock.patch.object(disk.os, "fsync", fsync):
            real(self)

    with _instead(disk.OpenFile, "close", close):
        yield


@plant("a lease is renewed after another took it", 16, "two active gateways")
def renewed_after_expiry() -> Iterator[None]:
    with _instead(leases.Lease, "_mine", lambda self, held: True):
        yield


@plant("a lease is kept beyond its end while a renewal hangs", 206, "two active gateways")
def kept_beyond_its_end() -> Iterator[None]:
    with _instead(Leases, "_stop_in_time", lambda self, broker_id, lease: None):
        yield


@plant("two standbys both take over", 0, "two active gateways")
def both_take_over() -> Iterator[None]:
    def greedy(self: Any, name: str, owner: str, ttl_ms: int) -> Any:
        taken = leases.NewRecord(owner, self._home.look(name).epoch + 1, ttl_ms)
        kept = self._home.change(name, lambda held: taken)
        return leases.Lease(self._home, name, *taken, 0.0, self._monotonic) if kept else None

    with _instead(leases.LeaseTaker, "take", greedy):
        yield


@plant("a lease is taken when its end has come by the wall clock", 68, "two active gateways")
def ends_by_the_wall_clock() -> Iterator[None]:
    def may_run(self: Any, name: str, owner: str, held: Any, ttl_ms: int) -> bool:
        return held.owner not in ("", owner) and bool(held.mark > now_ms())

    with _instead(leases.LeaseTaker, "_may_run", may_run):
        yield


@plant("a renewal that a standby sees doesn't make it wait again", 0, "two active gateways")
def renewals_unseen() -> Iterator[None]:
    real = leases.LeaseTaker._may_run

    def may_run(self: Any, name: str, owner: str, held: Any, ttl_ms: int) -> bool:
        return bool(real(self, name, owner, held._replace(mark=0), ttl_ms))

    with _instead(leases.LeaseTaker, "_may_run", may_run):
        yield


@plant("a gateway that got its store late takes no leases", 10, "are fronted by")
def no_late_leases() -> Iterator[None]:
    with _instead(StoreLink, "_until_admitted", _quietly(StoreLink._until_admitted)):
        yield


def _quietly(real: Any) -> Any:
    async def until_admitted(self: Any, *args: Any) -> None:
        self.let_in = lambda store: None
        await real(self, *args)

    return until_admitted


@plant("a snapshot is saved before the store's identity is checked", 12, "snapshot:")
def saved_before_the_check() -> Iterator[None]:
    real = StoreGuard.admit

    def admit(self: Any, store: Any) -> None:
        found = store.home.identity()
        if found is not None:
            kept = Snapshot(store.snapshot(), store.broker_settings.now(), found)
            save_snapshot(self._settings, kept)
        real(self, store)

    with _instead(StoreGuard, "admit", admit):
        yield


@plant("a snapshot gets its name without fsync", 3, "snapshot: gw")
def snapshot_without_fsync() -> Iterator[None]:
    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            os.fsync(fd)

    with _instead(files, "os", doors.Shim(os, fsync=fsync)):
        yield


@plant("the snapshot of a gateway that ends is older than the store", 80, "snapshot: gw")
def older_at_the_end() -> Iterator[None]:
    with _instead(StoreLink, "_save_last", lambda self, store: None):
        yield


@plant("a lease is renewed after its end though a standby waits", 6, "two active gateways")
def renewed_though_somebody_waits() -> Iterator[None]:
    with _instead(Leases, "_look", lambda self: setattr(self, "_others", False)):
        yield


@plant("a supervisor keeps nothing back for a worker that doesn't answer", 61, "splits of")
def nothing_kept_back() -> Iterator[None]:
    with _instead(Splitter, "_budget", lambda self, kind, tags, quota, *more: quota):
        yield


@plant("an older copy of the store is taken for the store", 115, "snapshot:")
def older_copy() -> Iterator[None]:
    with _instead(StoreIdentity, "follows", lambda self, known: self.id == known.id):
        yield


@plant("a snapshot that couldn't be written is never tried again", 2, "gw1 keeps")
def never_again() -> Iterator[None]:
    def save_soon(self: Any) -> None:
        async def once() -> None:
            with contextlib.suppress(Exception):
                await self._threads.run(self._save)

        self._tasks.spawn(once())

    with _instead(StoreLink, "save_soon", save_soon):
        yield


@plant("an acknowledged change is applied half", 0, "half applied")
def half_applied() -> Iterator[None]:
    real = stores.Contents.set

    def set_some(self: Any, alteration: Any, t_ms: int, origin: Any) -> bool:
        ops = alteration.ops
        some = ops[:1] if len(ops) > 2 else ops
        return real(self, alteration._replace(ops=some), t_ms, origin)

    with _instead(stores.Contents, "set", set_some):
        yield


@plant("history stands in another order than values", 0, "history")
def another_order() -> Iterator[None]:
    real = stores.Contents.set

    def reordered(self: Any, alteration: Any, t_ms: int, origin: Any) -> bool:
        changed = real(self, alteration, t_ms, origin)
        if changed and len(self.log) > 5 and self.log[-2].key == self.log[-1].key:
            self.log[-1], self.log[-2] = self.log[-2], self.log[-1]
        return changed

    with _instead(stores.Contents, "set", reordered):
        yield


@plant("a watcher misses a change now and then", 1, "in force is")
def missed_change() -> Iterator[None]:
    real = Hub.push

    def push(self: Any, version: int, event: Any) -> None:
        if version % 3:
            real(self, version, event)

    with _instead(Hub, "push", push):
        yield


@plant("a split from a stream never expires", 17, "streamed splits")
def split_never_expires() -> Iterator[None]:
    real = streamed.decode

    def decode(key: Any, value: Any) -> Any:
        found = real(key, value)
        return None if found is None else found._replace(valid_ms=10**9)

    with _instead(streamed, "decode", decode):
        yield


@plant("splits of a writer that was replaced count", 244, "streamed splits")
def unfenced() -> Iterator[None]:
    with _instead(Fence, "passes", lambda self, split: True):
        yield


@plant("a split of another quota stays as it was", 0, "streamed splits")
def split_of_another_quota() -> Iterator[None]:
    """As it was until the simulator found it: seeds 17 and 30."""
    real = streamed.parts_of_quotas

    def parts(splits: Any, manager: Any) -> Any:
        return real(((tags, split, None) for tags, split, _ in splits), manager)

    with _instead(streamed, "parts_of_quotas", parts):
        yield


@plant("a journal's numbers begin again after a restart", 4, "journal")
def numbers_again() -> Iterator[None]:
    real = writer.next_number

    def earlier(*args: Any, **named: Any) -> int:
        return max(real(*args, **named) - 3, 1)

    with _instead(writer, "next_number", earlier):
        yield


@plant("a batch is written twice after a write that failed", 4, "journal")
def batch_twice() -> Iterator[None]:
    real = writer.JournalWriter._commit

    def commit(self: Any) -> None:
        real(self)
        if self.failures:
            self.failures = 0
            if self._file is not None and self._file.size:
                self._file._unwritten = self._last
                self._file.commit()

    stage = disk.OpenFile.stage

    def staged(self: Any, batch: Any) -> None:
        stage(self, batch)
        journal = writers[-1] if writers else None
        if journal is not None:
            journal._last = self._unwritten

    writers: list[Any] = []
    begin = writer.JournalWriter._stage

    def remembering(self: Any, batch: Any, first_seq: int) -> None:
        writers[:] = [self]
        begin(self, batch, first_seq)

    with (
        _instead(writer.JournalWriter, "_commit", commit),
        _instead(writer.JournalWriter, "_stage", remembering),
        _instead(disk.OpenFile, "stage", staged),
    ):
        yield
