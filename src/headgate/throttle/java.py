"""
Java's number rules where Kafka's answers depend on them: rounding, casts, limits.

Source: java.lang.Math.round, the Java Language Specification 5.1.3 (narrowing).
"""

from __future__ import annotations

from math import floor, inf
from typing import Final

LONG_MAX: Final = 9223372036854775807
LONG_MIN: Final = -9223372036854775808
INT_MAX: Final = 2147483647
UNLIMITED: Final = 9223372036854775807.0
"""The bound of tags without a quota: Long.MAX_VALUE as a double (9.223372036854776E18)."""
DOUBLE_MAX: Final = 1.7976931348623157e308


def java_round(value: float) -> int:
    """
    Round to the nearest whole number, ties towards positive infinity, as Math.round does.

    Args:
        value: any double; NaN gives 0, values beyond a long give the long's limit.

    Returns:
        A number within Java's long.

    ``floor(value + 0.5)`` would be wrong for 0.49999999999999994, ``round`` for ties.
    """
    if -4503599627370496.0 < value < 4503599627370496.0:  # 2^52: a fraction is possible
        whole = floor(value)
        return whole + 1 if value - whole >= 0.5 else whole
    if value != value:
        return 0
    if value >= UNLIMITED:
        return LONG_MAX
    return LONG_MIN if value <= -UNLIMITED else int(value)


def to_int32(value: int) -> int:
    """Keep the low 32 bits as a signed number: Java's ``(int)`` of a long."""
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def divide(numerator: float, denominator: float) -> float:
    """Divide as Java does: by zero gives an infinity or NaN, never an error."""
    if denominator:
        return numerator / denominator
    if not numerator or numerator != numerator:
        return float("nan")
    return inf if numerator > 0 else -inf
