"""
Number the names that lines of a log hold: each distinct one once, looked up in machine code.

A name belongs to a role (time stamp, listener, principal ...), for what a name means depends on
it. Numbers are dense, so what a name means is worked out once and kept in an array.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from typing import Any, Final

import numpy as np

from headgate.kernel.compiled import compiled
from headgate.pipeline.scan.text import PADDING, byte_at, word_at

# Roles.
STAMP: Final = 0
MIDDLE: Final = 1
API: Final = 2
LISTENER: Final = 3
PRINCIPAL: Final = 4
CLIENT: Final = 5
CONNECTION: Final = 6

# Numbers take 20 bits of a key (``scan.totals``).
MOST_NAMES: Final = 1 << 20
_SLOTS: Final = 1 << 21
_MIX: Final = -7046029254386353131  # 2^64 / golden ratio, odd

_COUNT: Final = 0
_USED: Final = 1


class Names:
    """
    Names and their numbers.

    Args:
        most: how many names there is room for.
        text_bytes: how many bytes of text.

    Attributes:
        entries: int64 (start, length, role) by number.
    """

    def __init__(self, most: int = MOST_NAMES, text_bytes: int = 1 << 26) -> None:
        # Untouched pages cost nothing: what isn't used is never given.
        self.slots = np.zeros(_SLOTS, np.int32)
        self.entries = np.empty((most, 3), np.int64)
        self.arena = np.empty(text_bytes + PADDING, np.uint8)
        self.state = np.zeros(2, np.int64)

    def __len__(self) -> int:
        return int(self.state[_COUNT])

    def clear(self) -> None:
        """Forget all."""
        self.slots[:] = 0
        self.state[:] = 0

    @property
    def parts(self) -> tuple[Any, ...]:
        """What ``intern`` takes."""
        return self.slots, self.entries, self.arena, self.state

    def text(self, number: int) -> bytes:
        """Return a name."""
        start, length, _ = self.entries[number].tolist()
        return self.arena[start : start + length].tobytes()

    def role(self, number: int) -> int:
        """Return a name's role."""
        return int(self.entries[number, 2])


@compiled
def intern(base, at, length, role, names):
    """Return the number of a name, a new one where it's unknown; -1 where there's no more room."""
    slots, entries, arena, state = names
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
    slot = h & (_SLOTS - 1)
    while True:
        number = slots[slot] - 1
        if number < 0:
            break
        if entries[number, 1] == length and entries[number, 2] == role:
            start = entries[number, 0]
            if _same(base, at, text, start, length):
                return number
        slot = (slot + 1) & (_SLOTS - 1)
    number = state[_COUNT]
    start = state[_USED]
    if number >= len(entries) or start + length + PADDING > len(arena):
        return -1
    for i in range(length):
        arena[start + i] = byte_at(base, at + i)
    entries[number, 0] = start
    entries[number, 1] = length
    entries[number, 2] = role
    slots[slot] = number + 1
    state[_COUNT] = number + 1
    state[_USED] = start + length
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
