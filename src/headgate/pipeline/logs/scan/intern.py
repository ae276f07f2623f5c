"""
Look names up in ``Names``, in machine code.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Final

import numpy as np

from headgate.kernel.compiled import compiled
from headgate.pipeline.logs.scan.json_text import byte_at, word_at
from headgate.pipeline.logs.scan.names import COUNT, PADDING, SLOTS, USED

_MIX: Final = -7046029254386353131  # 2^64 / golden ratio, odd


@compiled
def _look(base, at, length, role, names):
    """Return (number, slot) of a name; number -1 where it's unknown, with the slot for it."""
    slots, entries, arena, _ = names
    h = role * 31 + length
    end = at + length
    i = at
    while i + 8 <= end:
        h = (h ^ word_at(base, i)) * _MIX
        h ^= h >> 29
        i += 8
    if i < end:
        if length >= 8:
            h = (h ^ word_at(base, end - 8)) * _MIX
            h ^= h >> 29
        else:
            while i < end:
                h = (h ^ byte_at(base, i)) * _MIX
                i += 1
            h ^= h >> 29
    h ^= h >> 32
    text = np.int64(arena.ctypes.data)
    slot = h & (SLOTS - 1)
    while True:
        number = np.int64(slots[slot]) - 1
        if number < 0:
            return number, slot
        if entries[number, 1] == length and entries[number, 2] == role:
            start = entries[number, 0]
            if _same(base, at, text, start, length):
                return number, slot
        slot = (slot + 1) & (SLOTS - 1)


@compiled
def find(base, at, length, role, names):
    """Return the number of a name; -1 where it's unknown."""
    return _look(base, at, length, role, names)[0]


@compiled
def intern(base, at, length, role, names):
    """Return the number of a name, a new one where it's unknown; -1 where there's no more room."""
    number, slot = _look(base, at, length, role, names)
    if number >= 0:
        return number
    slots, entries, arena, state = names
    number = state[COUNT]
    start = state[USED]
    if number >= len(entries) or start + length + PADDING > len(arena):
        return -1
    for i in range(length):
        arena[start + i] = byte_at(base, at + i)
    entries[number, 0] = start
    entries[number, 1] = length
    entries[number, 2] = role
    slots[slot] = number + 1
    state[COUNT] = number + 1
    state[USED] = start + length
    return number


@compiled
def _same(base, at, other, start, length):
    i = 0
    while i + 8 <= length:
        if word_at(base, at + i) != word_at(other, start + i):
            return False
        i += 8
    while i < length:
        if byte_at(base, at + i) != byte_at(other, start + i):
            return False
        i += 1
    return True
