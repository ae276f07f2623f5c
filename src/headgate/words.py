"""
Say numbers in words: bytes, rates, durations, shares, moments; and show names without harm.

Decimal units, as Kafka's.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final

NONE = "\u2013"
"""Shown in place of a missing value."""

_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

_KEYS: Final[Mapping[str, tuple[str, str]]] = {
    "producer_byte_rate": ("B/s", "produce"),
    "consumer_byte_rate": ("B/s", "fetch"),
    "request_percentage": ("%", "request time"),
    "controller_mutation_rate": ("partitions/s", "mutations"),
    "producer_ids_rate": ("ids/s", "producer ids"),
    "connection_creation_rate": ("connections/s", "connections"),
    "producer_byte_rate:bps": ("B/s", "produce, all brokers"),
    "consumer_byte_rate:bps": ("B/s", "fetch, all brokers"),
    "producer_byte_rate:shares": ("shares", "produce, by shares"),
    "consumer_byte_rate:shares": ("shares", "fetch, by shares"),
}
"""Of each quota key: what its values are counted in, and what it limits."""


def unit_of(key: str) -> str:
    """Return what a quota key's values are counted in: ``B/s``."""
    return _KEYS.get(key, ("/s", key))[0]


def what_of(key: str) -> str:
    """Return what a quota key limits: ``produce``."""
    return _KEYS.get(key, ("/s", key))[1]


def figures(value: float) -> str:
    """Return three significant figures, or all before the point: ``1.05``, ``12.3``, ``1050``."""
    if not math.isfinite(value):
        return "∞" if value > 0 else NONE
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(digits, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def amount(value: float | None, unit: str) -> str:
    """Return a quantity with its unit, scaled where the unit is bytes: ``1.05 MB/s``."""
    if value is None:
        return "no limit" if unit.endswith("/s") or unit == "%" else NONE
    if unit.startswith("B"):
        for size, prefix in _STEPS:
            if abs(value) >= size:
                return f"{figures(value / size)} {prefix}{unit}"
    return f"{figures(value)} {unit}"


def count(value: float | None) -> str:
    """Return a whole number with thin spaces: ``12 000``."""
    return NONE if value is None else f"{value:,.0f}".replace(",", "\u202f")


def share(value: float | None) -> str:
    """Return a share as a percentage: ``98.4 %``."""
    return NONE if value is None else f"{figures(value * 100)}\u00a0%"


def duration(ms: float | None) -> str:
    """Return a length of time: ``0``, ``340 ms``, ``12.3 s``, ``4 min 5 s``, ``3 h 20 min``."""
    if ms is None:
        return NONE
    if ms == 0:
        return "0"
    if ms < 1000:
        return f"{figures(ms)} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{figures(seconds)} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if seconds < 172_800:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{figures(seconds / 86_400)} days"


def near_names(name: str, known: Iterable[str], most: int = 3) -> str:
    """Return ``; did you mean alice?`` for the end of a message; "" if no name is near."""
    spelled: dict[str, str] = {}
    for other in known:
        spelled.setdefault(other.casefold(), other)
    found = get_close_matches(name.casefold(), spelled, most, 0.6)
    return f"; did you mean {' or '.join(spelled[near] for near in found)}?" if found else ""


def users_listed(name: str) -> list[str]:
    """
    Return the users that a user's name reads as; only itself, if it doesn't look like a list.

    Args:
        name: as Kafka has it, without its type; in lists of principals only semicolons divide.
    """
    return [each.strip() for each in re.split(r",\s*(?:User|user):", name)]


def moment(ms: int) -> str:
    """Return a moment in UTC: ``2026-11-21 14:34:29 UTC``."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def moment_ms(text: str) -> float:
    """
    Return a moment that people write (ISO 8601; UTC where it names no zone), epoch ms.

    Raises:
        ValueError: it isn't one.
    """
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000


# Control and format characters (C0, C1, bidi overrides, zero width), line and paragraph
# separators, lone surrogates and unassigned code points: what can move a cursor, recolour or
# forge a line. Private use (Co) prints as a box at worst.
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""
    Return text with everything a terminal might obey spelled out.

    Args:
        text: any text, such as the name of an entity somebody else chose.

    Returns:
        The text; each control or format character as ``\x1b`` or ``\u202e``. Letters of any
        script stay as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) for char in text)


def _escape(char: str) -> str:
    if unicodedata.category(char) not in _UNSAFE_CATEGORIES:
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
