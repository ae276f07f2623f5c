"""
Values as people write them: ``10MB/s``, ``512 KiB/s``, ``50%``, ``20/s``.

kB, MB, GB and TB are powers of 1,000 (SI), as networks are sold and as our own tools print them;
KiB, MiB, GiB and TiB are powers of 1,024 (IEC). A bare ``K``, ``M`` or ``G`` could be either, and
small b is a bit: both are refused.
"""

from __future__ import annotations

import math
import re
from typing import Final

from headgate.quota.key import QuotaKey, QuotaUnit, format_value

_BYTES: Final = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGT", 1)},
    "KB": 1000,
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
}
_FORM: Final = re.compile(r"([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*(%|/s)?", re.ASCII)
_WAYS: Final = {
    QuotaUnit.BPS: "10MB/s (1000s) or 10MiB/s (1024s)",
    QuotaUnit.BROKER_BPS: "10MB/s (1000s) or 10MiB/s (1024s)",
    QuotaUnit.PERCENT: "50%",
    QuotaUnit.PER_S: "20/s",
}


def has_unit(text: str) -> bool:
    """Whether a value isn't a plain number, so that :func:`read_value` must read it."""
    return _FORM.fullmatch(text.strip()) is not None and not text.strip()[-1].isdigit()


def read_value(text: str, key: QuotaKey) -> float:
    """
    Read a value with its unit.

    Args:
        text: such as ``10MB/s``.
        key: the quota key that the value is for; the unit must fit it.

    Raises:
        ValueError: the text isn't a value of this key; says what may be written.
    """
    match = _FORM.fullmatch(text.strip())
    way = _WAYS.get(QuotaUnit(key.units)) if key.units in set(QuotaUnit) else None
    hint = f"; write a number, or {way}" if way else "; write a number"
    if match is None:
        raise ValueError(f"{text!r} isn't a value of {key.name}{hint}")
    number, word, end = match.groups()
    factor: int | None = None
    if key.units in (QuotaUnit.BPS, QuotaUnit.BROKER_BPS):
        factor = _BYTES.get(word) if end != "%" else None
    elif not word and end == ("%" if key.units == QuotaUnit.PERCENT else "/s"):
        factor = 1 if key.units in (QuotaUnit.PERCENT, QuotaUnit.PER_S) else None
    if factor is None:
        raise ValueError(f"{text!r} has no unit of {key.name}{hint}")
    value = float(number) * factor
    # 0.1 MB is 100,000 bytes, whatever a double makes of it.
    whole = factor > 1 and math.isfinite(value) and abs(value - round(value)) < 1e-6
    return float(round(value)) if whole else value


_RATES: Final = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")


def human(key: QuotaKey, value: float | None) -> str:
    """Return a limit as people say it: ``10 MB/s``, ``50 %``, ``100 shares``, ``unlimited``."""
    if value is None or value >= 2.0**63:
        return "unlimited"
    if key.units in (QuotaUnit.BPS, QuotaUnit.BROKER_BPS):
        step = 0
        while float(f"{value:.4g}") >= 1000 and step < len(_RATES) - 1:  # as it is printed
            value /= 1000
            step += 1
        suffix = " in all" if key.units == QuotaUnit.BPS else ""
        return f"{value:.4g} {_RATES[step]}{suffix}"
    if key.units == QuotaUnit.PERCENT:
        return f"{value:g} %"
    if key.units == QuotaUnit.SHARES:
        return f"{format_value(value)} shares"
    return f"{value:g}/s" if key.units == QuotaUnit.PER_S else format_value(value)
