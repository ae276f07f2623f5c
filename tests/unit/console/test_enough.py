"""Pages Change and Raises: how a throttled client would go, and what would be enough for it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.console import what_if
from headgate.console.app import make_app
from headgate.console.hour import LastHour, read_hour
from headgate.console.pages.change import quota_of
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from kit.console import Console
from kit.journals import application, write_journal

PAIR = QuotaEntity.of(user="alice", client_id="app-0")
FORM = {"user": "alice", "client-id": "app-0", "key": "producer_byte_rate"}


@pytest.fixture
def throttled(console: Console, tmp_path: Path) -> float:
    """The rate of alice's app-0, which a quota of half of it throttles; bob's is a secret."""
    folder = tmp_path / "throttled"
    folder.mkdir()
    begin = console.parts.clock_ms() - 300_000
    events = [
        event
        for user in ("alice", "bob")
        for event in application(user, "app-0", 606_000.0, 300_000.0, begin, 300)
    ]
    write_journal(folder, sorted(events, key=lambda event: event.t_ms))
    console.parts = replace(console.parts, journal=folder)
    console.app = make_app(console.parts, console.access)
    return 606_000.0


def test_a_preview_says_how_a_throttled_client_would_go(console: Console, throttled: float) -> None:
    form = {"entity": PAIR.path, "key": "producer_byte_rate", "value": "5MB/s"}
    page = console.client("operator").send_form("/change/preview", form).text
    told = page.partition("How they would go")[2].partition("Who is affected")[0]
    between = r"\(\d+ kB/s to \d+ kB/s\)"
    went = rf"<bdi>app-0</bdi>\s+would go at 60\d kB/s {between} and never wait"
    assert re.search(went, told)
    assert "not known" in page.partition("What it would have done")[2]


def test_what_would_be_enough_fills_the_form(console: Console, throttled: float) -> None:
    operator = console.client("operator")
    assert "What would be enough?" in operator.get("/change").text
    before = console.store.history.entries()
    page = operator.send_form("/change/enough", FORM).text
    value = re.search(r'name="value" value="([^"]+)"', page)
    assert value is not None
    assert throttled <= quota_of(value[1], PRODUCER) <= 1.3 * throttled
    assert "would be enough. It is filled in below." in page
    assert "and never wait" in page
    assert console.store.history.entries() == before
    page = operator.send_form("/change/enough", FORM | {"key": "request_percentage"}).text
    assert "What would be enough can&#39;t be known" in page or "can't be known" in page
    assert operator.send_form("/change/enough", {"key": "no"}).status_code == 422


def test_a_part_of_the_hour_is_named_as_one(
    console: Console, throttled: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(*given: Any) -> LastHour:
        return read_hour(*given)._replace(is_whole=False)

    monkeypatch.setattr(what_if, "read_hour", part)
    page = console.client("operator").send_form("/change/enough", FORM).text
    assert "would be enough. It is filled in below. By the requests since" in page
    assert "too many to look at the whole hour" in page


def test_a_tenant_is_told_what_would_be_enough_and_its_ask_carries_how_it_would_go(
    console: Console, throttled: float
) -> None:
    tenant = console.client("tenant", "payments")
    page = tenant.send_form("/raises/enough", FORM).text
    assert "would be enough" in page and "bob" not in page
    assert tenant.send_form("/raises/enough", FORM | {"key": "nothing"}).status_code == 422
    for user in ("bob", "nobody"):
        assert tenant.send_form("/raises/enough", FORM | {"user": user}).status_code == 404
    place = tenant.send_form("/raises", FORM | {"value": "5MB/s", "reason": "a new feed"})
    assert place.status_code == 303
    for client in (tenant, console.client("operator")):
        told = client.get(str(place.headers["location"])).text.partition("How it would go")[2]
        assert "and never wait" in told and "bob" not in told


def test_without_a_journal_nothing_is_said_to_be_enough(console: Console) -> None:
    operator = console.client("operator")
    assert "What would be enough?" not in operator.get("/change").text
    page = operator.send_form("/change/enough", {"user": "alice", "key": "producer_byte_rate"})
    assert "the console reads no usage journal" in page.text
