"""Pages Change, Plan and Raises as people meet them: by keyboard alone, on a phone, in the dark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from headgate.console import raises
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from kit.console import HOSTILE, Console, make_console
from kit.journals import traffic, write_journal
from kit.served_console import SCHEMES, WIDTHS, by_keyboard, looking, served, sticks_out, violations

pytestmark = pytest.mark.browser

FILE = "quotas:\n- entity: {user: alice}\n  producer_byte_rate: 3MB/s\n"
ALICE = QuotaEntity.of(user="alice")


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    monkeypatch.setattr(raises, "drawn", count(1).__next__)
    made = make_console(tmp_path)
    journal = tmp_path / "journal"
    journal.mkdir()
    users = ("alice", "bob", HOSTILE)
    now = made.parts.clock_ms()
    write_journal(journal, traffic(now, users=users, client_ids=("app-0", "app-1"))[1])
    made.parts = replace(made.parts, journal=journal)
    yield made
    made.close()


def press(page: Page, name: str) -> None:
    by_keyboard(page, name)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def write(page: Page, name: str, text: str) -> None:
    by_keyboard(page, name)
    page.keyboard.press("Control+a")
    page.keyboard.type(text)


VALUE = "Value: 10MB/s, 512KiB/s, 50%, 20/s, or a plain number"
REASON = "Reason, for the history"


@pytest.mark.short
def test_a_quota_is_changed_and_taken_back_by_keyboard(browser: Browser, console: Console) -> None:
    with served(console.parts) as url, looking(browser, "operator") as page:
        page.goto(f"{url}/change")
        by_keyboard(page, "Name")
        page.keyboard.type("alice")
        write(page, VALUE, "2MB/s")
        press(page, "Preview")
        expect(page.get_by_role("heading", name="Who is affected")).to_be_visible()
        expect(page.get_by_role("cell", name="2 MB/s").first).to_be_visible()
        write(page, REASON, "a new feed")
        press(page, "Make this change")
        expect(page.get_by_role("status")).to_contain_text("Done.")
        assert console.store.snapshot().get(ALICE, PRODUCER) == 2e6
        press(page, "Undo it")
        press(page, "Take it back")
        expect(page.get_by_role("status")).to_contain_text("Done.")
        assert console.store.snapshot().get(ALICE, PRODUCER) is None


def test_a_file_is_applied_by_keyboard(browser: Browser, console: Console) -> None:
    with served(console.parts) as url, looking(browser, "operator") as page:
        page.goto(f"{url}/plan")
        # The dialogue of files is the browser's own.
        file = {"name": "quotas.yaml", "mimeType": "text/yaml", "buffer": FILE.encode()}
        page.set_input_files("#file", file)
        press(page, "Show what it would change")
        write(page, REASON, "review 7")
        press(page, "Apply this file")
        expect(page.get_by_role("status")).to_contain_text("Applied.")
        assert console.store.snapshot().get(ALICE, PRODUCER) == 3e6


def test_a_raise_is_asked_for_and_granted_by_keyboard(browser: Browser, console: Console) -> None:
    with served(console.parts) as url:
        with looking(browser, "tenant", "payments") as page:
            page.goto(f"{url}/raises")
            write(page, VALUE, "2MB/s")
            write(page, "Reason", "a new feed")
            press(page, "Ask")
            expect(page.get_by_role("heading", name="Raise 1")).to_be_visible()
        with looking(browser, "operator") as page:
            page.goto(f"{url}/raises")
            press(page, "Raise 1")
            write(page, "Grant this value, or another", "1.5MB/s")
            press(page, "Preview")
            write(page, REASON, "as far as it goes")
            press(page, "Grant it")
            expect(page.get_by_text("as far as it goes")).to_be_visible()
    assert console.store.snapshot().get(ALICE, PRODUCER) == 1.5e6


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_and_keep_nobody_out(
    browser: Browser, console: Console, width: int, scheme: str
) -> None:
    size = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}

    def look(page: Page) -> None:
        assert violations(page) == [], page.url
        assert sticks_out(page) <= 0, page.url
        if width < 640:  # a phone shows each row whole: nobody has to look for *Undo*
            hidden = "t => t.parentElement.scrollWidth - t.parentElement.clientWidth"
            tables = page.locator("table.stack").all()
            assert [table.evaluate(hidden) for table in tables] == [0] * len(tables), page.url

    with served(console.parts) as url:
        with looking(browser, "tenant", "payments", **size) as page:
            page.goto(f"{url}/tokens")
            page.fill("#label", HOSTILE.partition("\n")[0] * 2)
            page.get_by_role("button", name="Make a token").click()
            expect(page.locator("#token")).to_contain_text("headgate_")
            # One in which no line can be broken at a hyphen.
            page.locator("#token").evaluate("t => t.textContent = 'headgate_' + 'x'.repeat(43)")
            look(page)
            page.goto(f"{url}/raises")
            look(page)
            page.fill("#value", "2MB/s")
            page.fill("#reason", HOSTILE)
            page.get_by_role("button", name="Ask").click()
            look(page)
        with looking(browser, "operator", **size) as page:
            entity = QuotaEntity.of(user=HOSTILE).path.replace("%", "%25")
            for path in (
                "/change",
                f"/change?entity={entity}",
                "/plan",
                "/raises",
                "/raises/one?id=1",
            ):
                page.goto(f"{url}{path}")
                look(page)
            page.get_by_role("button", name="Preview").click()
            look(page)
            page.goto(f"{url}/change")
            page.select_option("#user-is", "any")
            page.fill("#value", "9kB/s")
            page.get_by_role("button", name="Preview").click()
            expect(page.get_by_role("heading", name="What it would have done")).to_be_visible()
            look(page)
            assert page.locator("script").count() == 0
