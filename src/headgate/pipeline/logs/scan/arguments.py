"""
Where ``entry`` finds each of its arguments: indices into one array of int64.
"""

from __future__ import annotations

from typing import Final

STEP: Final = 0
# Of every step: addresses of the text and of the lines' columns, and how many lines they hold.
TEXT: Final = 1
INTS: Final = 2
DOUBLES: Final = 3
ROOM: Final = 4
# Lines given back, how many there may be; what a step found; what names mean.
GIVEN: Final = 5
GIVEN_ROOM: Final = 6
FOUND: Final = 7
VALUES: Final = 8
# scan: from where to where, and how.
BEGIN: Final = 9
END: Final = 10
NANOS: Final = 11
CONNECTIONS: Final = 12
# Names: their hash table, entries and how many, text and its bytes, state.
SLOTS: Final = 13
ENTRIES: Final = 14
MOST: Final = 15
ARENA: Final = 16
ARENA_BYTES: Final = 17
STATE: Final = 18
# add_up: lines, their broker; groups' hash table and its length, keys, sums, amounts, how many
# there may be and are.
LINES: Final = 19
BROKER: Final = 20
GROUP_SLOTS: Final = 21
GROUP_SLOTS_LENGTH: Final = 22
KEYS: Final = 23
SUMS: Final = 24
AMOUNTS: Final = 25
MOST_GROUPS: Final = 26
COUNT: Final = 27
ALL: Final = 28

# Steps.
SCAN: Final = 0
SETTLE: Final = 1
ADD_UP: Final = 2
