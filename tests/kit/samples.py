"""
The series of one worker at a moment, as tests look at them.
"""

from __future__ import annotations

from headgate.metrics import BY_NAME, BrokerView, Sample
from headgate.metrics.samples import rank_steps, sample_steps

_ORDER = {name: place for place, name in enumerate(BY_NAME)}


def read_samples(view: BrokerView, now_ms: int) -> list[Sample]:
    """
    Return the series of one worker at a moment, in the table's order of families.

    Args:
        view: the worker's.
        now_ms: epoch ms.
    """
    for _ in rank_steps(view, lambda: now_ms):  # as a gateway does after each scrape
        pass
    found = (sample for sample in sample_steps(view, lambda: now_ms) if sample is not None)
    return sorted(found, key=lambda sample: _ORDER[sample.name])
