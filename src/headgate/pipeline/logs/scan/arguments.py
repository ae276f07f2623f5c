"""
Where ``entry`` finds each of its arguments: indices into one array of int64.
"""

from __future__ import annotations

STEP = 0
# Of every step: addresses of the text and of the lines' columns, and how many lines they hold.
TEXT, INTS, DOUBLES, ROOM = range(1, 5)
# Lines given back, how many there may be; what a step found; what names mean.
GIVEN, GIVEN_ROOM, FOUND, VALUES = range(5, 9)
# scan: from where to where, and how.
BEGIN, END, NANOS, CONNECTIONS = range(9, 13)
# Names: their hash table, entries and how many, text and its bytes, state.
SLOTS, ENTRIES, MOST, ARENA, ARENA_BYTES, STATE = range(13, 19)
# add_up: lines, their broker; groups' hash table and its length, keys, sums, amounts, how many
# there may be and are.
LINES, BROKER, GROUP_SLOTS, GROUP_SLOTS_LENGTH, KEYS = range(19, 24)
SUMS, AMOUNTS, MOST_GROUPS, COUNT = range(24, 28)
# Rooms for a line's frame and for text without its escapes; how many names there may be for a frame
# to be a new one. settle: the wrapper's least shift and its largest, ms.
FRAME, TEXT_ROOM, FRAMES_BELOW, LEAST_SHIFT_MS, MOST_SHIFT_MS = range(28, 33)
ALL = 33

# Steps.
SCAN, SETTLE, ADD_UP = range(3)
