"""
Numbers, hashes, blanks and the order of Properties as Java has them; Kafka's tools show them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

# Java's String.trim drops every character up to the space (U+0020).
JAVA_BLANK: Final = "".join(map(chr, range(33)))

_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?", re.ASCII)
_HEX = re.compile(
    r"([+-]?)0[xX](?:([0-9a-fA-F]+)\.?|([0-9a-fA-F]*)\.([0-9a-fA-F]+))[pP]([+-]?\d+)[fFdD]?",
    re.ASCII,
)
_WORDS: Mapping[str, float] = {
    f"{sign}{word}": float(f"{sign or '+'}{value}")
    for sign in ("", "+", "-")
    for word, value in (("NaN", "nan"), ("Infinity", "inf"))
}

Number = int | float | Literal["Infinity", "-Infinity", "NaN"] | None
"""A quota's value in JSON, which has no infinity: its name stands for it. None: no value."""
_NAMES: Final[Mapping[str, Literal["Infinity", "-Infinity", "NaN"]]] = {
    "inf": "Infinity",
    "-inf": "-Infinity",
    "nan": "NaN",
}


def finite(value: float | None) -> Number:
    """Return a number for JSON: infinities and NaN as the names that Java has for them."""
    return value if value is None or math.isfinite(value) else _NAMES[str(value)]


def to_double(text: str) -> float:
    """
    Read a number as Java does: ``1e3``, ``0x1p3``, ``NaN``, ``Infinity``, ``5d``, blanks around.

    Raises:
        ValueError: Java would throw NumberFormatException.

    Source: java.lang.Double.valueOf(String).
    """
    body = text.strip(JAVA_BLANK)
    if body in _WORDS:
        return _WORDS[body]
    if _DECIMAL.fullmatch(body):
        return float(body.rstrip("fFdD"))
    match = _HEX.fullmatch(body)
    if match:
        sign, whole, left, right, exponent = match.groups()
        digits = f"{whole}." if whole is not None else f"{left or '0'}.{right}"
        try:
            return float.fromhex(f"{sign}0x{digits}p{exponent}")
        except OverflowError:
            return float("-inf" if sign == "-" else "inf")
    raise ValueError(text)


def java_double(value: float) -> str:
    """
    Return a number as ``Double.toString`` prints it: ``1024.0``, ``1.048576E7``, ``1.0E-4``.

    Args:
        value: any double.

    Source: java.lang.Double.toString (JDK 19 and later: the shortest decimal that reads back).
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    magnitude = abs(value)
    if magnitude == 0:
        return sign + "0.0"
    shortest = repr(magnitude)
    if len(shortest.partition("e")[0].replace(".", "").strip("0")) == 1:
        # Java prints two digits at least, and of those the nearest: 4.9E-324, not 5.0E-324.
        two_digits = f"{magnitude:.1e}"
        shortest = two_digits if float(two_digits) == magnitude else shortest
    mantissa, _, exponent = shortest.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # value = 0.DIGITS * 10**point
    point = int(exponent or 0) + len(whole)
    if whole == "0":
        point -= len(fraction) - len(fraction.lstrip("0")) + 1
    digits = digits.rstrip("0") or "0"
    if 1e-3 <= magnitude < 1e7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        padded = digits.ljust(point, "0")
        return f"{sign}{padded[:point]}.{padded[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def java_hash(text: str) -> int:
    """Return String.hashCode, unsigned."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value


def properties_order(keys: Iterable[str]) -> list[str]:
    """
    Return keys in the order in which Java's Properties yields them.

    A ConcurrentHashMap of capacity 8 has 16 bins, and doubles when three quarters are used; within
    a bin the earlier stays first.

    Source: java.util.Properties; ConcurrentHashMap.spread, tableSizeFor.
    """
    listed = list(dict.fromkeys(keys))
    bins = 16
    while len(listed) >= bins * 3 // 4:
        bins *= 2
    return sorted(listed, key=lambda key: java_bucket(key, bins))


def java_bucket(key: str, buckets: int) -> int:
    """Return a key's bucket in Java's hash maps, which have 16 of them or another power of two."""
    code = java_hash(key)
    return (code ^ (code >> 16)) & (buckets - 1)
