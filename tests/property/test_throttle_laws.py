"""Laws of shares, splits, pacing, filters and sensors, whatever the numbers."""

from __future__ import annotations

import math
import random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headgate.kernel.codes import OP_RECORD
from headgate.kernel.rate import RateState, replay_rate
from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.bloom import ScalableBloomFilter
from headgate.throttle.cluster import FLOOR, ClusterSplitter, split_demands
from headgate.throttle.java import UNLIMITED
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.observation import Observation
from headgate.throttle.overrides import Overrides
from headgate.throttle.pacing import PacedQuotaManager
from headgate.throttle.producer_id import TimedIds
from headgate.throttle.sensor import SampledRate
from headgate.throttle.shares import fair_shares

T0 = 1_700_000_000_000
TAGS = ("u", "")
amounts = st.floats(0, 1e9, allow_subnormal=False)
weights = st.floats(0.01, 100)
wishes = st.dictionaries(
    st.integers(0, 50), st.tuples(amounts | st.just(math.inf), weights), min_size=1, max_size=20
)


def shares_of(capacity: float, wish: dict[int, tuple[float, float]]) -> dict[int, float]:
    return fair_shares(
        capacity, {k: d for k, (d, _) in wish.items()}, {k: w for k, (_, w) in wish.items()}
    )


def close(a: float, b: float, scale: float) -> bool:
    return abs(a - b) <= 1e-9 * max(scale, 1.0)


# -- 546-7, 546-9: shares


@given(amounts, wishes)
def test_shares_are_work_conserving_and_never_exceed_wish_or_capacity(
    capacity: float, wish: dict[int, tuple[float, float]]
) -> None:
    got = shares_of(capacity, wish)
    assert all(0 <= got[k] <= wish[k][0] for k in wish)
    wanted = sum(d for d, _ in wish.values())
    assert close(math.fsum(got.values()), min(capacity, wanted), capacity)


@given(amounts, wishes, st.randoms(use_true_random=False))
def test_shares_dont_depend_on_order(
    capacity: float, wish: dict[int, tuple[float, float]], rnd: random.Random
) -> None:
    shuffled = list(wish.items())
    rnd.shuffle(shuffled)
    assert shares_of(capacity, dict(shuffled)) == shares_of(capacity, wish)


@given(amounts, wishes, st.floats(1, 50))
def test_more_weight_never_means_less(
    capacity: float, wish: dict[int, tuple[float, float]], factor: float
) -> None:
    k = min(wish)
    heavier = {**wish, k: (wish[k][0], wish[k][1] * factor)}
    before, after = shares_of(capacity, wish), shares_of(capacity, heavier)
    assert after[k] >= before[k] - 1e-9 * max(capacity, 1.0)
    assert all(after[o] <= before[o] + 1e-9 * max(capacity, 1.0) for o in wish if o != k)


@given(amounts, wishes)
def test_who_doesnt_get_their_wish_gets_no_less_per_weight_than_anybody(
    capacity: float, wish: dict[int, tuple[float, float]]
) -> None:
    got = shares_of(capacity, wish)
    short = [k for k in wish if got[k] < wish[k][0] * (1 - 1e-9)]
    for k in short:
        for other in wish:
            level, theirs = got[k] / wish[k][1], got[other] / wish[other][1]
            assert level >= theirs * (1 - 1e-6) - 1e-6


# -- 546-7: splits

demands = st.dictionaries(st.integers(0, 100), amounts | st.just(math.inf), min_size=1, max_size=40)


@given(st.floats(1, 1e12), demands, st.randoms(use_true_random=False))
def test_splits_never_exceed_the_quota_and_nobody_starves(
    quota: float, wanted: dict[int, float], rnd: random.Random
) -> None:
    hungry = {b for b in wanted if rnd.random() < 0.3}
    splits = split_demands(quota, wanted, hungry)
    assert math.fsum(splits.values()) <= quota
    assert close(math.fsum(splits.values()), quota, quota)
    assert min(splits.values()) >= FLOOR * quota / len(wanted) * (1 - 1e-9)


periods = st.lists(
    st.dictionaries(
        st.integers(0, 9),
        st.builds(
            Observation,
            amounts,
            st.booleans(),
            st.floats(0, 1),
            st.integers(0, 1000),
            st.none() | amounts,
            st.booleans(),
        ),
        max_size=10,
    ),
    min_size=1,
    max_size=8,
)


@given(st.floats(1, 1e12), periods, st.data())
def test_rounds_never_exceed_the_quota_whatever_is_observed_or_who_comes_and_goes(
    quota: float, observed: list[dict[int, Observation]], data: st.DataObject
) -> None:
    splitter: ClusterSplitter[int] = ClusterSplitter()
    for period in observed:
        brokers = data.draw(st.sets(st.integers(0, 12), min_size=1))
        seen = {broker: {TAGS: one} for broker, one in period.items()}
        splits = splitter.round({TAGS: quota}, sorted(brokers), seen)[TAGS]
        assert splits.keys() == brokers
        assert math.fsum(splits.values()) <= quota
        assert min(splits.values()) > 0


# -- pacing

charges = st.lists(
    st.tuples(st.integers(-5, 3000), st.integers(0, 50_000)), min_size=1, max_size=60
)


# Bounds from 100 on keep every wait below an hour, after which an idle sensor starts empty.
@given(charges, st.floats(100, 1e6), st.integers(1, 5000))
def test_a_client_that_obeys_gets_at_most_its_quota_and_a_burst(
    steps: list[tuple[int, int]], bound: float, burst_ms: int
) -> None:
    manager = PacedQuotaManager(QuotaType.PRODUCER_BYTE_RATE, burst_ms=burst_ms)
    manager.update_quota(QuotaEntity.of(user="u"), bound, T0)
    now, free_at, sent = T0, T0, 0
    for pause, amount in steps:
        now = max(now + max(pause, 0), free_at)
        before = sent
        sent += amount
        throttle = manager.record("u", "c", amount, now).throttle_time_ms
        assert throttle >= 0
        free_at = now + throttle
        # Before this request everything owed had been repaid, to a rounded half millisecond.
        assert before <= bound * ((now - T0) + burst_ms + 0.5) / 1000 + 1e-6 * max(before, 1)


@given(charges, st.floats(10, 1e6))
def test_peeking_changes_no_decision(steps: list[tuple[int, int]], bound: float) -> None:
    def decisions(peek: bool) -> list[int]:
        sampled = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE, start_ms=T0)
        paced = PacedQuotaManager(QuotaType.PRODUCER_BYTE_RATE, start_ms=T0)
        now, told = T0, []
        for manager in (sampled, paced):
            manager.update_quota(QuotaEntity.of(user="u"), bound, T0)
        for pause, amount in steps:
            now += pause
            for manager in (sampled, paced):
                told.append(manager.record("u", "c", amount, now).throttle_time_ms)
                if peek:
                    assert [sensor.peek(now + 700) for sensor in manager.sensors()]
        return told

    assert decisions(peek=True) == decisions(peek=False)


# -- sensors


@given(
    st.lists(st.tuples(st.integers(-20, 4000), st.integers(0, 10**6)), min_size=1, max_size=80),
    st.integers(1, 12),
    st.integers(1, 2000),
    st.floats(1, 1e6),
)
def test_replay_of_a_managers_events_gives_its_own_decisions(
    steps: list[tuple[int, int]], samples: int, window: int, bound: float
) -> None:
    manager = ClientQuotaManager(
        QuotaType.PRODUCER_BYTE_RATE, num_samples=samples, window_ms=window, start_ms=T0
    )
    manager.update_quota(QuotaEntity.of(user="u"), bound, T0)
    now, t_ms, told = T0, [], []
    for pause, amount in steps:
        now += pause
        t_ms.append(now)
        told.append(manager.record("u", "c", amount, now).throttle_time_ms)
    state = RateState(1, num_samples=samples, window_ms=window, start_ms=T0)
    replayed = replay_rate(
        state,
        [0] * len(t_ms),
        t_ms,
        [amount for _, amount in steps],
        op=[OP_RECORD] * len(t_ms),
        bound=[bound] * len(t_ms),
    )
    assert replayed.tolist() == told


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 1000)), max_size=60))
def test_a_rate_is_never_negative_and_never_more_than_all_over_the_least_window(
    steps: list[tuple[int, int]],
) -> None:
    rate = SampledRate(5, 100)
    now, total = T0, 0
    for pause, amount in steps:
        now += pause
        total += amount
        value, window = rate.charge(amount, now)
        assert 0 <= value <= total / 0.4
        assert window >= 400


# -- resolution

names: list[EntityName | None] = [None, DEFAULT, "a", "b"]
entities = st.sampled_from([QuotaEntity.of(user=u, client_id=c) for u in names for c in names][1:])
PLACE = {(u, c): i for i, (u, c) in enumerate(((3, 3), (3, 2), (3, 0), (2, 3), (2, 2), (2, 0)))}


def place(entity: QuotaEntity, user: str, client: str) -> int:
    """Return how specific an entity is for a request; 99: it doesn't match."""

    def part(name: EntityName | None, plain: str) -> int | None:
        return 0 if name is None else 2 if name is DEFAULT else 3 if name == plain else None

    return PLACE.get((part(entity.user, user), part(entity.client_id, client)), 99)  # type: ignore[arg-type]


@given(st.dictionaries(entities, st.floats(1, 100), min_size=1), entities, st.floats(1, 100))
def test_a_less_specific_quota_never_changes_what_applies(
    quotas: dict[QuotaEntity, float], added: QuotaEntity, value: float
) -> None:
    overrides = Overrides()
    for entity, limit in quotas.items():
        overrides.update(entity, limit)
    best = min(place(entity, "a", "b") for entity in quotas)
    # Where one shape alone is in use Kafka takes its tags unasked: there is no walk to compare.
    assume(overrides.flags not in (1, 2, 4))
    assume(best < place(added, "a", "b"))
    before = overrides.bound(overrides.tags("a", "b"))
    overrides.update(added, value)
    assert overrides.bound(overrides.tags("a", "b")) == before < UNLIMITED


# -- producer ids


@given(st.sets(st.integers(0, 2**63 - 1), max_size=300), st.integers(1, 50))
def test_a_filter_never_forgets(ids: set[int], capacity: int) -> None:
    ids_seen = ScalableBloomFilter(capacity, 0.01)
    for producer_id in ids:
        ids_seen.add(producer_id)
    assert all(producer_id in ids_seen for producer_id in ids)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 6)), max_size=120),
    st.integers(1, 1000),
)
def test_936_1_an_id_is_charged_once_per_life_of_its_layer(
    steps: list[tuple[int, int]], window: int
) -> None:
    cache = TimedIds(window, lambda: ScalableBloomFilter(100, 1e-9))
    charged: dict[int, int] = {}
    now = T0
    for pause, producer_id in steps:
        now += pause
        new = cache.add(producer_id, now)
        since = now - charged.get(producer_id, now - 10**9)
        # Never before half a window has passed, always after a whole one.
        assert not (new and since < window - -(-window // 2))
        assert new or since < window
        if new:
            charged[producer_id] = now
        assert len(cache._layers) <= 2
