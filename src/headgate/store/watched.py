"""
A quota store: what every home promises, and what all homes share.

Shared are the table last read, the watches, and the thread that calls them back.
"""

from __future__ import annotations

import abc
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Self

from headgate.errors import ApiError, ConfigError, KafkaError, StoreError
from headgate.quota.alteration import AlterResult, QuotaAlteration, Validated, validate
from headgate.quota.entity import QuotaEntity
from headgate.quota.table import QuotaTable, TableDelta, table_delta
from headgate.store.base import (
    AuditEvent,
    BrokerCallback,
    BrokerConfigs,
    ChangeOrigin,
    EndingQuota,
    HistoryEntry,
    QuotaCallback,
    new_change,
    whole,
)
from headgate.store.broker_rules import Told, broker_event, validate_broker_configs
from headgate.store.deadline import EACH_S, LOOK_S, LimitedLock, Silence, patient
from headgate.store.hub import Hub, Watch
from headgate.store.identity import StoreIdentity, check_follows, succeeded
from headgate.store.leases import Lease, LeaseTaker
from headgate.words import moment

log = logging.getLogger("headgate.store")

MOST_UNTIL_MS: Final = 253_402_300_799_000
"""The last second of the year 9999, epoch ms."""


class QuotaStore(abc.ABC):
    """
    What keeps quotas.

    It keeps the last known table, and calls back when ``_refresh`` finds another. It may be used
    from several threads, but not across a fork. ``tests/contract`` checks every home.

    Args:
        url: what errors call the store.
        poll_s: how often the thread looks for changes that nothing announced, in seconds.
        clock_ms: epoch milliseconds, for what is written down.
        resolve: whether an ip entity's name is a host that resolves.
    """

    _leases: LeaseTaker  # set by the home
    #: Whether nothing in the home changes without its revision: no tools of Kafka's write there.
    counts_every_change = False
    #: Whether the home has a place for the ends of quotas.
    keeps_ends = False
    #: How long a change may take altogether, in seconds. Kafka's clients wait 30 s for an answer.
    change_s = 20.0

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
        self._state_lock = LimitedLock(url, threading.RLock())
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
        self._silence = Silence(self._poke.set)

    def _begin(self, create: bool, look: Callable[[], object]) -> None:
        """Make the home whole, or have a look at it as it is; let go of it if that fails."""
        try:
            if create:
                self.identify()
            else:
                look()
        except BaseException:
            self._release()
            raise

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
        self,
        checked: Validated,
        origin: ChangeOrigin,
        *,
        validate_only: bool,
        at_revision: int | None,
    ) -> list[AlterResult]:
        """Set and clear the keys of the accepted alterations; return what became of each."""

    @abc.abstractmethod
    def _read_brokers(self) -> BrokerConfigs:
        """Return the broker settings as of now."""

    @abc.abstractmethod
    def _read_history(self, entity: QuotaEntity | None, limit: int | None) -> list[HistoryEntry]:
        """Return the entries of the history, as ``history`` does."""

    @abc.abstractmethod
    def _read_audit(self, limit: int | None) -> list[AuditEvent]:
        """Return the audit lines, as ``audit_log`` does."""

    @abc.abstractmethod
    def _keep_audit(self, event: AuditEvent) -> None:
        """Keep an audit line, which has its time."""

    @abc.abstractmethod
    def _alter_broker(self, broker: str, ops: Mapping[str, str | None], told: Told) -> None:
        """Set or remove checked settings of one broker, all or nothing, with an audit line."""

    # --- which store it is

    def identity(self) -> StoreIdentity | None:
        """
        Return the identity that the home has now, even if it is another store's; writes nothing.

        None: it has none, since it was emptied or an earlier release made it.
        """
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

    def refuses(self) -> str | None:
        """Return why the home refuses what Kafka knows, broker settings too; as last looked at."""
        return None

    def oddities(self) -> list[str]:
        """Return a sentence for each thing in the home that isn't read as it should be."""
        return []

    def silent(self) -> str | None:
        """Return what the thread that watches found: the home doesn't answer. None: it does."""
        return self._silence.looked

    def _check_identity(self, found: StoreIdentity | None) -> None:
        """See that what was read is the known store's, and know it; under ``_state_lock``."""
        check_follows(self.url, self._identity, found)
        self._identity = found

    def _check_same_store(self, found: StoreIdentity | None) -> None:
        """See that a home which is written to is the known store; reads check its revision."""
        check_follows(self.url, self._identity, found, at_any_revision=True)

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

    def end_due(self) -> None:  # noqa: B027 - a home that keeps ends overrides it
        """Bring back the former values of quotas whose time has come, each once."""

    def ends(self) -> list[EndingQuota]:
        """Return the quotas that end, by their time."""
        return []

    def _alter_until(
        self,
        checked: Validated,
        origin: ChangeOrigin,
        *,
        at_revision: int | None,
        until_ms: int | None,
    ) -> list[AlterResult]:
        """Do as ``_alter``, and keep with each quota what returns at its time (``keeps_ends``)."""
        raise NotImplementedError

    def watch_ends(self) -> None:
        """Bring former values back in time from now on, by the thread that watches."""
        if self.keeps_ends:
            self._start()

    def _after_delivery(self) -> None:  # noqa: B027 - a home that needs it overrides it
        """Do what may wait until watchers have been told."""

    def _publish(self, table: QuotaTable, delta: TableDelta) -> QuotaTable:
        """Make a table the known one; queue the delta for the watches if it has changes."""
        old, self._table = self._table, table
        if old is not None and delta.changes:
            delta = TableDelta(delta.changes, old.version, table.version)
            self._quota_hub.push(table.version, (table, delta))
        return table

    def _publish_whole(self, table: QuotaTable) -> QuotaTable:
        """Make a table that was read whole the known one, with the next version, if it differs."""
        old = self._table
        if old is None:
            return self._publish(table.with_version(1), TableDelta((), 0, 0))
        delta = table_delta(old, table)
        return self._publish(table.with_version(old.version + 1), delta) if delta.changes else old

    def _publish_brokers(self, brokers: BrokerConfigs) -> None:
        """Make broker settings the known ones; queue them for the watches if they differ."""
        if brokers != self._brokers:
            self._brokers = brokers
            self._brokers_version += 1
            self._broker_hub.push(self._brokers_version, brokers)

    def snapshot(self) -> QuotaTable:
        """
        Return every quota as of now; includes every change this store has acknowledged.

        Raises:
            StoreError: the home can't be reached.
        """
        self._check_open()
        return self._refresh()

    def broker_configs(self) -> BrokerConfigs:
        """Return the gateway's dynamic broker settings, by id; "" is the cluster's default."""
        self._check_open()
        return self._read_brokers()

    def history(
        self, *, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """
        Return who changed what, oldest first.

        Args:
            entity: only changes of this entity.
            limit: only this many, the latest.
        """
        self._check_open()
        return self._read_history(entity, limit)

    def audit_log(self, *, limit: int | None = None) -> list[AuditEvent]:
        """Return refused attempts and changes of broker settings: the latest, oldest first."""
        self._check_open()
        return self._read_audit(limit)

    def audit(self, event: AuditEvent) -> None:
        """Keep a line about something refused or done."""
        self._prepare()
        self._keep_audit(replace(event, t_ms=event.t_ms or self._clock_ms()))

    def watch(self, callback: QuotaCallback) -> Watch[tuple[QuotaTable, TableDelta]]:
        """
        Call back with the table and what changed, now and after every change.

        Args:
            callback: called once before this returns, with the whole table and the delta from an
                empty one; after that from a thread of the store, in order, one call at a time.
                It must not wait for another thread that uses this store.
        """
        self._check_open()

        def first() -> tuple[int, tuple[QuotaTable, TableDelta]]:
            table = self._refresh()
            return table.version, (table, whole(table))

        watch = self._quota_hub.add(lambda event: callback(*event), first)
        self._start()
        return watch

    def watch_broker_configs(self, callback: BrokerCallback) -> Watch[BrokerConfigs]:
        """Call back with all broker settings, now (before this returns) and after every change."""
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
        self._check_open()
        if until_ms is not None and until_ms <= self._clock_ms():
            raise ConfigError(f"until {moment(until_ms)}: that has passed; nothing was changed")
        if until_ms is not None and until_ms > MOST_UNTIL_MS:
            raise ConfigError(f"until {until_ms}: that is after the year 9999; nothing was changed")
        if until_ms is not None and not self.keeps_ends:
            raise ConfigError(
                f"{self.url} has no place for the end of a quota; nothing was changed. A store "
                "sqlite:PATH has one"
            )
        checked = validate(alterations, resolvable=self._resolve)
        origin = ChangeOrigin(who, tool, new_change(), message)
        seconds = self.change_s + len(alterations) * EACH_S
        with self._silence.changing(seconds, watched=self._thread is not None):
            if not validate_only:
                self._prepare()
                self.end_due()
            if until_ms is not None and not validate_only:
                return self._alter_until(
                    checked, origin, at_revision=at_revision, until_ms=until_ms
                )
            return self._alter(
                checked, origin, validate_only=validate_only, at_revision=at_revision
            )

    def alter_broker_configs(
        self,
        broker: str,
        ops: Mapping[str, str | None],
        *,
        validate_only: bool = False,
        who: str = "",
        tool: str = "",
    ) -> None:
        """
        Set or remove (None) settings of one broker, all or nothing, with an audit line.

        Args:
            broker: the broker's id as text, or "" for the cluster's default.
            ops: setting to its new value, or None to remove it.
            validate_only: check, and change nothing.
            who: the principal, for the audit.
            tool: the program, for the audit.

        Raises:
            ApiError: INVALID_CONFIG, INVALID_REQUEST (``broker_rules``), POLICY_VIOLATION.
        """
        self._check_open()
        with self._silence.changing(self.change_s, watched=self._thread is not None):
            kept = validate_broker_configs(broker, ops, self.broker_configs())
            if (refuses := self.refuses()) is not None:
                raise ApiError(KafkaError.POLICY_VIOLATION, refuses)
            if not validate_only:
                self._prepare()
                told = partial(broker_event, broker, who, tool, self._clock_ms())
                self._alter_broker(broker, kept, told)

    def lease(self, name: str, owner: str, ttl_ms: int) -> Lease | None:
        """
        Take a lease, or None while somebody else may hold it.

        If its holder doesn't renew it, another owner gets it by asking repeatedly: once this store
        has seen it unchanged for as long as it lasts.

        Args:
            name: what only one may do.
            owner: the worker that asks. A worker that restarted takes its own lease over at once,
                with a new epoch, which fences the older holder.
            ttl_ms: how long it lasts unless renewed.
        """
        self._prepare()
        return self._leases.take(name, owner, ttl_ms)

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
                with patient(LOOK_S):
                    self._look()
                self._trouble = None
                self._silence.broken()
            except StoreError as exc:
                self._silence.found(exc)
                if not self._trouble and not self._closed:
                    log.warning("watching goes on, but: %s", exc)
                self._trouble = str(exc)
            except Exception as exc:
                # The thread must survive errors that nobody foresaw: without it no change is seen.
                log.exception("watching %s goes on after an unexpected error", self.url)
                self._trouble = repr(exc)
            self._quota_hub.deliver()
            self._broker_hub.deliver()
            if self._silence.looked is None:
                with patient(LOOK_S):
                    self._after_delivery()

    def close(self) -> None:
        """Stop watches and close the home. May be called twice."""
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
