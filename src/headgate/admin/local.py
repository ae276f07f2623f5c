"""
The admin client over a store in this process: SQLite, ZooKeeper, or a Kafka as a store.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import starmap

from headgate.admin.api import (
    ConfigEntry,
    ConfigSynonym,
    Entities,
    ScramUpsertion,
    Values,
    unsupported,
)
from headgate.admin.backend import Backend, EntityQuery, effective_values
from headgate.errors import ApiError
from headgate.live.picture import Picture
from headgate.quota.alteration import AlterResult, QuotaAlteration, check_types
from headgate.quota.entity import QuotaEntity
from headgate.quota.filter import validate_filter
from headgate.store.synonyms import broker_synonyms
from headgate.store.watched import QuotaStore
from headgate.wire.messages.live import LiveRequest


class LocalBackend(Backend):
    """
    Calls a store from worker threads, so that a slow one doesn't hold the event loop.

    Args:
        store: an open store, or a function that opens it at the first call. Its argument says
            whether that call changes something: a call that only reads doesn't make a store.
        who: the principal, for the history.
        tool: the program, for the history.
        url: the store's, for errors.
    """

    def __init__(
        self, store: QuotaStore | Callable[[bool], QuotaStore], *, who: str, tool: str, url: str
    ) -> None:
        self._open = store if callable(store) else None
        self._opened = None if callable(store) else store
        self._opening = asyncio.Lock()
        self._url = url
        self._who = who
        self._tool = tool

    async def _store(self, *, change: bool = False) -> QuotaStore:
        async with self._opening:
            if self._opened is None:
                assert self._open is not None
                self._opened = await asyncio.to_thread(self._open, change)
            return self._opened

    async def describe(self, query: EntityQuery) -> Entities:
        """Return the entities that match, with their quotas."""
        if query.draft:
            check_types(component.entity_type for component in query.components)
        else:
            validate_filter(query.components)
        table = await asyncio.to_thread((await self._store()).snapshot)
        return {e: dict(values) for e, values in table.entities.items() if query.passes(e)}

    async def effective(
        self, entities: Collection[QuotaEntity], omit_overridden: bool
    ) -> Mapping[QuotaEntity, Values | ApiError]:
        """Return what applies to each entity."""
        table = await asyncio.to_thread((await self._store()).snapshot)
        return effective_values(table, entities, omit_overridden)

    async def alter(
        self, alterations: Sequence[QuotaAlteration], validate_only: bool
    ) -> list[AlterResult]:
        """Change quotas, each entity all or nothing."""
        store = await self._store(change=not validate_only)
        return await asyncio.to_thread(
            store.alter,
            alterations,
            validate_only=validate_only,
            who=self._who,
            tool=self._tool,
        )

    async def names(self, resource: str) -> list[str]:
        """Return the brokers that have settings here."""
        _only_brokers(resource, self._url)
        configs = await asyncio.to_thread((await self._store()).broker_configs)
        return sorted((broker for broker in configs if broker), key=int)

    async def describe_configs(self, resource: str, name: str) -> list[ConfigEntry]:
        """Return the settings the store has for a broker, or for all ("")."""
        _only_brokers(resource, self._url)
        configs = await asyncio.to_thread((await self._store()).broker_configs)
        return [
            ConfigEntry(
                setting,
                told[0].value,
                told[0].source,
                False,
                tuple(starmap(ConfigSynonym, told)),
            )
            for setting, told in broker_synonyms(name, configs).items()
        ]

    async def alter_configs(self, resource: str, name: str, ops: Mapping[str, str | None]) -> None:
        """Set or remove settings of a broker."""
        _only_brokers(resource, self._url)
        store = await self._store(change=True)
        await asyncio.to_thread(
            store.alter_broker_configs, name, ops, who=self._who, tool=self._tool
        )

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
        """Close the store if the client opened it."""
        if self._open is not None and self._opened is not None:
            await asyncio.to_thread(self._opened.close)


def principal() -> str:
    """Return who runs this process, for the history: ``alice@host``."""
    import getpass

    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"
    return f"{name}@{socket.gethostname()}"


def _only_brokers(resource: str, url: str) -> None:
    if resource != "brokers":
        raise unsupported(
            f"the store {url} keeps settings of brokers, not of {resource}",
            "use --bootstrap-server",
        )
