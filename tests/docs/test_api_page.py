"""The page of the Python API has every public name; those of the console have every route."""

from __future__ import annotations

import re
from pathlib import Path

import headgate.admin
import headgate.pipeline
from headgate import errors
from headgate.console.pages import PAGES
from kit.http_page import http_page

DOCS = Path(__file__).parents[2] / "docs"
API = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
CONSOLE = (DOCS / "howto" / "console.md").read_text(encoding="utf-8")


def shown(module: str) -> set[str]:
    return set(re.findall(rf"^\.\. auto\w+:: {re.escape(module)}\.(\w+)$", API, re.M))


def test_every_public_name_is_on_the_page() -> None:
    assert shown("headgate.admin") == set(headgate.admin.__all__)
    assert shown("headgate.pipeline") == set(headgate.pipeline.__all__)
    raised = {name for name, e in vars(errors).items() if isinstance(e, type)}
    assert shown("headgate.errors") == {
        name for name in raised if issubclass(getattr(errors, name), errors.HeadgateError)
    }


def test_the_page_of_the_http_api_is_its_table() -> None:
    assert (DOCS / "reference" / "http.md").read_text(encoding="utf-8") == http_page()


def test_every_address_of_the_console_is_on_its_page_with_its_roles() -> None:
    section = CONSOLE.partition("\n## Its addresses\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(GET|POST) (\S+)` \| ([^|]*) \|", section, re.M)
    told = {(method, path): roles.strip() for method, path, roles in rows}
    assert told == {
        (method, page.path): ", ".join(sorted(page.roles)) if page.roles else "anybody"
        for page in PAGES
        for method in page.methods
    }
