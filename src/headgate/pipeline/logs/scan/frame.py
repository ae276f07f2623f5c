"""
Take what stands around a request's JSON apart, in machine code: its time stamps, and its frame.

A stamp is ``yyyy-MM-dd HH:mm:ss`` (also with ``/``, ``.``, ``T``, ``_``, a fraction, and a zone in
digits), and in a JSON layout a number of seconds, ms, us or ns since 1970. The frame is the text
with the digits of such stamps replaced: by ``2001-01-01 00:00:00``, of the second stamp
``2001-02-01 00:00:00`` and so on; of numbers by ``101...``, ``102...``. Of other dates only the
time is replaced. Lines by the million have few frames. Which stamp counts depends on the frame
alone, as no pattern of ``stamp_forms`` tells one possible time from another: ``frames`` asks the
parser once for each.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Final

import numpy as np

from headgate.kernel.compiled import compiled, inlined
from headgate.pipeline.logs.scan import columns
from headgate.pipeline.logs.scan import names as roles
from headgate.pipeline.logs.scan.intern import find, intern
from headgate.pipeline.logs.scan.json_text import (
    CLOSE,
    COLON,
    COMMA,
    DOT,
    MINUS,
    NINE,
    QUOTE,
    ZERO,
    byte_at,
    colons,
    lowest,
    put_byte,
    put_word,
    word,
    word_at,
)

# In the frame's room, for a stamp and its zone side by side.
_ZONED_AT: Final = columns.FRAME_ROOM - 512

_DATE: Final = 11
_SECOND: Final = 19
_PLUS, _SLASH, _T, _Z, _SPACE, _LINE = b"+/TZ _"
_EQUAL, _SEMICOLON = b"=;"
_TIME: Final = word(b"00:00:00")
# The last 8 bytes of keys; the first of journald's __REALTIME_TIMESTAMP.
_CURSOR: Final = word(b"__CURSOR")
_SEQNUM: Final = word(b"__SEQNUM")
_TIMESTAMP: Final = word(b"IMESTAMP")
_REALTIME: Final = word(b'"__REALT')
_EPOCH_SECOND: Final = word(b"chSecond")
_NANO: Final = (word(b',"nanoOf'), word(b'Second":'))
_HIGH_NIBBLES: Final = word(b"\xf0" * 8)
_YEAR_AND_MONTH: Final = word(b"0000\x0000\0")
_FOUR_AND_TWO: Final = word(b"\6\6\6\6\0\6\6\0")
_DIGITS_OF_DATE: Final = word(b"\xf0\xf0\xf0\xf0\0\xf0\xf0\0")
_SIXES: Final = word(b"\x06\x06\0\x06\x06\0\x06\x06")
# A fraction of n digits in ms (``StampReader``): n below 7 counts 10^(n - 3) to the ms.
_PER_MS: Final = np.array([10.0 ** (n - 3) for n in range(7)])


@inlined
def _is_digit(c):
    return ZERO <= c <= NINE


@inlined
def _is_digits(base, at):
    """Say whether a date's year, month and second digit of its day are digits."""
    w = word_at(base, at) ^ _YEAR_AND_MONTH
    return (w | (w + _FOUR_AND_TWO)) & _DIGITS_OF_DATE == 0 and _is_digit(byte_at(base, at + 9))


@compiled
def _is_time(base, at):
    """Say whether ``HH:mm:ss`` stands here, from 00:00:00 to 23:59:59."""
    w = word_at(base, at) ^ _TIME  # digits are their values, colons 0
    if (w | (w + _SIXES)) & _HIGH_NIBBLES != 0:
        return False
    if w & 0xFF0000FF0000 != 0:
        return False
    hours, tens = w & 0xFF, w >> 24 & 0xFF
    return (hours < 2 or (hours == 2 and w >> 8 & 0xFF < 4)) and tens < 6 and w >> 48 & 0xFF < 6


@compiled
def _is_date(base, at, begin):
    """Say whether ``yyyy-MM-dd`` and one byte more stand here."""
    if at < begin or (at > begin and _is_digit(byte_at(base, at - 1))):
        return False
    sep = byte_at(base, at + 4)
    if (sep != MINUS and sep != _SLASH and sep != DOT) or byte_at(base, at + 7) != sep:
        return False
    gap = byte_at(base, at + 10)
    if gap != _SPACE and gap != _T and gap != _LINE:
        return False
    return _is_digit(byte_at(base, at + 8)) and _is_digits(base, at)


@compiled
def _zone_length(base, at):
    """Return how long the zone is that stands here in digits, or Z; 0 for none."""
    c = byte_at(base, at)
    if c == _Z:
        c = byte_at(base, at + 1)
        is_word = _is_digit(c) or 65 <= c <= 90 or 97 <= c <= 122 or c == _LINE
        return 0 if is_word else 1
    if c != _PLUS and c != MINUS:
        return 0
    if not (_is_digit(byte_at(base, at + 1)) and _is_digit(byte_at(base, at + 2))):
        return 0
    end = at + 4 if byte_at(base, at + 3) == COLON else at + 3
    if not (_is_digit(byte_at(base, end)) and _is_digit(byte_at(base, end + 1))):
        return 0
    return 0 if _is_digit(byte_at(base, end + 2)) else end + 2 - at


@compiled
def _number(base, at, zone, length, frame, names):
    """Return the number of a stamp's whole second, with its zone where it prints one."""
    if length == 0:
        return intern(base, at, np.int64(_SECOND), np.int64(roles.STAMP), names)
    for i in range(_SECOND):
        put_byte(frame, _ZONED_AT + i, byte_at(base, at + i))
    for i in range(length):
        put_byte(frame, _ZONED_AT + _SECOND + i, byte_at(base, zone + i))
    whole = np.int64(_SECOND) + length
    return intern(frame, np.int64(_ZONED_AT), whole, np.int64(roles.ZONED), names)


@compiled
def _fraction_ms(fraction, digits, nanos):
    if digits == 0:
        return 0.0
    if digits == 3 and not nanos:
        return float(fraction)
    return fraction / 1e6 if nanos or digits >= 7 else fraction / _PER_MS[digits]


@compiled
def _put_date(frame, to, place):
    """Replace the date of the stamp with this number by one that tells the number."""
    put_byte(frame, to, ZERO + 2)
    put_byte(frame, to + 1, ZERO)
    put_byte(frame, to + 2, ZERO)
    put_byte(frame, to + 3, ZERO + 1)
    put_byte(frame, to + 5, ZERO)
    put_byte(frame, to + 6, ZERO + min(place, 9))
    put_byte(frame, to + 8, ZERO)
    put_byte(frame, to + 9, ZERO + 1)


@compiled
def add_text(base, begin, end, frame, length, stamps, nanos, names, ints, doubles, n):
    """
    Add text to a line's frame, and number the stamps in it.

    Args:
        base: the text's address.
        begin: where it begins.
        end: where it ends; at most ``columns.MOST_AROUND`` behind that.
        frame: the frame's address.
        length: of the frame so far.
        stamps: found in the line so far.
        nanos: fractions are nanoseconds.
        names: as ``line.scan``.
        ints: likewise; the first two stamps get columns.
        doubles: likewise.
        n: the line's number in them.

    Returns:
        (the frame's length, or what went wrong; stamps found so far).
    """
    shift = length - begin
    i = begin
    while i < end:
        put_word(frame, i + shift, word_at(base, i))
        i += 8
    length += end - begin
    at = begin
    while at < end:
        mask = colons(base, at) & colons(base, at + 3)
        if mask == 0:
            at += 32
            continue
        colon = at + lowest(mask)
        at = colon + 1
        time = colon - 2
        last = time + 8
        if last > end:
            break
        if time < begin or not _is_time(base, time):
            continue
        digits = 0
        fraction = 0
        c = byte_at(base, last)
        if c == COMMA or c == DOT:  # noqa: SIM109 - `in` is slower here
            while digits < 10 and _is_digit(byte_at(base, last + 1 + digits)):
                fraction = fraction * 10 + (byte_at(base, last + 1 + digits) - ZERO)
                digits += 1
            if digits == 10:
                return columns.REFUSED, stamps
        elif c == COLON or _is_digit(c):
            continue
        behind = last + (digits + 1 if digits else 0)
        start = time - _DATE
        if _is_date(base, start, begin):
            if stamps < 2:
                ms = _fraction_ms(fraction, digits, nanos)
                number = _number(base, start, behind, _zone_length(base, behind), frame, names)
                if number < 0:
                    return columns.FULL, stamps
                if stamps == 0:
                    ints[columns.STAMP_NAME, n] = number
                    doubles[columns.FRACTION, n] = ms
                else:
                    ints[columns.OTHER_STAMP_NAME, n] = number
                    doubles[columns.OTHER_FRACTION, n] = ms
            stamps += 1
            _put_date(frame, start + shift, stamps)
        elif time > begin:
            c = byte_at(base, time - 1)
            if _is_digit(c) or c == COLON or c == _PLUS or c == MINUS:  # noqa: SIM109
                continue
        put_word(frame, time + shift, _TIME)
        for i in range(digits):
            put_byte(frame, last + 1 + i + shift, ZERO)
        at = behind
    return length, stamps


@compiled
def _count_digits(base, at):
    count = 0
    while count < 20 and _is_digit(byte_at(base, at + count)):
        count += 1
    return count


@compiled
def _value(base, at, digits):
    value = 0
    for i in range(digits):
        value = value * 10 + (byte_at(base, at + i) - ZERO)
    return value


@compiled
def _erase(base, at, end, frame, shift):
    """Replace what stands in a value that no parser looks at; return where that ends."""
    while at < end:
        c = byte_at(base, at)
        if not _is_digit(c) and not 97 <= c <= 122 and c != _EQUAL and c != _SEMICOLON:
            break
        put_byte(frame, at + shift, ZERO)
        at += 1
    return at


@compiled
def add_numbers(base, begin, end, frame, length, stamps, ints, doubles, n):
    """
    Number the stamps that are numbers among a JSON layout's values, and replace them in the frame.

    So are values of journald's that vary from line to line and that the parser doesn't look at.

    Args:
        base: as ``add_text``, which has added the text just before.
        begin: likewise.
        end: likewise.
        frame: likewise.
        length: of the frame with the text.
        stamps: found in the line so far.
        ints: as ``add_text``.
        doubles: likewise.
        n: likewise.

    Returns:
        Stamps found so far.
    """
    shift = length - end
    at = begin
    while at < end:
        mask = colons(base, at)
        if mask == 0:
            at += 32
            continue
        colon = at + lowest(mask)
        at = colon + 1
        if at >= end or colon - 9 < begin or byte_at(base, colon - 1) != QUOTE:
            continue
        quoted = byte_at(base, at) == QUOTE
        value = at + 1 if quoted else at
        key = word_at(base, colon - 9)
        is_stamp = key != _CURSOR and key != _SEQNUM
        if key == _TIMESTAMP:
            is_stamp = colon - 22 >= begin and word_at(base, colon - 22) == _REALTIME
        if quoted and not is_stamp:
            at = _erase(base, value, end, frame, shift)
            continue
        digits = _count_digits(base, value)
        behind = byte_at(base, value + digits)
        if quoted and behind != QUOTE:
            continue
        ms, nano = _epoch_ms(base, value, digits, not quoted and key == _EPOCH_SECOND)
        if nano > 0:
            behind = byte_at(base, nano + _count_digits(base, nano))
        if ms < 0.0 or not (quoted or behind == COMMA or behind == CLOSE):  # noqa: SIM109
            continue
        if stamps == 0:
            ints[columns.STAMP_NAME, n] = columns.A_NUMBER
            doubles[columns.FRACTION, n] = ms
        elif stamps == 1:
            ints[columns.OTHER_STAMP_NAME, n] = columns.A_NUMBER
            doubles[columns.OTHER_FRACTION, n] = ms
        stamps += 1
        at = value + digits
        for i in range(1, digits):
            put_byte(frame, value + i + shift, ZERO + min(stamps, 9) if i == 2 else ZERO)
        if nano > 0:
            at = nano + _count_digits(base, nano)
            put_byte(frame, nano + shift, ZERO + 1)
            for i in range(nano + 1, at):
                put_byte(frame, i + shift, ZERO)
    return stamps


@compiled
def _epoch_ms(base, at, digits, has_nanos):
    """
    Return a number of seconds, ms, us or ns in ms; below 0 where it can't be one.

    Returns:
        (ms; where the nanoseconds are that stand beside it, 0 without).
    """
    second = byte_at(base, at + 1)
    if byte_at(base, at) != ZERO + 1 or second == NINE:  # 19... and 20... may be dates
        return -1.0, 0
    value = float(_value(base, at, digits))
    if has_nanos and digits == 10:
        nano = at + digits + 16
        count = _count_digits(base, nano)
        names = word_at(base, nano - 16) == _NANO[0] and word_at(base, nano - 8) == _NANO[1]
        if not names or count == 0 or count > 9 or (count > 1 and byte_at(base, nano) == ZERO):
            return -1.0, 0
        return value * 1000.0 + _value(base, nano, count) / 1e6, nano
    if digits == 10:
        return value * 1000.0, 0
    if digits == 13:
        return value, 0
    if digits == 16:
        return value * 1e-3, 0
    if digits == 19:
        return value * 1e-6, 0
    return -1.0, 0


@compiled
def number_frame(frame, length, role, most, names):
    """
    Return the number of a frame.

    Args:
        frame: its address.
        length: its length.
        role: whether the request is inside a string.
        most: it may be a new one while there are fewer names than this.
        names: ``Names.parts``.
    """
    if names[3][roles.COUNT] >= most:
        return find(frame, np.int64(0), length, role, names)
    number = intern(frame, np.int64(0), length, role, names)
    return number if number >= 0 else columns.FULL
