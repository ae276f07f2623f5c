"""
The home of quotas that flags name: a store that is opened here, or servers that are asked.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from headgate.cli.connecting import load_properties, open_client, with_way_out
from headgate.cli.output import complain, printable
from headgate.errors import ApiError, ConfigError, HeadgateError, StoreError
from headgate.quota.alteration import QuotaAlteration, validate
from headgate.quota.entity import QuotaEntity
from headgate.quota.table import QuotaTable

if TYPE_CHECKING:
    from headgate.admin import AdminClient
    from headgate.store.base import QuotaStore
    from headgate.store.identity import StoreIdentity

_TIMEOUT_MS: Final = 60_000
Refused = list[tuple[QuotaEntity, Exception]]


def open_quota_store(url: str, config_file: str | None, *, create: bool = False) -> QuotaStore:
    """
    Open a store with the settings of a ``--command-config`` file.

    Args:
        url: the store's.
        config_file: Kafka's client settings, ``zookeeper.*`` and ``headgate.*``; None: none.
        create: make it when it is missing, as what changes something does.

    Raises:
        OSError: the file can't be read.
        ConfigError: settings that make no sense, or a URL that names no store.
        StoreError: the store can't be reached, or isn't there.
    """
    from headgate.admin.opening import store_settings
    from headgate.store import open_store

    config = load_properties(config_file) if config_file else {}
    return open_store(url, store_settings(config), create=create)


class QuotaHome:
    """
    A store or servers; a context manager that lets go of them.

    Args:
        arguments: with the flags of ``flags.add_place``.
        command: which command it is, for the history.
        create: make a store that is missing.
        planned: take a missing SQLite file for an empty store, which ``apply`` will make.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        command: str,
        *,
        create: bool = False,
        planned: bool = False,
    ) -> None:
        self.name = str(arguments.store or arguments.bootstrap_server)
        self.command = self._tool = f"headgate {command}"
        self._config_file = arguments.command_config
        self._servers: str | None = arguments.bootstrap_server
        self.store: QuotaStore | None = None
        self._client: AdminClient | None = None
        scheme, _, path = (arguments.store or "").partition(":")
        if planned and scheme == "sqlite" and path and not Path(path).exists():
            complain(printable(f"There is no {self.name} yet; headgate apply makes it."))
        elif arguments.store is not None:
            self.store = open_quota_store(arguments.store, self._config_file, create=create)
        else:
            self._client = open_client(
                servers=self._servers, store=None, config_file=self._config_file, tool=self._tool
            )

    def table(self) -> QuotaTable:
        """Return every quota there is."""
        if self.store is not None:
            return self.store.snapshot()
        if self._client is None:
            return QuotaTable()
        return QuotaTable(self._client.describe_quotas().entities().result(_TIMEOUT_MS / 1000))

    def identity(self) -> StoreIdentity | None:
        """Return which store it is; None for servers, which don't tell."""
        return None if self.store is None else self.store.identity()

    def history(self) -> QuotaStore:
        """
        Return a store to read history from: the one opened, or the one that servers keep.

        Raises:
            StoreError: the servers keep none.
        """
        if self.store is None:
            assert self._servers is not None
            store = open_quota_store(f"kafka://{self._servers}", self._config_file)
            if store.identity() is None and not store.history(limit=1):
                store.close()
                raise StoreError(
                    f"{self._servers} keeps no history: there is no topic of a Headgate store. If "
                    "it is a gateway whose quotas are elsewhere, give its headgate.store as --store"
                )
            self.store = store
        return self.store

    def alter(
        self,
        alterations: Sequence[QuotaAlteration],
        *,
        validate_only: bool,
        message: str = "",
        at_revision: int | None = None,
    ) -> Refused:
        """
        Change quotas; an entity whose keys can't be changed at once is changed in two steps.

        Args:
            alterations: one per entity.
            validate_only: check, and change nothing.
            message: why, for the history.
            at_revision: the store's revision that they were computed from; None: any.

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
            first, validate_only=validate_only, message=message, at_revision=at_revision
        )
        failed = {entity for entity, _ in done}
        second = [alteration for alteration in second if alteration.entity not in failed]
        if second and validate_only:
            return done + self._send(second, validate_only=True)
        return done + self._send_rest(second, {a.entity: a for a in first}, message)

    def _send_rest(
        self,
        rest: Sequence[QuotaAlteration],
        changed: Mapping[QuotaEntity, QuotaAlteration],
        message: str,
    ) -> Refused:
        """Change the second half of entities that were split; what fails says what was changed."""
        if not rest:
            return []
        try:
            refused = dict(self._send(rest, validate_only=False, message=message))
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
    ) -> Refused:
        found: list[tuple[QuotaAlteration, ApiError]] = []
        if self.store is None and self._client is None:
            from headgate.store.base import resolvable

            results = validate(alterations, resolvable=resolvable)[0]
            found = [(a, r.error) for a, r in zip(alterations, results, strict=True) if r.error]
        elif self.store is not None:
            from headgate.admin.local import principal

            results = self.store.alter(
                alterations,
                validate_only=validate_only,
                who=principal(),
                tool=self._tool,
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

        assert self._client is not None
        options = AlterQuotasOptions(validate_only=validate_only, timeout_ms=_TIMEOUT_MS)
        futures = self._client.alter_quotas(alterations, options).values()
        found: list[tuple[QuotaAlteration, ApiError]] = []
        for alteration in alterations:
            try:
                futures[alteration.entity].result(_TIMEOUT_MS / 1000)
            except ApiError as exc:
                found.append((alteration, exc))
        return found

    def close(self) -> None:
        """Let go of the store or the servers."""
        if self.store is not None:
            self.store.close()
        if self._client is not None:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _half_done(changed: QuotaAlteration, rest: QuotaAlteration, error: Exception) -> StoreError:
    done, left = (", ".join(str(op.key) for op in half.ops) for half in (changed, rest))
    return StoreError(
        f"{done} was changed in Kafka itself and stays so; {left} was not changed: {error}. Repair "
        "that and apply the quotas file again; `headgate plan` shows what is left to do"
    )
