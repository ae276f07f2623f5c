"""
The last known quotas on disk, so that a gateway can start, and go on, without its store.

A quotas file, with a note: which store they are of, and the settings of brokers. An older Headgate
wrote no note, and ignores one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate import files
from headgate.errors import MALFORMED, HeadgateError, StoreError
from headgate.quota.file import dump_quotas, read_quotas_file
from headgate.quota.table import QuotaTable
from headgate.store.identity import StoreIdentity

if TYPE_CHECKING:
    from headgate.config.settings import Settings


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
