"""
The page that is shown after signing in: always one of ours, whatever the link says.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

HOME: Final = "/"
_MOST: Final = 2_000
_MOST_DECODINGS: Final = 5


def next_page(text: str) -> str:
    """
    Return the path if it is one of ours after decoding, however often it was encoded; else "/".

    Args:
        text: the query parameter ``next``, as the framework decoded it.
    """
    if len(text) > _MOST or not text.isprintable():
        return HOME
    seen = text
    for _ in range(_MOST_DECODINGS):
        if not _is_ours(seen):
            return HOME
        decoded = unquote(seen, errors="replace")
        if decoded == seen:
            return text
        seen = decoded
    return HOME


def _is_ours(text: str) -> bool:
    if not text.startswith("/") or text.startswith(("//", "/sign-")):
        return False
    # Browsers take a backslash for a slash, and drop tabs and line ends.
    path = text.partition("?")[0].partition("#")[0]
    if "\\" in path or "//" in path or not path.isprintable():
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return not parts.scheme and not parts.netloc
