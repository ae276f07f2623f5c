"""
Find words and turns that this project doesn't use, in docstrings, comments, messages and pages.

    python scripts/words.py [FILE…]

``words.txt`` beside this file is the list. ``make lint`` runs this over all files.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from bisect import bisect
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".txt")

PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
SEARCHED = ("src", "tests", "docs", "bench", "scripts", "examples", "lab", "conftest.py", *PAGES)

# Paths that aren't searched, because they aren't written plainly yet. Don't add any.
LEFT: tuple[str, ...] = ()


class Word(NamedTuple):
    """A pattern of the list, and what to write in its place."""

    pattern: re.Pattern[str]
    instead: str


class Block(NamedTuple):
    """Text that is read as a whole, and the number and position of each of its lines."""

    text: str
    lines: list[int]
    starts: list[int]


def words() -> list[Word]:
    """Return the list."""
    found = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pattern, instead = line.split("\t")
            found.append(Word(re.compile(rf"(?<![\w.-])(?:{pattern})(?![\w-])", re.I), instead))
    return found


def block(lines: list[tuple[int, str]]) -> Block:
    """Join lines, each with its number, to one text without line breaks."""
    text, numbers, starts = "", [], []
    for number, line in lines:
        numbers.append(number)
        starts.append(len(text))
        text += re.sub(r"\s+", " ", line.strip()) + " "
    return Block(text, numbers, starts)


def page_blocks(text: str) -> Iterator[Block]:
    """Yield the paragraphs of a page; code in backquotes is left out."""
    text = re.sub(r"`[^`\n]+`", "``", text)
    paragraph: list[tuple[int, str]] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            paragraph.append((number, line))
        elif paragraph:
            yield block(paragraph)
            paragraph = []


def source_blocks(text: str) -> Iterator[Block]:
    """Yield docstrings and messages (texts with a space in them), then comments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            plain = re.sub(r"`+[^`\n]+`+", "``", node.value)
            yield block(list(enumerate(plain.splitlines(), node.lineno)))
    comments: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if comments and token.start[0] != comments[-1][0] + 1:
                yield block(comments)
                comments = []
            comments.append((token.start[0], token.string.lstrip("#: ")))
    if comments:
        yield block(comments)


def search(name: str, text: str, listed: list[Word]) -> list[str]:
    """
    Return what is found in a file.

    Args:
        name: the file's, by whose ending it is read.
        text: what it holds.
        listed: the words to look for.

    Returns:
        ``FILE:LINE: 'words found' -> what to write``, in the order of lines.
    """
    found = set()
    for whole in source_blocks(text) if name.endswith(".py") else page_blocks(text):
        for word in listed:
            for match in word.pattern.finditer(whole.text):
                line = whole.lines[bisect(whole.starts, match.start()) - 1]
                found.add((line, match.group().strip(), word.instead))
    return [f"{name}:{line}: {what!r} -> {instead}" for line, what, instead in sorted(found)]


def files() -> list[Path]:
    """Return the files that are searched: no recorded data, and not the test of this search."""
    found = []
    for name in SEARCHED:
        top = ROOT / name
        found += [top] if top.is_file() else [*top.rglob("*.py"), *top.rglob("*.md")]
    left_out = (ROOT / "tests" / "data", ROOT / "tests" / "unit" / "scripts" / "test_words.py")
    return sorted(p for p in found if not any(p.is_relative_to(path) for path in left_out))


def main() -> int:
    """Search, print what is found; 1 if anything is."""
    listed = words()
    named = [Path(name).resolve() for name in sys.argv[1:]]
    left = [] if named else [ROOT / path for path in LEFT]
    found = []
    for path in named or files():
        if not any(path.is_relative_to(top) for top in left):
            name = path.relative_to(ROOT).as_posix()
            found += search(name, path.read_text(encoding="utf-8"), listed)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
