"""
Quotas in a store that is opened in this process: SQLite, ZooKeeper, or a Kafka as a store.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import starmap
from typing import TYPE_CHECKING

from headgate.admin.api import (
    ConfigEntry,
    ConfigSynonym,
    Entities,
    ScramUpsertion,
    Values,
    unsupported,
)
from headgate.admin.target import ChangeRequest, EntityQuery, QuotaTarget, effective_values
from headgate.errors import ApiError, StoreError
from headgate.quota.alteration import AlterResult, check_types, validate
from headgate.quota.entity import QuotaEntity
from headgate.quota.filter import validate_filter
from headgate.quota.table import QuotaTable
from headgate.store.base import AuditEvent, EndingQuota, HistoryEntry, resolvable
from headgate.store.identity import StoreIdentity
from headgate.store.synonyms import broker_synonyms
from headgate.store.watched import QuotaStore

if TYPE_CHECKING:
    from headgate.live.picture import Picture
    from headgate.wire.messages.live import LiveRequest


class StoreTarget(QuotaTarget):
    """
    Calls a store. The coroutines block and never wait, so ``run_now`` runs them without a loop.

    Args:
        store: an open store, or a function that opens it at the first call. Its argument says
            whether that call changes something: a call that only reads doesn't make a store.
        url: the store's, for errors.
        who: the principal, for the history; "": who runs the process.
        tool: the program, for the history.
        missing: whether the store is still missing, and calls that read take it for an empty one.
    """

    def __init__(
        self,
        store: QuotaStore | Callable[[bool], QuotaStore],
        url: str,
        *,
        who: str = "",
        tool: str = "",
        missing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._open = store if callable(store) else None
        self._opened = None if callable(store) else store
        self._opening = threading.Lock()
        self._ending = threading.Lock()
        self._closed = False
        self._url = url
        self._who = who
        self._tool = tool
        self._missing = missing

    def store(self, *, change: bool = False) -> QuotaStore:
        """
        Return the store, opened at the first call.

        Args:
            change: it is going to be changed, so that it is made where it is missing.
        """
        with self._opening:
            if self._opened is None:
                assert self._open is not None
                opened = self._open(change)
                with self._ending:
                    if self._closed:  # by a caller that didn't wait any longer
                        opened.close()
                        raise StoreError(f"the quota store {self._url} is closed")
                    self._opened = opened
            return self._opened

    def _is_missing(self) -> bool:
        return self._opened is None and self._missing()

    async def table(self) -> QuotaTable:
        """Return all quotas."""
        return QuotaTable() if self._is_missing() else self.store().snapshot()

    async def describe(self, query: EntityQuery) -> Entities:
        """Return the entities that match, with their quotas."""
        if query.draft:
            check_types(component.entity_type for component in query.components)
        else:
            validate_filter(query.components)
        table = await self.table()
        return {e: dict(values) for e, values in table.entities.items() if query.passes(e)}

    async def effective(
        self, entities: Collection[QuotaEntity], omit_overridden: bool
    ) -> Mapping[QuotaEntity, Values | ApiError]:
        """Return what applies to each entity."""
        return effective_values(await self.table(), entities, omit_overridden)

    async def identity(self) -> StoreIdentity | None:
        """Return the store's identity; None: it has none yet."""
        return None if self._is_missing() else self.store().home.identity()

    async def history(
        self, entity: QuotaEntity | None = None, limit: int | None = None
    ) -> list[HistoryEntry]:
        """Return who changed what, oldest first."""
        return self.store().history.entries(entity=entity, limit=limit)

    async def audit_log(self, limit: int | None = None) -> list[AuditEvent]:
        """Return what was refused or done beside quotas, oldest first."""
        return self.store().history.audit_log(limit=limit)

    async def audit(self, event: AuditEvent) -> None:
        """Keep a line about something refused or done."""
        self.store().history.audit(event)

    async def alter(self, request: ChangeRequest) -> list[AlterResult]:
        """Change quotas, each entity all or nothing."""
        if request.validate_only and self._is_missing():
            return validate(request.alterations, resolvable=resolvable).results
        return self.store(change=not request.validate_only).alter(
            request.alterations,
            validate_only=request.validate_only,
            who=request.who or self._principal(),
            tool=self._tool,
            message=request.message,
            at_revision=request.at_revision,
            until_ms=request.until_ms,
        )

    async def errors(self, request: ChangeRequest) -> Sequence[ApiError | None]:
        """Do the same; return the error of each alteration."""
        return [result.error for result in await self.alter(request)]

    async def ends(self) -> list[EndingQuota]:
        """Return the quotas that end, by their time."""
        ends = None if self._is_missing() else self.store().ends
        return [] if ends is None else ends.kept()

    async def names(self, resource: str) -> list[str]:
        """Return the brokers that have settings here."""
        self._only_brokers(resource)
        configs = self.store().broker_settings.now()
        return sorted((broker for broker in configs if broker), key=int)

    async def describe_configs(self, resource: str, name: str) -> list[ConfigEntry]:
        """Return the settings the store has for a broker, or for all ("")."""
        self._only_brokers(resource)
        return [
            ConfigEntry(
                setting,
                told[0].value,
                told[0].source,
                False,
                tuple(starmap(ConfigSynonym, told)),
            )
            for setting, told in broker_synonyms(name, self.store().broker_settings.now()).items()
        ]

    async def alter_configs(self, resource: str, name: str, ops: Mapping[str, str | None]) -> None:
        """Set or remove settings of a broker."""
        self._only_brokers(resource)
        store = self.store(change=True)
        store.broker_settings.alter(name, ops, who=self._principal(), tool=self._tool)

    async def alter_scram(
        self, user: str, upsertions: Sequence[ScramUpsertion], deletions: Sequence[str]
    ) -> None:
        """Refuse: a store keeps no credentials."""
        raise unsupported(
            f"SCRAM credentials are kept by Kafka, not by the store {self._url}",
            "alter them with --bootstrap-server",
        )

    async def live(self, request: LiveRequest) -> Picture:
        """Refuse: a store doesn't know who is connected."""
        raise unsupported(
            f"the store {self._url} doesn't say what goes on now", "give the address of a gateway"
        )

    async def close(self) -> None:
        """Close the store if it was opened here, or is being opened."""
        with self._ending:
            self._closed = True
            opened = None if self._open is None else self._opened
        if opened is not None:
            opened.close()

    def _principal(self) -> str:
        self._who = self._who or principal()
        return self._who

    def _only_brokers(self, resource: str) -> None:
        if resource != "brokers":
            raise unsupported(
                f"the store {self._url} keeps settings of brokers, not of {resource}",
                "use --bootstrap-server",
            )


def principal() -> str:
    """Return who runs this process, for the history: ``alice@host``."""
    import getpass

    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"
    return f"{name}@{socket.gethostname()}"
