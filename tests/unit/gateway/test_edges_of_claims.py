"""Claims of headroom, ends of lanes and plans at their edges."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.config import Settings
from headgate.gateway.charging import lanes
from headgate.gateway.charging.lanes import Debts, Lane, LaneBook, lane_key
from headgate.gateway.charging.managers import Managers
from headgate.gateway.charging.plans import MAX_VERSION, NO_FIELD, WALK, RequestKind, build_plans
from headgate.wire import apis
from headgate.wire.messages.live import LIVE

from .enforcement_kit import BASE, T0, plan_of
from .test_edges_of_enforcement import ALICE, HEARTBEAT

# -- headroom


# -- lanes, fetches and plans


def test_names_are_counted_while_their_ends_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_NAMED", 100)
    book = LaneBook()
    keys = [lane_key("p", letter * 29, "", "") for letter in "abcd"]
    for number, key in enumerate(keys[:3]):
        book.leave(key, Lane(1_000 + number, 0, 1.0), 0)
    assert book.take(keys[0], 0) is not None
    book.leave(keys[3], Lane(2_000, 0, 1.0), 0)
    assert len(book) == 3  # ninety characters
    book.leave(lane_key("p", "e" * 29, "", ""), Lane(3_000, 0, 1.0), 0)
    assert [book.take(key, 0) is None for key in keys] == [True, True, False, False]
    debts = Debts(book)
    debts.owe(keys[0], Lane(4_000, 0, 1.0))
    before = len(book)
    for _ in range(2):  # it closes once
        debts.leave(0)
    assert len(book) == before + 1


def test_ends_are_forgotten_in_their_order_after_they_were_put_together() -> None:
    book = LaneBook()

    def key(name: str) -> Any:
        return lane_key("p", name, "", "")

    for name, end_ms in (("late", 9_000), ("soon", 2_000), ("mid", 5_000)):
        book.leave(key(name), Lane(end_ms, 0, 1.0), 0)
    for _ in range(1_100):  # taken and left again: the same end many times
        book.leave(key("x"), Lane(8_000, 0, 1.0), 0)
        assert book.take(key("x"), 0) is not None
    assert len(book) == 3
    book.leave(key("last"), Lane(9_500, 0, 1.0), 5_000)
    assert [book.take(key(name), 0) is None for name in ("late", "soon", "mid")] == [
        False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize(("samples", "least"), [(2, 1_000.0), (3, 1_000.0), (5, 1_000.0)])
def test_a_fetch_may_always_ask_for_a_samples_worth(samples: int, least: float) -> None:
    named = {**BASE, "quota.window.num": str(samples)}
    managers = Managers(Settings.from_properties(named), T0)
    managers.fetch.update_quota(ALICE, 1_000.0, T0)
    managers.fetch.record("alice", "c", 1_000_000, T0)
    assert managers.fetch_limit("alice", "c", T0) == least


def test_plans_end_at_the_newest_version_that_is_read_here() -> None:
    every = build_plans()
    for api in apis.API.values():
        versions = [plan.version for plan in every.values() if plan.key == api.key]
        if not api.proxied:
            assert versions == []
        elif api.passes_until is None or api.key == apis.API_VERSIONS:
            assert versions == list(range(MAX_VERSION + 1))
            newest = every[api.key << 16 | MAX_VERSION]
            if api.key == apis.API_VERSIONS:  # a broker answers any version of it
                assert (newest.kind, newest.whole) == (RequestKind.VERSIONS, True)
            else:  # nothing is known of its body
                assert (newest.kind, newest.whole) == (RequestKind.RELAY, False)
                assert newest.throttle_at == NO_FIELD
        else:
            assert versions == list(range(api.min_version, api.passes_until + 1))
    masked = {plan.version for plan in every.values() if plan.mask}
    assert masked == set(range(16, apis.API[apis.FETCH].max_version + 1))
    assert {plan.key for plan in every.values() if plan.mask} == {apis.FETCH}
    fixed = {plan.throttle_at for plan in every.values() if plan.throttle_at > 0}
    assert fixed == {8, 9}
    walked = {plan.kind for plan in every.values() if plan.throttle_at == WALK}
    assert RequestKind.PRODUCE in walked
    assert [plan_of(HEARTBEAT, version).throttle_at for version in (0, 3, 4)] == [NO_FIELD, 8, 9]
    unknown = build_plans(pass_unknown=True)
    assert {plan.key for plan in unknown.values()} - set(apis.API) == set(range(1024)) - set(
        apis.API
    ) | {LIVE}


def test_a_connection_enters_each_lane_that_it_has_not_entered_yet() -> None:
    book = LaneBook()
    first, second = (lane_key(name, "u", "", "") for name in "ab")
    debts = Debts(book)
    debts.enter([first], 0)
    book.leave(second, Lane(500, 0, 1.0), 0)
    assert debts.enter([first, second], 0) == 500
