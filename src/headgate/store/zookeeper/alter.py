"""
Alterations in the ZooKeeper home: a transaction per entity, many in flight.

One is sent again after a conflict, or if its answer is lost and the history doesn't have it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from headgate.errors import ApiError, InvalidQuota, StoreError, StoreSilent
from headgate.quota.alteration import QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.store.base import ChangeOrigin
from headgate.store.deadline import NOTHING, left_s
from headgate.store.identity import StoreIdentity, moved_on
from headgate.store.zookeeper.change import decide, reads_of
from headgate.store.zookeeper.history import ZkHistory
from headgate.store.zookeeper.home import PATIENCE_S, ZkHome
from headgate.store.zookeeper.identity import count_step, node_of
from headgate.store.zookeeper.znodes import Conflict, Interrupted, TransactionStep

#: Entities that are altered together, with all their transactions in flight.
BATCH = 250
#: An alteration and the steps that make it happen.
_Todo = tuple[QuotaAlteration, list[TransactionStep]]


@dataclass(eq=False)
class ZkAlterer:
    """
    One call of ``alter``.

    Args:
        home: the chroot, which is known.
        history: shows whether a transaction happened; truncated where it is too long.
        origin: where the changes come from.
        at_revision: the revision that they are based on; None: any.

    Attributes:
        errors: of entities that were refused: a KRaft controller has taken the cluster over.
    """

    home: ZkHome
    history: ZkHistory
    origin: ChangeOrigin
    at_revision: int | None
    errors: dict[QuotaEntity, ApiError] = field(default_factory=dict)
    _done: int = 0  # transactions that happened
    _unsure: dict[QuotaEntity, None] = field(default_factory=dict)  # sent and not answered

    def alter(self, batch: Sequence[QuotaAlteration]) -> None:
        """
        Alter entities: try each transaction until it has happened or is refused (``errors``).

        Raises:
            StoreMovedOn: the revision is another one.
            StoreSilent: ZooKeeper doesn't answer; the message says what became of the change.
            StoreError: time is over, the identity can't be read, or a znode holds no valid config.
        """
        try:
            self._alter(batch)
        except StoreSilent as exc:
            raise StoreSilent(exc.silence, self._became()) from exc

    def _became(self) -> str:
        """Say what became of a change that couldn't be made to its end."""
        done = f"{self._done} entities were changed" if self._done else NOTHING
        if not self._unsure:
            return done
        first = next(iter(self._unsure))
        told = f"{done}, and " if self._done else ""
        return (
            f"{told}what was sent for {first}"
            + (f" and {len(self._unsure) - 1} others" if len(self._unsure) > 1 else "")
            + " wasn't answered: it may have been made, or may yet; the history tells"
        )

    def _alter(self, batch: Sequence[QuotaAlteration]) -> None:
        pending = list(batch)
        began = time.monotonic()
        patience_s = left_s(PATIENCE_S)
        rounds = 0
        while True:
            todo, version = self._decide(pending)
            versions = self._versions(len(todo), version)
            outcomes = self.home.client.commit(
                [
                    [*steps, count_step(self.home.id, version)]
                    for (_, steps), version in zip(todo, versions, strict=True)
                ]
            )
            told = list(zip((a for a, _ in todo), outcomes, strict=True))
            for alteration, outcome in told:
                if isinstance(outcome, Interrupted):
                    self._unsure[alteration.entity] = None
                elif isinstance(outcome, ApiError):
                    self.errors[alteration.entity] = outcome
            pending = [
                a
                for a, outcome in told
                if a.entity not in self.errors and not self._happened(a, outcome)
            ]
            if not pending:
                return
            if time.monotonic() - began > patience_s:
                raise StoreError(
                    f"{self.home.url}: {len(pending)} of {len(batch)} entities couldn't be "
                    f"altered in {patience_s:.0f} s, the first is {pending[0].entity}. "
                    f"{self._became()}; try again",
                    retriable=True,
                )
            # A random pause, so that two writers that conflicted don't conflict again.
            rounds += 1
            time.sleep(random.uniform(0, min(0.5, 0.005 * 2**rounds)))

    def _happened(self, alteration: QuotaAlteration, outcome: BaseException | None) -> bool:
        """
        Whether a transaction happened; where its answer was lost, the history then has its entry.

        The values can't tell. Another writer may have changed them since, and making the change a
        second time would undo that.
        """
        path, change = alteration.entity.path, self.origin.change
        if isinstance(outcome, Conflict):
            return False
        if isinstance(outcome, Interrupted) and not self.history.holds(path, change):
            return False
        self._done += 1
        self._unsure.pop(alteration.entity, None)
        return True

    def _decide(self, pending: Sequence[QuotaAlteration]) -> tuple[list[_Todo], int]:
        """Return the transactions still to be made, and the revision when they were decided."""
        counter = node_of(self.home.id)
        nodes = self.home.client.nodes([counter, *(path for a in pending for path in reads_of(a))])
        count = nodes[counter]
        if count is None:
            self.home.check_now()
            raise StoreError(f"{self.home.url}: its identity can't be read", retriable=True)
        self.history.prune(nodes)
        try:
            decided = [
                (a, decide(a, nodes, t_ms=self.home.clock_ms(), origin=self.origin))
                for a in pending
            ]
        except InvalidQuota as exc:
            raise StoreError(f"{self.home.url}: a znode is {exc}; fix it first") from exc
        return [(a, steps) for a, steps in decided if steps], count.version

    def _versions(self, count: int, version: int) -> list[int]:
        """Return the revision that each transaction requires; -1: any."""
        if self.at_revision is None or not count:
            return [-1] * count
        if version != self.at_revision + self._done:
            found = StoreIdentity(self.home.id, version)
            raise moved_on(self.home.url, self.at_revision, found, self._done)
        return [version + number for number in range(count)]
