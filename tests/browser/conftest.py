"""A headless Chromium for tests, one browser per run, one page per test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from headgate.embedded.cache import cache_dir

# Without these Chromium calls out at every start, and needs privileges that a container lacks.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Playwright itself waits 5 s for what is expected and 30 s for the rest.
PATIENCE_MS = 180_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")  # no longer: while playwright runs, no asyncio test can
def browser() -> Iterator[Browser]:
    places = (
        os.environ.get("HEADGATE_CHROMIUM"),
        os.environ.get("CHROMIUM"),
        *map(shutil.which, ("chromium", "chromium-browser", "google-chrome-stable")),
        str(cache_dir() / "chromium" / "chromium"),
    )
    found = next((place for place in places if place and Path(place).exists()), None)
    assert found, "no Chromium; `make browser` installs one, HEADGATE_CHROMIUM names one"
    unpacked = sorted((cache_dir() / "chromium/root/usr/lib").glob("*-linux-gnu"))
    if unpacked:  # Playwright's driver may need some of it
        os.environ["LD_LIBRARY_PATH"] = ":".join(map(str, unpacked))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=list(FLAGS), timeout=PATIENCE_MS
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page; at its end no script may have failed and nothing may have been fetched."""
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console", lambda message: wrong.append(message.text) if message.type == "error" else None
    )
    yield page
    context.close()
    assert wrong == []
