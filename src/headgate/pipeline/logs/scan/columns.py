"""
Where the scan leaves what lines hold: numbers of columns, of kinds, and of what went wrong.
"""

from __future__ import annotations

from typing import Final

# Columns of whole numbers, by line.
OFFSET, STAMP_NAME, FRAME_NAME, API_NAME, LISTENER_NAME = range(5)
PRINCIPAL_NAME, CLIENT_NAME, CONNECTION_NAME = range(5, 8)
# Of these BYTES are a mutation's partitions.
KIND, VERSION, FORWARDED, BYTES, EXACT, FOLLOWER, THROTTLE = range(8, 15)
# While a line is read: topics that a change, or a fetch, names, and what its answer told.
ASKED_TOPICS, ANSWERED_TOPICS, TOLD_INSIDE = range(15, 18)
# The second stamp of a line. NO_NAME: it has none; A_NUMBER: it is a number of ms, all of them in
# the column for its fraction.
NO_NAME: Final = -1
A_NUMBER: Final = -2
OTHER_STAMP_NAME = 18
INTS = 19
# Columns of doubles.
FRACTION, LOCAL, QUEUE, SEND, OTHER_FRACTION, DOUBLES = range(6)
# Kinds.
OTHER, PRODUCE, FETCH, MUTATION = range(4)
# What a call found: where it stopped, lines taken, lines given back, lines in all.
STOPPED, TAKEN, GIVEN, LINES, ALL_FOUND = range(5)
# What went wrong with a line: it isn't understood; there's no more room for names.
REFUSED: Final = -1
FULL: Final = -2

# What a frame means, as bits: the logger's stamp is the second; it has whole seconds, and the other
# stamp is finer; it has no zone, and a wrapper's counts. NaN: not to be taken.
SECOND_IS_OWN, IS_COARSE, IS_SHIFTED = 1, 2, 4

# What an API's name means: who sends it.
CLIENTS: Final = 0.0
BROKERS: Final = 1.0
BROKERS_FROM_4: Final = 2.0

# Where ``settle`` leaves its answers: columns whose own content is used up by then.
RECORD_MS: Final = FRACTION
CHARGED: Final = FOLLOWER

# Columns of a group's key and of its sums.
WHO, SECOND, BROKER, KEYS = range(4)
REQUESTS, SUM_BYTES, ESTIMATED, NANOS, TOLD, THROTTLED, MOST_TOLD, SUMS = range(8)
# Bytes in front of a request that are looked at, and as many behind one inside a string; room for
# both. Bytes of a request inside a string that are taken.
MOST_AROUND: Final = 1024
FRAME_ROOM: Final = 4096
MOST_TEXT: Final = 1 << 20

# Bits of WHO: listener, principal, client (20 each), kind (2), charged (1).
NAME_BITS: Final = 20
