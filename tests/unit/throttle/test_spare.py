"""What a manager says can still be charged passes, whenever it is charged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.pacing import PacedQuotaManager

START_MS = 1_700_000_000_000
ALICE = ("alice", "")
STEPS = st.one_of(st.integers(-1_200, 1_500), st.integers(0, 20_000))


def manager(bound: float, **windows: int) -> ClientQuotaManager:
    made = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE, start_ms=START_MS, **windows)
    made.update_quota(QuotaEntity.of(user="alice"), bound, START_MS)
    return made


def bucket(bound: float, burst_ms: int) -> PacedQuotaManager:
    made = PacedQuotaManager(QuotaType.PRODUCER_BYTE_RATE, burst_ms=burst_ms, start_ms=START_MS)
    made.update_quota(QuotaEntity.of(user="alice"), bound, START_MS)
    return made


MANAGERS = st.one_of(
    st.builds(
        lambda bound, windows: manager(bound, num_samples=windows[0], window_ms=windows[1]),
        st.floats(0.1, 1e6),
        st.sampled_from([(11, 1_000), (3, 1_000), (2, 1_000), (1, 1_000), (21, 50)]),
    ),
    st.builds(
        bucket,
        st.one_of(st.floats(1e3, 1e8), st.floats(0.1, 1e15)),
        st.sampled_from([1, 37, 1_000, 11_000]),
    ),
)


@given(
    MANAGERS,
    st.lists(st.tuples(st.integers(0, 500_000), STEPS), max_size=30),
    st.lists(st.tuples(st.floats(0, 1), STEPS), min_size=1, max_size=12),
)
def test_what_is_spare_is_never_throttled(
    made: ClientQuotaManager | PacedQuotaManager,
    before: list[tuple[int, int]],
    shares: list[tuple[float, int]],
) -> None:
    now = START_MS
    for amount, step in before:
        now += step
        made.record("alice", "app", amount, now)
    left = int(made.spare(ALICE))
    if not left:
        return  # may be over its bound already
    for share, step in shares:
        now += step
        amount = int(left * share)
        left -= amount
        assert made.record("alice", "app", amount, now).throttle_time_ms <= 0
    assert made.record("alice", "app", left, now).throttle_time_ms <= 0


def test_nine_windows_worth_is_spare_at_first() -> None:
    made = manager(1_000.0)
    assert int(made.spare(ALICE)) == 8_999
    made.record("alice", "app", 4_000, START_MS)
    assert int(made.spare(ALICE)) == 4_999
    made.record("alice", "app", 10_000, START_MS)
    assert made.spare(ALICE) == 0


def test_where_a_sum_isnt_whole_what_rounding_may_lose_isnt_spare() -> None:
    made = manager(1_000.0)
    made.record("alice", "app", 0.5, START_MS)
    assert 8_999.49 < made.spare(ALICE) < 8_999.5


def test_a_bucket_spares_what_it_holds() -> None:
    made = bucket(1_000.0, 2_000)
    assert made.spare(ALICE) == 1_999
    made.record("alice", "app", 1_000, START_MS)
    assert made.spare(ALICE) == 999
    made.record("alice", "app", 4_000, START_MS)
    assert made.spare(ALICE) == 0
    made.record("alice", "app", 1, START_MS + 60_000)
    assert made.spare(ALICE) == 1_998
