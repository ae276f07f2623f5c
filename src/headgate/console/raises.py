"""
Tenants' asks for a raise, each with the evidence of its moment, and operators' answers.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from headgate.console.database import Database
from headgate.console.foretold import Foretold
from headgate.console.what_if import Throttled, WhatIf
from headgate.live.picture import Picture
from headgate.quota.entity import QuotaEntity, entity_from_path
from headgate.quota.key import QuotaKey

MOST_OPEN: Final = 10
"""Asks of one tenant that may wait for an answer; operators have to read them all."""
MOST_LISTED: Final = 200
MOST_USES: Final = 50
"""Quota-ids that an ask names; a principal may use any number of client-ids."""
_COLUMNS: Final = (
    "tenant, who, t_ms, entity, quota_key, value, reason, evidence, state, answered_by, "
    "answered_ms, granted, word"
)
_MIGRATIONS: Final = (
    f"""
    CREATE TABLE raises (id INTEGER PRIMARY KEY AUTOINCREMENT, {_COLUMNS});
    CREATE INDEX raises_by_tenant ON raises (tenant, state)
    """,
)


class State(StrEnum):
    """What became of an ask."""

    OPEN = "open"
    GRANTED = "granted"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


class BrokerUse(NamedTuple):
    """The use of the principal's own quota-ids of the kind asked for, at one broker."""

    broker_id: int
    client_id: str
    rate: float
    limit: float | None
    held: int
    throttled: int
    throttled_ms: int


class Evidence(NamedTuple):
    """
    What was known when a raise was asked for.

    Args:
        uses: of the principal's own quota-ids.
        told: how its requests of the last hour were throttled; None: unknown.
        tried: how they would have been throttled under the value asked for; None: unknown, or a
            client was told to wait most of its time, so what it would have sent isn't known.
        requests: how many it sent in the last hour.
        notes: what isn't known, and why.
        foretold: how its quota-ids would go under the value asked for, in a closed loop; asks of
            before this was kept have none.
    """

    uses: tuple[BrokerUse, ...]
    told: Throttled | None
    tried: Throttled | None
    requests: int
    notes: tuple[str, ...]
    foretold: tuple[Foretold, ...] = ()


class Raise(NamedTuple):
    """
    One ask.

    Args:
        id: its number.
        tenant: the tenant that asked.
        who: the user of the tenant who asked.
        t_ms: when, epoch ms.
        entity: what the quota is for: a principal of the tenant's, or its pair with a client-id.
        key: of the quota.
        value: the value asked for.
        reason: why the tenant needs it.
        evidence: what was known when it was asked.
        state: what became of it.
        answered_by: the operator who answered, or the tenant's user who withdrew it; "" while it
            is open.
        answered_ms: when, epoch ms; 0 while it is open.
        granted: the value that was set; None: none.
        word: the operator's reason.
    """

    id: int
    tenant: str
    who: str
    t_ms: int
    entity: QuotaEntity
    key: QuotaKey
    value: float
    reason: str
    evidence: Evidence
    state: State = State.OPEN
    answered_by: str = ""
    answered_ms: int = 0
    granted: float | None = None
    word: str = ""


def evidence_of(
    picture: Picture | None, entity: QuotaEntity, key: QuotaKey, found: WhatIf | None,
    notes: tuple[str, ...],
) -> Evidence:  # fmt: skip
    """
    Return what speaks for a raise.

    Args:
        picture: of the principal, as its tenant may see it; None: there is none.
        entity: what the quota is for.
        key: of the quota.
        found: what the value asked for would have done to its own requests.
        notes: what isn't known.
    """
    uses = [
        BrokerUse(broker.broker_id, use.client_id, use.rate, use.limit, use.held, use.throttled,
            use.throttled_ms)
        for broker in (picture.brokers if picture is not None else ())
        for use in broker.quotas
        if QuotaKey.parse(use.key) == key and use.user == entity.user
    ]  # fmt: skip
    if len(uses) > MOST_USES:
        notes = (*notes, f"{len(uses) - MOST_USES} more quota-ids, with more room, aren't shown.")
        del uses[MOST_USES:]
    if found is None:
        return Evidence(tuple(uses), None, None, 0, notes)
    rows = [r for r in found.rows if r.key == key]
    told = _together([row.told for row in rows])
    tried = None if any(row.hides for row in rows) else _together([row.after for row in rows])
    if found.more:
        notes = (*notes, f"{found.more} more clients aren't in the sums.")
    notes = (*notes, *(f"{note}." for note in found.notes))
    return Evidence(tuple(uses), told, tried, sum(r.requests for r in rows), notes, found.foretold)


def _together(parts: Collection[Throttled]) -> Throttled:
    return Throttled(
        sum(p.requests for p in parts), sum(p.ms for p in parts),
        max((p.longest_ms for p in parts), default=0),
    )  # fmt: skip


def drawn() -> int:
    """Return a random number for an ask; serial numbers would tell how often others ask."""
    return 100_000_000 + secrets.randbelow(900_000_000)


class Raises:
    """
    Keeps asks and answers.

    Args:
        database: the console's own state.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        database.migrate("raises", _MIGRATIONS)

    def is_room(self, tenant: str) -> bool:
        """Return whether a tenant may ask once more."""
        query = "SELECT count(*) FROM raises WHERE tenant = ? AND state = ?"
        return bool(self._database.rows(query, (tenant, State.OPEN))[0][0] < MOST_OPEN)

    def add(self, asked: Raise) -> int:
        """
        Keep a new ask; return its number.

        The caller has checked ``is_room``, and lets no other ask be added in between.
        """
        number = drawn()
        self._database.change(
            f"INSERT INTO raises (id, {_COLUMNS}) VALUES ({', '.join('?' * 14)})",
            (
                number, asked.tenant, asked.who, asked.t_ms, asked.entity.path, asked.key.name,
                asked.value, asked.reason, msgspec.json.encode(asked.evidence), *asked[9:],
            ),
        )  # fmt: skip
        return number

    def get(self, number: int, tenant: str | None = None) -> Raise | None:
        """
        Return one ask.

        Args:
            number: the ask's.
            tenant: find it only among this tenant's asks; None: among all.
        """
        where = "WHERE id = ? AND tenant = ifnull(?, tenant)"
        found = self._read(where, (number, tenant))
        return found[0] if found else None

    def listed(self, tenant: str | None = None) -> list[Raise]:
        """Return the open asks, oldest first, then the latest answers; of one tenant or of all."""
        where = "WHERE tenant = ?" if tenant is not None else ""
        order = "ORDER BY state != 'open', CASE state WHEN 'open' THEN t_ms ELSE -t_ms END LIMIT ?"
        values = (MOST_LISTED,) if tenant is None else (tenant, MOST_LISTED)
        return self._read(f"{where} {order}", values)

    def answer(self, answered: Raise) -> None:
        """Keep an answer."""
        self._database.change(
            "UPDATE raises SET state=?, answered_by=?, answered_ms=?, granted=?, word=? WHERE id=?",
            (*answered[9:], answered.id),
        )

    def _read(self, where: str, values: tuple[Any, ...]) -> list[Raise]:
        rows = self._database.rows(f"SELECT id, {_COLUMNS} FROM raises {where}", values)
        return [_raise_of(*row) for row in rows]


def _raise_of(*row: Any) -> Raise:
    entity, key, value, reason, evidence = row[4:9]
    found = msgspec.json.decode(evidence, type=Evidence)
    return Raise._make(
        (
            *row[:4], entity_from_path(entity), QuotaKey.parse(key), value, reason, found,
            State(row[9]), *row[10:],
        )
    )  # fmt: skip
