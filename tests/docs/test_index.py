"""Every page of the docs is reached from the index."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md") if p.name != "index.md")


@pytest.mark.parametrize("page", PAGES)
def test_the_index_leads_to_every_page(page: str) -> None:
    assert f"({page})" in (DOCS / "index.md").read_text(encoding="utf-8").replace("\n  ", " ")
