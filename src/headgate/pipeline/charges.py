"""Say which requests a sensor was fed with, and what the log says it decided."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from headgate.pipeline.arrays import array_of, is_in, valid

# Quota types whose decisions a log holds enough for; a journal knows thread time as well. (What
# mutations are told depends on when the answer is ready, which neither knows.)
REPLAYABLE_LOG: Final = ("producer_byte_rate", "consumer_byte_rate")
REPLAYABLE_JOURNAL: Final = (*REPLAYABLE_LOG, "request_percentage")


def emptied(table: Any) -> Any:
    """
    Say which rows are fetches that a broker throttled, as a NumPy array.

    Their size was charged and taken back at once, and isn't logged: the sensor saw two events
    whose sum is nothing, which still open and touch samples.
    """
    exact = array_of(table["bytes_exact"], True)
    if exact.all():
        return ~exact
    told = ~exact & (array_of(table["throttle_time_ms"], 0) > 0)
    fetch = is_in(table["quota_type"], ("consumer_byte_rate",))
    return told & fetch & is_in(table["source"], ("log",))


def replayable(table: Any) -> Any:
    """Say which charges a sensor is fed with, as a NumPy array."""
    charged = array_of(table["is_charged"], False)
    of_log = is_in(table["quota_type"], REPLAYABLE_LOG)
    journal = is_in(table["source"], ("journal",))
    if not journal.any():
        return charged & of_log
    # Where a journal says that nothing was charged, no sensor saw it.
    of_journal = is_in(table["quota_type"], REPLAYABLE_JOURNAL) & valid(table["own_user"])
    return charged & np.where(journal, of_journal, of_log)


def told_ms_of(table: Any) -> Any:
    """Return the throttle time of each charge's own quota, as logged or journalled."""
    import pyarrow.compute as pc

    if table["decided_throttle_time_ms"].null_count == table.num_rows:
        return array_of(table["throttle_time_ms"], 0).astype(np.int64, copy=False)
    told = pc.coalesce(table["decided_throttle_time_ms"], table["throttle_time_ms"])
    return array_of(told, 0).astype(np.int64)
