"""What closed connections owe: left, taken, merged, forgotten."""

from __future__ import annotations

import pytest

from headgate.gateway.charging import lanes
from headgate.gateway.charging.lanes import REPAYS_MS, SEEN_MS, Debts, Lane, LaneBook, lane_key
from headgate.gateway.charging.plans import RequestKind, build_plans

KEY = lane_key("producer_byte_rate", "alice", "", "alice")
OTHER = lane_key("producer_byte_rate", "", "app", "alice")


def lane(end_ms: int, since_ms: int = 0, bound: float = 100.0) -> Lane:
    return Lane(end_ms, since_ms, bound)


def test_a_principal_is_part_of_the_key_only_where_the_quota_id_has_no_user() -> None:
    assert lane_key("p", "alice", "app", "alice") == lane_key("p", "alice", "app", "bob")
    assert lane_key("p", "", "app", "alice") != lane_key("p", "", "app", "bob")


def test_a_newcomer_takes_the_earliest_end_that_isnt_over() -> None:
    book = LaneBook()
    for end_ms in (500, 100, 300):
        book.leave(KEY, lane(end_ms), 0)
    assert book.take(OTHER, 0) is None
    assert book.take(KEY, 150) == lane(300)
    assert book.take(KEY, 150) == lane(500)
    assert book.take(KEY, 150) is None
    assert len(book) == 0


def test_a_lane_is_given_back_unchanged_by_who_leaves_unserved() -> None:
    book = LaneBook()
    book.leave(KEY, lane(500), 0)
    for now_ms in (10, 200, 499):
        newcomer = Debts(book)
        assert newcomer.enter([KEY], now_ms) == 500
        assert newcomer.enter([KEY], now_ms) == now_ms  # it is its own by now
        newcomer.leave(now_ms)
    assert Debts(book).enter([KEY], 500) == 500


def test_who_waits_for_a_debt_knows_which_quota_left_it() -> None:
    book = LaneBook()
    later = lane_key("request_percentage", "alice", "", "alice")
    book.leave(KEY, lane(500), 0)
    book.leave(later, lane(700), 0)
    newcomer = Debts(book)
    assert newcomer.enter([later, KEY], 10) == 700
    assert newcomer.waits_by is not None
    assert newcomer.waits_by.key == "request_percentage"


def test_there_are_never_more_lanes_than_connections_at_once() -> None:
    book = LaneBook()
    for number in range(100):
        debts = Debts(book)
        debts.enter([KEY], 0)
        debts.owe(KEY, lane(1_000 + number))
        debts.leave(0)
    assert len(book) == 1


class Newcomers:
    """Debts of connections that took an end or wait for one, and who of them was called."""

    def __init__(self) -> None:
        self.book = LaneBook()
        self.called: list[str] = []

    def come(self, name: str) -> Debts:
        debts = Debts(self.book)
        debts.nudge = lambda: self.called.append(name)
        return debts


def test_a_newcomer_without_an_end_waits_until_who_took_one_is_charged_and_a_moment_more() -> None:
    came = Newcomers()
    came.book.leave(KEY, lane(500), 0)
    first, second, third = (came.come(name) for name in ("first", "second", "third"))
    assert first.enter([KEY], 10, 1) == 500
    for waits in (second, third):
        assert waits.enter([KEY], 20, 1) == 500 + REPAYS_MS
        assert waits.waits_at == KEY
    assert Debts(came.book).enter([OTHER], 20, 1) == 20  # of another quota-id
    assert not first.charged(2, 600)  # another kind of request
    assert not first.charged(1, 400)  # one that was in flight before
    assert first.charged(1, 600)
    assert came.called == ["second"]
    assert second.enter([KEY], 600, 1) == 600 + SEEN_MS
    assert third.enter([KEY], 600 + SEEN_MS, 1) > 600 + SEEN_MS  # not its turn
    assert second.enter([KEY], 600 + SEEN_MS, 1) == 600 + SEEN_MS
    assert second.waits_at is None
    second_ms = 600 + SEEN_MS
    assert third.enter([KEY], second_ms, 1) == second_ms + REPAYS_MS  # behind it


def test_a_newcomer_takes_the_end_of_who_repaid_and_left() -> None:
    came = Newcomers()
    came.book.leave(KEY, lane(500), 0)
    first, second = came.come("first"), came.come("second")
    first.enter([KEY], 10, 1)
    second.enter([KEY], 20, 1)
    first.charged(1, 600)
    first.owe(KEY, lane(9_000, 600))
    first.leave(700)
    assert came.called == ["second"] * 2
    assert second.enter([KEY], 700, 1) == 9_000
    assert second.waits_at is None


def test_a_newcomer_takes_the_end_of_who_left_unserved() -> None:
    came = Newcomers()
    came.book.leave(KEY, lane(500), 0)
    first, second, third = (came.come(name) for name in ("first", "second", "third"))
    first.enter([KEY], 10, 1)
    second.enter([KEY], 20, 1)
    third.enter([KEY], 20, 1)
    first.leave(100)
    assert came.called == ["second"]
    second.leave(110)  # it had only waited
    assert came.called[1:] == ["third"]
    assert third.enter([KEY], 120, 1) == 500
    third.leave(130)
    assert came.book.queues == {}


@pytest.mark.parametrize("now_ms", [501 + REPAYS_MS, 5])
def test_nobody_waits_for_who_is_never_charged_nor_for_a_clock_set_back(now_ms: int) -> None:
    came = Newcomers()
    came.book.leave(KEY, lane(500), 0)
    first, second = came.come("first"), came.come("second")
    first.enter([KEY], 10, 1)
    second.enter([KEY], 20, 1)
    assert second.enter([KEY], now_ms, 1) == now_ms
    first.charged(1, now_ms + 1_000)
    for one in (first, second):
        one.leave(now_ms)
    assert came.book.queues == {}


def test_half_a_request_holds_newcomers_as_long_as_a_hang_up_may_be_unseen() -> None:
    came = Newcomers()
    came.book.leave(KEY, lane(500), 0)
    first, second = came.come("first"), came.come("second")
    first.enter([KEY], 10, 1)
    first.reads(True, 20)  # it may pass at 500 only
    assert second.enter([KEY], 20, 1) == 500 + SEEN_MS
    first.reads(True, 550)  # more of it, not all
    assert second.enter([KEY], 560, 1) == 500 + SEEN_MS
    first.reads(False, 570)  # it is whole, and waits in the broker
    assert second.enter([KEY], 500 + SEEN_MS, 1) == 570 + REPAYS_MS
    assert came.called == []
    first.reads(True, 650)  # of the next one: it is read, and would be seen to hang up
    assert came.called == ["second"]
    assert second.enter([KEY], 650, 1) == 650 + SEEN_MS
    first.charged(1, 700)
    assert second.enter([KEY], 700, 1) == 700 + SEEN_MS
    assert second.enter([KEY], 700 + SEEN_MS, 1) == 700 + SEEN_MS


def test_who_is_past_half_a_request_isnt_held_again_when_it_is_whole() -> None:
    came = Newcomers()
    came.book.leave(KEY, lane(500), 0)
    first, second = came.come("first"), came.come("second")
    first.enter([KEY], 10, 1)
    second.enter([KEY], 20, 1)
    first.reads(True, 500)
    assert second.enter([KEY], 500 + SEEN_MS, 1) == 500 + SEEN_MS
    first.reads(False, 700)
    assert second.waits_at is None
    for one in (first, second):
        one.leave(800)
    assert came.book.queues == {}


def test_a_newcomer_waits_for_one_quota_at_a_time() -> None:
    came = Newcomers()
    came.book.leave(KEY, lane(500), 0)
    came.book.leave(OTHER, lane(900), 0)
    first, second = came.come("first"), came.come("second")
    both = [KEY, OTHER]
    assert first.enter([KEY], 10, 1) == 500
    assert second.enter(both, 20, 1) == 900  # the end of the other
    assert second.waits_at is None
    assert not second.is_in(both)
    assert second.enter(both, 900, 1) == 500 + REPAYS_MS
    first.charged(1, 1_000)
    assert came.called == ["second"]
    assert second.enter(both, 1_000 + SEEN_MS, 1) == 1_000 + SEEN_MS
    assert second.is_in(both)


def test_a_throttle_that_comes_after_its_connection_closed_is_left_all_the_same() -> None:
    book = LaneBook()
    debts = Debts(book)
    debts.leave(0)
    debts.owe(KEY, lane(1_000))
    assert book.take(KEY, 1) == lane(1_000)


def test_a_longer_throttle_isnt_forgotten_for_a_shorter_one() -> None:
    book = LaneBook()
    debts = Debts(book)
    debts.owe(KEY, lane(1_000))
    debts.owe(KEY, lane(400))
    debts.leave(0)
    assert book.take(KEY, 0) == lane(1_000)


def test_a_debt_lasts_as_long_as_was_told_whatever_becomes_of_the_quota() -> None:
    assert [lane(1_100, 0, 100.0).until(now_ms) for now_ms in (0, 100, 1_100, 1_200)] == [
        1_100, 1_100, 1_100, 1_200,
    ]  # fmt: skip


@pytest.mark.parametrize(("leaves_ms", "left"), [(3_000, None), (2_999, lane(10_000, 9_000))])
def test_a_debt_after_a_clock_was_set_back_is_paid_or_given_back_unchanged(
    leaves_ms: int, left: Lane | None
) -> None:
    book = LaneBook()
    newcomer = Debts(book)
    book.leave(KEY, lane(10_000, since_ms=9_000), 9_000)
    newcomer.enter([KEY], 2_000)
    newcomer.leave(leaves_ms)
    assert book.take(KEY, leaves_ms) == left


def test_a_debt_is_paid_once_after_a_clock_was_set_back() -> None:
    book = LaneBook()
    newcomer = Debts(book)
    book.leave(KEY, lane(10_000, since_ms=9_000), 9_000)
    assert newcomer.enter([KEY], 2_000) == 3_000
    newcomer.owe(KEY, lane(3_400, since_ms=3_000))
    newcomer.leave(3_000)
    assert book.take(KEY, 3_000) == lane(3_400, since_ms=3_000)


def test_after_a_clock_was_set_back_the_longer_throttle_counts_not_the_later_end() -> None:
    book, key = LaneBook(), lane_key("producer_byte_rate", "alice", "", "alice")
    leaves, comes = Debts(book), Debts(book)
    leaves.owe(key, Lane(13_260, 10_000, 1.0))
    leaves.owe(key, Lane(9_248, 5_000, 1.0))  # five seconds later, and told 4,248 ms
    leaves.leave(5_000)
    assert comes.enter([key], 6_000) == 9_248


def test_a_clock_that_was_set_back_makes_nobody_wait_longer() -> None:
    assert lane(10_000, since_ms=9_000).until(2_000) == 3_000


def test_ends_are_bounded_for_each_key_and_the_later_ones_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "MOST_OF_A_KEY", 3)
    book = LaneBook()
    for end_ms in (10, 20, 30, 40, 50):
        book.leave(KEY, lane(end_ms), 0)
    assert [book.take(KEY, 0) for _ in range(4)] == [lane(30), lane(40), lane(50), None]


def test_ends_and_names_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_LANES", 3)
    book = LaneBook()
    keys = [lane_key("p", f"user{n}", "", "") for n in range(5)]
    for number, key in enumerate(keys):
        book.leave(key, lane(10 + number), 0)
    assert len(book) == 3
    assert [book.take(key, 0) is None for key in keys] == [True, True, False, False, False]
    monkeypatch.setattr(lanes, "MOST_NAMED", 100)
    book = LaneBook()
    book.leave(lane_key("p", "x" * 90, "", ""), lane(10), 0)
    book.leave(lane_key("p", "y" * 90, "", ""), lane(20), 0)
    assert len(book) == 1


def test_what_is_over_is_forgotten() -> None:
    book = LaneBook()
    for number in range(5_000):
        book.leave(lane_key("p", f"user{number}", "", ""), lane(number + 100), number)
    assert len(book) <= 101
    assert len(book._ends) <= 2 * len(book) + 1_025


def test_a_connection_remembers_some_lanes_and_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "MOST_HELD", 2)
    book = LaneBook()
    debts = Debts(book)
    keys = [lane_key("p", "", f"app{n}", "alice") for n in range(3)]
    for key in keys:
        debts.enter([key], 0)
        debts.owe(key, lane(1_000))
    assert len(book) == 1
    assert Debts(book).enter([keys[0]], 0) == 1_000


def test_mutations_that_are_refused_wait_for_no_debt_of_mutations() -> None:
    plans = build_plans()
    create, strict = plans[19 << 16 | 5], plans[19 << 16 | 6]
    assert (create.kind, strict.kind) == (RequestKind.MUTATION, RequestKind.MUTATION)
    assert (create.owes, strict.owes) == (RequestKind.MUTATION, RequestKind.RELAY)
    assert create.bit != strict.bit


def test_newcomers_that_wait_are_bounded_for_each_owner_and_keep_their_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "MOST_WAITING", 2)
    came = Newcomers()
    hers = lane_key("producer_byte_rate", "", "app", "mallory")
    for key in (OTHER, hers):
        came.book.leave(key, lane(500), 0)
        came.come("first").enter([key], 10, 1)
    waiting = [came.come(name) for name in ("second", "third", "fourth")]
    for one in waiting:
        one.enter([hers], 20, 1)
    assert [one.turned_away for one in waiting] == [False, False, True]
    assert list(came.book.queues[hers].waiting) == waiting[:2]
    # Another principal has room of its own, at the same quota-id too.
    other = came.come("other")
    other.enter([OTHER], 20, 1)
    assert not other.turned_away
    # Who leaves makes room; only the first one's leaving calls the next.
    waiting[1].leave(30)
    assert not came.called
    last = came.come("last")
    last.enter([hers], 40, 1)
    assert not last.turned_away
    waiting[0].leave(50)
    assert came.called == ["last"]
    for one in (last, other):
        one.leave(60)
    assert came.book.waiting == {}
