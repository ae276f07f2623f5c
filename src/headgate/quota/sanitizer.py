"""
Names made safe for paths, metric tags and print, exactly as Kafka's Sanitizer does it.

Source: org.apache.kafka.common.utils.Sanitizer (java.net.URLEncoder, then ``*`` and ``+``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from headgate.errors import InvalidQuota

_HEX = frozenset("0123456789abcdefABCDEF")
_REMEMBERED_LENGTH: Final = 256
"""Longer names are encoded each time: remembering them would take memory without bound."""


def sanitize(name: str) -> str:
    """
    Percent-encode a name as Kafka does.

    Only ``A-Z a-z 0-9 . - _`` stay; ``~`` is escaped (unlike ``urllib``), a space is ``%20``, an
    unpaired surrogate becomes ``%3F``.

    Args:
        name: a principal's name or a client-id, raw.

    Returns:
        The encoded name; ``<default>`` as a real name becomes ``%3Cdefault%3E``.

    Source: Sanitizer.sanitize.
    """
    return _remembered(name) if len(name) <= _REMEMBERED_LENGTH else _sanitize(name)


def _sanitize(name: str) -> str:
    data = name.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if data != name:  # an unpaired surrogate: Java's encoder writes '?'
        data = "".join("?" if "\ud800" <= c <= "\udfff" else c for c in name)
    return quote(data, safe="").replace("~", "%7E")


_remembered = lru_cache(4_096)(_sanitize)


def desanitize(name: str) -> str:
    """
    Decode what :func:`sanitize` encoded, with Java's URLDecoder's own habits.

    Args:
        name: an encoded name; ``+`` becomes a space, invalid UTF-8 becomes U+FFFD.

    Returns:
        The raw name.

    Raises:
        InvalidQuota: a ``%`` isn't followed by two hexadecimal digits.

    Source: Sanitizer.desanitize; java.net.URLDecoder.
    """
    start = name.find("%")
    while start >= 0:
        pair = name[start + 1 : start + 3]
        if len(pair) < 2 or not _HEX.issuperset(pair):
            raise InvalidQuota(
                f"{name!r} isn't an encoded name: '%' at position {start} isn't followed by two "
                "hexadecimal digits; write a literal '%' as %25"
            )
        start = name.find("%", start + 3)
    return unquote_to_bytes(name.replace("+", " ")).decode("utf-8", "replace")
