"""Workers of one supervisor share a cluster-wide quota by demand, and never exceed it together."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config import Settings
from headgate.gateway.charging.managers import Managers
from headgate.gateway.splits.dividing import (
    LEAST,
    PERIODS_VALID,
    LocalSplits,
    QuotaIdPeriod,
    Splitter,
    WorkerObservation,
)
from headgate.gateway.splits.supervised import SupervisedSplits, WorkersPart
from headgate.quota.entity import QuotaEntity
from headgate.steps import finish
from headgate.throttle.observation import Observation

PERIOD_MS = 1_000
QUOTA = 100_000.0
T0 = 1_700_000_000_000
SETTINGS = Settings.from_properties(
    {
        "headgate.upstream": "127.0.0.1:9092",
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "9",
        "headgate.splits.period.ms": str(PERIOD_MS),
    }
)


class Worker:
    """A worker's managers, and clients that want ``want`` per second and wait when told."""

    def __init__(self, brokers: int, want: float) -> None:
        self.managers = Managers(SETTINGS, T0)
        self.managers.produce_bps.update_quota(QuotaEntity.of(user="alice"), QUOTA, T0)
        self.managers.produce_bps.set_brokers(brokers, T0)
        self.brokers = list(range(1, brokers + 1))
        self.part = WorkersPart()
        self.want = want
        self.sent = 0.0
        self._next_ms = float(T0)

    def run(self, start_ms: int) -> None:
        """Live through a period: requests of 1000 bytes."""
        while self._next_ms < start_ms + PERIOD_MS:
            now = int(self._next_ms)
            told = self.managers.produce_bps.record("alice", "app", 1_000, now).throttle_time_ms
            self.sent += 1_000
            self._next_ms += max(1_000_000 / self.want, told)

    @property
    def split(self) -> float:
        (sensor,) = self.managers.produce_bps.sensors()
        return sensor.bound


class Line:
    """A fleet without processes: asks the workers at once."""

    def __init__(self, workers: Mapping[int, Worker]) -> None:
        self.workers = workers
        self.now_ms = T0
        self.hung: set[int] = set()

    async def ask(
        self, question: str, decoder: Any, bodies: Mapping[int, bytes] | None = None
    ) -> dict[int, Any]:
        answers: dict[int, Any] = {}
        for broker, worker in self.workers.items():
            if broker in self.hung:
                continue
            if question == "observe":
                looked = worker.part.observe(worker.managers, worker.brokers, self.now_ms)
                said = finish(looked)
                answers[broker] = decoder.decode(said)
            elif bodies is not None and broker in bodies:
                finish(worker.part.assign(worker.managers, bodies[broker], lambda: self.now_ms))
                answers[broker] = None
        return answers


async def live(line: Line, splits: SupervisedSplits, rounds: int) -> None:
    for _ in range(rounds):
        for worker in line.workers.values():
            worker.run(line.now_ms)
        line.now_ms += PERIOD_MS
        await splits.round()


def fleet(*wants: float) -> tuple[Line, SupervisedSplits]:
    line = Line({n: Worker(len(wants), want) for n, want in enumerate(wants, 1)})
    return line, SupervisedSplits(line.ask, PERIOD_MS, lambda: line.now_ms)


async def test_splits_follow_demand_over_processes() -> None:
    line, splits = fleet(150_000, 10_000)
    busy, quiet = line.workers[1], line.workers[2]
    await live(line, splits, 6)
    assert busy.split > 80_000
    assert 10_000 <= quiet.split < 20_000
    assert busy.split + quiet.split == pytest.approx(QUOTA)
    busy.want, quiet.want = quiet.want, busy.want
    await live(line, splits, 6)
    assert quiet.split > 80_000
    before = busy.sent + quiet.sent
    await live(line, splits, 10)
    assert 0.9 * QUOTA <= (busy.sent + quiet.sent - before) / 10 <= 1.1 * QUOTA


async def test_a_worker_that_hangs_keeps_its_split_until_it_expires_then_its_equal_part() -> None:
    line, splits = fleet(150_000, 10_000)
    await live(line, splits, 6)
    held = line.workers[1].split
    line.hung = {1}
    line.workers[2].want = 150_000
    for _ in range(PERIODS_VALID - 1):
        await live(line, splits, 1)
        assert line.workers[1].split == held
        assert line.workers[2].split <= max(QUOTA - held, LEAST * QUOTA / 2) * (1 + 1e-9)
    await live(line, splits, 2)
    assert line.workers[1].split == QUOTA / 2  # expired
    assert line.workers[2].split == pytest.approx(QUOTA / 2)
    line.hung = set()
    await live(line, splits, 8)
    assert sum(w.split for w in line.workers.values()) == pytest.approx(QUOTA)


async def test_without_a_supervisor_everybody_is_back_at_equal_parts() -> None:
    line, splits = fleet(150_000, 10_000)
    await live(line, splits, 6)
    assert not line.workers[1].part.expired(line.now_ms)
    for _ in range(PERIODS_VALID + 1):
        for worker in line.workers.values():
            worker.run(line.now_ms)
        line.now_ms += PERIOD_MS
    assert [w.split for w in line.workers.values()] == [QUOTA / 2] * 2
    assert line.workers[1].part.expired(line.now_ms)


async def test_a_broker_that_somebody_else_fronts_keeps_its_equal_part() -> None:
    line, splits = fleet(150_000, 10_000, 10_000)
    del line.workers[3]  # type: ignore[attr-defined]
    await live(line, splits, 8)
    assert sum(w.split for w in line.workers.values()) == pytest.approx(QUOTA * 2 / 3)
    assert line.workers[1].split > QUOTA / 3


def test_a_process_with_some_of_the_brokers_divides_their_part_alone() -> None:
    worker = Worker(4, 150_000)
    other = Worker(4, 10_000)
    local = LocalSplits(PERIOD_MS)
    now = T0
    for _ in range(8):
        for each in (worker, other):
            each.run(now)
        now += PERIOD_MS
        finish(
            local.round({1: worker.managers, 2: other.managers}, worker.brokers, lambda at=now: at)
        )
    assert worker.split + other.split == pytest.approx(QUOTA / 2)
    assert worker.split > other.split


seconds = st.floats(0, 1e6)


@given(
    st.lists(
        st.dictionaries(
            st.integers(1, 4),
            st.tuples(st.booleans(), seconds, st.floats(0, 1), st.booleans()),
            max_size=4,
        ),
        min_size=1,
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_whatever_was_seen_and_whoever_was_away_together_they_hold_the_quota(
    rounds: list[dict[int, tuple[bool, float, float, bool]]], chance: random.Random
) -> None:
    splitter = Splitter(PERIOD_MS, may_hang=True)
    now = T0
    force: dict[int, tuple[float, int]] = {}
    for answers in rounds:
        now += chance.choice([PERIOD_MS, PERIOD_MS, 2 * PERIOD_MS, 5 * PERIOD_MS])
        observed: dict[int, Any] = {
            broker: WorkerObservation(
                [1, 2, 3, 4],
                fronted,
                [QuotaIdPeriod("producer_byte_rate", "alice", "", QUOTA,
                      Observation(used, throttled, waited, 10, 0.0))],
            )
            for broker, (fronted, used, waited, throttled) in answers.items()
        }  # fmt: skip
        assigned = finish(splitter.round(observed, now))
        assert set(assigned) == {b for b, (fronted, *_) in answers.items() if fronted}
        for broker, its in assigned.items():
            for part in its.parts:
                assert part.split > 0
                force[broker] = (part.split, its.valid_until_ms)
        if not any(its.parts for its in assigned.values()):
            continue
        held = [
            force[b][0] if b in force and force[b][1] > now else QUOTA / 4 for b in (1, 2, 3, 4)
        ]
        assert sum(held) <= QUOTA * (1 + LEAST)


def test_splits_that_come_after_their_end_are_not_put_in_force() -> None:
    splitter, worker = Splitter(PERIOD_MS, may_hang=True), WorkersPart()
    managers = Managers(SETTINGS, T0)
    managers.produce_bps.update_quota(QuotaEntity.of(user="alice"), QUOTA, T0)
    managers.produce_bps.set_brokers(2, T0)
    seen = [
        QuotaIdPeriod(
            "producer_byte_rate", "alice", "", QUOTA, Observation(9e5, 1.0, True, 10, 0.0)
        )
    ]
    both = {1: WorkerObservation([1, 2], True, seen), 2: WorkerObservation([1, 2], True, [])}
    its = finish(splitter.round(both, T0))[1]
    body = msgspec.msgpack.encode(its)
    late = its.valid_until_ms
    finish(worker.assign(managers, body, lambda: late))
    assert worker.expired(late + 1)
    assert managers.produce_bps.split(("alice", ""), late) == QUOTA / 2
    finish(worker.assign(managers, body, lambda: late - 1))
    assert managers.produce_bps.split(("alice", ""), late - 1) > QUOTA / 2


async def test_a_quota_that_changes_while_it_is_divided_is_divided_as_it_is_now() -> None:
    line, splits = fleet(150_000, 10_000)
    await live(line, splits, 6)
    busy = line.workers[1]
    assert busy.split > 0.8 * QUOTA
    ask = line.ask

    async def lowered(question: str, *rest: Any) -> dict[int, Any]:
        if question == "assign":  # the supervisor has divided the old one
            for worker in line.workers.values():
                manager = worker.managers.produce_bps
                manager.update_quota(QuotaEntity.of(user="alice"), QUOTA / 10, line.now_ms)
        return await ask(question, *rest)

    splits._ask = lowered
    await live(line, splits, 1)
    assert sum(worker.split for worker in line.workers.values()) <= QUOTA / 10 * (1 + LEAST)
    assert busy.split > 0.8 * QUOTA / 10


def test_for_a_worker_that_hangs_as_much_is_kept_as_it_was_given_last_or_before() -> None:
    splitter = Splitter(PERIOD_MS, may_hang=True)

    def seen(used: float) -> list[QuotaIdPeriod]:
        hungry = Observation(used, 1.0, used > 1, 10, 0.0)
        return [QuotaIdPeriod("producer_byte_rate", "alice", "", QUOTA, hungry)]

    now = T0
    for _ in range(5):  # the first broker wants all
        now += PERIOD_MS
        both = {
            1: WorkerObservation([1, 2], True, seen(QUOTA)),
            2: WorkerObservation([1, 2], True, seen(0.0)),
        }
        large = finish(splitter.round(both, now))[1].parts[0].split
    both = {
        1: WorkerObservation([1, 2], True, seen(0.0)),
        2: WorkerObservation([1, 2], True, seen(QUOTA)),
    }
    small = finish(splitter.round(both, now + PERIOD_MS))[1].parts[0].split
    assert small < large
    # It hung before that one came: what it has is the large one, until that ends.
    left = finish(splitter.round({2: both[2]}, now + 2 * PERIOD_MS))[2].parts[0].split
    assert left <= max(QUOTA - large, LEAST * QUOTA / 2) * (1 + 1e-9)
