"""
A home of quotas: an open store, or servers (brokers or gateways).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from headgate.errors import ApiError, ConfigError, HeadgateError, StoreError
from headgate.quota.alteration import QuotaAlteration, validate
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import KEYS, PRODUCER_IDS, QuotaKey
from headgate.quota.table import QuotaTable

if TYPE_CHECKING:
    from headgate.admin.client import AdminClient
    from headgate.store.identity import StoreIdentity
    from headgate.store.watched import QuotaStore

_TIMEOUT_MS: Final = 60_000
Refused = list[tuple[QuotaEntity, Exception]]


@dataclass(eq=False)
class OpenHome:
    """
    A store or servers; a context manager that closes them.

    Args:
        name: what messages call it.
        tool: the program, for the history.
        store: an open store.
        client: of servers. Without a store or a client, the home is empty and only checks changes.
        servers: ``host:port,…`` of the client.
        open_store: opens the store that servers may keep their history in, by its URL.
    """

    name: str
    tool: str
    _: KW_ONLY
    store: QuotaStore | None = None
    client: AdminClient | None = None
    servers: str = ""
    open_store: Callable[[str], QuotaStore] | None = None

    def table(self) -> QuotaTable:
        """Return all quotas."""
        if self.store is not None:
            return self.store.snapshot()
        if self.client is None:
            return QuotaTable()
        return QuotaTable(self.client.describe_quotas().entities().result(_TIMEOUT_MS / 1000))

    def identity(self) -> StoreIdentity | None:
        """Return the store's identity; None for servers, which have none."""
        return None if self.store is None else self.store.identity()

    def history(self) -> QuotaStore:
        """
        Return a store to read history from: the one opened, or the one that servers keep.

        The servers' store is then used for every further call, in place of the client.

        Raises:
            StoreError: the servers keep none.
        """
        if self.store is None:
            if self.open_store is None:
                raise StoreError(f"{self.name} keeps no history")
            store = self.open_store(f"kafka://{self.servers}")
            try:
                if store.identity() is None and not store.history(limit=1):
                    raise StoreError(
                        f"{self.servers} keeps no history: there is no topic of a Headgate store. "
                        "If it is a gateway whose quotas are elsewhere, give its headgate.store as "
                        "--store"
                    )
            except BaseException:
                store.close()
                raise
            self.store = store
        return self.store

    def alter(
        self,
        alterations: Sequence[QuotaAlteration],
        *,
        validate_only: bool,
        message: str = "",
        at_revision: int | None = None,
        who: str = "",
    ) -> Refused:
        """
        Change quotas; an entity whose keys can't be changed at once is changed in two steps.

        Args:
            alterations: one per entity.
            validate_only: check, and change nothing.
            message: why, for the history.
            at_revision: the store's revision that they were computed from; None: any.
            who: the principal, for a store's history; by default who runs the process.

        Returns:
            Entities that were refused, each with its error.

        Raises:
            StoreMovedOn: the store is at another revision.
        """
        from headgate.store.kafka.codec import wants_two

        refused = self._send(alterations, validate_only=True)
        apart = {e for e, error in refused if isinstance(error, ApiError) and wants_two(error)}
        if validate_only and not apart:
            return refused
        send = partial(self._send, validate_only=validate_only, message=message, who=who)
        first = [_half(a, True) if a.entity in apart else a for a in alterations]
        done = send(first, at_revision=at_revision)
        failed = {entity for entity, _ in done}
        second = [_half(a, False) for a in alterations if a.entity in apart - failed]
        if validate_only or not second:
            return done + (send(second) if second else [])
        try:
            left = dict(send(second))
        except (HeadgateError, OSError) as failure:
            left = dict.fromkeys((half.entity for half in second), failure)
        changed = {a.entity: a for a in first}
        return done + [
            (half.entity, _half_done(changed[half.entity], half, left[half.entity]))
            for half in second
            if half.entity in left
        ]

    def _send(
        self,
        alterations: Sequence[QuotaAlteration],
        *,
        validate_only: bool,
        message: str = "",
        at_revision: int | None = None,
        who: str = "",
    ) -> Refused:
        errors: Sequence[ApiError | None]
        if self.store is not None:
            from headgate.admin.local import principal

            results = self.store.alter(
                alterations,
                validate_only=validate_only,
                who=who or principal(),
                tool=self.tool,
                message=message,
                at_revision=at_revision,
            )
            errors = [result.error for result in results]
        elif self.client is None:
            from headgate.store.base import resolvable

            errors = [r.error for r in validate(alterations, resolvable=resolvable).results]
        elif message:
            raise ConfigError(
                "--message is kept in a store's history, which Kafka's protocol has no word for; "
                "give --store"
            )
        else:
            errors = self._ask(self.client, alterations, validate_only)
        return [
            (a.entity, with_way_out(error, [op.key for op in a.ops]))
            for a, error in zip(alterations, errors, strict=True)
            if error is not None
        ]

    def _ask(
        self, client: AdminClient, alterations: Sequence[QuotaAlteration], validate_only: bool
    ) -> list[ApiError | None]:
        from headgate.admin.api import AlterQuotasOptions

        options = AlterQuotasOptions(validate_only=validate_only, timeout_ms=_TIMEOUT_MS)
        futures = client.alter_quotas(alterations, options).values()
        errors: list[ApiError | None] = []
        for alteration in alterations:
            try:
                futures[alteration.entity].result(_TIMEOUT_MS / 1000)
                errors.append(None)
            except ApiError as exc:
                errors.append(exc)
        return errors

    def close(self) -> None:
        """Close the store, or the connections to the servers."""
        if self.store is not None:
            self.store.close()
        if self.client is not None:
            self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _half(alteration: QuotaAlteration, in_kafka: bool) -> QuotaAlteration:
    """Return an alteration with only the ops of keys that Kafka knows, or only the others."""
    ops = tuple(op for op in alteration.ops if op.key.known_to_kafka == in_kafka)
    return alteration._replace(ops=ops)


def _half_done(changed: QuotaAlteration, rest: QuotaAlteration, error: Exception) -> StoreError:
    done, left = (", ".join(str(op.key) for op in half.ops) for half in (changed, rest))
    return StoreError(
        f"{done} was changed in Kafka itself and stays so; {left} was not changed: {error}. Repair "
        "that and apply the quotas file again; `headgate plan` shows what is left to do"
    )


def with_way_out(error: ApiError, keys: Iterable[QuotaKey]) -> ApiError:
    """
    Return the refusal; if Kafka refused a key that only Headgate has, say where it can be kept.

    Args:
        error: the refusal.
        keys: those that were asked for.
    """
    for key in keys:
        ours = key in KEYS and not key.known_to_kafka
        if ours and (error.message or "") == f"Invalid configuration key {key.name}":
            kept = "producer ids per user" if key == PRODUCER_IDS else f"{key.units} quotas"
            return ApiError(
                error.code,
                f"{error.message}: Apache Kafka has no {kept}; keep {key} in a Headgate store "
                "(--store URL, or --bootstrap-server of the gateway in front of this cluster), "
                "which enforces it",
            )
    return error
