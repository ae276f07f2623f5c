"""`headgate top`: the table at each width, JSON, keys, and a gateway that goes away and returns."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console
from rich.live import Live

from headgate.cli.main import load
from headgate.cli.top import screen as drawing
from headgate.cli.top import top
from headgate.cli.top.screen import KEYS, screen, table
from headgate.cli.top.terminal import Keyboard, Top, keys_at_once
from headgate.cli.top.view import DOWN, ENTER, ESCAPE, UP, TopView, arranged, keys_of, label
from headgate.errors import StoreError
from headgate.live.effective import effective_of
from headgate.live.picture import BrokerPicture, ClientUse, Picture, QuotaUse, WaitTold
from headgate.live.quota_ids import rows
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONNECTION, CONSUMER, PRODUCER
from headgate.quota.table import QuotaTable

GOLDEN = Path(__file__).parents[2] / "data" / "top_shown.txt"
AT = 1_800_000_000_000


def picture() -> Picture:
    """Two brokers: alice's etl waits at both, bob has room, a long name has the most use."""
    told = WaitTold(AT - 100, 1e6, 1e6, rate=1.5e6)
    etl = QuotaUse(
        PRODUCER.name, "alice", "etl", quota=1e6, rate=1.4e6, held=2, held_until_ms=AT + 900,
        held_since_ms=AT - 185_000, throttled=3, throttled_ms=9,
        clients=(ClientUse("alice", "etl", 5, 2, AT + 900, told=told),),
    )  # fmt: skip
    less = QuotaUse(PRODUCER.name, "alice", "etl", quota=1e6, rate=2e5)
    shared = QuotaUse(
        CONSUMER.name, "bob", quota=5e5, rate=1e5, other_clients=3,
        clients=(ClientUse("bob", "a\x1b[2J", 1),),
    )  # fmt: skip
    long = QuotaUse(
        CONSUMER.name, "reporting-of-the-northern-warehouses", "nightly-aggregation", quota=2e6,
        rate=1.9e6, clients=(ClientUse("reporting-of-the-northern-warehouses", "n", 1200),),
    )  # fmt: skip
    address = QuotaUse(CONNECTION.name, ip="0:0:0:0:0:0:0:1", quota=7.0, rate=0.5)
    nobodys = QuotaUse(PRODUCER.name, rate=12.0)
    return Picture(
        AT,
        brokers=(
            BrokerPicture(1, quotas=(less, shared, nobodys)),
            BrokerPicture(2, quotas=(etl, long, address), other_quotas=8, silent="refused"),
        ),
    )


class Gateway:
    """A gateway as ``OpenTarget`` has it: answers that a test gives, in turn."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[Picture | StoreError] = asyncio.Queue()
        self.about = Picture(AT)
        self.asked: list[tuple[str | None, str | None]] = []

    async def live_beside(self, request: Any) -> Picture:
        self.asked.append((request.user, request.client_id))
        if request.user is not None:
            return self.about
        answer = await self.answers.get()
        if isinstance(answer, StoreError):
            raise answer
        return answer


class Once:
    """A gateway that is asked once."""

    def __enter__(self) -> Once:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def picture(self, most: int) -> Picture:
        return picture()


@pytest.fixture(autouse=True)
def gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "open_servers", lambda *_: Once())


def run(*words: str) -> int:
    return load("top")(["--bootstrap-server", "gateway:1", *words])


@pytest.mark.parametrize("width", [60, 80, 118, 160])
def test_columns_that_do_not_fit_are_left_out_and_named(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top, "_PIPE_COLUMNS", width)
    assert run() == 0
    text = capsys.readouterr().out
    drawn = text.splitlines()[1:7]
    assert max(map(len, drawn)) <= width
    golden = GOLDEN.read_text(encoding="utf-8") if GOLDEN.exists() else ""
    parts = dict(re.findall(r"== (\d+)\n(.*?)(?=== |\Z)", golden, re.DOTALL))
    if os.environ.get("HEADGATE_GOLDEN") == "write":
        parts[str(width)] = text
        told = (f"== {name}\n{parts[name]}" for name in sorted(parts, key=int))
        GOLDEN.write_text("".join(told), encoding="utf-8")
    assert text == parts[str(width)]
    for heading in {column.heading for column in drawing.COLUMNS} - set(drawn[0].split("  ")):
        named = re.search(r"Too narrow for: (.*)\.", text)
        assert heading in drawn[0] or (named and heading in named[1].split(", "))


def test_json_says_the_same_in_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--limit", "1") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["found"], told["at_ms"]) == (5, AT)
    assert told["notes"] == [
        "8 quota-ids with the most room aren't told.", "Broker 2 doesn't answer: refused.",
    ]  # fmt: skip
    assert told["quota_ids"] == [
        {
            "key": "producer_byte_rate", "user": "alice", "client_id": "etl", "ip": "",
            "broker_id": 2, "brokers": 2, "limit": 1e6, "rate": 1.4e6, "share": 1.4, "waiting": 2,
            "waiting_until_ms": AT + 900, "throttled_since_ms": AT - 185_000, "connections": 5,
            "other_clients": 0,
        }
    ]  # fmt: skip


def test_what_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--every", "0") == run("--every", "nan") == run("--limit", "-1") == 2
    assert "--every takes 0.2 to 86400 seconds" in capsys.readouterr().err


def names(view: TopView) -> list[str]:
    return [label(row) for row in arranged(rows(picture()), view.sort, view.find)]


def pressed(view: TopView, *keys: str) -> TopView:
    for key in keys:
        view.press(key, arranged(rows(picture()), view.sort, view.find))
    return view


def test_keys_sort_filter_choose_ask_and_leave() -> None:
    view = TopView()
    assert names(view)[0] == "alice/etl"
    assert names(pressed(view, "n"))[0] == "address 0:0:0:0:0:0:0:1"
    assert [name[:9] for name in names(pressed(view, "u"))[:3]] == ["alice/etl", "reporting", "bob"]
    assert names(pressed(view, "/", *"BOBX", "\x7f")) == ["bob"]
    assert view.typing and pressed(view, ENTER).find == "BOB" and not view.typing
    assert not pressed(view, ESCAPE).find
    shown = arranged(rows(picture()), "use")
    assert view.at(shown) == 0 and pressed(view, UP).at(shown) == 0
    assert pressed(view, DOWN, DOWN).at(shown) == 2
    asked = pressed(view, ENTER).asked
    assert asked is not None and asked.owner == ("bob", None)
    assert pressed(view, "q").asked is None and not view.ended
    assert pressed(view, "q").ended


def test_a_row_without_a_client_has_nobody_to_ask_about() -> None:
    view = pressed(TopView("name"), ENTER)
    assert view.asked is None and view.notice


def test_what_terminals_send_are_keys() -> None:
    assert list(keys_of("w\x1b[A\x1bOBé\n\x1b[15~q\x1b[1;5Cu")) == [
        "w", UP, DOWN, "é", ENTER, "q", "u",
    ]  # fmt: skip


def test_the_chosen_row_stays_in_sight_and_what_is_below_is_counted() -> None:
    shown = arranged(rows(picture()), "use")
    view = TopView("use")
    text = screen(view, shown, shown, picture(), (118, 11)).plain
    assert "> alice/etl" in text and "more below" in text and "all others" not in text
    pressed(view, *[DOWN] * 9)
    text = screen(view, shown, shown, picture(), (118, 11)).plain
    assert "> " in text and "all others" in text and "alice/etl" not in text


def test_a_name_cannot_move_the_cursor_and_a_wide_one_keeps_its_columns() -> None:
    use = QuotaUse(PRODUCER.name, "漢字" * 30, "a\x1b[2J", quota=1e6, rate=1e5)
    lines, _ = table(rows(Picture(AT, brokers=(BrokerPicture(1, quotas=(use,)),))), AT, 60)
    assert all("\x1b" not in line.plain and line.cell_len <= 60 for line in lines)


@dataclass
class Screen:
    """A terminal: what is drawn on it, a keyboard, and its size."""

    out: io.StringIO
    console: Console
    keys: int

    async def until(self, shows: Callable[[str], bool]) -> str:
        """Return what was drawn last, once it is as a test wants it."""
        async with asyncio.timeout(60):
            while True:
                text = self.out.getvalue().rpartition("\x1b[H")[2]
                if shows(text):
                    return text
                await asyncio.sleep(0)

    def press(self, keys: str) -> None:
        os.write(self.keys, keys.encode())


@asynccontextmanager
async def terminal(place: Gateway) -> AsyncIterator[Screen]:
    keys, keyboard = pty.openpty()
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=118, height=24, color_system=None)
    try:
        with keys_at_once(keyboard), Live(console=console, screen=True, auto_refresh=False) as live:
            seen = Top(place, picture(), TopView(), 9, 0.0, lambda: AT + 5_000)  # type: ignore[arg-type]
            running = asyncio.ensure_future(seen.run(live, keyboard))
            yield Screen(out, console, keys)
            os.write(keys, b"q")
            await running
    finally:
        os.close(keys)
        os.close(keyboard)


async def test_a_gateway_that_goes_away_is_said_and_its_table_stays_until_it_returns() -> None:
    place = Gateway()
    async with terminal(place) as seen:
        await seen.until(lambda text: "alice/etl" in text and KEYS in text)
        place.answers.put_nowait(StoreError("gateway:1 refused"))
        text = await seen.until(lambda text: "gateway:1 refused" in text)
        assert "No answer since 2027-01-15 08:00:05 UTC, asking again" in text
        assert "alice/etl" in text
        later = replace(picture(), at_ms=AT + 9_000, brokers=())
        place.answers.put_nowait(later)
        text = await seen.until(lambda text: "08:00:09 UTC" in text)
        assert "No answer" not in text and "alice/etl" not in text


async def test_enter_asks_why_at_once_and_the_terminal_may_become_narrower() -> None:
    place = Gateway()
    limits = QuotaTable.of({QuotaEntity.of(user="alice", client_id="etl"): {PRODUCER: 1e6}})
    async with terminal(place) as seen:
        await seen.until(lambda text: "broker" in text)
        place.about = replace(
            picture(), user="alice", client_id="etl", effective=effective_of(limits, "alice", "etl")
        )
        seen.press("\r")
        while ("alice", "etl") not in place.asked:
            if place.answers.empty():  # so that no question about everybody stays under way
                place.answers.put_nowait(picture())
            await asyncio.sleep(0)
        text = await seen.until(lambda text: "alice/etl waits 900 ms more" in text)
        assert "what it sent needs a quota of 1.5 MB/s" in " ".join(text.split())
        seen.press("q")
        await seen.until(lambda text: KEYS in text)
        seen.console.width = 60
        seen.press("n")
        text = await seen.until(lambda text: "Too narrow for" in text)
        assert "broker" in text.partition("Too narrow for")[2]


async def test_an_escape_alone_is_a_key_and_the_beginning_of_an_arrow_is_none() -> None:
    keys, keyboard = pty.openpty()
    found: list[str] = []
    with keys_at_once(keyboard):
        reads = Keyboard(keyboard, found.append)
        for part in (b"\x1b", b"[", b"B", "é".encode()[:1], "é".encode()[1:], b"\x1b"):
            os.write(keys, part)
            reads.read()
        while True:
            if found == [DOWN, "é", ESCAPE]:
                break
            await asyncio.sleep(0)
    os.close(keys)
    os.close(keyboard)
