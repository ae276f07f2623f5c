"""
What all homes share: the table last read, the watches, and the thread that calls them back.
"""

from __future__ import annotations

import abc
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from headgate.errors import StoreError
from headgate.quota.alteration import AlterResult, QuotaAlteration, Validated, validate
from headgate.quota.table import QuotaTable, TableDelta
from headgate.store.base import (
    BrokerCallback,
    BrokerConfigs,
    Origin,
    QuotaCallback,
    Watch,
    new_change,
    whole,
)
from headgate.store.broker_rules import validate_broker_configs
from headgate.store.hub import Hub
from headgate.store.identity import StoreIdentity, replaced, succeeded

log = logging.getLogger("headgate.store")


class WatchedStore(abc.ABC):
    """
    Keeps the last known table, and calls back when ``_refresh`` finds another.

    Args:
        url: what errors call the store.
        poll_s: how often the thread looks for changes that nothing announced, in seconds.
        clock_ms: epoch milliseconds, for what is written down.
        resolve: whether an ip entity's name is a host that resolves.
    """

    def __init__(
        self,
        url: str,
        poll_s: float,
        clock_ms: Callable[[], int],
        resolve: Callable[[str], bool],
    ) -> None:
        self.url = url
        self._poll_s = poll_s
        self._clock_ms = clock_ms
        self._resolve = resolve
        self._closed = False
        # Held while the table is read again, so that a table and its version change together.
        self._state_lock = threading.RLock()
        self._thread_lock = threading.Lock()
        self._table: QuotaTable | None = None
        self._brokers: BrokerConfigs = {}
        self._brokers_version = 0
        self._quota_hub: Hub[tuple[QuotaTable, TableDelta]] = Hub()
        self._broker_hub: Hub[BrokerConfigs] = Hub()
        self._poke = threading.Event()
        self._thread: threading.Thread | None = None
        # Which store this is: what the home said first, or what was accepted since.
        self._identity: StoreIdentity | None = None
        self._whole = False
        self._trouble: str | None = None

    @abc.abstractmethod
    def _read_identity(self) -> StoreIdentity | None:
        """Return the identity that the home has now. Called with ``_state_lock`` held."""

    @abc.abstractmethod
    def _make_whole(self) -> None:
        """Make what the home lacks before it can be changed: its layout, an identity."""

    @abc.abstractmethod
    def _succeed(self, succeeds: tuple[tuple[str, int], ...]) -> None:
        """Write which stores this one took over from; the revision grows."""

    @abc.abstractmethod
    def _refresh(self) -> QuotaTable:
        """Catch up with the home under ``_state_lock``; publish what changed; return the table."""

    @abc.abstractmethod
    def _alter(
        self, checked: Validated, origin: Origin, *, validate_only: bool, at_revision: int | None
    ) -> list[AlterResult]:
        """Set and clear the keys of the accepted alterations; return what became of each."""

    @abc.abstractmethod
    def broker_configs(self) -> BrokerConfigs:
        """Return the settings of brokers, by id as text; "" is the default of all."""

    @abc.abstractmethod
    def _alter_broker(
        self, broker: str, ops: Mapping[str, str | None], who: str, tool: str
    ) -> None:
        """Set or remove checked settings of one broker, all or nothing, with an audit line."""

    # --- which store it is

    def identity(self) -> StoreIdentity | None:
        """Return the identity that the home has now; writes nothing."""
        self._check_open()
        with self._state_lock:
            return self._read_identity()

    def identify(self) -> StoreIdentity:
        """Prepare the home for changes: make its layout, and an identity if it has none."""
        self._check_open()
        with self._state_lock:
            if not self._whole:
                self._make_whole()
                self._whole = True
            self._check_identity(self._read_identity())
            assert self._identity is not None
            return self._identity

    def succeed(self, previous: StoreIdentity) -> StoreIdentity:
        """Write down that this store took over from another, and at which of its revisions."""
        self.identify()
        self._succeed(succeeded(previous))
        return self.identify()

    def accept(self, identity: StoreIdentity) -> None:
        """Regard an identity that was found as the known one from now on."""
        with self._state_lock:
            self._identity = identity
        self._poke.set()

    def trouble(self) -> str | None:
        """Return why the quotas can't be read and watched, or None if they can."""
        return self._trouble

    def _check_identity(self, found: StoreIdentity | None) -> None:
        """
        See that the home is still the same store, by the identity just read from it.

        Called with ``_state_lock`` held.

        Raises:
            StoreReplaced: it is another one, an older state of it, or nothing.
        """
        known = self._identity
        if known is not None and (found is None or not found.follows(known)):
            raise replaced(self.url, known, found)
        self._identity = found

    def _prepare(self) -> None:
        """Prepare the home for a change, once. Calls that only read don't do this."""
        self._check_open()
        if not self._whole:
            self.identify()

    @abc.abstractmethod
    def _release(self) -> None:
        """Let go of the home; called once."""

    def _look(self) -> None:
        """Find what changed; the thread calls this every ``poll_s``, and when it is woken."""
        self._refresh()

    def _after_delivery(self) -> None:  # noqa: B027 - a home that needs it overrides it
        """Do what may wait until watchers have been told."""

    def _publish(self, table: QuotaTable, delta: TableDelta) -> QuotaTable:
        """Make a table the known one; queue the delta for the watches if it has changes."""
        old, self._table = self._table, table
        if old is not None and delta.changes:
            delta = TableDelta(delta.changes, old.version, table.version)
            self._quota_hub.push(table.version, (table, delta))
        return table

    def _publish_brokers(self, brokers: BrokerConfigs) -> None:
        """Make broker settings the known ones; queue them for the watches if they differ."""
        if brokers != self._brokers:
            self._brokers = brokers
            self._brokers_version += 1
            self._broker_hub.push(self._brokers_version, brokers)

    def watch(self, callback: QuotaCallback) -> Watch:
        """Call back with the table and what changed, now and after every change."""
        self._check_open()

        def first() -> tuple[int, tuple[QuotaTable, TableDelta]]:
            table = self._refresh()
            return table.version, (table, whole(table))

        watch = self._quota_hub.add(lambda event: callback(*event), first)
        self._start()
        return watch

    def watch_broker_configs(self, callback: BrokerCallback) -> Watch:
        """Call back with all broker settings, now and after every change."""
        self._check_open()

        def first() -> tuple[int, BrokerConfigs]:
            with self._state_lock:
                self._refresh()
                return self._brokers_version, self._brokers

        watch = self._broker_hub.add(callback, first)
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
    ) -> list[AlterResult]:
        """Set and clear keys, as far as they pass Kafka's own checks."""
        self._check_open()
        checked = validate(alterations, resolvable=self._resolve)
        if not validate_only:
            self._prepare()
        origin = Origin(who, tool, new_change(), message)
        return self._alter(checked, origin, validate_only=validate_only, at_revision=at_revision)

    def alter_broker_configs(
        self,
        broker: str,
        ops: Mapping[str, str | None],
        *,
        validate_only: bool = False,
        who: str = "",
        tool: str = "",
    ) -> None:
        """Set or remove settings of one broker, all or nothing, with an audit line."""
        self._check_open()
        validate_broker_configs(broker, ops, self.broker_configs())
        if not validate_only:
            self._prepare()
            self._alter_broker(broker, ops, who, tool)

    def _start(self) -> None:
        with self._thread_lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="headgate-store-watch", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._poke.wait(self._poll_s)
            self._poke.clear()
            if self._closed:
                return
            try:
                self._look()
                self._trouble = None
            except StoreError as exc:
                if not self._trouble and not self._closed:
                    log.warning("watching goes on, but: %s", exc)
                self._trouble = str(exc)
            except Exception as exc:
                # The thread must survive errors that nobody foresaw: without it no change is seen.
                log.exception("watching %s goes on after an unexpected error", self.url)
                self._trouble = repr(exc)
            self._quota_hub.deliver()
            self._broker_hub.deliver()
            self._after_delivery()

    def close(self) -> None:
        """Stop watches and close the home."""
        with self._thread_lock:
            if self._closed:
                return
            self._closed = True
        self._poke.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._release()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"the quota store {self.url} is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
