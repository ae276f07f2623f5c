"""
Cluster-wide quotas divided over the brokers: here, by the supervisor, or by a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from headgate.clock import now_ms
from headgate.gateway.splits.dividing import LocalSplits
from headgate.gateway.splits.streamed import StreamedSplits, put_in_force
from headgate.gateway.splits.supervised import WorkersPart
from headgate.gateway.usage_journal import topic_config

if TYPE_CHECKING:
    from headgate.gateway.background import BackgroundWork
    from headgate.gateway.broker.broker import Broker
    from headgate.gateway.charging.managers import Managers
    from headgate.gateway.store_link.in_force import InForceNow
    from headgate.usage.splits import Split


class GatewaySplits:
    """
    The splits of one gateway.

    Args:
        in_force: the settings.
        brokers: those fronted now.
        broker_ids: returns all brokers of the cluster.
        work: the gateway's own tasks and slices; what concerns many quota-ids is done in slices.
        supervised: whether a supervisor divides.
    """

    def __init__(
        self,
        in_force: InForceNow,
        brokers: Mapping[int, Broker],
        broker_ids: Callable[[], list[int]],
        work: BackgroundWork,
        *,
        supervised: bool,
    ) -> None:
        self._in_force = in_force
        self._brokers = brokers
        self._broker_ids = broker_ids
        self._work = work
        self._came: deque[Sequence[Split]] = deque()
        self._supervised = supervised
        self._streamed: StreamedSplits | None = None
        self._part: WorkersPart | None = None

    async def run(self) -> None:
        """
        Divide cluster-wide quotas over the brokers, period by period, unless another process does.
        """
        settings = self._in_force.settings
        if settings.splits != "local":
            loop = asyncio.get_running_loop()

            def came(splits: Sequence[Split]) -> None:  # on the reader's thread
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._taken, splits)

            self._streamed = StreamedSplits(
                settings.splits_topic,
                topic_config(settings),
                came,
                now_ms,
                settings.splits_period_ms,
            )
            self._streamed.start()
            return
        if self._supervised:
            self._part = WorkersPart()
            return
        splits = LocalSplits(settings.splits_period_ms)
        while True:
            await asyncio.sleep(settings.splits_period_ms / 1000)
            try:
                await self._work.slices.run(
                    splits.round(self._managers(), self._broker_ids(), now_ms)
                )
            except Exception as error:
                self._work.tasks.log_failure("dividing cluster-wide quotas", error)

    def _managers(self) -> dict[int, Managers]:
        return {broker: fronted.rules.managers for broker, fronted in self._brokers.items()}

    def _taken(self, splits: Sequence[Split]) -> None:
        self._came.append(splits)
        if len(self._came) == 1:
            self._work.tasks.spawn(self._put_in_force())

    async def _put_in_force(self) -> None:
        """Put the splits from the stream in force, one message after the other."""
        while self._came:
            try:
                steps = put_in_force(self._came[0], self._managers(), now_ms)
                await self._work.slices.run(steps)
            except Exception as error:
                self._work.tasks.log_failure("putting splits in force", error)
            self._came.popleft()

    async def observe(self) -> bytes:
        """Tell the supervisor the demand for cluster-wide quotas in the last period."""
        part = self._part or WorkersPart()
        managers = None if self._part is None else self._own_managers()
        return await self._work.slices.run(part.observe(managers, self._broker_ids(), now_ms()))

    async def assign(self, body: bytes) -> None:
        """Put the supervisor's splits in force."""
        if self._part is not None:
            await self._work.slices.run(self._part.assign(self._own_managers(), body, now_ms))

    def _own_managers(self) -> Managers | None:
        """Return the managers of a worker's only broker, while it fronts it."""
        return next((broker.rules.managers for broker in self._brokers.values()), None)

    @property
    def wanted(self) -> bool:
        """Whether there is a cluster-wide quota to be split."""
        return any(broker.rules.managers.splits for broker in self._brokers.values())

    def watch(self, now: int) -> None:
        """Log it when splits from the stream are missing; called every second."""
        if self._streamed is not None and self.wanted:
            self._streamed.watch(now)

    def note(self) -> str | None:
        """Return a sentence if a ready gateway has no valid splits, else None."""
        if self._streamed is None or not self.wanted:
            return None
        return self._streamed.note(now_ms())

    def expired(self, broker: Broker | None) -> bool:
        """Whether a broker has no valid splits, though another process divides."""
        told = self._streamed or self._part
        if told is None or broker is None:
            return False
        return bool(broker.rules.managers.splits) and told.expired(now_ms())

    def close(self) -> None:
        """Stop following the stream; may wait for its reader's thread."""
        if self._streamed is not None:
            self._streamed.close()
