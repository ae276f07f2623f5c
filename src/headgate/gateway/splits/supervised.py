"""
Cluster-wide quotas divided over the worker processes of one ``headgate serve``, by demand.

Each round the supervisor asks every worker for its broker's demand, divides each quota by demand
(``throttle.cluster``), and sends the splits back. Like splits from a topic they expire: without a
supervisor each worker is back at quota / brokers in three rounds.

All splits together never exceed the quota. A broker may have no worker here that answers, because
its worker hangs, is starting, or belongs to another gateway. Such a broker may use its last split
until that expires, and quota / brokers after that. This amount is reserved for it, except
``LEAST``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from math import fsum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import msgspec

from headgate.gateway.log import get_logger
from headgate.gateway.splits.dividing import PERIODS_VALID, parts_of_quotas
from headgate.quota.key import QuotaType
from headgate.steps import FEW, Work
from headgate.throttle.bps import BpsQuotaManager
from headgate.throttle.cluster import ClusterSplitter
from headgate.throttle.java import UNLIMITED
from headgate.throttle.observation import Observation
from headgate.throttle.overrides import Tags

if TYPE_CHECKING:
    from headgate.gateway.charging.managers import Managers

log = get_logger("headgate.supervisor")

OBSERVE: Final = "observe"
ASSIGN: Final = "assign"
LEAST: Final = 0.02
"""Part of its equal part that a broker gets even when all of a quota is kept back for others."""
_TYPES: Final = (QuotaType.PRODUCER_BYTE_RATE, QuotaType.CONSUMER_BYTE_RATE)


class QuotaIdPeriod(NamedTuple):
    """What a period showed of one quota-id at one broker, and its cluster-wide quota."""

    type: str
    user: str
    client_id: str
    quota: float
    observation: Observation


class BrokerSplit(NamedTuple):
    """A broker's split of one quota-id, and the quota that was divided; units per second."""

    type: str
    user: str
    client_id: str
    split: float
    quota: float


class WorkerObservation(msgspec.Struct):
    """
    What a worker's period showed.

    Args:
        brokers: all of the cluster that it knows of.
        fronted: whether it fronts its broker now.
        seen: quota-ids with a cluster-wide quota.
    """

    brokers: list[int]
    fronted: bool
    seen: list[QuotaIdPeriod]


class Assigned(msgspec.Struct):
    """
    Splits for a worker's broker.

    Args:
        parts: by quota-id.
        valid_until_ms: epoch ms; whatever comes later than that is out of date.
    """

    parts: list[BrokerSplit]
    valid_until_ms: int


T = TypeVar("T")
_OBSERVED: Final = msgspec.msgpack.Decoder(WorkerObservation)
_NOTHING: Final = msgspec.msgpack.Decoder(None)
_ASSIGNED: Final = msgspec.msgpack.Decoder(Assigned)


class FleetSplitter:
    """
    The splits of a fleet's brokers, round by round, on plain data.

    Args:
        period_ms: ``headgate.splits.period.ms``.
    """

    def __init__(self, period_ms: int) -> None:
        self._valid_ms = PERIODS_VALID * period_ms
        self._splitters = {kind: ClusterSplitter[int](period_ms) for kind in _TYPES}
        # Splits and their ends, epoch ms, by type, quota-id and broker: any may still be in force,
        # for a worker that hangs now may not have taken the last one.
        self._given: dict[tuple[str, Tags], dict[int, list[tuple[float, int]]]] = {}

    def round(self, observed: Mapping[int, WorkerObservation], now_ms: int) -> dict[int, Assigned]:
        """
        Compute the splits of the next period.

        Args:
            observed: what each worker that answered saw at its broker.
            now_ms: epoch ms.

        Returns:
            Splits by broker, for the brokers that are fronted.
        """
        fronted = [broker for broker, its in observed.items() if its.fronted]
        known = {b for its in observed.values() for b in its.brokers} | set(observed)
        missing = known.difference(fronted)
        self._given = {
            key: alive
            for key, given in self._given.items()
            if (alive := {b: left for b, its in given.items() if (left := _alive(its, now_ms))})
        }
        until_ms = now_ms + self._valid_ms
        parts: dict[int, list[BrokerSplit]] = {broker: [] for broker in fronted}
        for kind, splitter in self._splitters.items():
            quotas: dict[Tags, float] = {}
            shown: dict[int, dict[Tags, Observation]] = {broker: {} for broker in fronted}
            for broker in fronted:
                for seen in observed[broker].seen:
                    if seen.type == kind:
                        tags = (seen.user, seen.client_id)
                        quotas[tags] = min(quotas.get(tags, seen.quota), seen.quota)
                        shown[broker][tags] = seen.observation
            budgets = {
                tags: self._budget(kind, tags, quota, missing, len(known))
                for tags, quota in quotas.items()
            }
            for tags, splits in splitter.round(budgets, fronted, shown).items():
                given = self._given.setdefault((kind, tags), {})
                for broker, split in splits.items():
                    given.setdefault(broker, []).append((split, until_ms))
                    parts[broker].append(BrokerSplit(str(kind), *tags, split, quotas[tags]))
        return {broker: Assigned(its, until_ms) for broker, its in parts.items()}

    def _budget(
        self, kind: str, tags: Tags, quota: float, missing: Collection[int], brokers: int
    ) -> float:
        """Return what is left of a quota for the brokers that are fronted here."""
        equal = quota / brokers
        given = self._given.get((kind, tags), {})
        kept = fsum(
            max([equal, *(split for split, _ in given.get(broker, ()))]) for broker in missing
        )
        return max(quota - kept, LEAST * equal * (brokers - len(missing)))


def _alive(given: list[tuple[float, int]], now_ms: int) -> list[tuple[float, int]]:
    return [one for one in given if one[1] > now_ms]


class AskAll(Protocol):
    """Asks all workers at once; returns the answers by broker."""

    async def __call__(
        self,
        question: str,
        decoder: msgspec.msgpack.Decoder[T],
        bodies: Mapping[int, bytes] | None = None,
        /,
    ) -> dict[int, T]:
        """See ``Fleet.ask``."""


class SupervisedSplits:
    """
    The supervisor's rounds.

    Args:
        ask: asks all workers a question, each with a body of its own (``Fleet.ask``).
        period_ms: ``headgate.splits.period.ms``.
        clock_ms: epoch ms.
    """

    def __init__(self, ask: AskAll, period_ms: int, clock_ms: Callable[[], int]) -> None:
        self._ask = ask
        self._period_s = period_ms / 1000
        self._clock_ms = clock_ms
        self._splitter = FleetSplitter(period_ms)

    async def run(self) -> None:
        """Divide until cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            try:
                await self.round()
            except Exception:
                log.exception("cluster-wide quotas couldn't be divided")

    async def round(self) -> None:
        """Ask, divide, tell."""
        observed = await self._ask(OBSERVE, _OBSERVED)
        assigned = self._splitter.round(observed, self._clock_ms())
        bodies = {broker: msgspec.msgpack.encode(its) for broker, its in assigned.items()}
        await self._ask(ASSIGN, _NOTHING, bodies)


class WorkersPart:
    """A worker's side: what it has seen, and what it was given."""

    def __init__(self) -> None:
        self.valid_until_ms = 0

    def observe(self, managers: Managers | None, brokers: list[int], now_ms: int) -> Work[bytes]:
        """Return, in steps, what the period since the last question showed."""
        seen: list[QuotaIdPeriod] = []
        if managers is not None:
            yield from _look(managers, now_ms, seen)
        return msgspec.msgpack.encode(WorkerObservation(brokers, managers is not None, seen))

    def assign(
        self, managers: Managers | None, body: bytes, clock: Callable[[], int]
    ) -> Work[None]:
        """Put splits in force, in steps; ``clock`` returns epoch ms."""
        if managers is None:
            return
        assigned = _ASSIGNED.decode(body)
        if assigned.valid_until_ms <= clock():
            return  # late, since this worker hung: others may have been given its part
        self.valid_until_ms = assigned.valid_until_ms
        for kind, manager in _bps(managers):
            told = (
                ((part.user, part.client_id), part.split, part.quota)
                for part in assigned.parts
                if part.type == kind
            )
            bounds = parts_of_quotas(told, manager)
            yield from manager.assigning(bounds, clock, self.valid_until_ms)

    def expired(self, now_ms: int) -> bool:
        """Whether no split is in force."""
        return self.valid_until_ms < now_ms


def _bps(managers: Managers) -> Iterator[tuple[QuotaType, BpsQuotaManager]]:
    yield _TYPES[0], managers.produce_bps
    yield _TYPES[1], managers.fetch_bps


def _look(managers: Managers, now_ms: int, seen: list[QuotaIdPeriod]) -> Work[None]:
    for kind, manager in _bps(managers):
        if not manager.enabled:
            continue
        observed = yield from manager.observing(now_ms)
        for count, (tags, observation) in enumerate(observed.items(), 1):
            quota = manager.quota(tags)
            if quota < UNLIMITED:
                seen.append(QuotaIdPeriod(str(kind), *tags, quota, observation))
            if not count % FEW:
                yield
