"""
A home of quotas: an open store, or servers (brokers or gateways).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
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

        refused = dict(self._send(alterations, validate_only=True))
        apart = {
            e for e, error in refused.items() if isinstance(error, ApiError) and wants_two(error)
        }
        if not apart and validate_only:
            return list(refused.items())
        first, second = [], []
        for alteration in alterations:
            theirs = tuple(op for op in alteration.ops if op.key.known_to_kafka)
            ours = tuple(op for op in alteration.ops if op not in theirs)
            if alteration.entity in apart:
                first.append(alteration._replace(ops=theirs))
                second.append(alteration._replace(ops=ours))
            else:
                first.append(alteration)
        done = self._send(
            first, validate_only=validate_only, message=message, at_revision=at_revision, who=who
        )
        failed = {entity for entity, _ in done}
        second = [alteration for alteration in second if alteration.entity not in failed]
        if second and validate_only:
            return done + self._send(second, validate_only=True)
        return done + self._send_rest(second, {a.entity: a for a in first}, message, who)

    def _send_rest(
        self,
        rest: Sequence[QuotaAlteration],
        changed: Mapping[QuotaEntity, QuotaAlteration],
        message: str,
        who: str,
    ) -> Refused:
        """
        Change the second half of entities that were split; an error says what was changed before.
        """
        if not rest:
            return []
        try:
            refused = dict(self._send(rest, validate_only=False, message=message, who=who))
        except (HeadgateError, OSError) as failure:
            refused = dict.fromkeys((half.entity for half in rest), failure)
        return [
            (half.entity, _half_done(changed[half.entity], half, refused[half.entity]))
            for half in rest
            if half.entity in refused
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
        found: list[tuple[QuotaAlteration, ApiError]] = []
        if self.store is None and self.client is None:
            from headgate.store.base import resolvable

            results = validate(alterations, resolvable=resolvable)[0]
            found = [(a, r.error) for a, r in zip(alterations, results, strict=True) if r.error]
        elif self.store is not None:
            from headgate.admin.local import principal

            results = self.store.alter(
                alterations,
                validate_only=validate_only,
                who=who or principal(),
                tool=self.tool,
                message=message,
                at_revision=at_revision,
            )
            found = [(a, r.error) for a, r in zip(alterations, results, strict=True) if r.error]
        else:
            if message:
                raise ConfigError(
                    "--message is kept in a store's history, which Kafka's protocol has no word "
                    "for; give --store"
                )
            found = self._ask(alterations, validate_only=validate_only)
        return [(a.entity, with_way_out(e, [op.key for op in a.ops])) for a, e in found]

    def _ask(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool
    ) -> list[tuple[QuotaAlteration, ApiError]]:
        from headgate.admin.api import AlterQuotasOptions

        assert self.client is not None
        options = AlterQuotasOptions(validate_only=validate_only, timeout_ms=_TIMEOUT_MS)
        futures = self.client.alter_quotas(alterations, options).values()
        found: list[tuple[QuotaAlteration, ApiError]] = []
        for alteration in alterations:
            try:
                futures[alteration.entity].result(_TIMEOUT_MS / 1000)
            except ApiError as exc:
                found.append((alteration, exc))
        return found

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
