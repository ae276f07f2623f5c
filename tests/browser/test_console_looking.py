"""Now, Tenant and Why as people meet them: live, by keyboard, on a phone, with names of others."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, expect

from headgate.console import events
from headgate.live.picture import ClientUse
from kit.console import HOSTILE, Console, make_console
from kit.journals import traffic, write_journal
from kit.served_console import (
    SCHEMES,
    WIDTHS,
    by_keyboard,
    looking,
    served,
    sticks_out,
    violations,
)

pytestmark = pytest.mark.browser

LONG = "a-name-" * 4_500
PAGES = (
    "/",
    "/tenant",
    "/tenant?user=alice",
    "/tenant?user=alice&client-id=app-0",
    "/why",
    "/why?user=alice&client-id=shared",
    "/quotas?sort=waits",
    "/usage?sort=waits",
)


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    made = make_console(tmp_path)
    folder = tmp_path / "journal"
    folder.mkdir()
    _, events = traffic(made.now_ms, users=("alice", "bob", HOSTILE, LONG))
    write_journal(folder, events)
    made.parts = dataclasses.replace(made.parts, journal=folder)
    yield made
    made.close()


def throttle(console: Console, user: str, rate: float) -> None:
    """Let a quota-id of this user be held from now on."""
    broker = console.live.shown.brokers[0]
    first, *rest = broker.quotas
    use = replace(first, user=user, client_id="etl", rate=rate, clients=())
    console.live.shown = replace(
        console.live.shown,
        at_ms=console.live.shown.at_ms + 1_000,
        brokers=(replace(broker, quotas=(use, *rest)),),
    )


@pytest.mark.short
def test_now_changes_without_a_reload_and_keeps_the_focus(
    browser: Browser, console: Console
) -> None:
    with served(console.parts) as url, looking(browser, "viewer") as page:
        page.goto(url)
        expect(page.get_by_role("status")).to_have_text("Live")
        expect(page.locator("#mark-at")).to_have_text("2027-01-15 08:00:00 UTC")
        page.evaluate("window.same = true")
        link = page.get_by_role("link", name="bob · shared")
        link.focus()
        throttle(console, "carol", 3e6)
        expect(page.get_by_role("link", name="carol · etl")).to_be_visible()
        expect(page.locator("#mark-at")).to_have_text("2027-01-15 08:00:01 UTC")
        expect(link).to_be_focused()
        assert page.evaluate("window.same")
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("status")).to_have_text("Paused, last seen")
        throttle(console, "dave", 3e6)
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_role("link", name="dave · etl")).to_be_visible()


def test_what_was_opened_stays_open_and_keeps_the_focus(browser: Browser, console: Console) -> None:
    def later() -> None:
        console.live.shown = replace(console.live.shown, at_ms=console.live.shown.at_ms + 1_000)

    with served(console.parts) as url, looking(browser, "operator") as page:
        page.goto(f"{url}/tenant?user=alice&client-id=shared")
        expect(page.get_by_role("status")).to_have_text("Live")
        part = page.locator("details[data-keep]").first
        part.locator("summary").click()
        part.locator("summary").focus()
        for second in (1, 2):
            later()
            expect(page.locator("#mark-at")).to_have_text(f"2027-01-15 08:00:0{second} UTC")
            expect(part).to_have_attribute("open", "")
            expect(part.locator("summary")).to_be_focused()
        part.locator("summary").press("Enter")
        later()
        expect(page.locator("#mark-at")).to_have_text("2027-01-15 08:00:03 UTC")
        expect(part).not_to_have_attribute("open", "")


def test_a_lost_line_is_said_and_mends_itself(browser: Browser, console: Console) -> None:
    with looking(browser, "viewer", errors=True) as page:
        with served(console.parts) as url:
            page.goto(url)
            expect(page.get_by_role("status")).to_have_text("Live")
        expect(page.get_by_role("status")).to_have_text("Not live, last seen")
        expect(page.locator("#mark-at")).to_have_text("2027-01-15 08:00:00 UTC")
        throttle(console, "carol", 3e6)
        with served(console.parts, int(url.rpartition(":")[2])):
            expect(page.get_by_role("status")).to_have_text("Live")
            expect(page.get_by_role("link", name="carol · etl")).to_be_visible()
            page.goto("about:blank")


def test_a_stream_that_ends_is_opened_again_unnoticed(
    browser: Browser, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LIFE_S", 0.1)
    with served(console.parts) as url, looking(browser, "viewer") as page:
        page.goto(url)
        page.evaluate(
            """() => { window.said = new Set();
              const [mark, state] = ['mark', 'mark-state'].map(id => document.getElementById(id));
              new MutationObserver(() => said.add(state.textContent))
                .observe(mark, { subtree: true, childList: true }); }"""
        )
        for number in range(3):
            throttle(console, f"user-{number}", 3e6)
            expect(page.get_by_role("link", name=f"user-{number} · etl")).to_be_visible()
        assert page.evaluate("[...said].filter(text => !['', 'Live'].includes(text))") == []


def test_without_script_it_is_a_plain_page(browser: Browser, console: Console) -> None:
    with (
        served(console.parts) as url,
        looking(browser, "viewer", java_script_enabled=False) as page,
    ):
        page.goto(url)
        expect(page.get_by_role("status")).to_have_text("As of")
        expect(page.get_by_role("button", name="Pause")).to_be_hidden()
        page.get_by_role("searchbox").fill("tenant-0003")
        page.get_by_role("button", name="Find").click()
        expect(page.locator("table.uses tbody tr")).to_have_count(3)


@pytest.mark.short
def test_by_keyboard_from_who_is_throttled_to_why(browser: Browser, console: Console) -> None:
    with served(console.parts) as url, looking(browser, "operator") as page:
        page.goto(url)
        by_keyboard(page, "Find a user, client-id, address or kind of quota")
        page.keyboard.type("alice")
        expect(page.locator("table.uses").nth(1).locator("tbody tr")).to_have_count(2)
        expect(page).to_have_url(re.compile(r"\?find=alice$"))
        by_keyboard(page, "alice · app-0")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="alice · app-0", exact=True)).to_be_visible()
        by_keyboard(page, "Why")  # of the navigation
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Why", exact=True)).to_be_visible()
        by_keyboard(page, "Principal")
        page.keyboard.type("alice")
        page.keyboard.press("Tab")
        page.keyboard.type("app-0")
        page.keyboard.press("Enter")
        expect(page.locator(".answer")).to_have_text(re.compile("^alice/app-0 waits 900 ms more"))
        expect(page.locator(".ladder .applies")).to_contain_text("user alice, client-id app-0")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_pages_are_for_everybody_and_fit(browser: Browser, console: Console, scheme: str) -> None:
    throttle(console, "carol", 3e6)
    with served(console.parts) as url, looking(browser, "viewer", color_scheme=scheme) as page:
        for path in PAGES:
            page.goto(url + path)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                assert sticks_out(page) <= 0, (path, width)
                assert violations(page) == [], (path, width)
    with served(console.parts) as url, looking(browser, "tenant", "payments") as page:
        for path in PAGES[1:]:
            page.goto(url + path)
            assert violations(page) == [], path


def test_names_of_others_harm_nothing(browser: Browser, console: Console) -> None:
    broker = console.live.shown.brokers[0]
    uses = [
        replace(use, user=name, client_id=name, clients=(ClientUse(name, name, 1, 1),))
        for use, name in zip(broker.quotas, (HOSTILE, LONG), strict=False)
    ]
    console.live.shown = replace(console.live.shown, brokers=(replace(broker, quotas=tuple(uses)),))
    where = f"user={quote(HOSTILE)}&client-id={quote(HOSTILE)}"
    with served(console.parts) as url, looking(browser, "viewer") as page:
        asked: list[str] = []
        page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
        page.set_viewport_size({"width": 390, "height": 900})
        for path in (
            "/",
            "/tenant",
            f"/tenant?{where}",
            f"/why?{where}",
            f"/?find={quote(HOSTILE)}",
            f"/quotas?find={quote(HOSTILE)}",
            f"/usage?find={quote(HOSTILE[:9])}",
        ):
            page.goto(url + path)
            if page.locator("#mark").count():
                expect(page.get_by_role("status")).to_have_text("Live")
            expect(page.locator("main")).to_contain_text("<script>alert")
            assert "\u202e" not in page.locator("main").inner_text()
            assert sticks_out(page) <= 0, path
        page.goto(url)
        page.get_by_role("link", name="<script>").first.click()
        expect(page.locator("h1")).to_contain_text("\\x0a\\u202eecila · ")
        assert asked == []


def test_a_tenants_live_update_names_nobody_else(browser: Browser, console: Console) -> None:
    with served(console.parts) as url, looking(browser, "tenant", "payments") as page:
        page.goto(f"{url}/tenant?user=alice&client-id=shared")
        expect(page.get_by_role("status")).to_have_text("Live")
        expect(page.locator("#live")).to_contain_text("up to 1.25 MB/s of 1 MB/s, with others")
        text = page.evaluate(
            """async () => { const source = new EventSource(location.href);
              return await new Promise(done => source.onmessage = e => done(e.data)); }"""
        )
        assert "alice" in text
        assert "bob" not in text
