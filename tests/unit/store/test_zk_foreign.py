"""
Which changes in ZooKeeper the store takes for ones that were made without Headgate.

ZooKeeper is in memory, so others' changes can come before each single read of a look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pytest

from contract.homes import ALICE, alteration
from headgate.store.zookeeper.layout import (
    CHANGE_PREFIX,
    CHANGES,
    KAFKA_HOME,
    encode_config,
    encode_notice,
)
from headgate.store.zookeeper.store import ZooKeeperStore
from kit.played_zookeeper import PlayedZooKeeper

MOST_MOMENTS = 100
ZNODE = f"{KAFKA_HOME}/users/alice"
#: What is set of alice's quotas at once; None removes.
Change = dict[str, float | None]


class Played(NamedTuple):
    """A ZooKeeper, a store that looks at it, and one of another process that changes it."""

    server: PlayedZooKeeper
    looking: ZooKeeperStore
    other: ZooKeeperStore

    def change(self, *changes: Change) -> None:
        """Change alice's quotas through Headgate, one after the other."""
        for keys in changes:
            [result] = self.other.alter([alteration(ALICE, **keys)], who="other")
            assert result.error is None

    def amid(self, number: int, turns: Sequence[Sequence[Change]]) -> None:
        """Have changes come before the read of this number, and before those that follow it."""
        turn, *rest = turns

        def come() -> None:
            self.change(*turn)
            if rest:
                self.amid(0, rest)

        self.server.moments.at(number, come)

    def look(self) -> None:
        """Do what the store's thread does."""
        self.looking._look()
        self.looking._after_delivery()

    def history(self) -> list[tuple[str, str, float | None, float | None]]:
        """Return who changed which key from what to what."""
        return [(h.who, h.key.name, h.before, h.after) for h in self.other.history.entries()]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Played]]:
    """Begins again: a ZooKeeper with two stores on it."""
    opened: list[ZooKeeperStore] = []

    def begin() -> Played:
        server = PlayedZooKeeper()
        server.play(monkeypatch)
        opened.extend(ZooKeeperStore("played") for _ in range(2))
        return Played(server, *opened[-2:])

    yield begin
    for store in opened:
        store.close()


IDS = "producer_ids_rate"  # Kafka doesn't know it: it is under the other root
RATE = "producer_byte_rate"


@pytest.mark.parametrize(
    ("first", "noticed", "turns"),
    [
        pytest.param(
            {RATE: 1, IDS: 1},
            {RATE: 2},
            [[{RATE: 3}, {IDS: 2}, {IDS: 3}]],
            id="changes under the other root follow",
        ),
        pytest.param(
            {RATE: 1, IDS: 1},
            {RATE: None},
            [[{IDS: 2}, {IDS: 3}]],
            id="changes under the other root follow a removal",
        ),
        pytest.param(
            {RATE: 1},
            {RATE: None},
            [[{RATE: 2}], [{RATE: 3}, {RATE: None}]],
            id="a znode that was gone is made and goes again",
        ),
    ],
)
def test_changes_of_headgates_amid_a_look_are_never_taken_for_foreign_ones(
    play: Callable[[], Played], first: Change, noticed: Change, turns: list[list[Change]]
) -> None:
    for number in range(MOST_MOMENTS):
        played = play()
        played.change(first)
        played.look()
        played.change(noticed)
        played.amid(number, turns)
        played.look()
        if not played.server.moments.happened():
            break
        played.look()
        assert {who for who, *_ in played.history()} == {"other"}, number
    assert number >= 10


def test_a_change_made_past_headgate_amid_a_look_is_told_once(play: Callable[[], Played]) -> None:
    for number in range(MOST_MOMENTS):
        played = play()
        played.change({RATE: 1})
        played.look()
        played.change({RATE: 2})

        def past(server: PlayedZooKeeper = played.server) -> None:
            """Do as Kafka's tool does: change the znode, then notify."""
            server.transact([("set", ZNODE, encode_config({RATE: "7"}), -1)])
            notice = f"{CHANGES[KAFKA_HOME]}/{CHANGE_PREFIX}"
            server.transact([("sequence", notice, encode_notice("users/alice"), -1)])

        played.server.moments.at(number, past)
        played.look()
        if not played.server.moments.happened():
            break
        played.look()
        assert played.history() == [
            ("other", RATE, None, 1.0),
            ("other", RATE, 1.0, 2.0),
            ("unknown", RATE, 2.0, 7.0),
        ], number
    assert number >= 10
