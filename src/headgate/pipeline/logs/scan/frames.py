"""
Work out what a frame means: which of a line's stamps is the logger's, and what the other tells.

The parser of all lines is asked, with a frame in place of a line. ``frame`` says why that answer
holds for every line with the frame.
"""

from __future__ import annotations

import math
import re
from typing import Final

from headgate.pipeline.logs.bad_lines import START, BadLine, is_field
from headgate.pipeline.logs.find import find_one
from headgate.pipeline.logs.scan import columns
from headgate.pipeline.logs.time_stamps import Stamp, StampError, StampReader

REFUSED: Final = math.nan
_YEAR: Final = 2001
_REQUEST: Final = b'{"isForwarded":false,"requestHeader":{}}'
_ESCAPED: Final = _REQUEST.replace(b'"', b'\\"')
_STAMPS: Final = re.compile(
    rb"(?<!\d)2001(?P<sep>[-/.])0(?P<place>[1-9])(?P=sep)01[T _]00:00:00(?:[.,]0+)?"
    rb"(?:Z\b|[+-]\d\d:?\d\d(?!\d))?"
)
_NUMBERS: Final = re.compile(
    rb"(?<=:)\"?(?P<e>10(?P<place>[1-9])0{7}(?:0{3}|0{6}|0{9})?)"
    rb'(?:,"nanoOfSecond":(?P<nano>10{0,8})(?=[,}])|(?=[",}]))'
)
_UNITS: Final = {10: 1000.0, 13: 1.0, 16: 1e-3, 19: 1e-6}
_SECOND_MS: Final = 1000.0


def meaning(frame: bytes, stamps: StampReader, *, in_string: bool) -> float:
    """
    Return bits of ``columns``; NaN where lines with this frame aren't taken.

    Args:
        frame: of the text in front of a request; of that behind it as well, after a newline, where
            the request is inside a JSON string.
        stamps: what reads stamps of the file.
        in_string: whether it is.
    """
    # The year of a frame's stamps is a real one, too; what stands for a stamp must be the stamp.
    if stamps.file_date is not None and stamps.file_date[0] == _YEAR:
        return REFUSED
    unread = stamps.unread
    try:
        if not in_string and is_field(frame):
            return REFUSED
        own, others = _in_string(frame, stamps) if in_string else stamps.stamps(frame)
    except (BadLine, StampError, RecursionError):
        return REFUSED
    # One of a line's stamps may be readable where the frame's isn't: 00:00 AM, an hour that a clock
    # change skips, a zone's name that another season has.
    if stamps.unread != unread or frame.count(b"%d" % _YEAR) != len(_STAMPS.findall(frame)):
        return REFUSED
    found = [*_STAMPS.finditer(frame), *(_NUMBERS.finditer(frame) if in_string else ())]
    found.sort(key=lambda each: int(each["place"]))
    try:
        texts = [_stamp(each, stamps) for each in found[:2]]
    except StampError:
        return REFUSED
    places = [min(n, 9) for n in range(1, len(found) + 1)]
    if own not in texts or [int(each["place"]) for each in found] != places:
        return REFUSED
    is_second = texts.index(own)
    code = columns.SECOND_IS_OWN if is_second else 0
    coarse = own.grain_ms > 1.0
    shifted = bool(stamps.shifts_ms) and not own.zoned
    if shifted and len(stamps.shifts_ms) > 1 and not any(other.zoned for other in others):
        return REFUSED
    at_stock = any(each.start() == 1 for each in found)
    if at_stock and len(found) > 1:
        return REFUSED  # the parser remembers stamps at this place
    code |= columns.IS_SHIFTED if shifted else 0
    if not others or not (coarse or shifted):
        return float(code)
    if len(texts) < 2 or others != [texts[1 - is_second]]:
        return REFUSED
    if coarse:
        if own.grain_ms != _SECOND_MS:
            return REFUSED
        code |= columns.IS_COARSE if others[0].grain_ms < _SECOND_MS else 0
    return float(code)


def _in_string(frame: bytes, stamps: StampReader) -> tuple[Stamp, list[Stamp]]:
    before, _, behind = frame.partition(b"\n")
    line = before + _ESCAPED + behind
    found = find_one(line, stamps)
    if START in line or found.body != _REQUEST:
        msg = "not the request alone"
        raise BadLine(msg)
    return found.own, found.others


def _stamp(found: re.Match[bytes], stamps: StampReader) -> Stamp:
    """Return a stamp of a frame, read alone."""
    if found.re is _STAMPS:
        return stamps.stamps(b"[" + found[0] + b"]")[0]
    unit = _UNITS[len(found["e"])]
    if found["nano"]:
        return Stamp(int(found["e"]) * unit + int(found["nano"]) / 1e6, 1e-6, zoned=True)
    return Stamp(int(found["e"]) * unit, unit, zoned=True)
