"""
Walk over JSON objects and lists in machine code, and read the values that sizes are made of.

Each walk takes a function that reads one key's value, or one element, and is compiled together with
it. A walk checks what it goes over: it gives -1 where JSON is broken or a needed key is there
twice.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from headgate.kernel.compiled import compiled
from headgate.pipeline.logs.charged_bytes import varint_bytes
from headgate.pipeline.logs.scan.json_text import (
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    OPEN,
    OPEN_LIST,
    QUOTE,
    byte_at,
    inlined,
    is_null,
    read_int,
    skip_name,
    skip_string,
    skip_value,
)


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
        read_key: takes (base, the key's position, its length, its value's position, context,
            state), and gives (position behind the value, the key's bit, state). Keys whose bit is 0
            may be there twice.
        context: what else ``read_key`` needs to know.
        state: what it has read so far.

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
        read_element: takes (base, position, context, state), and gives (position behind the
            element, state).
        context: what else ``read_element`` needs to know.
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


@inlined
def _any_element(base, at, context, state):
    return skip_value(base, at), state


@compiled
def count_elements(base, at):
    """Return (position, elements) of a list of whatever, or of null, which has -1."""
    if is_null(base, at):
        return at + 4, -1
    at, count, _ = walk_list(base, at, _any_element, 0, 0)
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


varint = compiled(varint_bytes)


@compiled
def topic_frame(flexible, has_id, name, partitions):
    """
    Return the bytes of a topic beside those of its partitions.

    Args:
        flexible: whether the version is one of KIP-482's.
        has_id: whether the version names topics by their ids.
        name: bytes of the topic's name, -1: it has none.
        partitions: how many.
    """
    if not flexible:
        return 6 + max(name, 0)
    named = 16 if name < 0 or has_id else varint(name + 1) + name
    return named + varint(partitions + 1) + 1
