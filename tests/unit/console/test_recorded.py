"""A principal's last hours by the journal: what is drawn, whose it is, and how much is read."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.console import readings
from headgate.console import recorded as reading
from headgate.console.app import make_app
from headgate.console.readings import MOST_KEPT
from headgate.console.recorded import LATE_MS, STEP_MS, Journals, PrincipalUse, recorded
from headgate.live.seen import STEPS
from headgate.usage.format import Event, Origin
from kit.console import QUOTA, Console
from kit.journals import Sent, traffic, write_journal

NOW = 1_800_000_000_000
BOB = ("producer_byte_rate", "bob", "")
SHARED = ("producer_byte_rate", "", "shared")


def steps(sent: list[Sent], user: str) -> dict[int, float]:
    """Bytes of a user in each step that is over, by the step's end."""
    found: Counter[int] = Counter()
    for at, who, _, size in sent:
        if who == user and at < (NOW - LATE_MS) // STEP_MS * STEP_MS:
            found[at // STEP_MS * STEP_MS + STEP_MS] += size
    return dict(found)


def shared(users: tuple[str, ...], waits_ms: int = 0) -> list[Event]:
    """Half a quota's use of each user, of the bucket that client-id `shared` has with others."""
    origins = [
        Origin("record", "producer_byte_rate", 0, "L", "", "shared", None, user, "shared",
               "10.0.0.9", "c", 0, 11, 11, 1000)
        for user in users
    ]  # fmt: skip
    size = QUOTA * 0.55 * STEP_MS / 1_000
    return [
        Event(origin, NOW - 600_000.0 + n * STEP_MS, size, QUOTA / 3, waits_ms, waits_ms, 0, 9)
        for n in range(20)
        for origin in origins
    ]


def test_points_are_what_was_charged_in_each_step(tmp_path: Path) -> None:
    sent, events = traffic(NOW)
    back = Event(replace_kind(events[0].origin, "unrecord"), events[0].t_ms, 50.0, 9_000.0)
    asked = Event(replace_kind(events[0].origin, "norecord"), events[0].t_ms, 1e9, 9_000.0)
    write_journal(tmp_path, [*events, back, asked])
    user = events[0].origin.principal
    assert user is not None
    found = recorded(tmp_path, user, None, (), NOW)
    assert set(found.points) == {("producer_byte_rate", user, "")}
    (points,) = found.points.values()
    wanted = steps(sent, user)
    wanted[min(wanted)] -= 50
    told = {p.at_ms: p.rate * STEP_MS / 1_000 for p in points}
    assert told == pytest.approx(wanted)
    assert {p.limit for p in points} == {9_000.0}
    assert all(p.held for p in points)
    assert found.is_whole
    assert found.own == {}


def replace_kind(origin: Origin, kind: str) -> Origin:
    return replace(origin, kind=kind, index=-1, token=None)


def test_what_is_too_much_is_left_out_and_said(tmp_path: Path) -> None:
    sent, events = traffic(NOW)
    write_journal(tmp_path, events[:1500])
    write_journal(tmp_path, events[1500:], 1501)
    found = recorded(tmp_path, "bob", None, (), NOW, most_events=1000)
    assert (found.since_ms, found.is_whole) == (sent[1499][0] + 1, False)
    first = -(-found.since_ms // STEP_MS) * STEP_MS + STEP_MS  # no step is drawn by half
    assert {p.at_ms for p in found.points[BOB]} == {
        at for at in steps(sent, "bob") if at >= first
    }  # fmt: skip
    assert recorded(tmp_path, "bob", None, (), NOW + reading.PERIOD_MS).points == {}


def test_of_a_shared_bucket_its_own_part_is_told_apart(tmp_path: Path) -> None:
    write_journal(tmp_path, shared(("alice", "bob")))
    found = recorded(tmp_path, "alice", None, {"shared"}, NOW)
    assert {p.rate for p in found.points[SHARED]} == {1.1 * QUOTA}
    assert {p.rate for p in found.own[SHARED]} == {0.55 * QUOTA}
    assert recorded(tmp_path, "carol", None, {"shared"}, NOW).own == {}
    assert recorded(tmp_path, "alice", None, (), NOW).points == {}


async def test_a_reading_is_kept_shared_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, some, go = [], threading.Event(), threading.Event()

    def read(journal: Path, user: str, *_: object) -> PrincipalUse:
        begun.append(user)
        some.set()
        assert go.wait(60)
        return PrincipalUse(0, True, {}, {})

    monkeypatch.setattr(reading, "recorded", read)
    monkeypatch.setattr(readings, "SOON_S", 0.01)
    journals = Journals(tmp_path, lambda: NOW)
    assert await journals.soon("u0", None, ()) is None  # the page isn't held up
    for n in range(MOST_KEPT + 5):
        assert journals.of(f"u{n}", None, ()) is None
    assert await asyncio.to_thread(some.wait, 60)
    assert begun == ["u0"]  # one at a time
    go.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    assert len(begun) == readings.MOST_WAITING
    assert len(journals._readings._kept) == MOST_KEPT
    monkeypatch.setattr(readings, "SOON_S", 60.0)
    assert await journals.soon("a", None, ()) is not None
    assert await journals.soon("a", None, ()) is not None
    assert begun.count("a") == 1


@pytest.fixture
def journal(console: Console, tmp_path: Path) -> Path:
    """A console that reads a journal; its clock is the picture's."""
    folder = tmp_path / "journal"
    folder.mkdir()
    console.now_ms = NOW
    console.parts = replace(console.parts, journal=folder)
    console.app = make_app(console.parts, console.access)
    return folder


def test_a_page_draws_the_hours_before_its_first(
    console: Console, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "SOON_S", 30.0)
    write_journal(journal, shared(("alice", "bob"), waits_ms=5))
    with console.client("operator") as browser:
        page = browser.get("/tenant?user=alice").text
    (chart,) = re.findall(r'<svg viewBox="0 0 600 120".*?</figure>', page, re.DOTALL)
    assert "9 min 30 s ago" in chart
    assert "at most 1.2 MB/s" in chart  # everybody's, and as seen last
    assert chart.partition('class="rate"')[2].partition("/>")[0].count("L") == 19
    with console.client("tenant", "payments") as browser:
        page = browser.get("/tenant?user=alice").text
    (chart,) = re.findall(r'<svg viewBox="0 0 600 120".*?</figure>', page, re.DOTALL)
    # Of 0.55 its own part in quarters, by the quota and not by this broker's part of it.
    assert f"at most {3 / STEPS * 1_000:.0f} kB/s" in chart
    assert "bob" not in page


def test_a_journal_that_cannot_be_read_says_why_to_those_who_may_know(
    console: Console, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "SOON_S", 30.0)
    journal.rmdir()
    for role, tenant, told in (("operator", "", True), ("tenant", "payments", False)):
        with console.client(role, tenant) as browser:
            page = browser.get("/tenant?user=alice").text
        assert "The journal can't be read" in page
        assert (str(journal) in page) == told
