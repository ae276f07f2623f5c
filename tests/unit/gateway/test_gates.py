"""A quota-id's gate: when it opens, and whose turn it is."""

from __future__ import annotations

import pytest

from headgate.gateway.charging import gates as gates_module
from headgate.gateway.charging.gates import (
    CALLED_AT_ONCE,
    SLOT_MS,
    Gate,
    GateKey,
    Gates,
    GateTurn,
)

OTHER = GateKey("consumer_byte_rate", "bob", "")
KEY = GateKey("consumer_byte_rate", "alice", "")


class Queue:
    """Turns at one gate, and who was woken."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.gate.charged(1_000, 100.0, 0)
        self.woken: list[str] = []
        self.numbers = 0

    def turn(self, name: str) -> GateTurn:
        """A place of the principal that the name begins with."""
        self.numbers += 1
        return GateTurn(self.gate, name[0], self.numbers, lambda: self.woken.append(name))

    def wait(self, *names: str) -> dict[str, GateTurn]:
        turns = {name: self.turn(name) for name in names}
        for turn in turns.values():
            assert not self.gate.admit(turn, 0)
        return turns


def test_a_delivery_closes_it_for_its_throttle_time() -> None:
    gate = Gate()
    assert gate.idle(0)
    gate.charged(500, 100.0, 1_000)
    assert gate.opens_ms(1_200) == 1_500
    gate.charged(100, 100.0, 1_200)  # never earlier than was told before
    assert gate.opens_ms(1_200) == 1_500
    gate.charged(0, 100.0, 1_300)
    assert not gate.idle(1_499)
    assert gate.idle(1_500)


def test_a_bucket_is_asked_itself() -> None:
    owed = {"ms": 70}
    gate = Gate(lambda now_ms: owed["ms"])
    assert gate.opens_ms(1_000) == 1_070
    owed["ms"] = 0
    assert gate.idle(1_000)


def test_a_clock_that_is_set_keeps_gates_closed_for_as_long_as_before() -> None:
    """Found by the simulator: seed 217916, where nobody had looked just before it was set."""
    skew_ms = 0
    gates = Gates(lambda _key: None, lambda: skew_ms)

    def left_ms(key: GateKey, now_ms: int) -> int:
        gate = gates.get(key)
        assert gate is not None
        now_ms = gates.time(now_ms)
        return gate.opens_ms(now_ms) - now_ms

    gates.charged(KEY, 500, 100.0, 10_000)
    assert left_ms(KEY, 10_100) == 400
    skew_ms = -7_200  # in 100 ms
    gates.charged(OTHER, 500, 100.0, 3_000)
    assert (left_ms(KEY, 3_000), left_ms(OTHER, 3_000)) == (300, 500)
    assert (left_ms(KEY, 3_299), left_ms(OTHER, 3_300)) == (1, 200)
    skew_ms = 0  # it is set right
    assert left_ms(OTHER, 10_600) == 100
    assert gates.ahead_ms == 0
    skew_ms = 5_000  # quotas repay by it
    assert left_ms(OTHER, 15_601) < 0


def test_a_clock_that_was_read_a_moment_ago_was_not_set_back() -> None:
    gates = Gates(lambda _key: None)
    assert [gates.time(now_ms) for now_ms in (1_000, 995, 1_001, 999, 991)] == [
        1_000, 1_000, 1_001, 1_001, 1_001,
    ]  # fmt: skip
    assert gates.ahead_ms == 0


def test_a_bucket_is_asked_by_the_wall_clock() -> None:
    asked: list[int] = []

    def owed_ms(now_ms: int) -> int:
        asked.append(now_ms)
        return 70

    skew_ms = 0
    gates = Gates(lambda _key: owed_ms, lambda: skew_ms)
    gates.charged(KEY, 500, 100.0, 10_000)
    gate = gates.get(KEY)
    assert gate is not None
    skew_ms = -7_000
    assert gate.opens_ms(gates.time(3_000)) == 10_070
    assert asked == [3_000]


def test_one_goes_and_the_others_after_it_was_charged() -> None:
    queue = Queue()
    turns = queue.wait("a1", "a2", "a3")
    assert queue.gate.admit(turns["a1"], 1_000)
    assert not queue.gate.admit(turns["a2"], 1_000)
    queue.gate.done(turns["a1"], 1_001)  # it closed nothing
    assert queue.gate.admit(turns["a2"], 1_001)
    # The second was told to come back alone, then let go; then the third to come back.
    assert queue.woken == ["a2", "a2", "a3"]
    queue.gate.charged(300, 100.0, 1_002)
    assert not queue.gate.admit(turns["a3"], 1_100)
    assert queue.gate.next_ms(1_100) == 1_302


def test_slow_ones_hold_nobody_for_long() -> None:
    queue = Queue()
    turns = queue.wait(*(f"a{n}" for n in range(10)))
    assert queue.gate.admit(turns["a0"], 1_000)
    gone = [1]
    for slot in range(1, 5):
        now_ms = 1_000 + slot * SLOT_MS
        queue.gate.admit(turns[next(n for n, t in turns.items() if t.waiting)], now_ms)
        gone.append(sum(turn.granted for turn in turns.values()))
        if gone[-1] == 10:
            break
    assert gone == [1, 2, 4, 8, 10]


def test_turns_go_round_by_principal_then_by_place() -> None:
    queue = Queue()
    turns = queue.wait("a1", "a2", "a3", "b1", "b2", "c1")
    order = []
    now_ms = 1_000
    while any(turn.waiting for turn in turns.values()):
        appointed = next(turn for turn in turns.values() if turn.appointed)
        queue.gate.admit(appointed, now_ms)
        name, turn = next((n, t) for n, t in turns.items() if t.granted)
        order.append(name)
        queue.gate.charged(100, 100.0, now_ms)
        queue.gate.stand_aside(turn)
        now_ms = queue.gate.opens_ms(now_ms)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_place_is_kept_while_its_turn_stands_aside() -> None:
    queue = Queue()
    turns = queue.wait("a1", "a2")
    queue.gate.stand_aside(turns["a1"])
    assert not queue.gate.admit(turns["a1"], 500)
    assert queue.gate.admit(turns["a1"], 1_000)
    assert turns["a2"].waiting


def test_a_place_left_unserved_is_the_next_newcomers() -> None:
    queue = Queue()
    turns = queue.wait("a1", "a2", "b1")
    queue.gate.left(turns["a1"])
    assert queue.gate.place("b") is None
    assert queue.gate.place("a") == 1
    assert queue.gate.place("a") is None
    assert queue.gate.admit(turns["a2"], 1_000)
    queue.gate.left(turns["a2"])  # it was let through: nothing is left
    assert queue.gate.place("a") is None


def test_a_higher_quota_opens_it_sooner_and_wakes_who_waits() -> None:
    queue = Queue()
    queue.wait("a1")
    queue.gate.requoted(1_000.0, 500)
    assert queue.gate.opens_ms(500) == 550
    assert queue.woken == ["a1"]


def test_gates_that_are_open_and_not_waited_at_are_let_go() -> None:
    gates = Gates(lambda _key: None)
    gates.charged(KEY, 0, 100.0, 0)
    assert gates.get(KEY) is None
    gates.charged(KEY, 100, 100.0, 0)
    assert not list(gates.tidying(lambda: 50))
    assert len(gates) == 1
    assert not list(gates.tidying(lambda: 100))
    assert gates.get(KEY) is None


def test_it_is_idle_when_the_last_that_waited_has_gone() -> None:
    queue = Queue()
    turns = queue.wait("a1", "a2", "b1")
    assert not queue.gate.admit(turns["a1"], 999)  # asking twice is waiting once
    assert queue.gate.next_ms(999) == 1_000
    assert queue.gate.next_ms(1_000) == 1_000 + SLOT_MS
    for name in ("a2", "a2", "a1"):
        queue.gate.stand_aside(turns[name])
        assert not queue.gate.idle(1_000)
    assert queue.gate.admit(turns["b1"], 1_000)
    assert queue.gate.idle(1_000)  # nobody waits, though one is on its way
    queue.gate.done(turns["b1"], 1_001)
    assert queue.gate.idle(1_001)
    assert not any(turn.granted or turn.waiting for turn in turns.values())


def test_who_came_first_goes_first_however_often_he_asks() -> None:
    queue = Queue()
    turns = queue.wait(*(f"a{n}" for n in range(5)))
    for name in ("a3", "a1", "a4"):
        queue.gate.stand_aside(turns[name])
        assert not queue.gate.admit(turns[name], 500)
    order, now_ms = [], 1_000
    while waiting := [name for name, turn in turns.items() if turn.waiting]:
        queue.gate.admit(turns[waiting[-1]], now_ms)
        (name,) = (name for name, turn in turns.items() if turn.granted)
        order.append(name)
        queue.gate.done(turns[name], now_ms)
        (next_name,) = [n for n, turn in turns.items() if turn.granted] or [None]
        if next_name is not None:
            order.append(next_name)
            queue.gate.stand_aside(turns[next_name])
        queue.gate.charged(10, 100.0, now_ms)
        now_ms = queue.gate.opens_ms(now_ms)
    assert order == ["a0", "a1", "a2", "a3", "a4"]


def test_the_last_ms_is_repaid_sooner_too() -> None:
    gate = Gate()
    gate.charged(10, 100.0, 0)
    gate.requoted(200.0, 9)
    assert gate.opens_ms(9) == 9
    for _ in range(300):  # more than are looked at in one step
        gate.requoted(300.0, 9)
    gates = Gates(lambda _key: None)
    for number in range(300):
        gates.charged(KEY._replace(user_tag=str(number)), 100, 100.0, 0)
    assert len(list(gates.requoting(lambda _key: 200.0, lambda: 50))) == 2
    assert gates.get(KEY._replace(user_tag="299")).opens_ms(50) == 75  # type: ignore[union-attr]
    assert len(list(gates.tidying(lambda: 75))) == 2
    assert len(gates) == 0


def test_who_waits_first_is_told_to_come_back_when_it_opens() -> None:
    queue = Queue()
    turns = queue.wait("a1", "a2")
    assert [turn.appointed for turn in turns.values()] == [True, False]
    assert not queue.gate.idle(1_000)
    for number in range(50):  # however often one gives up and comes again, it stands there once
        queue.gate.stand_aside(turns["a2"])
        assert not queue.gate.admit(turns["a2"], number)
    assert len(queue.gate._queues["a"]) == 2
    for turn in turns.values():
        queue.gate.stand_aside(turn)
    assert queue.gate.idle(1_000)


def test_a_newcomer_in_the_place_of_one_that_left_goes_when_that_one_would_have() -> None:
    queue = Queue()
    turns = queue.wait("a1", "a2", "a3")
    queue.gate.left(turns["a2"])
    number = queue.gate.place("a")
    assert number == turns["a2"].number
    came = GateTurn(queue.gate, "a", number, lambda: queue.woken.append("a2 again"))
    again = GateTurn(queue.gate, "a", number, lambda: None)
    for turn in (came, again):  # of one number, as no two connections that live have
        assert not queue.gate.admit(turn, 10)
    queue.gate.stand_aside(again)
    assert queue.gate.admit(turns["a1"], 1_000)
    queue.gate.done(turns["a1"], 1_000)
    assert came.granted
    assert not turns["a3"].granted


def test_when_more_may_go_than_wait_the_next_that_comes_is_told_when() -> None:
    queue = Queue()
    turns = queue.wait("a1", "a2")
    assert queue.gate.admit(turns["a1"], 1_000)
    assert queue.gate.admit(turns["a2"], 1_000 + 3 * SLOT_MS)  # eight might have gone by then
    queue.gate.charged(1_000, 100.0, 1_100)
    late = queue.turn("b1")
    assert not queue.gate.admit(late, 1_200)
    assert late.appointed


def test_those_that_pass_are_forgotten_when_it_closes_and_one_less_when_one_gives_up() -> None:
    queue = Queue()
    turns = queue.wait(*(f"a{n}" for n in range(5)))
    assert queue.gate.admit(turns["a0"], 1_000)
    assert queue.gate.next_ms(1_000 + SLOT_MS // 2) == 1_000 + SLOT_MS
    assert queue.gate.admit(turns["a1"], 1_000 + SLOT_MS)
    queue.gate.stand_aside(turns["a0"])  # it gave up: one may go in its place
    assert queue.gate.admit(turns["a2"], 1_000 + SLOT_MS)
    assert [turn.granted for turn in turns.values()] == [False, True, True, False, False]
    queue.gate.charged(500, 100.0, 1_100)
    assert queue.gate.admit(turns["a3"], 1_600)  # though two are still passing
    assert not turns["a4"].granted


def test_a_raise_is_taken_into_account_once() -> None:
    gate = Gate()
    gate.charged(1_000, 100.0, 0)
    for _ in range(3):
        gate.requoted(200.0, 0)
    assert gate.opens_ms(0) == 500


def test_turns_are_remembered_of_the_principals_served_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gates_module, "MOST_PRINCIPALS", 4)
    queue = Queue()
    now_ms = 1_000
    for name in "badce":
        turn = queue.turn(name)
        queue.gate.admit(turn, now_ms)
        queue.gate.done(turn, now_ms)
    assert set(queue.gate._served) == {"c", "e"}
    monkeypatch.setattr(gates_module, "MOST_LEFT", 2)
    queue.gate.charged(1_000, 100.0, now_ms)
    for name, turn in queue.wait(*"abcdefff").items():
        queue.gate.left(turn)
        assert queue.gate._left.get(name) == ([turn.number] if name < "e" else None)
    for turn in queue.wait("d1", "d2").values():
        queue.gate.left(turn)
    assert len(queue.gate._left["d"]) == 2


def test_gates_that_are_open_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates_module, "MOST_GATES", 3)
    gates = Gates(lambda _key: None)
    gates._most = 3
    sizes = []
    for number in range(8):
        gates.charged(KEY._replace(user_tag=str(number)), 25, 100.0, number * 10)
        sizes.append(len(gates))
    assert sizes == [1, 2, 3, 3, 4, 3, 4, 3]  # looked for at three, then at twice what stays


def test_many_are_let_through_some_at_a_time() -> None:
    """Nobody is charged for long, so thousands may pass at once; to call them takes long."""
    queue = Queue()
    turns = queue.wait(*map(str, range(1_000)))
    now_ms, looks = 1_000, 0
    assert queue.gate.admit(turns["0"], now_ms)
    now_ms += 10 * SLOT_MS
    queue.woken[:] = ["1"]
    while queue.woken:
        name = queue.woken.pop(0)
        before = len(queue.woken)
        queue.gate.admit(turns[name], now_ms)
        assert len(queue.woken) - before <= CALLED_AT_ONCE + 1
        looks += 1
    assert all(turn.granted for turn in turns.values())
    assert looks <= 1_000 + 1_000 // CALLED_AT_ONCE
