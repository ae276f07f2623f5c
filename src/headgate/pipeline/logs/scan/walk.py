"""
Walk over JSON objects and lists in machine code, and read the values that sizes are made of.

A reader takes (base, position, context, state) and gives (position behind what it has read, state).
The state is a tuple of whole numbers: what has been read of an object so far. ``keys`` is given the
reader of each key's value, and ``walk_object`` goes over an object with them. A walk is compiled
together with its readers. It checks what it goes over: it gives -1 where JSON is broken or a needed
key is there twice.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import functools
from typing import Any

from numba.cpython.unsafe.tuple import tuple_setitem
from numba.extending import register_jitable

from headgate.kernel.compiled import compiled, inlined
from headgate.pipeline.logs import charged_bytes
from headgate.pipeline.logs.scan.json_text import (
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    OPEN,
    OPEN_LIST,
    QUOTE,
    byte_at,
    is_null,
    named,
    read_int,
    skip_name,
    skip_string,
    skip_value,
)

# The formulas of ``charged_bytes``, for the readers to call.
for _formula in charged_bytes.FORMULAS:
    register_jitable(_formula)


def keys(*rows: tuple[Any, ...]) -> Any:
    """
    Return what reads an object's keys, for ``walk_object``.

    Args:
        rows: a key's name, other names of the same key if it has any, and the reader of its value.
            The n-th row's bit is 1 << n. Keys that have no row are skipped.
    """
    read_key = _other_key
    for number in reversed(range(len(rows))):
        *names, read = rows[number]
        read_key = _key(functools.reduce(_either, map(named, names)), 1 << number, read, read_key)
    return read_key


def _either(one: Any, other: Any) -> Any:
    @inlined
    def is_either(base, at, length):
        return one(base, at, length) or other(base, at, length)

    return is_either


def _key(is_own: Any, bit: int, read: Any, otherwise: Any) -> Any:
    @inlined
    def read_key(base, key, length, at, context, state):
        if is_own(base, key, length):
            seen = bit
            at, state = read(base, at, context, state)
        else:
            at, seen, state = otherwise(base, key, length, at, context, state)
        return at, seen, state

    return read_key


@inlined
def _other_key(base, key, length, at, context, state):
    return skip_value(base, at), 0, state


def into(place: int, read: Any) -> Any:
    """
    Return a reader of a value that goes into the state.

    Args:
        place: of the state.
        read: takes (base, position), and gives (position behind the value, the value).
    """

    @inlined
    def read_into(base, at, context, state):
        at, value = read(base, at)
        return at, tuple_setitem(state, place, value)

    return read_into


def list_into(place: int, read_element: Any) -> Any:
    """
    Return a reader of a list.

    Args:
        place: of the state, for the number of elements. What they add up to is in the next place.
        read_element: the reader of an element; its state is that sum.
    """
    sums = place + 1

    @inlined
    def read_into(base, at, context, state):
        at, count, total = walk_list(base, at, read_element, context, state[sums])
        return at, tuple_setitem(tuple_setitem(state, place, count), sums, total)

    return read_into


@inlined
def passed(base, at, context, state):
    """Skip a value: that its key is there is enough."""
    return skip_value(base, at), state


@compiled
def key_end(base, at):
    """Return where a key's closing quote is, if ``"key":`` stands behind the byte at ``at``."""
    if byte_at(base, at + 1) != QUOTE:
        return -1
    end = skip_string(base, at + 2) - 1
    return end if end >= 0 and byte_at(base, end + 1) == COLON else -1


@inlined
def walk_keys(base, at, read_key, context, state):
    """
    Walk over an object from the byte in front of a key: its brace, or a comma.

    Args:
        base: the text's address.
        at: where that byte is.
        read_key: what ``keys`` returns. It takes (base, the key's position, its length, its value's
            position, context, state), and gives (position behind the value, the key's bit, state).
            Keys whose bit is 0 may be there twice.
        context: what else readers need to know.
        state: what they have read so far.

    Returns:
        The position behind the object (below 0 where it's refused), the bits of its keys, and the
        state.
    """
    seen = 0
    while True:
        end = key_end(base, at)
        if end < 0:
            at = -1
            break
        at, bit, state = read_key(base, at + 2, end - at - 2, end + 2, context, state)
        if at < 0:
            break
        if seen & bit:
            at = -1
            break
        seen |= bit
        c = byte_at(base, at)
        if c != COMMA:
            at = at + 1 if c == CLOSE else -1
            break
    return at, seen, state


@inlined
def walk_object(base, at, read_key, context, state):
    """Walk over a whole object, as ``walk_keys``."""
    seen = 0
    if byte_at(base, at) != OPEN:
        at = -1
    elif byte_at(base, at + 1) == CLOSE:
        at += 2
    else:
        at, seen, state = walk_keys(base, at, read_key, context, state)
    return at, seen, state


@inlined
def walk_list(base, at, read_element, context, state):
    """
    Walk over a list.

    Args:
        base: the text's address.
        at: where the list begins.
        read_element: the reader of an element.
        context: what else it needs to know.
        state: what it has read so far.

    Returns:
        The position behind the list (-1 where it's refused), its elements, and the state.
    """
    count = 0
    if byte_at(base, at) != OPEN_LIST:
        at = -1
    elif byte_at(base, at + 1) == CLOSE_LIST:
        at += 2
    else:
        while True:
            at, state = read_element(base, at + 1, context, state)
            if at < 0:
                break
            count += 1
            c = byte_at(base, at)
            if c != COMMA:
                at = at + 1 if c == CLOSE_LIST else -1
                break
    return at, count, state


@compiled
def count_elements(base, at):
    """Return (position, elements) of a list of whatever, or of null, which has -1."""
    if is_null(base, at):
        return at + 4, -1
    at, count, _ = walk_list(base, at, passed, 0, 0)
    return at, count


@compiled
def read_text(base, at):
    """Return (position, bytes) of a plain string; length -1 for null, position -1 for others."""
    if byte_at(base, at) == QUOTE:
        end = skip_name(base, at + 1)
        return end, end - at - 2
    return (at + 4, -1) if is_null(base, at) else (-1, 0)


@compiled
def read_size(base, at):
    """Return (position, bytes)."""
    at, size = read_int(base, at)
    return (at, size) if 0 <= size <= 2147483647 else (-1, 0)
