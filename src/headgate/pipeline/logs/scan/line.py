"""
Find the request lines of the stock layout in a buffer, and what each holds, in machine code.

A line is taken only if all of it is vouched for: ``[yyyy-MM-dd HH:mm:ss,fraction] ... {json} ...``
with compact ASCII JSON in which every needed key stands once. All others are given back for
``line_parser.LineParser``, which also says what is wrong with them. Whether the stamp is a possible
time, and whether what stands between it and the JSON holds another one, is for the caller to say,
once per distinct text.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Final

import numpy as np

from headgate.kernel.compiled import compiled
from headgate.pipeline.logs import charged_bytes
from headgate.pipeline.logs.scan.columns import (
    BYTES,
    CLIENT_NAME,
    CONNECTION_NAME,
    EXACT,
    FETCH,
    FOLLOWER,
    FULL,
    GIVEN,
    KIND,
    LINES,
    LISTENER_NAME,
    LOCAL,
    MUTATION,
    OFFSET,
    PRINCIPAL_NAME,
    PRODUCE,
    QUEUE,
    REFUSED,
    SEND,
    STOPPED,
    TAKEN,
    THROTTLE,
    VERSION,
)
from headgate.pipeline.logs.scan.fetch import fetch_request, fetch_response
from headgate.pipeline.logs.scan.front import read_begin, read_front, read_header, read_principal
from headgate.pipeline.logs.scan.intern import intern
from headgate.pipeline.logs.scan.json_text import (
    CLOSE,
    COMMA,
    NEWLINE,
    QUOTE,
    byte_at,
    find_brace,
    find_newline,
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
from headgate.pipeline.logs.scan.names import (
    CONNECTION,
    LISTENER,
)
from headgate.pipeline.logs.scan.produce import is_refused, key_end, produce_request

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
    kind = ints[KIND, n]
    version = ints[VERSION, n]
    seen = 0
    bytes_ = 0
    topics = -1
    follower = 0
    told_inside = 0
    changed, answered, estimated = 0, 0, False
    while byte_at(base, at) == COMMA:
        end = key_end(base, at)
        if end < 0:
            return REFUSED
        key = at + 2
        at = end + 2
        length = end - key
        bit = 0
        if length == 7 and word_at(base, key) == _REQUEST:
            bit = _SEEN_REQUEST
            if kind == PRODUCE:
                at, size = produce_request(base, at, version)
                bytes_ += size
            elif kind == FETCH:
                at, replica = fetch_request(base, at)
                follower = 1 if replica >= 0 else 0
            elif kind == MUTATION:
                at, bytes_, changed, estimated = mutation_request(base, at)
            else:
                at = skip_value(base, at)
        elif length == 8 and word_at(base, key) == _RESPONSE:
            bit = _SEEN_RESPONSE
            if kind == FETCH and byte_at(base, at) != QUOTE:
                at, size, topics = fetch_response(base, at, version)
                bytes_ += size
            elif kind == MUTATION:
                at, told_inside, answered = mutation_response(base, at)
                if not -2147483648 <= told_inside <= 2147483647:
                    return REFUSED
            elif kind == PRODUCE:
                begin = at
                at = skip_value(base, at)
                if is_refused(base, begin, at):
                    return REFUSED
            else:
                at = skip_value(base, at)
        elif length == 10 and is_key(base, key, length, _CONNECTION):
            bit = _SEEN_CONNECTION
            if byte_at(base, at) != QUOTE:
                return REFUSED
            at += 1
            begin = at
            at = skip_string(base, at)
            if connections and at >= 0:
                number = intern(base, begin, at - begin - 1, np.int64(CONNECTION), names)
                if number < 0:
                    return FULL
                ints[CONNECTION_NAME, n] = number
        elif length == 11 and is_key(base, key, length, _LOCAL):
            bit = _SEEN_LOCAL
            at, value = read_double(base, at)
            doubles[LOCAL, n] = value
        elif length == 14 and is_key(base, key, length, _THROTTLE):
            bit = _SEEN_THROTTLE
            at, told = read_int(base, at)
            if not -2147483648 <= told <= 2147483647:
                return REFUSED
            ints[THROTTLE, n] = told
        elif length == 19 and is_long_key(base, key, length, _QUEUE):
            bit = _SEEN_QUEUE
            at, value = read_double(base, at)
            doubles[QUEUE, n] = value
        elif length == 10 and is_key(base, key, length, _SEND):
            bit = _SEEN_SEND
            at, value = read_double(base, at)
            doubles[SEND, n] = value
        elif length == 9 and is_key(base, key, length, _PRINCIPAL):
            bit = _SEEN_PRINCIPAL
            if byte_at(base, at) != QUOTE:
                return REFUSED
            at += 1
            begin = at
            at = skip_string(base, at)
            if at < 0:
                return REFUSED
            number = read_principal(base, begin, at - 1, names)
            if number < 0:
                return number
            ints[PRINCIPAL_NAME, n] = number
        elif length == 8 and word_at(base, key) == _LISTENER:
            bit = _SEEN_LISTENER
            if byte_at(base, at) != QUOTE:
                return REFUSED
            at += 1
            begin = at
            at = skip_string(base, at)
            if at < 0:
                return REFUSED
            number = intern(base, begin, at - begin - 1, np.int64(LISTENER), names)
            if number < 0:
                return FULL
            ints[LISTENER_NAME, n] = number
        elif (
            (length == 22 and word_at(base, key) == _CONVERSIONS)
            or (length == 13 and is_key(base, key, length, _REQUEST_HEADER))
            or (length == 11 and is_key(base, key, length, _IS_FORWARDED))
        ):
            return REFUSED
        else:
            at = skip_value(base, at)
        if at < 0 or seen & bit:
            return REFUSED
        seen |= bit
    if byte_at(base, at) != CLOSE or seen & _NEEDED != _NEEDED:
        return REFUSED
    at = find_brace(base, at + 1)
    if byte_at(base, at) != NEWLINE:
        return REFUSED
    exact = True
    if kind == PRODUCE:
        if not seen & _SEEN_REQUEST:
            return REFUSED
        bytes_ += (10 if version <= 8 else 11) + _length(names, ints[CLIENT_NAME, n])
        exact = version <= charged_bytes.NEWEST_PRODUCE
    elif kind == FETCH:
        if seen & 3 != 3:
            return REFUSED
        throttled = ints[THROTTLE, n] > 0
        if topics < 0 or (topics == 0 and throttled):
            bytes_ = 0  # nothing answered; or charged and taken back, and its size isn't logged
            exact = False
        else:
            known = charged_bytes.OLDEST_EXACT_FETCH <= version <= charged_bytes.NEWEST_FETCH
            exact = known and ints[THROTTLE, n] == 0
    elif kind == MUTATION:
        if seen & 3 != 3:
            return REFUSED
        if changed != answered or not changed:
            return REFUSED  # who knows which of them were charged
        exact = not estimated
        ints[THROTTLE, n] = max(ints[THROTTLE, n], told_inside)
    ints[OFFSET, n] = start
    ints[BYTES, n] = bytes_
    ints[EXACT, n] = 1 if exact else 0
    ints[FOLLOWER, n] = follower
    return at


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
        nanos: fractions are nanoseconds (``stamps.sniff_nanos``).
        connections: also number connections.
        names: ``Names.parts``.
        ints: INTS columns of lines taken.
        doubles: DOUBLES columns of lines taken.
        given: (start, end) of lines given back.
        found: how far it came: STOPPED, TAKEN, GIVEN, LINES.
    """
    n = np.int64(0)  # not the literal 0: a type of its own, for which all would be compiled anew
    back = np.int64(0)
    lines = np.int64(0)
    room = min(ints.shape[1], given.shape[0])
    while at < end and n < room and back < room:
        if byte_at(base, at) == NEWLINE:
            at += 1
            continue
        stop = _line(base, at, nanos, connections, names, ints, doubles, n)
        if stop == FULL:
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
    found[STOPPED] = at
    found[TAKEN] = n
    found[GIVEN] = back
    found[LINES] = lines
