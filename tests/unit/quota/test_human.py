"""Values as people write them: SI and IEC, percent, per second; and what is refused."""

import pytest

from headgate.errors import InvalidQuota
from headgate.quota.entity import QuotaEntity
from headgate.quota.file import dump_quotas, parse_quotas
from headgate.quota.human import has_unit, read_value
from headgate.quota.key import (
    CONNECTION,
    CONSUMER,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("10MB/s", PRODUCER, 10_000_000),
        ("10 MiB/s", PRODUCER, 10_485_760),
        ("10MB", PRODUCER_BPS, 10_000_000),
        ("0.1MB/s", PRODUCER, 100_000),
        ("1.1GB/s", PRODUCER, 1_100_000_000),
        ("512kB/s", CONSUMER, 512_000),
        ("512KB/s", CONSUMER, 512_000),
        ("512KiB/s", CONSUMER, 524_288),
        ("2TiB/s", CONSUMER, 2 * 1024**4),
        ("7B/s", CONSUMER, 7),
        ("50%", REQUEST, 50),
        ("12.75 %", REQUEST, 12.75),
        ("20/s", CONNECTION, 20),
    ],
)
def test_values_with_units(text: str, key: QuotaKey, value: float) -> None:
    assert has_unit(text)
    assert read_value(text, key) == value


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("10M", PRODUCER),  # 1000s or 1024s?
        ("10Mb/s", PRODUCER),  # bits?
        ("10Mbit/s", PRODUCER),
        ("10MB/min", PRODUCER),
        ("50%", PRODUCER),
        ("50MB%", PRODUCER),
        ("20/s", PRODUCER),
        ("10MB/s", REQUEST),
        ("50/s", REQUEST),
        ("50%", CONNECTION),
        ("100%", PRODUCER_SHARES),
        ("ten", PRODUCER),
        ("-5MB/s", PRODUCER),
        ("", PRODUCER),
    ],
)
def test_what_could_mean_two_things_or_none_is_refused(text: str, key: QuotaKey) -> None:
    with pytest.raises(ValueError, match="write a number"):
        read_value(text, key)


def test_a_file_may_have_units_and_is_written_without() -> None:
    table = parse_quotas(
        "quotas:\n"
        "- entity: {user: alice}\n"
        "  producer_byte_rate: 10MB/s\n"
        "  consumer_byte_rate:bps: 1GiB/s\n"
        "  request_percentage: 50%\n"
    ).table
    alice = QuotaEntity.of(user="alice")
    assert {str(key): value for key, value in table.entities[alice].items()} == {
        "producer_byte_rate:broker_bps": 10_000_000.0,
        "consumer_byte_rate:bps": 1_073_741_824.0,
        "request_percentage:percent": 50.0,
    }
    assert "producer_byte_rate: 10000000" in dump_quotas(table)


def test_a_mistake_has_its_line_and_what_may_be_written() -> None:
    with pytest.raises(InvalidQuota) as caught:
        parse_quotas("quotas:\n- entity: {user: a}\n  producer_byte_rate: 10M/s\n", "f.yaml")
    assert str(caught.value) == (
        "f.yaml:3: '10M/s' has no unit of producer_byte_rate; write a number, or "
        "10MB/s (1000s) or 10MiB/s (1024s)"
    )
