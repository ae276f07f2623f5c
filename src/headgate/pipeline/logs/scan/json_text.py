"""
Walk over JSON text byte by byte in machine code: strings, numbers, whole values to be skipped.

Compiled by Numba; text is an address, positions are offsets from it. Readers return the position
behind what they read, or -1 for all they don't accept: broken JSON, but also white space,
escapes, bytes beyond ASCII, nesting beyond 60. What they accept, any JSON parser reads the same.
Strings are looked at 32 bytes at a time, so ``PADDING`` bytes beyond the text, whatever they hold,
must be readable; the text's last byte is a newline.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from headgate.kernel.compiled import compiled, inlined

_WIDTH: Final = 32
_MOST_NESTED: Final = 60

QUOTE, COMMA, MINUS, DOT, ZERO, NINE, COLON, NEWLINE = b'",-.09:\n'
OPEN_LIST, CLOSE_LIST, OPEN, CLOSE = b"[]{}"


def word(text: bytes) -> int:
    """Return the 8 bytes of ``text`` as ``word_at`` reads them."""
    return int(np.frombuffer(text, np.int64)[0])


_HIGH: Final = word(b"\0\0\0\0\xff\xff\xff\xff")
_NULL: Final = word(b"\0\0\0\0null")
_TRUE: Final = word(b"\0\0\0\0true")
_ALSE: Final = word(b"\0\0\0\0alse")
# Powers of ten that a double holds exactly; a whole number below 2^53 divided by one is rounded
# once, as every correct parser rounds.
_TENS: Final = np.array([10.0**n for n in range(16)])


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _reader(build: Callable[[Any, Any], Any]) -> Any:
    """
    Return what reads a whole number at an address and offset.

    Args:
        build: builds the code; gets LLVM's builder and the sum of both.
    """

    @intrinsic
    def read(_typing, base, at):
        def code(_context, builder, _signature, arguments):
            return builder.zext(build(builder, builder.add(*arguments)), ir.IntType(64))

        return types.int64(types.int64, types.int64), code

    return read


def _stops(equal: bytes, below: int) -> Any:
    """Return what reads a bit per byte: is it one of ``equal``, or as a signed byte < ``below``."""
    vector = ir.VectorType(ir.IntType(8), _WIDTH)

    def build(builder: Any, address: Any) -> Any:
        text = _load(builder, address, vector)
        found = builder.icmp_signed("<", text, ir.Constant(vector, [below] * _WIDTH))
        for value in equal:
            same = builder.icmp_signed("==", text, ir.Constant(vector, [value] * _WIDTH))
            found = builder.or_(found, same)
        return builder.bitcast(found, ir.IntType(_WIDTH))

    return _reader(build)


# A byte; eight bytes as one int64.
byte_at = _reader(lambda builder, address: _load(builder, address, ir.IntType(8)))
word_at = _reader(lambda builder, address: _load(builder, address, ir.IntType(64)))
# Where a plain string ends: quote, backslash, control byte, byte beyond ASCII.
_string_stops = _stops(b'"\\', 32)
# Where a name ends, or holds what may stand for a character that the log lacks.
_name_stops = _stops(b'"\\?', 32)
_brace_stops = _stops(b"{}\n", -128)
colons = _stops(b":", -128)
quotes = _stops(b'"', -128)
slashes = _stops(b"\\", -128)
newlines = _stops(b"\n", -128)


def _writer(bits: int) -> Any:
    """Return what writes the lowest bits of a whole number at an address and offset."""

    @intrinsic
    def write(_typing, base, at, value):
        def code(_context, builder, _signature, arguments):
            kind = ir.IntType(bits)
            place = builder.inttoptr(builder.add(*arguments[:2]), kind.as_pointer())
            value = builder.trunc(arguments[2], kind) if bits < 64 else arguments[2]
            builder.store(value, place, align=1)
            return arguments[2]

        return types.int64(types.int64, types.int64, types.int64), code

    return write


put_byte = _writer(8)
put_word = _writer(64)


@intrinsic
def lowest(_typing, mask):
    """Return the number of the lowest bit set."""

    def code(_context, builder, _signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), code


def named(name: bytes) -> Any:
    """Return what says whether a key (address, position, length) is ``name``: 24 bytes at most."""
    size, last = len(name), len(name) - 8
    head = word(name[:8].ljust(8, b"\0"))
    if size <= 8:
        mask = word((b"\xff" * size).ljust(8, b"\0"))

        @inlined
        def is_short(base, at, length):
            return length == size and word_at(base, at) & mask == head

        return is_short
    middle = min(last, 8)
    inside, tail = word(name[middle:][:8]), word(name[last:])

    @inlined
    def is_long(base, at, length):
        return (
            length == size
            and word_at(base, at) == head
            and word_at(base, at + middle) == inside
            and word_at(base, at + last) == tail
        )

    return is_long


@inlined
def _find(base, at, stops):
    """Return where the next byte is that is a stop."""
    mask = stops(base, at)
    while mask == 0:
        at += _WIDTH
        mask = stops(base, at)
    return at + lowest(mask)


@compiled
def find_brace(base, at):
    """Return where the next brace or newline is."""
    return _find(base, at, _brace_stops)


@compiled
def find_newline(base, at):
    """Return where the line ends."""
    while True:
        at = find_brace(base, at)
        if byte_at(base, at) == NEWLINE:
            return at
        at += 1


@compiled
def skip_string(base, at):
    """Skip a string; ``at`` is behind its opening quote, the answer behind its closing one."""
    stop = _find(base, at, _string_stops)
    return stop + 1 if byte_at(base, stop) == QUOTE else -1


@compiled
def skip_name(base, at):
    """
    Skip a string as ``skip_string`` does, but return -1 if it holds a question mark, too.

    A log in another encoding than UTF-8 has a question mark for each character that it lacks, so
    the length of the string in bytes would be wrong.
    """
    stop = _find(base, at, _name_stops)
    return stop + 1 if byte_at(base, stop) == QUOTE else -1


@compiled
def read_int(base, at):
    """Return (position, value) of a whole number of at most 18 digits; position -1 for others."""
    negative = byte_at(base, at) == MINUS
    if negative:
        at += 1
    start = at
    value = 0
    while True:
        c = byte_at(base, at)
        if c < ZERO or c > NINE:
            break
        value = value * 10 + (c - ZERO)
        at += 1
        if at - start > 18:
            return -1, 0
    if at == start or c == DOT or c == 69 or c == 101:
        return -1, 0
    if byte_at(base, start) == ZERO and (at - start > 1 or negative):
        return -1, 0
    return at, -value if negative else value


@compiled
def read_double(base, at):
    """
    Return (position, value) of a number without sign and exponent, of at most 15 digits.

    Ten of them, at most, may stand in front of the dot: larger ones can't be times.
    """
    start = at
    value = 0
    dot = -1
    while True:
        c = byte_at(base, at)
        if ZERO <= c <= NINE:
            value = value * 10 + (c - ZERO)
        elif c == DOT and dot < 0 and at > start:
            dot = at
        else:
            break
        at += 1
        if at - start > 16:
            return -1, 0.0
    digits = at - start
    whole = digits
    if dot >= 0:
        digits -= 1
        whole = dot - start
    if digits == 0 or digits > 15 or whole > 10 or c == 69 or c == 101 or at == dot + 1 or c == DOT:
        return -1, 0.0
    if byte_at(base, start) == ZERO and at > start + 1 and dot != start + 1:
        return -1, 0.0
    if dot < 0:
        return at, float(value)
    return at, value / _TENS[at - dot - 1]


@compiled
def _skip_digits(base, at):
    start = at
    while ZERO <= byte_at(base, at) <= NINE:
        at += 1
    return at if at > start else -1


@compiled
def _skip_number(base, at):
    if byte_at(base, at) == MINUS:
        at += 1
    if byte_at(base, at) == ZERO:
        at += 1
    else:
        at = _skip_digits(base, at)
        if at < 0:
            return -1
    if byte_at(base, at) == DOT:
        at = _skip_digits(base, at + 1)
        if at < 0:
            return -1
    c = byte_at(base, at)
    if c == 69 or c == 101:
        at += 1
        c = byte_at(base, at)
        if c == MINUS or c == 43:
            at += 1
        at = _skip_digits(base, at)
    return at


@compiled
def is_null(base, at):
    """Say whether ``null`` stands here."""
    return byte_at(base, at) == 110 and word_at(base, at - 4) & _HIGH == _NULL


@compiled
def skip_scalar(base, at):
    """Skip a string, number, true, false or null."""
    c = byte_at(base, at)
    if c == QUOTE:
        return skip_string(base, at + 1)
    if c == MINUS or ZERO <= c <= NINE:
        return _skip_number(base, at)
    if c == 110 or c == 116:
        high = word_at(base, at - 4) & _HIGH
        return at + 4 if high == (_NULL if c == 110 else _TRUE) else -1
    if c == 102 and word_at(base, at - 3) & _HIGH == _ALSE:
        return at + 5
    return -1


@compiled
def skip_value(base, at):
    """Skip any value, and check that it's well-formed."""
    inside = 0  # a bit per level, 1 for an object
    depth = 0
    while True:
        c = byte_at(base, at)
        ended = False
        if c == OPEN or c == OPEN_LIST:  # noqa: SIM109 - `in` is slower here
            if depth == _MOST_NESTED:
                return -1
            depth += 1
            inside = inside << 1 | (1 if c == OPEN else 0)
            at += 1
            if c == OPEN:
                c = byte_at(base, at)
                if c == QUOTE:
                    at = skip_string(base, at + 1)
                    if at < 0 or byte_at(base, at) != COLON:
                        return -1
                    at += 1
                elif c == CLOSE:
                    ended = True
                else:
                    return -1
            elif byte_at(base, at) == CLOSE_LIST:
                ended = True
        else:
            at = skip_scalar(base, at)
            if at < 0:
                return -1
            ended = True
            if depth == 0:
                return at
            c = 0
        if not ended:
            continue
        while True:  # behind a value, or at the close of an empty one
            c = byte_at(base, at)
            if c == COMMA:
                at += 1
                if inside & 1:
                    if byte_at(base, at) != QUOTE:
                        return -1
                    at = skip_string(base, at + 1)
                    if at < 0 or byte_at(base, at) != COLON:
                        return -1
                    at += 1
                break
            if c != (CLOSE if inside & 1 else CLOSE_LIST):
                return -1
            at += 1
            inside >>= 1
            depth -= 1
            if depth == 0:
                return at
