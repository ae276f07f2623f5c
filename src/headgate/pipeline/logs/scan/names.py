"""
Number the names that lines of a log hold: each distinct one once (looked up by ``intern``).

A name belongs to a role (time stamp, listener, principal ...), for what a name means depends on
it. Numbers are dense, so what a name means is worked out once and kept in an array.
"""

from __future__ import annotations

from typing import Final

import numpy as np

# Bytes behind the end of a text that may be looked at, whatever they hold.
PADDING: Final = 64

# Roles.
STAMP, FRAME, API, LISTENER, PRINCIPAL, CLIENT, CONNECTION = range(7)
# A stamp that prints its zone; what stands around a request inside a JSON string.
ZONED, STRING_FRAME = 7, 8

# Numbers take 20 bits of a key (``scan.totals``).
MOST_NAMES: Final = 1 << 20
SLOTS: Final = 1 << 21

COUNT, USED = range(2)


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
        # The system gives no memory for pages that are never touched.
        self.slots = np.zeros(SLOTS, np.int32)
        self.entries = np.empty((most, 3), np.int64)
        self.arena = np.empty(text_bytes + PADDING, np.uint8)
        self.state = np.zeros(2, np.int64)

    def __len__(self) -> int:
        return int(self.state[COUNT])

    def clear(self) -> None:
        """Forget all names."""
        self.slots[:] = 0
        self.state[:] = 0

    def text(self, number: int) -> bytes:
        """Return a name."""
        start, length, _ = self.entries[number].tolist()
        return self.arena[start : start + length].tobytes()

    def role(self, number: int) -> int:
        """Return a name's role."""
        return int(self.entries[number, 2])
