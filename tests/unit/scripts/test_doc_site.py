"""The documentation site: where links of pages lead, which pages are listed, which faults found."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from kit.scripts import script


@pytest.fixture
def doc_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a repository of three pages and a picture."""
    module = script("doc_site")
    for name, folder in {"ROOT": "", "DOCS": "docs", "SOURCE": "source", "SITE": "site"}.items():
        monkeypatch.setattr(module, name, tmp_path / folder)
    (tmp_path / "docs" / "howto").mkdir(parents=True)
    (tmp_path / "bench").mkdir()
    index = "# All\n\n## Do\n\n- [Run](howto/run.md#fast), or [run it\n  again](howto/run.md)\n"
    (tmp_path / "docs" / "index.md").write_text(index)
    run = "# Run\n\n[figures](../../bench/README.md#here), [out](https://example.com), [up](#run)\n"
    (tmp_path / "docs" / "howto" / "run.md").write_text(run)
    (tmp_path / "bench" / "README.md").write_text("# Figures\n\n![them](them.png)\n")
    (tmp_path / "bench" / "them.png").write_bytes(b"a picture")
    return module


def test_pages_are_gathered_with_what_they_link_to(doc_site: ModuleType) -> None:
    doc_site.gather()
    source = doc_site.SOURCE
    assert "[figures](../bench/README.md#here)" in (source / "howto" / "run.md").read_text()
    assert "(https://example.com), [up](#run)" in (source / "howto" / "run.md").read_text()
    assert (source / "bench" / "them.png").read_bytes() == b"a picture"
    # A page that the index doesn't name is in no list of pages, and Sphinx is told so.
    assert (source / "bench" / "README.md").read_text().startswith("---\norphan: true\n---\n")
    assert not (source / "howto" / "run.md").read_text().startswith("---")
    listed = ":caption: Do\n\nRun it again <howto/run>\n```\n"
    assert (source / "index.md").read_text().endswith(listed)


def test_links_that_lead_nowhere_and_what_comes_from_elsewhere_are_found(
    doc_site: ModuleType,
) -> None:
    site = doc_site.SITE
    site.mkdir()
    (site / "a.html").write_text('<a href="b.html#there"></a><a id="here" href="#here"></a>')
    (site / "b.html").write_text('<p id="there"></p><a href="https://example.com/"></a>')
    assert doc_site.faults() == []
    (site / "c.html").write_text(
        '<script src="https://example.com/x.js"></script>'
        '<a href="d.html"></a><a href="b.html#no"></a>'
    )
    assert doc_site.faults() == [
        "c.html loads https://example.com/x.js from elsewhere",
        "c.html links to d.html, which isn't there",
        "c.html links to b.html#no, where there is no such anchor",
    ]
