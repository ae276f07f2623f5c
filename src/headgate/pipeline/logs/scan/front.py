"""
Read the front of a line: stamp, what stands between it and the JSON, and the request's header.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Any, Final

import numpy as np

from headgate.kernel.compiled import compiled, inlined
from headgate.pipeline.logs.scan import columns
from headgate.pipeline.logs.scan import names as roles
from headgate.pipeline.logs.scan.intern import intern
from headgate.pipeline.logs.scan.json_text import (
    CLOSE_LIST,
    COLON,
    COMMA,
    DOT,
    NEWLINE,
    NINE,
    OPEN,
    OPEN_LIST,
    QUOTE,
    ZERO,
    byte_at,
    find_brace,
    read_int,
    skip_name,
    skip_string,
    word,
    word_at,
)
from headgate.pipeline.logs.scan.walk import keys, walk_keys

_MOST_MIDDLE: Final = 512
_FORWARD: Final = (word(b'{"isForw'), word(b'warded":'))
_TRUE: Final = word(b'true,"re')
_FALSE: Final = word(b'false,"r')
_HEADER: Final = tuple(word(b'requestHeader":{"requestApiKey":'[i : i + 8]) for i in (0, 8, 16, 24))
# A fraction of n digits in ms (``StampReader``): n below 7 counts 10^(n - 3) to the ms.
_PER_MS: Final = np.array([10.0 ** (n - 3) for n in range(7)])


@compiled
def read_name(base, at, role, names):
    """Return (position, number) of a string; position REFUSED: it is none; FULL: no more room."""
    if byte_at(base, at) != QUOTE:
        return columns.REFUSED, 0
    end = skip_string(base, at + 1)
    if end < 0:
        return columns.REFUSED, 0
    number = intern(base, at + 1, end - at - 2, role, names)
    return (end, number) if number >= 0 else (columns.FULL, 0)


def name_into(column: int, role: int) -> Any:
    """Return a reader of a name, for whose number the context has a column."""

    @inlined
    def read(base, at, context, state):
        _, names, ints, _, n = context
        at, ints[column, n] = read_name(base, at, np.int64(role), names)
        return at, state

    return read


@inlined
def _version(base, at, context, state):
    _, _, ints, _, n = context
    at, version = read_int(base, at)
    if not 0 <= version <= 32767:
        at = columns.REFUSED
    ints[columns.VERSION, n] = version
    return at, state


_any_client = name_into(columns.CLIENT_NAME, roles.CLIENT)


@inlined
def _client(base, at, context, state):
    # Its length is charged: a name that may have lost characters isn't taken.
    if byte_at(base, at) != QUOTE or skip_name(base, at + 1) < 0:
        at = columns.REFUSED
    else:
        at, state = _any_client(base, at, context, state)
    return at, state


@inlined
def refuse(base, at, context, state):
    """Refuse a key that mustn't be there, or not twice."""
    return columns.REFUSED, state


_header_keys = keys(
    (b"requestApiVersion", _version),
    (b"requestApiKeyName", name_into(columns.API_NAME, roles.API)),
    (b"clientId", _client),
    (b"requestApiKey", refuse),
)


@compiled
def read_header(base, at, context):
    """
    Read a request header from the comma behind its API key.

    Returns:
        The position behind it, or what went wrong.
    """
    at, seen, _ = walk_keys(base, at, _header_keys, context, 0)
    return at if at < 0 or seen == 7 else columns.REFUSED


@compiled
def read_front(base, start, nanos, names, ints, doubles, n):
    """Read a line up to its JSON object."""
    if byte_at(base, start) != OPEN_LIST:
        return columns.REFUSED
    for i in range(1, 20):  # a short line: what follows isn't ours to look at
        if byte_at(base, start + i) == NEWLINE:
            return columns.REFUSED
    c = byte_at(base, start + 20)
    if c != COMMA and c != DOT:
        return columns.REFUSED
    at = start + 21
    fraction = 0
    while True:
        c = byte_at(base, at)
        if c < ZERO or c > NINE:
            break
        fraction = fraction * 10 + (c - ZERO)
        at += 1
        if at - start > 30:
            return columns.REFUSED
    digits = at - start - 21
    if c != CLOSE_LIST or digits == 0:
        return columns.REFUSED
    if digits == 3 and not nanos:
        doubles[columns.FRACTION, n] = fraction
    elif nanos or digits >= 7:
        doubles[columns.FRACTION, n] = fraction / 1e6
    else:
        doubles[columns.FRACTION, n] = fraction / _PER_MS[digits]
    brace = find_brace(base, at)
    if byte_at(base, brace) != OPEN or brace - at > _MOST_MIDDLE:
        return columns.REFUSED
    number = intern(base, start + 1, np.int64(19), np.int64(roles.STAMP), names)
    if number < 0:
        return columns.FULL
    ints[columns.STAMP_NAME, n] = number
    number = intern(base, at, brace - at, np.int64(roles.MIDDLE), names)
    if number < 0:
        return columns.FULL
    ints[columns.MIDDLE_NAME, n] = number
    return brace


@compiled
def read_begin(base, at, ints, n):
    """Read from the object's brace to the comma behind the API key; the kind is left in ints."""
    if word_at(base, at) != _FORWARD[0] or word_at(base, at + 7) != _FORWARD[1]:
        return columns.REFUSED
    at += 15
    if word_at(base, at) == _TRUE:
        ints[columns.FORWARDED, n] = 1
        at += 6
    elif word_at(base, at) == _FALSE:
        ints[columns.FORWARDED, n] = 0
        at += 7
    else:
        return columns.REFUSED
    for i in range(4):
        if word_at(base, at + 8 * i) != _HEADER[i]:
            return columns.REFUSED
    at, api = read_int(base, at + 32)
    if at < 0 or byte_at(base, at) != COMMA:
        return columns.REFUSED
    if api == 0:
        ints[columns.KIND, n] = columns.PRODUCE
    elif api == 1:
        ints[columns.KIND, n] = columns.FETCH
    elif api == 19 or api == 20 or api == 37:
        ints[columns.KIND, n] = columns.MUTATION
    elif api == 78:
        return columns.REFUSED  # share fetches: rare
    else:
        ints[columns.KIND, n] = columns.OTHER
    return at


@inlined
def _is_word(c):
    return ZERO <= c <= NINE or 65 <= c <= 90 or 97 <= c <= 122 or c == 95


@compiled
def read_principal(base, at, names):
    """Return (position, number) of a principal's name, which stands behind a type in one word."""
    if byte_at(base, at) != QUOTE:
        return columns.REFUSED, 0
    end = skip_string(base, at + 1)
    if end < 0:
        return columns.REFUSED, 0
    at += 1
    while at < end - 1 and _is_word(byte_at(base, at)):
        at += 1
    if byte_at(base, at) != COLON:
        return columns.REFUSED, 0
    at += 1
    if at >= end - 1 or byte_at(base, at) == OPEN_LIST:
        return columns.REFUSED, 0
    number = intern(base, at, end - 1 - at, np.int64(roles.PRINCIPAL), names)
    return (end, number) if number >= 0 else (columns.FULL, 0)
