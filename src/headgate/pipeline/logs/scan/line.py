"""
Find the request lines of the stock layout in a buffer, and what each holds, in machine code.

A line is taken only if all of it is understood: ``[yyyy-MM-dd HH:mm:ss,fraction] ... {json} ...``
with compact ASCII JSON in which every needed key stands once. All others are given back for
``line_parser.LineParser``, which also says what is wrong with them. The caller checks, once per
distinct text, that the stamp is a possible time, and that no other stamp stands between it and the
JSON.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Final

import numpy as np

from headgate.kernel.compiled import compiled
from headgate.pipeline.logs import charged_bytes
from headgate.pipeline.logs.scan import columns
from headgate.pipeline.logs.scan import names as roles
from headgate.pipeline.logs.scan.fetch import fetch_request, fetch_response
from headgate.pipeline.logs.scan.front import (
    read_begin,
    read_front,
    read_header,
    read_name,
    read_principal,
)
from headgate.pipeline.logs.scan.json_text import (
    COMMA,
    NEWLINE,
    QUOTE,
    byte_at,
    find_brace,
    find_newline,
    inlined,
    is_key,
    is_long_key,
    read_double,
    read_int,
    skip_string,
    skip_value,
    word,
    word_at,
    words,
)
from headgate.pipeline.logs.scan.mutation import mutation_request, mutation_response
from headgate.pipeline.logs.scan.produce import is_refused, produce_request
from headgate.pipeline.logs.scan.walk import walk_keys

_REQUEST: Final = word(b'request"')
_RESPONSE: Final = word(b"response")
_PRINCIPAL: Final = words(b"principal")
_LISTENER: Final = word(b"listener")
_CONNECTION: Final = words(b"connection")
_SEND: Final = words(b"sendTimeMs")
_LOCAL: Final = words(b"localTimeMs")
_THROTTLE: Final = words(b"throttleTimeMs")
_QUEUE: Final = words(b"responseQueueTimeMs")
_CONVERSIONS: Final = word(b"messageC")
_REQUEST_HEADER: Final = words(b"requestHeader")
_IS_FORWARDED: Final = words(b"isForwarded")

_SEEN_REQUEST: Final = 1
_SEEN_RESPONSE: Final = 2
_SEEN_CONNECTION: Final = 4
_SEEN_LOCAL: Final = 8
_SEEN_THROTTLE: Final = 16
_SEEN_QUEUE: Final = 32
_SEEN_SEND: Final = 64
_SEEN_PRINCIPAL: Final = 128
_SEEN_LISTENER: Final = 256
_NEEDED: Final = 4 + 8 + 16 + 32 + 64 + 128 + 256


@inlined
def _in_32_bits(value):
    return -2147483648 <= value <= 2147483647


@compiled
def _read_request(base, at, kind, version, ints, n):
    """Read a request's body; return the position behind it."""
    if kind == columns.PRODUCE:
        at, size = produce_request(base, at, version)
        ints[columns.BYTES, n] += size
    elif kind == columns.FETCH:
        at, replica = fetch_request(base, at)
        ints[columns.FOLLOWER, n] = 1 if replica >= 0 else 0
    elif kind == columns.MUTATION:
        at, size, topics, estimated = mutation_request(base, at)
        ints[columns.BYTES, n] = size
        ints[columns.ASKED_TOPICS, n] = topics
        ints[columns.EXACT, n] = 0 if estimated else 1
    else:
        at = skip_value(base, at)
    return at


@compiled
def _read_response(base, at, kind, version, ints, n):
    """Read an answer's body; return the position behind it."""
    if kind == columns.FETCH and byte_at(base, at) != QUOTE:
        at, size, topics = fetch_response(base, at, version)
        ints[columns.BYTES, n] += size
        ints[columns.ANSWERED_TOPICS, n] = topics
    elif kind == columns.MUTATION:
        at, told, topics = mutation_response(base, at)
        if not _in_32_bits(told):
            return columns.REFUSED
        ints[columns.TOLD_INSIDE, n] = told
        ints[columns.ANSWERED_TOPICS, n] = topics
    elif kind == columns.PRODUCE:
        begin = at
        at = skip_value(base, at)
        if is_refused(base, begin, at):
            return columns.REFUSED
    else:
        at = skip_value(base, at)
    return at


@inlined
def _name_key(base, key, length, at, context):
    """Read the value if the key is that of a name; else return 0 as the key's bit."""
    connections, names, ints, n = context
    bit = 0
    if length == 10 and is_key(base, key, length, _CONNECTION):
        bit = _SEEN_CONNECTION
        if connections:
            at, number = read_name(base, at, np.int64(roles.CONNECTION), names)
            ints[columns.CONNECTION_NAME, n] = number
        else:
            at = skip_string(base, at + 1) if byte_at(base, at) == QUOTE else columns.REFUSED
    elif length == 9 and is_key(base, key, length, _PRINCIPAL):
        bit = _SEEN_PRINCIPAL
        at, number = read_principal(base, at, names)
        ints[columns.PRINCIPAL_NAME, n] = number
    elif length == 8 and word_at(base, key) == _LISTENER:
        bit = _SEEN_LISTENER
        at, number = read_name(base, at, np.int64(roles.LISTENER), names)
        ints[columns.LISTENER_NAME, n] = number
    return at, bit


@inlined
def _number_key(base, key, length, at, ints, doubles, n):
    """Read the value if the key is that of a time; else return 0 as the key's bit."""
    bit = 0
    if length == 11 and is_key(base, key, length, _LOCAL):
        bit = _SEEN_LOCAL
        at, doubles[columns.LOCAL, n] = read_double(base, at)
    elif length == 14 and is_key(base, key, length, _THROTTLE):
        bit = _SEEN_THROTTLE
        at, told = read_int(base, at)
        if not _in_32_bits(told):
            at = columns.REFUSED
        ints[columns.THROTTLE, n] = told
    elif length == 19 and is_long_key(base, key, length, _QUEUE):
        bit = _SEEN_QUEUE
        at, doubles[columns.QUEUE, n] = read_double(base, at)
    elif length == 10 and is_key(base, key, length, _SEND):
        bit = _SEEN_SEND
        at, doubles[columns.SEND, n] = read_double(base, at)
    return at, bit


@inlined
def _line_key(base, key, length, at, context, state):
    connections, names, ints, doubles, n = context
    if length == 7 and word_at(base, key) == _REQUEST:
        bit = _SEEN_REQUEST
        at = _read_request(base, at, ints[columns.KIND, n], ints[columns.VERSION, n], ints, n)
    elif length == 8 and word_at(base, key) == _RESPONSE:
        bit = _SEEN_RESPONSE
        at = _read_response(base, at, ints[columns.KIND, n], ints[columns.VERSION, n], ints, n)
    else:
        at, bit = _number_key(base, key, length, at, ints, doubles, n)
        if not bit:
            at, bit = _name_key(base, key, length, at, (connections, names, ints, n))
        if not bit:
            if (
                (length == 22 and word_at(base, key) == _CONVERSIONS)
                or (length == 13 and is_key(base, key, length, _REQUEST_HEADER))
                or (length == 11 and is_key(base, key, length, _IS_FORWARDED))
            ):
                at = columns.REFUSED
            else:
                at = skip_value(base, at)
    return at, bit, state


@compiled
def _line(base, start, nanos, connections, names, ints, doubles, n):
    """Read one line; return where its newline is, or what went wrong."""
    at = read_front(base, start, nanos, names, ints, doubles, n)
    if at < 0:
        return at
    at = read_begin(base, at, ints, n)
    if at < 0:
        return at
    at = read_header(base, at, names, ints, n)
    if at < 0:
        return at
    ints[columns.OFFSET, n] = start
    ints[columns.BYTES, n] = 0
    ints[columns.EXACT, n] = 1
    ints[columns.FOLLOWER, n] = 0
    ints[columns.ANSWERED_TOPICS, n] = -1
    if byte_at(base, at) != COMMA:
        return columns.REFUSED
    at, seen, _ = walk_keys(base, at, _line_key, (connections, names, ints, doubles, n), 0)
    if at < 0:
        return at
    if seen & _NEEDED != _NEEDED:
        return columns.REFUSED
    at = find_brace(base, at)
    if byte_at(base, at) != NEWLINE or not _charge(names, ints, n, seen):
        return columns.REFUSED
    return at


@compiled
def _charge(names, ints, n, seen):
    """Work out what a line that was read whole was charged; say whether it can be told."""
    kind, version = ints[columns.KIND, n], ints[columns.VERSION, n]
    if kind == columns.OTHER:
        return True
    if kind == columns.PRODUCE:
        ints[columns.BYTES, n] += (10 if version <= 8 else 11) + _length(
            names, ints[columns.CLIENT_NAME, n]
        )
        ints[columns.EXACT, n] = 1 if version <= charged_bytes.NEWEST_PRODUCE else 0
        return seen & _SEEN_REQUEST != 0
    answered = ints[columns.ANSWERED_TOPICS, n]
    if kind == columns.FETCH:
        throttled = ints[columns.THROTTLE, n] > 0
        if answered < 0 or (answered == 0 and throttled):
            # Nothing was answered; or it was charged and taken back, and its size isn't logged.
            ints[columns.BYTES, n] = 0
            ints[columns.EXACT, n] = 0
        else:
            known = charged_bytes.OLDEST_EXACT_FETCH <= version <= charged_bytes.NEWEST_FETCH
            ints[columns.EXACT, n] = 1 if known and ints[columns.THROTTLE, n] == 0 else 0
    else:
        asked = ints[columns.ASKED_TOPICS, n]
        if asked != answered or not asked:
            return False  # who knows which of them were charged
        ints[columns.THROTTLE, n] = max(ints[columns.THROTTLE, n], ints[columns.TOLD_INSIDE, n])
    return seen & 3 == 3


@compiled
def _length(names, number):
    return names[1][number, 1]


@compiled
def scan(base, at, end, nanos, connections, names, ints, doubles, given, found):
    """
    Scan lines until the end, or until there's no more room for lines or names.

    Args:
        base: the text's address, readable PADDING beyond ``end``.
        at: where to begin, at the start of a line.
        end: where the lines end, behind a newline.
        nanos: fractions are nanoseconds (``time_stamps.sniff_nanos``).
        connections: also number connections.
        names: ``Names.parts``.
        ints: INTS columns of lines taken.
        doubles: DOUBLES columns of lines taken.
        given: (start, end) of lines given back.
        found: how far it came: STOPPED, TAKEN, GIVEN, LINES.
    """
    n = np.int64(0)  # not the literal 0: a type of its own, for which all would be compiled again
    back = np.int64(0)
    lines = np.int64(0)
    room = min(ints.shape[1], given.shape[0])
    while at < end and n < room and back < room:
        if byte_at(base, at) == NEWLINE:
            at += 1
            continue
        stop = _line(base, at, nanos, connections, names, ints, doubles, n)
        if stop == columns.FULL:
            break
        lines += 1
        if stop >= 0:
            n += 1
        else:
            stop = find_newline(base, at)
            given[back, 0] = at
            given[back, 1] = stop
            back += 1
        at = stop + 1
    found[columns.STOPPED] = at
    found[columns.TAKEN] = n
    found[columns.GIVEN] = back
    found[columns.LINES] = lines
