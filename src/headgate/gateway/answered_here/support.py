"""
What all answers of a gateway's own need: the store, permission, refusals, and slices of the loop.

The store is asked on threads of its own, never on the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.errors import ApiError, KafkaError, StoreError, StoreSilent
from headgate.gateway.answered_here.denials import SMALL_BYTES, Denials, attempted
from headgate.gateway.background import TimeSlices
from headgate.gateway.log import LogLimit, get_logger
from headgate.gateway.store_link.in_force import static_defaults
from headgate.quota.alteration import AlterResult, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.table import QuotaTable
from headgate.steps import Work, finish
from headgate.store.base import AuditEvent, HistoryEntry
from headgate.store.deadline import EACH_S, within

if TYPE_CHECKING:
    from headgate.gateway.background import Threads
    from headgate.gateway.connection.link import Link
    from headgate.gateway.session.commands import Ask
    from headgate.gateway.session.rewrite import Rewrite
    from headgate.gateway.store_link.in_force import InForceNow
    from headgate.wire.fields import Buffer

log = get_logger("headgate.gateway")

T = TypeVar("T")

READ_S: Final = 5.0
"""How long the store may take to say its quotas, or to keep an audit line."""
CHANGE_S: Final = 25.0
"""How long a change may take from when it is asked for, waiting for others included."""


class AnswerSupport:
    """
    The store, permission, refusals and slices, for every answer of a gateway.

    Args:
        in_force: the store, table and settings in force.
        slices: of the loop.
        threads: where the store is asked.
        trouble: returns why the store can't be read or changed now, or None.
    """

    def __init__(
        self,
        in_force: InForceNow,
        slices: TimeSlices,
        threads: Threads,
        trouble: Callable[[], str | None],
    ) -> None:
        self.in_force = in_force
        self.slices = slices
        self.on_thread = threads.run
        self._trouble = trouble
        self.denials = Denials()
        self.refusals = LogLimit("refused")
        self._failures = LogLimit("answers failed")
        self._finishing: set[asyncio.Task[None]] = set()

    def may_administer(self, principal: str) -> bool:
        """Whether a principal may read and change quotas."""
        settings = self.in_force.settings
        return principal in settings.super_users or principal in settings.admin_principals

    def tell(self) -> None:
        """Log how many lines weren't written in minutes that are over; called now and then."""
        self.refusals.tell()
        self._failures.tell()

    def merge(self, link: Link, ask: Ask, work: Work[Buffer], size: int) -> bytes | Ask:
        """
        Make a client's answer out of a broker's: at once if it is little work, else in slices.

        Args:
            link: the client's.
            ask: the request that the broker answered.
            work: makes the answer.
            size: bytes that the work looks at.

        Returns:
            What ``Session.forward``'s merge returns.
        """
        if size <= SMALL_BYTES:
            return bytes(finish(work))

        async def merged() -> bytes:
            # Any buffer can be sent; a copy of 48 MB takes 28 ms.
            return cast("bytes", await self.slices.run(work))

        self.answer_later(link, ask, merged())
        return ask

    def answer_later(self, link: Link, ask: Ask, work: Coroutine[Any, Any, bytes]) -> None:
        """
        Answer a client when some work is done; the work is done even if the client disconnects.
        """

        async def answer() -> None:
            try:
                link.answer(ask, await work)
            except Exception as error:
                self.failed(link, ask, error)

        # Not one of the link's tasks: a client that hangs up now leaves no half alteration.
        task = asyncio.get_running_loop().create_task(answer())
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    def failed(self, link: Link, ask: Ask | Rewrite, error: Exception) -> None:
        """Close a link whose question couldn't be answered."""
        kind = type(error).__name__
        if self._failures.passes(ask.plan.name, kind, api=ask.plan.name, error=kind):
            log.error("an answer failed", api=ask.plan.name, exc_info=error)
        link.close("answer-failed", f"{ask.plan.name}: {error}")

    async def refused(self, ask: Ask, tool: str) -> None:
        """Leave a log and an audit line about a refused principal, ten a minute of each kind."""
        if not self.refusals.passes(
            ask.plan.name, ask.principal, api=ask.plan.name, principal=f"User:{ask.principal}"
        ):
            return
        log.warning("refused", api=ask.plan.name, principal=f"User:{ask.principal}")
        store = self.in_force.store
        if store is None:
            return
        subject, detail = attempted(ask)
        event = AuditEvent(f"User:{ask.principal}", tool, ask.plan.name, "refused", subject, detail)
        try:
            if (silent := store.availability.silent) is not None:
                raise StoreSilent(silent)
            await self.on_thread(_in_time(READ_S, lambda: store.history.audit(event)))
        except StoreError as error:
            log.warning("audit line lost", error=str(error))

    async def table(self) -> QuotaTable:
        """Return the store's quotas as of now; the last known ones while it doesn't answer."""
        store = self.in_force.store
        if store is None or store.availability.silent:
            return self.in_force.table
        try:
            async with asyncio.timeout(READ_S):  # its threads may all wait
                return await self.on_thread(_in_time(READ_S, store.snapshot))
        except (StoreError, TimeoutError):
            return self.in_force.table

    async def history(self, entity: QuotaEntity, limit: int) -> list[HistoryEntry]:
        """Return an entity's latest changes, oldest first; none while the store doesn't answer."""
        store = self.in_force.store
        if store is None or store.availability.silent:
            return []
        read = partial(store.history.entries, entity=entity, limit=limit)
        try:
            async with asyncio.timeout(READ_S):
                return await self.on_thread(_in_time(READ_S, read))
        except (StoreError, TimeoutError):
            return []

    async def explained(self) -> QuotaTable:
        """Return the quotas in force: the store's, and the settings file's static defaults."""
        return (await self.table()).with_static_defaults(static_defaults(self.in_force.settings))

    def no_store(self) -> ApiError:
        """Return why nothing can be changed: there is no store, or it isn't let in yet."""
        why = self._trouble()
        if why is None:
            return ApiError(KafkaError.UNKNOWN_SERVER_ERROR, "the gateway runs without a store")
        # A code on which clients may try again: once the store is there the change is made.
        return ApiError(
            KafkaError.REQUEST_TIMED_OUT,
            f"nothing was changed, and the last known quotas are in force: {why}",
        )

    async def alter(
        self, alterations: list[QuotaAlteration], *, validate_only: bool, who: str, tool: str
    ) -> list[AlterResult]:
        """Alter in the store. If the store fails, its error becomes the error of every entity."""
        store = self.in_force.store
        if store is None:
            return await self._all_failed(alterations, self.no_store())
        try:
            return await self.on_thread(
                _in_time(
                    CHANGE_S + len(alterations) * EACH_S,
                    lambda: store.alter(
                        alterations, validate_only=validate_only, who=who, tool=tool
                    ),
                )
            )
        except StoreError as failure:
            return await self._all_failed(alterations, ApiError(failure.kafka_code, str(failure)))

    async def _all_failed(
        self, alterations: list[QuotaAlteration], error: ApiError
    ) -> list[AlterResult]:
        def results() -> Work[list[AlterResult]]:
            made = []
            for alteration in alterations:
                made.append(AlterResult(alteration.entity, error))
                yield
            return made

        return await self.slices.run(results())

    @staticmethod
    def altered(
        entry: Callable[..., T], request: Any, results: list[AlterResult]
    ) -> Work[tuple[T, ...]]:
        """Return how it went, entity by entity in the order asked, as entries of an answer."""
        entries = []
        for asked, result in zip(request.entries, results, strict=True):
            error = result.error
            if error is None:
                entries.append(entry(asked.entity))
            else:
                entries.append(entry(asked.entity, int(error.code), error.message))
            yield
        return tuple(entries)


def _in_time(seconds: float, ask: Callable[[], T]) -> Callable[[], T]:
    """Return a call of the store that ends so long after now, however late it begins."""
    ends = time.monotonic() + seconds

    def asked() -> T:
        with within(ends - time.monotonic()):
            return ask()

    return asked
