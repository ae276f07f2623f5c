"""
Find a line's request, and read it up to the end of its header.
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
    COLON,
    COMMA,
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

_FORWARD: Final = (word(b'{"isForw'), word(b'warded":'))
_ESCAPED: Final = word(b'{\\"isForw'[:8])
_TRUE: Final = word(b'true,"re')
_FALSE: Final = word(b'false,"r')
_HEADER: Final = tuple(word(b'requestHeader":{"requestApiKey":'[i : i + 8]) for i in (0, 8, 16, 24))


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
def find_request(base, start):
    """
    Find a line's request.

    Returns:
        (its brace, or what went wrong; whether it is inside a JSON string).
    """
    at = find_brace(base, start)
    while at - start <= columns.MOST_AROUND:
        c = byte_at(base, at)
        if c == OPEN:
            begin = word_at(base, at)
            if begin == _FORWARD[0]:
                return at, False
            if begin == _ESCAPED:
                return at, True
        elif c == NEWLINE:
            break
        at = find_brace(base, at + 1)
    return columns.REFUSED, False


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
