"""
Build docs/explanation/differences.md from the `# Differs:` marks in the code.

    python tests/docs/differences.py docs/explanation/differences.md
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "headgate"

ROOMS = {
    "quota": "Quotas: what may be set",
    "throttle": "Throttling: when and how long",
    "kernel": "Replay",
    "wire": "The wire",
    "store": "Stores",
    "admin": "Administration",
    "client": "TLS",
    "gateway": "The gateway",
    "usage": "The usage journal",
    "pipeline": "The pipeline",
    "metrics": "Metrics",
    "config": "Settings",
    "cli": "Command lines",
    "console": "The console",
    "embedded": "The embedded Kafka",
}

HEAD = """\
# Where Headgate differs from Kafka

Headgate follows Apache Kafka to the bit, and where it deliberately doesn't, the code is marked
`# Differs:`. This page is built from those marks (`python tests/docs/differences.py
docs/explanation/differences.md`), so no mark is missing: a test compares. The pages on
[KIP-55](kip-55.md), [KIP-546](kip-546.md), [KIP-612](kip-612.md) and [KIP-936](kip-936.md) tell the
reasons.
"""


def marks(path: Path) -> list[tuple[int, str]]:
    """Return (line, text) of every mark in a file; following comment lines belong to it."""
    text = path.read_text("utf-8")
    if "Differs:" not in text:
        return []
    comments: dict[int, tuple[int, str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = (token.start[1], token.string[1:].strip())
    found = []
    for line in sorted(comments):
        column, text = comments[line]
        if not text.startswith("Differs:"):
            continue
        parts = [text.removeprefix("Differs:").strip()]
        after = line + 1
        while after in comments and comments[after][0] == column:
            if comments[after][1].startswith(("Differs:", "Source:")):
                break
            parts.append(comments[after][1])
            after += 1
        found.append((line, " ".join(parts)))
    return found


def page() -> str:
    """Return the page."""
    rooms: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for _, text in marks(path):
            text = re.sub(r"\s+", " ", text)
            text = text[:1].upper() + text[1:]
            where = path.relative_to(SOURCE).as_posix()
            rooms.setdefault(room, []).append(f"- {text} `{where}`")
    parts = [HEAD]
    for room, title in ROOMS.items():
        if room in rooms:
            parts.append(f"## {title}\n\n" + "\n".join(rooms.pop(room)) + "\n")
    assert not rooms, f"packages without a title: {sorted(rooms)}"
    return "\n".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
