"""
Where the scan leaves what lines hold: numbers of columns, of kinds, and of what went wrong.
"""

from __future__ import annotations

from typing import Final

# Columns of whole numbers, by line.
OFFSET: Final = 0
STAMP_NAME: Final = 1
MIDDLE_NAME: Final = 2
API_NAME: Final = 3
LISTENER_NAME: Final = 4
PRINCIPAL_NAME: Final = 5
CLIENT_NAME: Final = 6
CONNECTION_NAME: Final = 7
KIND: Final = 8
VERSION: Final = 9
FORWARDED: Final = 10
BYTES: Final = 11  # a mutation's partitions
EXACT: Final = 12
FOLLOWER: Final = 13
THROTTLE: Final = 14
# While a line is read: topics that a change, or a fetch, names, and what its answer told.
ASKED_TOPICS: Final = 15
ANSWERED_TOPICS: Final = 16
TOLD_INSIDE: Final = 17
INTS: Final = 18
# Columns of doubles.
FRACTION: Final = 0
LOCAL: Final = 1
QUEUE: Final = 2
SEND: Final = 3
DOUBLES: Final = 4
# Kinds.
OTHER: Final = 0
PRODUCE: Final = 1
FETCH: Final = 2
MUTATION: Final = 3
# What a call found: where it stopped, lines taken, lines given back, lines in all.
STOPPED: Final = 0
TAKEN: Final = 1
GIVEN: Final = 2
LINES: Final = 3
# What went wrong with a line: it isn't understood; there's no more room for names.
REFUSED: Final = -1
FULL: Final = -2

# What an API's name means: who sends it.
CLIENTS: Final = 0.0
BROKERS: Final = 1.0
BROKERS_FROM_4: Final = 2.0

# Where ``settle`` leaves its answers: columns whose own content is used up by then.
RECORD_MS: Final = FRACTION
CHARGED: Final = FOLLOWER

# Columns of a group's key and of its sums.
WHO: Final = 0
SECOND: Final = 1
BROKER: Final = 2
KEYS: Final = 3
REQUESTS: Final = 0
SUM_BYTES: Final = 1
ESTIMATED: Final = 2
NANOS: Final = 3
TOLD: Final = 4
THROTTLED: Final = 5
MOST_TOLD: Final = 6
SUMS: Final = 7
# Bits of WHO: listener, principal, client (20 each), kind (2), charged (1).
NAME_BITS: Final = 20
