"""The KIPs' pages say how Headgate decides what the KIPs leave open."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "explanation"


def page(name: str) -> str:
    return re.sub(r"\s+", " ", (PAGES / name).read_text(encoding="utf-8"))


def test_55_4_the_page_says_that_an_unlimited_default_user_hides_client_ids_and_the_way_out() -> (
    None
):
    text = page("kip-55.md")
    assert "9223372036854775807 is an entry, and hides levels 7 and 8" in text
    assert "--delete-config producer_byte_rate --entity-type users --entity-default" in text


def test_55_3_the_page_says_what_became_of_the_static_defaults() -> None:
    assert "Headgate still reads the two settings, warns that they are deprecated" in page(
        "kip-55.md"
    )


def test_546_8_the_page_says_that_kafkas_own_keys_are_per_broker() -> None:
    text = page("kip-546.md")
    assert "Kafka enforces it per broker. So Kafka's own keys read as `broker_bps`" in text
    assert "`QuotaKey.Units.RATE_BPS` is this unit" in text


def test_612_8_the_page_says_that_kafkas_released_metrics_are_shown() -> None:
    text = page("kip-612.md")
    for metric in (
        "broker-connection-accept-rate",
        "connection-accept-rate",
        "connection-accept-throttle-time",
        "ip-connection-accept-throttle-time",
        "AcceptorBlockedPercent",
    ):
        assert f"`{metric}`" in text


def test_936_11_the_page_says_the_known_limits() -> None:
    text = page("kip-936.md")
    assert "A bloom filter can take a new id for an old one" in text
    assert "A throttled user is throttled with all its clients" in text
