"""The list of words that prose here doesn't use, and the search for them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from kit.scripts import script

ROOT = Path(__file__).resolve().parents[3]

SOURCE = '''\
"""Split a frame among workers."""

WELL_KNOWN = "whoever"  # a value; its comment says: whoever reads this


def read(path: str) -> str:
    """
    Read a file that nobody cut: a file is
    cut into pieces elsewhere.
    """
    raise ValueError(f"{path}: it goes by the store")
'''


@pytest.fixture(scope="module")
def words() -> ModuleType:
    return script("words")


def test_docstrings_comments_and_messages_are_searched_but_values_are_not(
    words: ModuleType,
) -> None:
    found = words.search("some.py", SOURCE, words.words())
    assert [line.split(" -> ")[0] for line in found] == [
        "some.py:3: 'whoever'",
        "some.py:8: 'is cut'",
        "some.py:9: 'cut into'",
        "some.py:11: 'goes by'",
    ]
    assert all(line.split(" -> ")[1] for line in found)


def test_a_turn_is_found_across_the_end_of_a_line_of_a_page_but_not_in_its_code(
    words: ModuleType,
) -> None:
    page = "# Title\n\nEach broker decides by\nitself.\n\n`what there is`\n"
    found = words.search("page.md", page, words.words())
    assert [line.split(" -> ")[0] for line in found] == ["page.md:3: 'by itself'"]


def test_plain_words_pass(words: ModuleType) -> None:
    page = (
        "# Who used what\n\nAn operator who restarts a broker waits. A file is split into pieces; "
        "one that was cut off is set aside. So many requests came that the broker muted them.\n"
    )
    assert words.search("page.md", page, words.words()) == []


def test_every_word_of_the_list_has_advice_and_stands_there_once(words: ModuleType) -> None:
    listed = words.words()
    assert len(listed) > 20
    assert all(word.instead for word in listed)
    assert len({word.pattern for word in listed}) == len(listed)


def test_the_lint_searches_all_but_what_is_left_and_tells_where(
    words: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    for name in ("src/new/one.py", "src/old/one.py", "docs/page.md", "tests/data/recorded.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("# whoever\n", encoding="utf-8")
    monkeypatch.setattr(words, "ROOT", tmp_path)
    monkeypatch.setattr(words, "SEARCHED", ("src", "docs", "tests"))
    monkeypatch.setattr(words, "LEFT", ("src/old",))
    monkeypatch.setattr(sys, "argv", ["words.py"])
    assert words.main() == 1
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in printed] == ["docs/page.md:1", "src/new/one.py:1"]
