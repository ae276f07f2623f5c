"""
Find the request lines in a buffer, and what each holds, in machine code.

A line is taken only if all of it is understood: compact ASCII JSON in which every needed key stands
once, with a time stamp in front of it; or the same as a JSON string, its quotes escaped. All others
are given back for ``line_parser.LineParser``, which also says what is wrong with them. The caller
checks, once per distinct text, that the stamps are possible times, and what the text around the
request means (``frame``).
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Any, Final

import numpy as np

from headgate.kernel.compiled import compiled, inlined
from headgate.pipeline.logs import charged_bytes
from headgate.pipeline.logs.scan import columns
from headgate.pipeline.logs.scan import names as roles
from headgate.pipeline.logs.scan.escaped import copy_unescaped, end_of
from headgate.pipeline.logs.scan.fetch import fetch_request, fetch_response
from headgate.pipeline.logs.scan.frame import add_numbers, add_text, number_frame
from headgate.pipeline.logs.scan.front import (
    find_request,
    name_into,
    read_begin,
    read_header,
    read_principal,
    refuse,
)
from headgate.pipeline.logs.scan.json_text import (
    COMMA,
    NEWLINE,
    QUOTE,
    byte_at,
    find_brace,
    find_newline,
    put_byte,
    read_double,
    read_int,
    skip_string,
    skip_value,
)
from headgate.pipeline.logs.scan.mutation import mutation_request, mutation_response
from headgate.pipeline.logs.scan.produce import is_refused, produce_request
from headgate.pipeline.logs.scan.walk import keys, walk_keys


@inlined
def _in_32_bits(value):
    return -2147483648 <= value <= 2147483647


@compiled
def _request(base, at, ints, n):
    """Read a request's body; return the position behind it."""
    kind = ints[columns.KIND, n]
    if kind == columns.PRODUCE:
        at, size = produce_request(base, at, ints[columns.VERSION, n])
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
def _response(base, at, ints, n):
    """Read an answer's body; return the position behind it."""
    kind = ints[columns.KIND, n]
    if kind == columns.FETCH and byte_at(base, at) != QUOTE:
        at, size, topics = fetch_response(base, at, ints[columns.VERSION, n])
        ints[columns.BYTES, n] += size
        ints[columns.ANSWERED_TOPICS, n] = topics
    elif kind == columns.MUTATION:
        at, told, topics = mutation_response(base, at)
        if not _in_32_bits(told):
            at = columns.REFUSED
        ints[columns.TOLD_INSIDE, n] = told
        ints[columns.ANSWERED_TOPICS, n] = topics
    else:
        begin = at
        at = skip_value(base, at)
        if kind == columns.PRODUCE and is_refused(base, begin, at):
            at = columns.REFUSED
    return at


def _body(read_body: Any) -> Any:
    """
    Return the reader of a body.

    ``read_body`` is compiled as a function of its own: inlined, the bodies would make the loop over
    a line's keys a tenth slower.
    """

    @inlined
    def read(base, at, context, state):
        _, _, ints, _, n = context
        return read_body(base, at, ints, n), state

    return read


def _time_into(column: int) -> Any:
    """Return a reader of a time, for which the context has a column."""

    @inlined
    def read(base, at, context, state):
        _, _, _, doubles, n = context
        at, doubles[column, n] = read_double(base, at)
        return at, state

    return read


@inlined
def _throttle(base, at, context, state):
    _, _, ints, _, n = context
    at, told = read_int(base, at)
    if not _in_32_bits(told):
        at = columns.REFUSED
    ints[columns.THROTTLE, n] = told
    return at, state


@inlined
def _principal(base, at, context, state):
    _, names, ints, _, n = context
    at, ints[columns.PRINCIPAL_NAME, n] = read_principal(base, at, names)
    return at, state


_numbered_connection = name_into(columns.CONNECTION_NAME, roles.CONNECTION)


@inlined
def _connection(base, at, context, state):
    if context[0]:
        at, state = _numbered_connection(base, at, context, state)
    else:
        at = skip_string(base, at + 1) if byte_at(base, at) == QUOTE else columns.REFUSED
    return at, state


_line_keys = keys(
    (b"request", _body(_request)),
    (b"response", _body(_response)),
    (b"localTimeMs", _time_into(columns.LOCAL)),
    (b"throttleTimeMs", _throttle),
    (b"responseQueueTimeMs", _time_into(columns.QUEUE)),
    (b"sendTimeMs", _time_into(columns.SEND)),
    (b"connection", _connection),
    (b"principal", _principal),
    (b"listener", name_into(columns.LISTENER_NAME, roles.LISTENER)),
    (b"messageConversionsTime", b"requestHeader", b"isForwarded", refuse),
)
_REQUEST: Final = 1
_BOTH: Final = 3
_NEEDED: Final = 0b111_1111_00
"""Bits of the keys that every line has: all but the bodies, and those that are refused."""


@compiled
def _json(text, at, connections, names, ints, doubles, n):
    """Read a request's JSON; return the position behind it, or what went wrong."""
    at = read_begin(text, at, ints, n)
    if at < 0:
        return at
    context = (connections, names, ints, doubles, n)
    at = read_header(text, at, context)
    if at < 0:
        return at
    ints[columns.BYTES, n] = 0
    ints[columns.EXACT, n] = 1
    ints[columns.FOLLOWER, n] = 0
    ints[columns.ANSWERED_TOPICS, n] = -1
    if byte_at(text, at) != COMMA:
        return columns.REFUSED
    at, seen, _ = walk_keys(text, at, _line_keys, context, 0)
    if at < 0:
        return at
    if seen & _NEEDED != _NEEDED or not _charge(names, ints, n, seen):
        return columns.REFUSED
    return at


@compiled
def _line(base, start, how, names, ints, doubles, n):
    """Read one line; return where its newline is, or what went wrong."""
    nanos, connections, frame, copy, most = how
    brace, in_string = find_request(base, start)
    if brace < 0:
        return brace
    length = np.int64(0)
    stamps = np.int64(0)
    length, stamps = add_text(
        base, start, brace, frame, length, stamps, nanos, names, ints, doubles, n
    )
    if length < 0:
        return length
    ints[columns.OFFSET, n] = start
    if in_string:
        stamps = add_numbers(base, start, brace, frame, length, stamps, ints, doubles, n)
        stop, copied = copy_unescaped(base, brace, copy)
        if copied < 0:
            return columns.REFUSED
        at = _json(copy, np.int64(0), connections, names, ints, doubles, n)
        if at < 0:
            return at
        at = end_of(copy, at, copied, stop)
        end = find_newline(base, at)
        if end - at > columns.MOST_AROUND:
            return columns.REFUSED
        put_byte(frame, length, NEWLINE)
        length, stamps = add_text(
            base, at, end, frame, length + 1, stamps, nanos, names, ints, doubles, n
        )
        if length < 0:
            return length
        stamps = add_numbers(base, at, end, frame, length, stamps, ints, doubles, n)
        role = np.int64(roles.STRING_FRAME)
    else:
        at = _json(base, brace, connections, names, ints, doubles, n)
        if at < 0:
            return at
        end = find_brace(base, at)
        if byte_at(base, end) != NEWLINE:
            return columns.REFUSED
        role = np.int64(roles.FRAME)
    if stamps == 0:
        return columns.REFUSED
    if stamps == 1:
        ints[columns.OTHER_STAMP_NAME, n] = columns.NO_NAME
    number = number_frame(frame, length, role, most, names)
    if number < 0:
        return number
    ints[columns.FRAME_NAME, n] = number
    return end


@compiled
def _charge(names, ints, n, seen):
    """Work out what a line that was read whole was charged; say whether it can be told."""
    kind, version = ints[columns.KIND, n], ints[columns.VERSION, n]
    if kind == columns.OTHER:
        return True
    if kind == columns.PRODUCE:
        client = names[1][ints[columns.CLIENT_NAME, n], 1]  # its length
        ints[columns.BYTES, n] += (10 if version <= 8 else 11) + client
        ints[columns.EXACT, n] = 1 if version <= charged_bytes.NEWEST_PRODUCE else 0
        return seen & _REQUEST != 0
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
    return seen & _BOTH == _BOTH


@compiled
def scan(base, at, end, how, names, ints, doubles, given, found):
    """
    Scan lines until the end, or until there's no more room for lines or names.

    Args:
        base: the text's address, readable PADDING beyond ``end``.
        at: where to begin, at the start of a line.
        end: where the lines end, behind a newline.
        how: whether fractions are nanoseconds (``time_stamps.sniff_nanos``); whether connections
            are numbered, too; addresses of rooms for a line's frame (``columns.FRAME_ROOM``) and
            for text without its escapes; how many names there may be for a frame to be a new one.
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
        stop = _line(base, at, how, names, ints, doubles, n)
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
