"""KIP-936's cache is cleaned as often as its setting says."""

from __future__ import annotations

import time

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER_IDS

from .scripted_upstream import Start, start, upstream

__all__ = ["start", "upstream"]


def test_936_4_users_without_live_ids_are_dropped_at_the_interval(start: Start) -> None:
    gateway = start(
        {QuotaEntity.of(user="x"): {PRODUCER_IDS: 1.0}},
        producer__id__quota__cache__window__seconds="1",
    )
    ids = gateway.gateway.brokers[1].rules.managers.producer_ids
    gateway.call(lambda: ids.add("x", 7, time.time_ns() // 1_000_000))
    assert len(ids._cache) == 1
    until = time.monotonic() + 10
    while ids._cache and time.monotonic() < until:
        time.sleep(0.01)
    assert not ids._cache
