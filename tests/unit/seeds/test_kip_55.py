"""KIP-55's clauses that the core decides: who shares a budget, in which order quotas apply."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from headgate.cli.kafka_configs import kafka_configs
from headgate.metrics import BrokerView
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, QuotaKey, QuotaType
from headgate.quota.precedence import STATIC_DEFAULT, Source, level_matches, resolve
from headgate.quota.table import QuotaTable
from headgate.store import open_store
from headgate.throttle.manager import ClientQuotaManager
from kit import kip_55
from kit.samples import read_samples

T0 = 1_700_000_000_000


def manager(
    table: QuotaTable, quota_type: QuotaType = QuotaType.PRODUCER_BYTE_RATE
) -> ClientQuotaManager:
    key = QuotaKey.parse(quota_type)
    made = ClientQuotaManager(quota_type, static_default=table.static_defaults.get(key))
    made.load(table.for_key(key), T0)
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
    table = kip_55.table()
    producer = manager(table)
    consumer = manager(table, QuotaType.CONSUMER_BYTE_RATE)
    produced = producer.record("user2", "clientA", 1, T0)
    consumed = consumer.record("user2", "clientA", 1, T0)
    assert (produced.user_tag, produced.client_tag) == (consumed.user_tag, consumed.client_tag)
    assert (produced.bound, consumed.bound) == (10.0, 30.0)


def test_55_15_pairs_have_sole_use_and_users_share() -> None:
    quotas = manager(kip_55.table())
    assert quotas.record("user2", "clientA", 101, T0).throttle_time_ms > 0
    assert quotas.record("user2", "clientC", 1, T0).throttle_time_ms == 0
    assert quotas.record("user1", "a", 10_240, T0).throttle_time_ms == 0
    # user1's other client finds the shared budget used up.
    assert quotas.record("user1", "b", 1, T0).throttle_time_ms > 0


def test_55_7_there_is_one_sensor_for_each_type_and_quota_id() -> None:
    """KIP-55's sensor names aren't to be seen; what names their metrics holds the same two."""
    managers = {
        PRODUCER: manager(kip_55.table()),
        CONSUMER: manager(kip_55.table(), QuotaType.CONSUMER_BYTE_RATE),
    }
    clients = [("user1", "a"), ("user1", "b"), ("user2", "clientA"), ("user2", "clientC")]
    for key, made in managers.items():
        for user, client_id in clients:
            made.record(user, client_id, 10 if key == PRODUCER else 30, T0)
    rates = {
        (sample.name, sample.labels[1:]): sample.value
        for sample in read_samples(BrokerView(1, managers), T0)
        if sample.name.endswith("_byte_rate")
    }
    ids = {
        (("user", "user1"),): 2.0,  # two clients, in 10 s
        (("user", "user2"), ("client_id", "clientA")): 1.0,
        (("user", "user2"),): 1.0,
    }
    assert rates == {
        (f"kafka_server_{of_type}_byte_rate", labels): rate * times
        for of_type, times in (("produce", 1), ("fetch", 3))
        for labels, rate in ids.items()
    }


class Step(NamedTuple):
    """A step of KIP-55's "Quota Configuration": what gives the quota, and who shares it."""

    source: Source | None
    tags: tuple[str, str]


STEPS = {
    1: Step(QuotaEntity.of(user="u", client_id="c"), ("u", "c")),
    2: Step(QuotaEntity.of(user="u"), ("u", "")),
    3: Step(QuotaEntity.of(user=DEFAULT, client_id="c"), ("u", "c")),
    4: Step(QuotaEntity.of(user=DEFAULT, client_id=DEFAULT), ("u", "c")),
    5: Step(QuotaEntity.of(user=DEFAULT), ("u", "")),
    6: Step(QuotaEntity.of(client_id="c"), ("", "c")),
    7: Step(QuotaEntity.of(client_id=DEFAULT), ("", "c")),
    8: Step(STATIC_DEFAULT, ("", "c")),
    9: Step(None, ("", "c")),
}
USE_CASES = {
    "client-id only": (6, 7, 8, 9),
    "user only": (2, 5, 9),
    "everything": tuple(STEPS),
}


@pytest.mark.parametrize("steps", USE_CASES.values(), ids=list(USE_CASES))
def test_55_16_use_cases_walk_down_their_steps(steps: tuple[int, ...]) -> None:
    """Each step's quota is its number; whenever the first one goes, the next one applies."""
    for place, number in enumerate(steps):
        left = {n: STEPS[n].source for n in steps[place:]}
        table = QuotaTable.of(
            {s: {PRODUCER: float(n)} for n, s in left.items() if isinstance(s, QuotaEntity)},
            static_defaults={PRODUCER: 8.0} if 8 in left else {},
        )
        found = resolve(table, "u", "c", PRODUCER)
        enforced = manager(table).record("u", "c", 1_000_000, T0)
        assert found.source == STEPS[number].source
        if number == 9:
            assert (found.value, enforced.throttle_time_ms) == (None, 0)
        else:
            assert (found.value, enforced.bound) == (number, number)
            assert found.tags == (enforced.user_tag, enforced.client_tag) == STEPS[number].tags
            assert enforced.throttle_time_ms > 0


def test_55_18_where_json_and_prose_disagree_the_json_is_taken() -> None:
    """The JSON gives user2's clientA a consumer rate of 30, the prose 20."""
    assert "user principal user2 AND client-id clientA is (10, 20)" in kip_55.TEXT
    consumer = manager(kip_55.table(), QuotaType.CONSUMER_BYTE_RATE)
    assert consumer.record("user2", "clientA", 300, T0).throttle_time_ms == 0
    over = consumer.record("user2", "clientA", 30, T0)
    assert (over.bound, over.throttle_time_ms) == (30, 1_000)


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ("producer_byte_rate=10.5", "producer_byte_rate cannot be a fractional value."),
        ("producer_byte_rate=0", "Quota producer_byte_rate must be greater than 0"),
        ("consumer_byte_rate=-1", "Quota consumer_byte_rate must be greater than 0"),
        ("producer_byte_rate=ten", "Cannot parse quota configuration value for producer_byte_rate"),
        ("producer_byte_rate=", "Cannot parse quota configuration value for producer_byte_rate"),
        ("producer_byte_rate", "Invalid entity config: all configs to be added must be in the"),
        ("producer_byte_rate=1,byte_rate=2", "Unexpected config names: Set(byte_rate)"),
    ],
)
def test_55_24_pairs_are_parsed_and_validated_and_none_is_kept_of_what_is_refused(
    pairs: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:{tmp_path / 'quotas.db'}"
    line = ["--store", url, "--alter", "--entity-type", "users", "--entity-name", "user1"]
    kept = "consumer_byte_rate=2048,producer_byte_rate=1024"
    assert kafka_configs.main([*line, "--add-config", kept]) == 0
    capsys.readouterr()
    assert kafka_configs.main([*line, "--add-config", f"producer_byte_rate=7,{pairs}"]) == 1
    assert says in capsys.readouterr().err
    with open_store(url) as store:
        user1 = {PRODUCER: 1024.0, CONSUMER: 2048.0}
        assert store.snapshot() == QuotaTable.of({QuotaEntity.of(user="user1"): user1})


def test_55d_2_the_default_pair_comes_before_the_default_user() -> None:
    pair = QuotaEntity.of(user=DEFAULT, client_id=DEFAULT)
    user = QuotaEntity.of(user=DEFAULT)
    matches = level_matches({pair: 1.0, user: 2.0}, "u", "c")
    assert [entity for _, entity, _ in matches] == [pair, user]
