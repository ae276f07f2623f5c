"""A producer id that was seen needn't be looked for again, and nothing is decided otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.quota.entity import QuotaEntity
from headgate.throttle.producer_id import _MOST_KNOWN, ProducerIdQuotaManager, TimedIds

T0 = 1_700_000_000_000
WINDOW_MS = 1_000
USER = QuotaEntity.of(user="u")


def test_an_id_is_new_again_with_the_end_of_its_layer_and_no_earlier() -> None:
    ids = TimedIds(WINDOW_MS, set)  # type: ignore[arg-type]
    assert ids.add(7, T0)
    assert not ids.add(7, T0 + WINDOW_MS - 1)
    assert ids.add(7, T0 + WINDOW_MS)


def test_an_id_whose_layer_went_is_new_though_the_clock_is_set_back() -> None:
    ids = TimedIds(WINDOW_MS, set)  # type: ignore[arg-type]
    assert ids.add(7, T0)
    assert ids.add(8, T0 + WINDOW_MS)
    assert ids.add(7, T0 + WINDOW_MS - 1)


def test_a_known_id_is_looked_for_in_no_filter_and_few_are_known() -> None:
    asked: list[int] = []

    class Asked(set[int]):
        def __contains__(self, producer_id: Any) -> bool:
            asked.append(producer_id)
            return super().__contains__(producer_id)

    ids = TimedIds(WINDOW_MS, Asked)  # type: ignore[arg-type]
    for number in range(10 * _MOST_KNOWN):
        assert ids.add(number, T0)
    last = 10 * _MOST_KNOWN - 1
    asked.clear()
    assert not ids.add(last, T0 + 1)
    assert asked == []
    assert not ids.add(0, T0 + 1)
    assert asked == [0]  # it is remembered by the filter alone
    assert len(ids._known) <= _MOST_KNOWN


def test_a_busy_id_is_charged_once_a_layer() -> None:
    manager = ProducerIdQuotaManager(start_ms=T0, cache_window_ms=WINDOW_MS)
    manager.update_quota(USER, 1e9, T0)
    new = 0
    for t_ms in range(0, 5 * WINDOW_MS, 100):
        manager.record("u", [7], T0 + t_ms)
        new += manager.last_new
    assert new == 5


def test_a_request_without_new_ids_has_one_decision_until_its_quota_changes() -> None:
    manager = ProducerIdQuotaManager(start_ms=T0)
    manager.update_quota(USER, 5.0, T0)
    manager.record("u", [7], T0)
    first = manager.record("u", [7], T0 + 1)
    assert first == (0, "u", "", 5.0)
    assert manager.record("u", [7], T0 + 2) is first
    manager.update_quota(USER, 6.0, T0 + 2)
    assert manager.record("u", [7], T0 + 3) == (0, "u", "", 6.0)
    assert manager.record("v", [], T0 + 3).user_tag == "v"


def test_the_least_interval_of_cleaning_is_a_millisecond() -> None:
    manager = ProducerIdQuotaManager(start_ms=T0)
    manager.disposal_scheduler_interval_ms(1)
    with pytest.raises(ValueError, match="1 ms at least"):
        manager.disposal_scheduler_interval_ms(0)
