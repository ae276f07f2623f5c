"""
Read what a produce request or a fetch answer was charged, straight from its JSON bytes.

Compiled; the same formulas as ``sizes``, over bodies as ``scan.text`` vouches for them. Each
reader takes the position of the body's opening brace and gives the one behind its closing brace,
-1 where it doesn't vouch: another type than the schema's, a key twice, a required key missing.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Final

from headgate.kernel.compiled import compiled
from headgate.pipeline.logs.scan.json_text import (
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    OPEN,
    OPEN_LIST,
    QUOTE,
    byte_at,
    find_brace,
    is_key,
    is_long_key,
    is_null,
    read_int,
    skip_name,
    skip_string,
    skip_value,
    word,
    word_at,
    words,
)


@compiled
def key_end(base, at):
    """Return where a key's closing quote is, if ``"key":`` stands behind the byte at ``at``."""
    if byte_at(base, at + 1) != QUOTE:
        return -1
    end = skip_string(base, at + 2) - 1
    return end if end >= 0 and byte_at(base, end + 1) == COLON else -1


@compiled
def varint(n):
    """Return how many bytes an unsigned varint takes (``sizes.varint_bytes``)."""
    if n < 128:
        return 1
    if n < 16384:
        return 2
    if n < 2097152:
        return 3
    return 4 if n < 268435456 else 5


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


_TOPIC: Final = words(b"topicData")
_TID: Final = words(b"transactionalId")
_PART: Final = words(b"partitionData")
_SIZE: Final = words(b"recordsSizeInBytes")
_NAME: Final = word(b'name":\0\0')
_SIX: Final = word(b"\xff\xff\xff\xff\xff\xff\0\0")


@compiled
def is_size(base, key, end):
    """Say whether a key is ``recordsSizeInBytes``."""
    return end - key == 18 and is_long_key(base, key, 18, _SIZE)


@compiled
def _produce_partition(base, at):
    """Return (position, records size); a null, or one that isn't told, is refused."""
    size, seen = -1, False
    if byte_at(base, at) != OPEN:
        return -1, 0
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0
        if is_size(base, at + 2, end):
            if seen:
                return -1, 0
            seen = True
            at, size = read_size(base, end + 2)
        else:
            at = skip_value(base, end + 2)
        if at < 0:
            return -1, 0
        c = byte_at(base, at)
        if c == CLOSE:
            return (at + 1, size) if seen else (-1, 0)
        if c != COMMA:
            return -1, 0


@compiled
def _produce_topic(base, at, version):
    """Return (position, bytes of a topic and its partitions)."""
    total, parts, name = 0, -1, -2
    if byte_at(base, at) != OPEN:
        return -1, 0
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0
        key = at + 2
        at = end + 2
        length = end - key
        if length == 4 and word_at(base, key) & _SIX == _NAME:
            if name != -2:
                return -1, 0
            at, name = read_text(base, at)
        elif length == 13 and is_key(base, key, length, _PART):
            if parts >= 0 or byte_at(base, at) != OPEN_LIST:
                return -1, 0
            parts = 0
            if byte_at(base, at + 1) == CLOSE_LIST:
                at += 2
            else:
                while True:
                    at, size = _produce_partition(base, at + 1)
                    if at < 0:
                        return -1, 0
                    parts += 1
                    total += 8 + size if version <= 8 else 5 + varint(size + 1) + size
                    c = byte_at(base, at)
                    if c == CLOSE_LIST:
                        at += 1
                        break
                    if c != COMMA:
                        return -1, 0
        else:
            at = skip_value(base, at)
        if at < 0:
            return -1, 0
        c = byte_at(base, at)
        if c == CLOSE:
            break
        if c != COMMA:
            return -1, 0
    if parts < 0:
        return -1, 0
    if version <= 8:
        total += 6 + max(name, 0)
    else:
        total += 16 if name < 0 or version >= 13 else varint(name + 1) + name
        total += varint(parts + 1) + 1
    return at + 1, total


_ERROR: Final = word(b"errorCod")


@compiled
def is_refused(base, at, end):
    """Say whether the first partition of an answer has an error that refuses whole requests."""
    for _ in range(2):  # the answer's brace, its first topic's, that one's first partition's
        at = find_brace(base, at + 1)
    while at < end and word_at(base, at) != _ERROR:
        at += 1
    if at >= end or byte_at(base, at + 9) != QUOTE:
        return False
    _, code = read_int(base, at + 11)
    return code == 31 or code == 53


@compiled
def produce_request(base, at, version):
    """Return (position, bytes of the body) of a produce request."""
    total, topics, tid, seen_tid = 0, -1, -1, False
    if byte_at(base, at) != OPEN:
        return -1, 0
    while True:
        end = key_end(base, at)
        if end < 0:
            return -1, 0
        key = at + 2
        at = end + 2
        length = end - key
        if length == 9 and is_key(base, key, length, _TOPIC):
            if topics >= 0 or byte_at(base, at) != OPEN_LIST:
                return -1, 0
            topics = 0
            if byte_at(base, at + 1) == CLOSE_LIST:
                at += 2
            else:
                while True:
                    at, size = _produce_topic(base, at + 1, version)
                    if at < 0:
                        return -1, 0
                    topics += 1
                    total += size
                    c = byte_at(base, at)
                    if c == CLOSE_LIST:
                        at += 1
                        break
                    if c != COMMA:
                        return -1, 0
        elif length == 15 and is_key(base, key, length, _TID):
            if seen_tid:
                return -1, 0
            seen_tid = True
            at, tid = read_text(base, at)
        else:
            at = skip_value(base, at)
        if at < 0:
            return -1, 0
        c = byte_at(base, at)
        if c == CLOSE:
            break
        if c != COMMA:
            return -1, 0
    if topics < 0:
        return -1, 0
    if version <= 8:
        total += 10 + (2 + max(tid, 0) if version >= 3 else 0)
    else:
        total += 7 + varint(topics + 1) + (1 if tid < 0 else varint(tid + 1) + tid)
    return at + 1, total
