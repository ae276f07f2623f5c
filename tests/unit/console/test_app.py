"""What stands before every page: roles, CSRF, names we are called by, headers, errors."""

from __future__ import annotations

import asyncio

import pytest

from headgate.console.pages import PAGES
from headgate.wire.messages.live import LiveRequest
from kit.console import HOSTILE, Console


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_a_page_is_for_its_roles_only(console: Console, page: object) -> None:
    if "GET" not in page.methods or page.roles is None:  # type: ignore[attr-defined]
        return
    for role in ("viewer", "operator"):
        status = console.client(role).get(page.path).status_code  # type: ignore[attr-defined]
        assert (status == 403) == (role not in page.roles)  # type: ignore[attr-defined]
    answer = console.client().get(page.path)  # type: ignore[attr-defined]
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/sign-in?next=%2F")


def test_every_answer_forbids_scripts_of_others_and_caching(console: Console) -> None:
    for path in ("/", "/nowhere", "/healthz"):
        headers = console.client("viewer").get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"


def test_a_page_has_nothing_inline_and_its_files_are_cached_for_ever(console: Console) -> None:
    client = console.client("operator")
    text = client.get("/").text
    assert "<style" not in text
    assert " style=" not in text
    assert "<script>" not in text
    sheet = text.split('rel="stylesheet" href="')[1].split('"')[0]
    answer = client.get(sheet)
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    assert client.get("/static/../app.py").status_code == 404


def test_only_by_our_own_names(console: Console) -> None:
    client = console.client("operator")
    assert client.get("/", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/healthz", headers={"host": "10.1.2.3"}).text == "ok\n"


def test_the_kit_knows_a_hostile_name(console: Console) -> None:
    picture = asyncio.run(console.live.live_beside(LiveRequest(HOSTILE, None, 100)))
    assert picture.brokers[0].quotas
    alice = asyncio.run(console.live.live_beside(LiveRequest("alice", None, 100)))
    assert len(alice.brokers[0].quotas) == 4
