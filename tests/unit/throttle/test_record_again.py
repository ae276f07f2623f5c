"""Charging a sensor that is known is the same as looking it up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaType
from headgate.throttle.manager import ClientQuotaManager, RateSensor
from headgate.throttle.registry import Throttle

START_MS = 1_700_000_000_000
STEPS = st.one_of(st.integers(-500, 2_000), st.sampled_from([3_599_000, 3_640_000, 9_000_000]))
ENTITIES = [QuotaEntity.of(user="alice"), QuotaEntity.of(client_id="app")]


class Remembering:
    """Charge as the gateway does: by the sensor of last time while it is good."""

    def __init__(self, manager: ClientQuotaManager) -> None:
        self.manager = manager
        self.known: dict[tuple[str, str], tuple[RateSensor | None, int]] = {}

    def record(self, user: str, client_id: str, amount: int, now_ms: int) -> Throttle:
        sensor, generation = self.known.get((user, client_id), (None, -1))
        decision = None
        if sensor is not None and generation == self.manager.generation:
            decision = self.manager.record_again(sensor, amount, now_ms)
        if decision is None:
            decision = self.manager.record(user, client_id, amount, now_ms)
            found = self.manager.charged(user, client_id)
            self.known[user, client_id] = (found, self.manager.generation)
        return decision


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("charge"), st.sampled_from("ab"), st.integers(0, 30_000), STEPS),
            st.tuples(
                st.just("quota"),
                st.sampled_from(ENTITIES),
                st.sampled_from([None, 100.0, 1_000.0]),
                STEPS,
            ),
            st.tuples(st.just("expire"), st.none(), st.none(), STEPS),
        ),
        max_size=40,
    )
)
def test_a_sensor_that_is_known_decides_alike(turns: list[tuple[str, object, object, int]]) -> None:
    plain = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE, start_ms=START_MS)
    quick = Remembering(ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE, start_ms=START_MS))
    now = START_MS
    for manager in (plain, quick.manager):
        manager.update_quota(ENTITIES[0], 1_000.0, now)
    for what, who, amount, step in turns:
        now += step
        if what == "charge":
            assert plain.record("alice", str(who), amount, now) == quick.record(  # type: ignore[arg-type]
                "alice",
                str(who),
                amount,
                now,  # type: ignore[arg-type]
            )
        elif what == "quota":
            plain.update_quota(who, amount, now)  # type: ignore[arg-type]
            quick.manager.update_quota(who, amount, now)  # type: ignore[arg-type]
        else:
            assert plain.expire(now) == quick.manager.expire(now)
