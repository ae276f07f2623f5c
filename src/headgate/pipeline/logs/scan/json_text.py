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

from typing import Any, Final

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from headgate.kernel.compiled import compiled

_WIDTH: Final = 32
_MOST_NESTED: Final = 60

QUOTE, COMMA, MINUS, DOT, ZERO, NINE, COLON, NEWLINE = b'",-.09:\n'
OPEN_LIST, CLOSE_LIST, OPEN, CLOSE = b"[]{}"


def word(text: bytes) -> int:
    """Return the 8 bytes of ``text`` as ``word_at`` reads them."""
    return int(np.frombuffer(text, np.int64)[0])


def words(key: bytes) -> tuple[int, int, int]:
    """Return what ``is_key`` compares: a key's first 8 bytes, its last 8, and those from there."""
    middle = key[8:16] if len(key) > 16 else key[-8:]
    return word(key[:8]), word(key[-8:]), word(middle)


_HIGH: Final = word(b"\0\0\0\0\xff\xff\xff\xff")
_NULL: Final = word(b"\0\0\0\0null")
_TRUE: Final = word(b"\0\0\0\0true")
_ALSE: Final = word(b"\0\0\0\0alse")
# Powers of ten that a double holds exactly; a whole number below 2^53 divided by one is rounded
# once, as every correct parser rounds.
_TENS: Final = np.array([10.0**n for n in range(16)])


def inlined(function: Any) -> Any:
    """Compile into each caller: no type of its own for each literal among the arguments."""
    return numba.njit(inline="always", nogil=True, error_model="numpy")(function)


def _load(builder: Any, arguments: Any, kind: Any) -> Any:
    pointer = builder.inttoptr(builder.add(*arguments), kind.as_pointer())
    return builder.load(pointer, align=1)


_TWO: Final = (types.int64, types.int64)


@intrinsic
def byte_at(_typing, base, at):
    """Return the byte at an address and offset."""

    def code(_context, builder, _signature, arguments):
        return builder.zext(_load(builder, arguments, ir.IntType(8)), ir.IntType(64))

    return types.int64(*_TWO), code


@intrinsic
def word_at(_typing, base, at):
    """Return eight bytes as one int64."""

    def code(_context, builder, _signature, arguments):
        return _load(builder, arguments, ir.IntType(64))

    return types.int64(*_TWO), code


def _mask(builder: Any, arguments: Any, equal: bytes, below: int) -> Any:
    """Build a bit per byte: is it one of ``equal``, or below ``below`` as a signed byte."""
    byte = ir.IntType(8)
    vector = _load(builder, arguments, ir.VectorType(byte, _WIDTH))

    def same(value: int) -> Any:
        return ir.Constant(ir.VectorType(byte, _WIDTH), [value] * _WIDTH)

    found = None
    for value in equal:
        each = builder.icmp_signed("==", vector, same(value))
        found = each if found is None else builder.or_(found, each)
    if below:
        found = builder.or_(found, builder.icmp_signed("<", vector, same(below)))
    return builder.zext(builder.bitcast(found, ir.IntType(_WIDTH)), ir.IntType(64))


@intrinsic
def _string_stops(_typing, base, at):
    """Mark where a plain string ends: quote, backslash, control byte, byte beyond ASCII."""

    def code(_context, builder, _signature, arguments):
        return _mask(builder, arguments, b'"\\', 32)

    return types.int64(*_TWO), code


@intrinsic
def _name_stops(_typing, base, at):
    """Mark where a name ends, or holds what may stand for a character that the log lacks."""

    def code(_context, builder, _signature, arguments):
        return _mask(builder, arguments, b'"\\?', 32)

    return types.int64(*_TWO), code


@intrinsic
def _brace_stops(_typing, base, at):
    """Mark braces and newlines."""

    def code(_context, builder, _signature, arguments):
        return _mask(builder, arguments, b"{}\n", 0)

    return types.int64(*_TWO), code


@intrinsic
def _lowest(_typing, mask):
    """Return the number of the lowest bit set."""

    def code(_context, builder, _signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), code


@inlined
def is_key(base, at, length, key):
    """Say whether a key of 8 to 16 bytes, whose length fits, is the one with these ``words``."""
    return word_at(base, at) == key[0] and word_at(base, at + length - 8) == key[1]


@inlined
def is_long_key(base, at, length, key):
    """Do as ``is_key`` for a key of 17 to 24 bytes."""
    return (
        word_at(base, at) == key[0]
        and word_at(base, at + length - 8) == key[1]
        and word_at(base, at + 8) == key[2]
    )


@compiled
def find_brace(base, at):
    """Return where the next brace or newline is."""
    while True:
        mask = _brace_stops(base, at)
        if mask != 0:
            return at + _lowest(mask)
        at = at + _WIDTH


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
    while True:
        mask = _string_stops(base, at)
        if mask != 0:
            stop = at + _lowest(mask)
            return stop + 1 if byte_at(base, stop) == QUOTE else -1
        at = at + _WIDTH


@compiled
def skip_name(base, at):
    """
    Skip a string as ``skip_string`` does, but return -1 if it holds a question mark, too.

    A log in another encoding than UTF-8 has a question mark for each character that it lacks, so
    the length of the string in bytes would be wrong.
    """
    while True:
        mask = _name_stops(base, at)
        if mask != 0:
            stop = at + _lowest(mask)
            return stop + 1 if byte_at(base, stop) == QUOTE else -1
        at = at + _WIDTH


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
