"""
Whether the store that is found is the one whose quotas were in force, or may take its place; and
the last known quotas on disk, so that a gateway can start, and go on, without its store.

The snapshot remembers the store. An emptied store, another one or an older copy must not lift
everybody's quotas: what was in force stays, the gateway isn't ready, and changes are refused, until
the store is back, or somebody accepts the other one by its name (``headgate store accept``). That
command leaves a file beside the snapshot; the gateway reads it and deletes it.

A snapshot is a quotas file, with a note: which store they are of, and the settings of brokers. An
older Headgate wrote no note, and ignores one.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate import files
from headgate.clock import now_ms
from headgate.errors import MALFORMED, HeadgateError, StoreError, StoreReplaced
from headgate.gateway.log import get_logger
from headgate.quota.file import dump_quotas, read_quotas_file
from headgate.quota.table import QuotaTable, table_delta
from headgate.store.identity import StoreIdentity, replaced

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.store.base import HistoryEntry
    from headgate.store.watched import QuotaStore

log = get_logger("headgate.gateway")

SHARED_MS: Final = 30_000
"""How long the other workers of a gateway may use an acceptance that one has used."""


class StoreGuard:
    """
    Lets a gateway's store in, and keeps the snapshot.

    Args:
        settings: where the snapshot is.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._accepted = acceptance_path(settings)
        self._saving = threading.Lock()
        """Held while a store's content and identity are read: no other is accepted meanwhile."""

    def last(self) -> Snapshot:
        """Return what was in force last; no quotas where there is no snapshot that can be read."""
        try:
            return load_snapshot(self._settings) or Snapshot(QuotaTable())
        except StoreError as error:
            log.error("the last known quotas are lost", error=str(error))
            return Snapshot(QuotaTable())

    def admit(self, store: QuotaStore) -> None:
        """
        Let a store in if it is the one that the snapshot knows, and keep what it says.

        Raises:
            StoreReplaced: it is another one; nothing was written.
            StoreError: it can't be read.
        """
        found = store.home.identity()
        why = self._why_not(store, found)
        if why is not None and (found is None or not self._is_accepted(found)):
            raise StoreReplaced(why)
        if found is not None:
            store.home.accept(found)
            self._is_accepted(found)  # needed or not, its acceptance is used up
        self.save(store)

    def reconsider(self, store: QuotaStore) -> bool:
        """Use another store in place of the one let in, if that other one was accepted."""
        found = store.home.identity()
        if found is None or not self._is_accepted(found):
            return False
        with self._saving:
            store.home.accept(found)
        log.warning("another store was accepted; its quotas are in force", store=str(found))
        return True

    def save(self, store: QuotaStore) -> None:
        """
        Keep what a store says now as the last known quotas and settings.

        Raises:
            StoreReplaced: another store has taken the place of this one; nothing is kept.
            StoreError: it can't be read.
            OSError: the place can't be written.
        """
        with self._saving:
            # Read before what it holds: a change that comes between is of a later revision.
            found = store.home.identify()
            table, brokers = store.snapshot(), store.broker_settings.now()
            store.home.identify()  # or what was read is another store's
            save_snapshot(self._settings, Snapshot(table, brokers, found))

    def keep(self, table: QuotaTable, brokers: Mapping[str, Mapping[str, str]]) -> None:
        """
        Keep what is in force where the store doesn't say what it holds; it goes on being awaited.

        Raises:
            OSError: the place can't be written.
        """
        with self._saving:
            save_snapshot(self._settings, Snapshot(table, brokers, self.last().identity))

    def _why_not(self, store: QuotaStore, found: StoreIdentity | None) -> str | None:
        """Say why a store mustn't be let in, or None."""
        try:
            known = load_snapshot(self._settings)
        except StoreError as error:
            # It can't be compared any more. A store with quotas is better than none.
            log.error("the last known quotas are lost", error=str(error))
            return None if len(store.snapshot()) else f"{error}, and the store {store.url} is empty"
        if known is None:
            return None
        if known.identity is None:  # of an older Headgate
            now = store.snapshot()
            if not len(known.table) or led_to(known.table, now, store.history.entries()):
                return None
            return (
                f"{store.url} doesn't hold what was in force last, and its history doesn't tell "
                "how that changed. Bring the store back, or accept what is there "
                "(headgate store accept)"
            )
        if found is None or not found.follows(known.identity):
            return str(replaced(store.url, known.identity, found))
        return _changed_without_count(store, known, found)

    def _is_accepted(self, found: StoreIdentity) -> bool:
        """Return whether a store is accepted, and use its acceptance up."""
        try:
            told = json.loads(self._accepted.read_text(encoding="utf-8"))
            accepted, until_ms = str(told["store"]), told.get("until_ms")
            over = until_ms is not None and now_ms() > int(until_ms)
        except (OSError, *MALFORMED):
            return False
        if over:
            with contextlib.suppress(OSError):
                self._accepted.unlink()
            return False
        if accepted != found.id:
            return False
        if until_ms is None:
            used = {"store": accepted, "until_ms": now_ms() + SHARED_MS}
            try:
                write_whole(self._accepted, json.dumps(used))
            except OSError:  # as on a full disk: better gone than there for ever
                with contextlib.suppress(OSError):
                    self._accepted.unlink()
        return True


def acceptance_path(settings: Settings) -> Path:
    """Return where the acceptance of another store is left for the gateway."""
    return Path(f"{settings.store_snapshot}.accept")


def accept_store(settings: Settings, identity: StoreIdentity) -> None:
    """
    Leave the acceptance of a store for the gateway that has these settings.

    Raises:
        OSError: the place can't be written.
    """
    write_whole(acceptance_path(settings), json.dumps({"store": identity.id}))


def _changed_without_count(store: QuotaStore, known: Snapshot, found: StoreIdentity) -> str | None:
    """
    Say that a store holds other quotas or settings than it did at the same revision, or None.

    A copy of a SQLite file put in its place beside the ``-wal`` that a killed gateway left: SQLite
    lays the latest pages over it, the revision's among them, and the file looks sound.
    """
    assert known.identity is not None
    same = (found.id, found.revision) == (known.identity.id, known.identity.revision)
    if not same or not store.counts_every_change:
        return None
    if store.snapshot().entities == known.table.entities and (
        store.broker_settings.now() == known.brokers
    ):
        return None
    return (
        f"{store.url} is at revision {found.revision}, as it was, and holds other quotas or "
        "settings: it was mixed with an older copy (one that was put beside a -wal file of it), or "
        "changed by other means. Bring the store back, or accept what is there "
        "(headgate store accept)"
    )


def led_to(known: QuotaTable, now: QuotaTable, history: Sequence[HistoryEntry]) -> bool:
    """
    Whether a store holds quotas that were known, or its history tells how they changed since.

    Args:
        known: the quotas of then.
        now: the store's.
        history: the store's, oldest first.
    """
    differ = {(change.entity, change.key) for change in table_delta(known, now).changes}
    for entry in reversed(history):
        if not differ:
            break
        at = (entry.entity, entry.key)
        if known.get(*at) == entry.before:
            differ.discard(at)
        else:
            differ.add(at)
    return not differ


class Snapshot(NamedTuple):
    """
    What was in force last.

    Args:
        table: the quotas.
        brokers: settings of brokers by id as text; "" is the default of all.
        identity: the store they are of; None in a snapshot of an older Headgate.
    """

    table: QuotaTable
    brokers: Mapping[str, Mapping[str, str]] = {}
    identity: StoreIdentity | None = None


def load_snapshot(settings: Settings) -> Snapshot | None:
    """
    Return what is kept at ``headgate.store.snapshot``, or None if there is nothing.

    Raises:
        StoreError: what is there can't be read.
    """
    path = Path(settings.store_snapshot)
    if not path.exists():
        return None
    try:
        file = read_quotas_file(path)
        return Snapshot(file.table, *_noted(file.note))
    except (HeadgateError, OSError, *MALFORMED) as exc:
        raise StoreError(f"the snapshot {path} can't be read: {exc}") from exc


def _noted(note: Any) -> tuple[dict[str, dict[str, str]], StoreIdentity | None]:
    if note is None:
        return {}, None
    brokers = {str(b): {str(k): str(v) for k, v in c.items()} for b, c in note["brokers"].items()}
    return brokers, StoreIdentity(str(note["store"]), int(note["revision"]))


def save_snapshot(settings: Settings, snapshot: Snapshot) -> None:
    """
    Keep a snapshot, whole or not at all.

    Raises:
        OSError: the place can't be written.
    """
    note = None
    if snapshot.identity is not None:
        note = {
            "store": snapshot.identity.id,
            "revision": snapshot.identity.revision,
            "brokers": {broker: dict(config) for broker, config in snapshot.brokers.items()},
        }
    write_whole(Path(settings.store_snapshot), dump_quotas(snapshot.table, note))


def write_whole(path: Path, text: str) -> None:
    """
    Write a file whole or not at all, for its owner alone.

    Raises:
        OSError: the place can't be written.
    """
    files.write_whole(path, text.encode(), mode=0o600, durable=True)
