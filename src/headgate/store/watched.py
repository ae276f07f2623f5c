"""
A quota store: what every kind promises, and what all kinds share.

Shared are the table last read, the watches, and the thread that calls them back.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Sequence
from typing import Final, Self

from headgate.errors import ConfigError, StoreError
from headgate.quota.alteration import AlterResult, QuotaAlteration, validate
from headgate.quota.table import QuotaTable, TableDelta, table_delta
from headgate.store.base import ChangeOrigin, QuotaCallback, StoreChange, new_change, whole
from headgate.store.broker_settings import BrokerSettings, Write
from headgate.store.deadline import EACH_S, LOOK_S, patient
from headgate.store.history import QuotaEnds, StoreHistory
from headgate.store.home import StoreHome, log
from headgate.store.hub import Hub, Watch
from headgate.store.leases import LeaseHome, LeaseTaker
from headgate.words import moment

MOST_UNTIL_MS: Final = 253_402_300_799_000
"""The last second of the year 9999, epoch ms."""


class QuotaStore(abc.ABC):
    """
    What keeps quotas, and beside them history, broker settings and leases.

    It keeps the last known table, and calls back when ``_refresh`` finds another. It may be used
    from several threads, but not across a fork. ``tests/contract`` checks every kind.

    Args:
        home: what keeps the data.
        history: who changed what.
        write_brokers: writes settings of brokers.
        leases: the records of leases.
        poll_s: how often the thread looks for changes that nothing announced, in seconds.
        resolve: whether an ip entity's name is a host that resolves.
        ends: the quotas that end; None: the home has no place for ends.
    """

    home: StoreHome
    history: StoreHistory
    #: Whether nothing in the home changes without its revision: no tools of Kafka's write there.
    counts_every_change = False

    def __init__(
        self,
        home: StoreHome,
        history: StoreHistory,
        write_brokers: Write,
        leases: LeaseHome,
        poll_s: float,
        resolve: Callable[[str], bool],
        ends: QuotaEnds | None = None,
    ) -> None:
        self.url = home.url
        self.home = home
        self.availability = home.availability
        home.read, home.watch = self.snapshot, self._start
        self.history = history
        self.broker_settings = BrokerSettings(home, write_brokers)
        self.leases = LeaseTaker(leases)
        self.ends = ends
        self._poll_s = poll_s
        self._resolve = resolve
        self._table: QuotaTable | None = None
        self._hub: Hub[tuple[QuotaTable, TableDelta]] = Hub()
        self._thread_lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def _begin(self, create: bool, look: Callable[[], object]) -> None:
        """Make the home whole, or have a look at it as it is; let go of it if that fails."""
        try:
            if create:
                self.home.identify()
            else:
                look()
        except BaseException:
            self.home.release()
            raise

    @abc.abstractmethod
    def _refresh(self) -> QuotaTable:
        """Catch up with the home under its lock; publish what changed; return the table."""

    @abc.abstractmethod
    def _alter(self, change: StoreChange) -> list[AlterResult]:
        """Set and clear the keys of the accepted alterations; return what became of each."""

    def _look(self) -> None:
        """Find what changed; the thread calls this every ``poll_s``, and when it is woken."""
        self._refresh()

    def _after_delivery(self) -> None:  # noqa: B027 - a kind that needs it overrides it
        """Do what may wait until watchers have been told."""

    def _end(self) -> None:  # noqa: B027 - a kind that needs it overrides it
        """Do what is left when the thread has ended, before the home is released."""

    def _publish(self, table: QuotaTable, delta: TableDelta) -> QuotaTable:
        """Make a table the known one; queue the delta for the watches if it has changes."""
        old, self._table = self._table, table
        if old is not None and delta.changes:
            delta = TableDelta(delta.changes, old.version, table.version)
            self._hub.push(table.version, (table, delta))
        return table

    def _publish_whole(self, table: QuotaTable) -> QuotaTable:
        """Make a table that was read whole the known one, with the next version, if it differs."""
        old = self._table
        if old is None:
            return self._publish(table.with_version(1), TableDelta((), 0, 0))
        delta = table_delta(old, table)
        return self._publish(table.with_version(old.version + 1), delta) if delta.changes else old

    def snapshot(self) -> QuotaTable:
        """
        Return every quota as of now; includes every change this store has acknowledged.

        Raises:
            StoreError: the home can't be reached.
        """
        self.home.check_open()
        return self._refresh()

    def watch(self, callback: QuotaCallback) -> Watch[tuple[QuotaTable, TableDelta]]:
        """
        Call back with the table and what changed, now and after every change.

        Args:
            callback: called once before this returns, with the whole table and the delta from an
                empty one; after that from a thread of the store, in order, one call at a time.
                It must not wait for another thread that uses this store.
        """
        self.home.check_open()

        def first() -> tuple[int, tuple[QuotaTable, TableDelta]]:
            table = self._refresh()
            return table.version, (table, whole(table))

        watch = self._hub.add(lambda event: callback(*event), first)
        self._start()
        return watch

    def alter(
        self,
        alterations: Sequence[QuotaAlteration],
        *,
        validate_only: bool = False,
        who: str = "",
        tool: str = "",
        message: str = "",
        at_revision: int | None = None,
        until_ms: int | None = None,
    ) -> list[AlterResult]:
        """
        Set and clear keys, each entity all or nothing, as far as they pass Kafka's own checks.

        Args:
            alterations: one per entity; a second one for an entity is refused, as in Kafka.
            validate_only: check, and change nothing.
            who: the principal, for the history.
            tool: the program, for the history.
            message: why, for the history.
            at_revision: the revision that the alterations are based on; None: any.
            until_ms: when the former values return, epoch ms; None: never.

        Returns:
            One result per alteration, in their order, with Kafka's error where one was refused.

        Raises:
            ConfigError: until a time that has passed; or the home has no place for an end.
            StoreMovedOn: the store is at another revision.
            StoreReplaced: another store is found where this one was; it wasn't changed.
            StoreSilent: the home doesn't answer; the message says what became of the change.
            StoreError: the home can't be reached, or refused; ``retriable``: trying again may help.
                Except in SQLite, some entities may have been changed.
        """
        self.home.check_open()
        if until_ms is not None and until_ms <= self.home.clock_ms():
            raise ConfigError(f"until {moment(until_ms)}: that has passed; nothing was changed")
        if until_ms is not None and until_ms > MOST_UNTIL_MS:
            raise ConfigError(f"until {until_ms}: that is after the year 9999; nothing was changed")
        if until_ms is not None and self.ends is None:
            raise ConfigError(
                f"{self.url} has no place for the end of a quota; nothing was changed. A store "
                "sqlite:PATH has one"
            )
        checked = validate(alterations, resolvable=self._resolve)
        origin = ChangeOrigin(who, tool, new_change(), message)
        with self.availability.changing(self.home.change_s + len(alterations) * EACH_S):
            if not validate_only:
                self.home.prepare()
                if self.ends is not None:
                    self.ends.end_due()
            return self._alter(StoreChange(checked, origin, validate_only, at_revision, until_ms))

    def _start(self) -> None:
        with self._thread_lock:
            if self._thread is None:
                self.availability.watched = True
                self._thread = threading.Thread(
                    target=self._run, name="headgate-store-watch", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            self.home.poke.wait(self._poll_s)
            self.home.poke.clear()
            if self.home.closed:
                return
            try:
                with patient(LOOK_S):
                    self._look()
                self.availability.answered()
            except StoreError as exc:
                if not self.availability.trouble and not self.home.closed:
                    log.warning("watching goes on, but: %s", exc)
                self.availability.failed(exc)
            except Exception as exc:
                # The thread must survive errors that nobody foresaw: without it no change is seen.
                log.exception("watching %s goes on after an unexpected error", self.url)
                self.availability.trouble = repr(exc)
            self._hub.deliver()
            self.broker_settings.hub.deliver()
            if self.availability.silent is None:
                with patient(LOOK_S):
                    self._after_delivery()

    def close(self) -> None:
        """Stop watches and close the home. May be called twice."""
        with self._thread_lock:
            if self.home.closed:
                return
            self.home.closed = True
        self.home.poke.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._thread is not None:
            self._end()
        self.home.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
