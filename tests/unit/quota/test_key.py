from __future__ import annotations

import pytest

from headgate.quota.key import (
    CONNECTION,
    CONSUMER,
    KEYS,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_IDS,
    REQUEST,
    QuotaKey,
    format_value,
    keys_for,
)


def test_a_unit_left_out_means_the_one_kafka_enforces() -> None:
    assert QuotaKey.parse("producer_byte_rate") == PRODUCER
    assert str(PRODUCER) == "producer_byte_rate:broker_bps"
    assert PRODUCER.name == "producer_byte_rate"
    assert PRODUCER_BPS.name == "producer_byte_rate:bps"
    assert REQUEST.name == "request_percentage"


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_every_key_reads_back_in_both_spellings(key: QuotaKey) -> None:
    assert QuotaKey.parse(str(key)) == key
    assert QuotaKey.parse(key.name) == key
    assert key.is_known


def test_546_31_java_spellings_mean_the_same() -> None:
    assert QuotaKey.parse("PRODUCER_BYTE_RATE:RATE_BPS") == PRODUCER_BPS
    assert QuotaKey.parse("CONSUMER_BYTE_RATE") == CONSUMER


def test_546_8_rate_bps_equals_bps() -> None:
    assert QuotaKey.Units.RATE_BPS is QuotaKey.Units.BPS
    assert QuotaKey(QuotaKey.Type.PRODUCER_BYTE_RATE, QuotaKey.Units.RATE_BPS) == PRODUCER_BPS


def test_unknown_keys_can_be_held_and_keep_their_spelling() -> None:
    for text in ("foobar", "producer_byte_rate:furlongs", "Foo:bar"):
        assert QuotaKey.parse(text).name == text
        assert not QuotaKey.parse(text).is_known


def test_which_entities_carry_which_keys() -> None:
    assert keys_for("ip") == (CONNECTION,)
    assert PRODUCER_IDS in keys_for("user")
    assert PRODUCER_IDS not in keys_for("user+client-id")
    assert PRODUCER_IDS not in keys_for("client-id")


def test_what_a_real_kafka_can_store() -> None:
    assert {k.name for k in KEYS if k.known_to_kafka} == {
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
    }


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.5, "0.5"), (1e7, "10000000"), (12.75, "12.75")]
)
def test_values_print_as_people_write_them(value: float, text: str) -> None:
    assert format_value(value) == text
