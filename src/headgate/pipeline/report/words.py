"""Say numbers in words: bytes, rates, durations, shares, moments. Decimal units, as Kafka's."""

from __future__ import annotations

import math
from datetime import UTC, datetime

NONE = "\u2013"
"""What stands where there is nothing to say."""

_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def figures(value: float) -> str:
    """Return three significant figures without a trailing zero: ``1.05``, ``12.3``, ``105``."""
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


def moment(ms: int, *, seconds: bool = True) -> str:
    """Return a moment in UTC: ``2026-11-21 14:34:29 UTC``."""
    form = "%Y-%m-%d %H:%M:%S UTC" if seconds else "%Y-%m-%d"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
