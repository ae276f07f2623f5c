"""Who used most: the page, its file, and what each role sees of both."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import pytest

from headgate.console import readings
from headgate.console.api.resource import V1
from headgate.console.app import make_app
from headgate.usage.format import Event
from headgate.usage.sums import JournalSums
from headgate.words import NONE
from kit.console import Console, rows_of, text_of
from kit.journals import traffic, write_journal
from kit.openapi import DOCUMENT, check_answer

NOW = 1_800_000_000_000


@pytest.fixture
def journal(console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A console beside a journal of alice's (payments), bob's (search) and carol's requests."""
    monkeypatch.setattr(readings, "SOON_S", 30.0)
    folder = tmp_path / "journal"
    folder.mkdir()
    _, events = traffic(NOW)
    loud = [replace(event.origin, index=-1, token=None, client_id="y") for event in events[:1]]
    write_journal(folder, [*events, Event(loud[0], NOW - 1_000.0, 5e9, float("inf"), 0, 0, 0, 9)])
    console.now_ms = NOW
    console.parts = replace(console.parts, journal=folder)
    console.app = make_app(console.parts, console.access)
    return folder


def test_the_api_tells_what_the_page_shows(console: Console, journal: Path) -> None:
    operation = DOCUMENT["paths"][f"{V1}/usage"]["get"]
    with console.client("operator") as client:
        answer = client.get(f"{V1}/usage?size=2")
        check_answer(operation, answer)
        told = answer.json()
        [loudest, _] = told["uses"]["rows"]
        assert (loudest["name"], told["uses"]["found"], told["files_read"]) == ("alice", 3, 1)
        assert 5e9 < loudest["produced_bytes"] < told["whole"]["produced_bytes"]
    with console.client("tenant", "search") as client:
        told = client.get(f"{V1}/usage").json()
        assert [row["name"] for row in told["uses"]["rows"]] == ["bob"]
        assert told["whole"]["produced_bytes"] == told["uses"]["rows"][0]["produced_bytes"]
        by_tenant = client.get(f"{V1}/usage?who=tenant")
        check_answer(operation, by_tenant)
        assert (by_tenant.status_code, by_tenant.json()["where"]) == (403, "who")


def test_who_used_most_comes_first_with_its_part_of_all(console: Console, journal: Path) -> None:
    with console.client("operator") as browser:
        page = browser.get("/usage").text
        rows = rows_of(page)
        loudest = re.compile(rf"alice 5 GB 99\.8 % {NONE} {NONE} 3\.03 s in 1.011 requests 33\.7 %")
        assert loudest.fullmatch(rows[0])
        assert "1 to 3 of 3, since 2027-01-15 07:50:0" in text_of(page)  # the journal's beginning
        waits = rows_of(browser.get("/usage?sort=waits").text)
        assert sorted(row.split()[0] for row in waits) == ["alice", "bob", "carol"]
        told = [re.sub(r".* in (\S+) requests.*", r"\1", row) for row in waits]
        counts = [int("".join(filter(str.isdecimal, count))) for count in told]
        assert counts == sorted(counts, reverse=True)
        assert len(rows_of(browser.get("/usage?find=BOB").text)) == 1
        assert "No name matches" in browser.get("/usage?find=nobody").text
        assert (
            'aria-sort="descending"><a href="/usage?sort=waits">'
            in browser.get("/usage?sort=waits").text
        )
        by_tenant = rows_of(browser.get("/usage?who=tenant").text)
        assert {row.split(f" {NONE} ")[0].rsplit(" ", 4)[0] for row in by_tenant} == {
            "payments", "search", "no tenant",
        }  # fmt: skip


@pytest.mark.parametrize("last", ["15m", "1h", "3h", "1d", "7d", "30d"])
def test_a_period_is_chosen_and_kept_in_links(console: Console, journal: Path, last: str) -> None:
    with console.client("viewer") as browser:
        page = browser.get(f"/usage?last={last}&who=user&find=o").text
        assert len(rows_of(page)) == 2  # bob and carol
        assert f'<option value="{last}" selected>' in page
        kept = "" if last == "1h" else f"last={last}&amp;"
        assert f'href="/usage?{kept}who=user&amp;sort=fetched&amp;find=o"' in page
        for odd in ("last=1y&who=all&sort=name&page=0", "page=999", f"page={'9' * 99}"):
            assert len(rows_of(browser.get(f"/usage?{odd}").text)) == 3


def test_a_tenant_sees_its_own_part_alone(console: Console, journal: Path) -> None:
    with console.client("tenant", "payments") as browser:
        page = browser.get("/usage?who=tenant").text  # isn't offered: by quota-id, as usual
        assert [row.split()[0] for row in rows_of(page)] == ["alice"]
        for other in ("bob", "carol", "search", "no tenant"):
            assert other not in text_of(page)
        assert '<option value="tenant"' not in page
        text = browser.get("/usage/file?who=user").text
    assert [row["user"] for row in csv.DictReader(io.StringIO(text))] == ["alice"]


def test_the_file_has_all_rows_and_whole_figures(console: Console, journal: Path) -> None:
    with console.client("operator") as browser:
        answer = browser.get("/usage/file?sort=waits&last=1d")
    assert answer.headers["content-disposition"] == 'attachment; filename="usage-1d.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert {row["user"] for row in rows} == {"alice", "bob", "carol"}
    sent, _ = traffic(NOW)
    bytes_of = {row["user"]: float(row["produced_bytes"]) for row in rows}
    assert sum(bytes_of.values()) == 5e9 + sum(size for *_, size in sent)


def test_a_journal_that_is_not_read_yet_is_asked_for_again(
    console: Console, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "MOST_WAITING", 0)
    with console.client("operator") as browser:
        answer = browser.get("/usage")
        assert answer.headers["refresh"] == "2"
        assert "being read for the first time" in answer.text
        assert browser.get("/usage/file").status_code == 503


def test_a_part_of_the_journal_is_called_one(
    console: Console, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JournalSums, "since", partialmethod(JournalSums.since, most_s=-1.0))
    with console.client("operator") as browser:
        page = browser.get("/usage").text
        assert "0 of 1 files were read so far" in text_of(page)
        assert "/usage/file" not in page
        assert browser.get("/usage/file").status_code == 503


def test_why_nothing_can_be_said(console: Console, journal: Path) -> None:
    (path,) = journal.iterdir()
    path.unlink()
    journal.rmdir()
    for role, tenant, told in (("operator", "", True), ("tenant", "payments", False)):
        with console.client(role, tenant) as browser:
            page = browser.get("/usage").text
        assert "The journal can't be read" in page
        assert (str(journal) in page) == told
    console.parts = replace(console.parts, journal=None)
    console.app = make_app(console.parts, console.access)
    with console.client("operator") as browser:
        answer = browser.get("/usage")
        assert browser.get("/usage/file").status_code == 404
    assert "reads it from a gateway's usage journal" in text_of(answer.text)
    assert "refresh" not in answer.headers
