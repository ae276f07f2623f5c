"""KIP-55's clauses that the core decides: who shares a budget, in which order quotas apply."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.errors import ApiError
from headgate.quota.alteration import Op, QuotaAlteration, validate
from headgate.quota.entity import DEFAULT, QuotaEntity, quota_id
from headgate.quota.key import CONSUMER, PRODUCER, QuotaKey, QuotaType
from headgate.quota.precedence import PRECEDENCE, level_matches, resolve
from headgate.quota.table import QuotaTable
from headgate.throttle.manager import ClientQuotaManager

T0 = 1_700_000_000_000
SAMPLE = Path(__file__).parents[2] / "data" / "kip55_sample.json"


def sample_table() -> QuotaTable:
    rows = json.loads(SAMPLE.read_text(encoding="utf-8"))
    return QuotaTable.of(
        {
            QuotaEntity({t: DEFAULT if n is None else n for t, n in row["entity"].items()}): {
                QuotaKey.parse(k): float(v) for k, v in row["config"].items()
            }
            for row in rows
        }
    )


def manager(
    table: QuotaTable, quota_type: QuotaType = QuotaType.PRODUCER_BYTE_RATE
) -> ClientQuotaManager:
    made = ClientQuotaManager(quota_type)
    made.load(table.for_key(QuotaKey.parse(quota_type)), T0)
    return made


def test_55_1_quotas_for_user_pair_and_client_id() -> None:
    for entity in (
        QuotaEntity.of(user="u"),
        QuotaEntity.of(user="u", client_id="c"),
        QuotaEntity.of(client_id="c"),
    ):
        table = QuotaTable.of({entity: {PRODUCER: 1000.0}})
        decision = manager(table).record("u", "c", 20_000, T0)
        assert decision.throttle_time_ms == 10_000, entity
        assert resolve(table, "u", "c", PRODUCER).source == entity


def test_55_14_the_same_limits_for_producer_and_consumer_of_a_quota_id() -> None:
    table = sample_table()
    producer = manager(table)
    consumer = manager(table, QuotaType.CONSUMER_BYTE_RATE)
    produced = producer.record("user2", "clientA", 1, T0)
    consumed = consumer.record("user2", "clientA", 1, T0)
    assert (produced.user_tag, produced.client_tag) == (consumed.user_tag, consumed.client_tag)
    assert (produced.bound, consumed.bound) == (10.0, 30.0)


def test_55_15_pairs_have_sole_use_and_users_share() -> None:
    quotas = manager(sample_table())
    assert quotas.record("user2", "clientA", 101, T0).throttle_time_ms > 0
    assert quotas.record("user2", "clientC", 1, T0).throttle_time_ms == 0
    assert quotas.record("user1", "a", 10_240, T0).throttle_time_ms == 0
    # user1's other client finds the shared budget used up.
    assert quotas.record("user1", "b", 1, T0).throttle_time_ms > 0


def test_55_7_a_sensor_is_named_by_type_and_quota_id() -> None:
    made = manager(sample_table())
    for user, client_id in (("user1", "a"), ("user1", "b"), ("user2", "clientA")):
        made.record(user, client_id, 1, T0)
    names = {
        f"{made.type}-{quota_id(sensor.user_tag, sensor.client_tag)}" for sensor in made.sensors()
    }
    assert names == {"producer_byte_rate-user1:", "producer_byte_rate-user2:clientA"}


USE_CASES = {
    "client-id only: steps 6-9": ([7, 8], ""),
    "user only: steps 2, 5, 9": ([3, 6], ""),
    "everything: steps 1-9": ([1, 2, 3, 4, 5, 6, 7, 8], ""),
}


@pytest.mark.parametrize("levels", [v[0] for v in USE_CASES.values()], ids=list(USE_CASES))
def test_55_16_use_cases_walk_down_their_levels(levels: list[int]) -> None:
    quotas: dict[QuotaEntity, dict[QuotaKey, float]] = {}
    for number in levels:
        entity = PRECEDENCE[number - 1].entity("u", "c")
        assert entity is not None
        quotas[entity] = {PRODUCER: float(number)}
    for number in levels:
        assert resolve(QuotaTable.of(quotas), "u", "c", PRODUCER).value == float(number)
        gone = PRECEDENCE[number - 1].entity("u", "c")
        assert gone is not None
        del quotas[gone]
    assert resolve(QuotaTable.of(quotas), "u", "c", PRODUCER).value is None


def test_55_18_where_json_and_prose_disagree_the_json_is_taken() -> None:
    """The JSON gives user2's clientA a consumer rate of 30, the prose 20."""
    entity = QuotaEntity.of(user="user2", client_id="clientA")
    assert sample_table().get(entity, CONSUMER) == 30.0


def test_55_24_values_are_validated() -> None:
    user = QuotaEntity.of(user="u")
    results = validate([QuotaAlteration(user, (Op(PRODUCER, 10.5),))]).results
    assert results[0].error == ApiError(42, "producer_byte_rate cannot be a fractional value.")


def test_55d_2_the_default_pair_comes_before_the_default_user() -> None:
    pair = QuotaEntity.of(user=DEFAULT, client_id=DEFAULT)
    user = QuotaEntity.of(user=DEFAULT)
    matches = level_matches({pair: 1.0, user: 2.0}, "u", "c")
    assert [entity for _, entity, _ in matches] == [pair, user]
