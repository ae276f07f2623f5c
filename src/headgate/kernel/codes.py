"""The codes of a replayed event's operations."""

from __future__ import annotations

from typing import Final

OP_RECORD: Final = 0
"""Charge and check."""
OP_NO_CHECK: Final = 1
"""Charge only (recordNoThrottle)."""
OP_UNRECORD: Final = 2
"""Take the amount back, unchecked."""
OP_MEASURE: Final = 3
"""Charge nothing; purge or refill as reading Kafka's metric does. Nothing where no sensor is."""
OP_BOUND: Final = 4
"""From here on the key's bound is the amount; NaN: none. Infinity: none, and a
bucket owes nothing."""
OP_STRICT: Final = 5
"""Buckets only: check, then charge unless tokens are below zero."""
OP_TOUCH: Final = 6
"""Only make the key's sensor, as asking for the maximum in the window does."""
