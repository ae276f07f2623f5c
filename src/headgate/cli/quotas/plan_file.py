"""
A plan kept as a file: what was reviewed, and the state of the quotas it was made for.

``headgate plan --out FILE`` and ``headgate undo --out FILE`` write it. ``headgate apply FILE``
applies it, and refuses if the quotas have changed since the plan was made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.cli.quotas.quota_output import entity_json, number
from headgate.errors import MALFORMED, InvalidQuota, StoreMovedOn
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.plan import Plan, plan_of
from headgate.quota.table import QuotaTable, TableChange
from headgate.store.base import MOST_MESSAGE_BYTES

if TYPE_CHECKING:
    from headgate.store.identity import StoreIdentity

_MARK = "headgate_plan"
_VERSION = 1


def checked_message(text: str) -> str:
    """
    Return a message for the history.

    Raises:
        InvalidQuota: it is too long, or can't be encoded as UTF-8.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as exc:
        raise InvalidQuota("the message isn't UTF-8") from exc
    if size > MOST_MESSAGE_BYTES:
        raise InvalidQuota(f"the message is longer than {MOST_MESSAGE_BYTES} bytes")
    return text


class PlanFile(NamedTuple):
    """
    A plan as it was reviewed.

    Args:
        changes: what it does.
        store: the store's id; "" if the quotas came from servers.
        revision: the store's.
        digest: of all quotas at that time.
        message: why, for the history.
    """

    changes: tuple[TableChange, ...]
    store: str
    revision: int
    digest: str
    message: str

    def check(self, place: str, table: QuotaTable, found: StoreIdentity | None) -> Plan:
        """
        Return the plan for the present quotas, which must be those it was made for.

        Args:
            place: where they are, for the error.
            table: all present quotas.
            found: the store's identity; None for servers.

        Raises:
            StoreMovedOn: they aren't.
        """
        from headgate.quota.file import digest_of

        id_, revision = ("", 0) if found is None else found[:2]
        other = [c for c in self.changes if table.get(c.entity, c.key) != c.old]
        if id_ != self.store:
            was, now = (f"store {each}" if each else "servers" for each in (self.store, id_))
            raise StoreMovedOn(f"the plan was made for {was}, and {place} is {now}; plan again")
        if revision != self.revision or digest_of(table) != self.digest:
            at = f" (revision {self.revision}, now {revision})" if id_ else ""
            those = f"; {len(other)} of the plan's values have changed" if other else ""
            raise StoreMovedOn(
                f"{place} has changed since the plan was made{at}{those}; plan again"
            )
        return plan_of(table, self.changes)


def write_plan(path: Path, plan: Plan, identity: StoreIdentity | None, message: str) -> None:
    """
    Write a plan as a file.

    Raises:
        OSError: it can't be written.
    """
    from headgate.quota.file import digest_of

    document = {
        _MARK: _VERSION,
        "store": None if identity is None else identity.id,
        "revision": None if identity is None else identity.revision,
        "digest": digest_of(plan.current),
        "message": message,
        "changes": [
            {
                "entity": entity_json(change.entity),
                "key": change.key.name,
                "before": number(change.old),
                "after": number(change.new),
            }
            for change in plan.changes
        ],
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def read_plan(path: Path) -> PlanFile | None:
    """
    Read a plan; None where the file is something else, such as a quotas file.

    Raises:
        OSError: it can't be read.
        InvalidQuota: it is a plan with mistakes, or a newer Headgate's.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or _MARK not in document:
        return None
    if document[_MARK] != _VERSION:
        raise InvalidQuota(f"{path}: a plan of another Headgate (version {document[_MARK]})")
    try:
        changes = tuple(map(_change, document["changes"]))
        return PlanFile(
            changes,
            document["store"] or "",
            document["revision"] or 0,
            document["digest"],
            checked_message(document["message"]),
        )
    except InvalidQuota as exc:
        raise InvalidQuota(f"{path}: {exc}") from exc
    except MALFORMED as exc:
        raise InvalidQuota(
            f"{path}: not a plan as `headgate plan --out` writes it: {exc!r}"
        ) from exc


def _change(row: Any) -> TableChange:
    names = {t: DEFAULT if name is None else str(name) for t, name in row["entity"].items()}
    values = (None if row[side] is None else float(row[side]) for side in ("before", "after"))
    return TableChange(QuotaEntity(names), QuotaKey.parse(row["key"]), *values)
