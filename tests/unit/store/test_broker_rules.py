"""Values of broker settings: what Kafka reads as a number, and what gateways then apply."""

from __future__ import annotations

import pytest

from headgate.errors import ApiError
from headgate.store.broker_rules import validate_broker_configs
from headgate.throttle.connection import ConnectionQuotas

PER_IP = "max.connections.per.ip"
OVERRIDES = "max.connections.per.ip.overrides"


def kept(name: str, value: str) -> str | None:
    ops = {OVERRIDES: "h:1", name: value}
    return validate_broker_configs("1", ops, {})[name]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("5", "5"), (" 5 ", "5"), ("+5", "5"), ("-0", "0"), ("007", "7"),
        ("2147483647", "2147483647"), ("0" * 5_000 + "9", "9"),
    ],
)  # fmt: skip
def test_what_kafka_reads_as_a_number_is_kept_as_its_digits(value: str, number: str) -> None:
    config = {
        PER_IP: kept(PER_IP, value),
        OVERRIDES: kept(OVERRIDES, f"10.0.0.1:1, 10.0.0.2 :{value},[::1]:{value}"),
    }
    assert config == {PER_IP: number, OVERRIDES: f"10.0.0.1:1,10.0.0.2:{number},[::1]:{number}"}
    applied = ConnectionQuotas(["PLAINTEXT"], config=config)  # type: ignore[arg-type]
    assert applied.max_per_ip == int(number)
    assert sorted(applied.max_per_ip_overrides.values()) == sorted([1, int(number), int(number)])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("2147483648", "Not a number of type INT"),
        ("-2147483649", "Not a number of type INT"),
        ("9" * 5_000, "Not a number of type INT"),
        ("", "Not a number of type INT"),
        ("1_000", "Not a number of type INT"),
        ("++5", "Not a number of type INT"),
        ("-5", "Value must be at least 0"),
    ],
)
def test_what_is_no_count_is_refused(value: str, says: str) -> None:
    with pytest.raises(ApiError, match=says):
        kept(PER_IP, value)
    with pytest.raises(ApiError, match="isn't of the form host:count"):
        kept(OVERRIDES, f"a:1,b:{value}")


def test_a_removed_setting_stays_none() -> None:
    assert validate_broker_configs("", {PER_IP: None}, {}) == {PER_IP: None}


def test_0_of_an_address_needs_exceptions_however_it_is_spelled() -> None:
    with pytest.raises(ApiError, match="can be set to zero only if"):
        validate_broker_configs("1", {PER_IP: "+00"}, {})
    with pytest.raises(ApiError, match="can be set to zero only if"):
        validate_broker_configs("1", {OVERRIDES: " , "}, {"1": {PER_IP: "-0"}})
