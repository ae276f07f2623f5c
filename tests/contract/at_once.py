"""Several writers at once, changes amid reads and changes, and a writer that died."""

import threading
from typing import Any

import pytest

from contract.homes import (
    ALICE,
    BOB,
    Died,
    Homed,
    Moments,
    Opener,
    Seen,
    alteration,
    errors,
    set_key,
)
from headgate.errors import StoreError
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import (
    CONSUMER,
    PRODUCER,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
)
from headgate.quota.table import QuotaTable
from headgate.store import QuotaStore


class AtOnce(Homed):
    """Several writers at once, changes amid reads and changes, and a writer that died."""

    # --- several at once

    def test_several_writers_at_once_lose_nothing(self, open_home: Opener) -> None:
        stores = [open_home() for _ in range(3)]
        keys = [PRODUCER, CONSUMER, REQUEST]
        failures: list[BaseException] = []

        def write(store: QuotaStore, key: QuotaKey) -> None:
            try:
                for value in range(1, 9):
                    asked = [set_key(ALICE, key, value)]
                    asked.append(set_key(QuotaEntity.of(user=f"{key.type}-{value}"), key, value))
                    assert errors(store.alter(asked, who=key.type)) == [None, None]
            except BaseException as exc:
                failures.append(exc)

        threads = [
            threading.Thread(target=write, args=pair) for pair in zip(stores, keys, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        table = open_home().snapshot()
        assert dict(table.entities[ALICE]) == dict.fromkeys(keys, 8.0)
        assert len(table) == 1 + 3 * 8
        entries = stores[0].history.entries(entity=ALICE)
        for key in keys:
            mine = [(h.before, h.after) for h in entries if h.key == key]
            assert mine == [(None, 1.0)] + [(v, v + 1.0) for v in range(1, 8)]
            assert {h.who for h in entries if h.key == key} == {key.type}

    def test_history_and_values_have_one_order_whoever_writes(self, open_home: Opener) -> None:
        stores = [open_home() for _ in range(4)]
        entities = [ALICE, BOB, QuotaEntity.of(user="carol")]
        failures: list[BaseException] = []

        def write(store: QuotaStore, mine: int) -> None:
            try:
                for turn in range(6):
                    entity = entities[(turn + mine) % 3]
                    value = None if turn == 4 else 100.0 * turn + mine + 1
                    for key in (PRODUCER, PRODUCER_IDS):
                        asked = [set_key(entity, key, value)]
                        assert errors(store.alter(asked, who=f"w{mine}")) == [None]
            except BaseException as exc:
                failures.append(exc)

        threads = [
            threading.Thread(target=write, args=(store, n)) for n, store in enumerate(stores)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        table = open_home().snapshot()
        history = stores[0].history.entries()
        for entity in entities:
            for key in (PRODUCER, PRODUCER_IDS):
                chain = [(h.before, h.after) for h in history if (h.entity, h.key) == (entity, key)]
                assert [before for before, _ in chain] == [
                    None,
                    *(after for _, after in chain[:-1]),
                ]
                assert chain[-1][1] == table.get(entity, key)
        assert {h.who for h in history} == {"w0", "w1", "w2", "w3"}

    def test_a_change_by_another_is_seen_within_two_looks(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        looks: list[None] = []
        inner: Any = store
        look = inner._look

        def counted() -> None:
            looks.append(None)
            look()

        inner._look = counted
        if self.polls:  # two of them are within a second
            assert 2 * inner._poll_s < 1
        else:  # told, not found by asking again and again
            inner._poll_s = 3600
        seen = Seen()
        store.watch(seen)
        other = open_home()
        for value in (1.0, 2.0, 3.0):
            for key in (PRODUCER, PRODUCER_IDS):
                other.alter([set_key(ALICE, key, value)])
                before = len(looks)
                seen.until(lambda key=key, value=value: seen.table.get(ALICE, key) == value)
                assert len(looks) - before <= self.most_looks

    # --- what is there in part

    def test_a_pair_is_read_though_its_user_has_nothing(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        pairs = {
            QuotaEntity.of(user=user, client_id=client): {key: 5.0}
            for user in ("alice", DEFAULT)
            for client, key in (("etl", PRODUCER), (DEFAULT, PRODUCER_SHARES), ("app", CONSUMER))
        }
        known, seen = open_home(), Seen()
        known.watch(seen)
        asked = [set_key(pair, key, 5.0) for pair, own in pairs.items() for key in own]
        assert errors(store.alter(asked)) == [None] * 6
        assert open_home().snapshot() == known.snapshot() == QuotaTable.of(pairs)
        seen.until(lambda: seen.table == QuotaTable.of(pairs))
        # What the user had and has no more leaves the pairs as they are.
        for value in (1.0, None):
            store.alter([set_key(ALICE, PRODUCER, value), set_key(ALICE, REQUEST, value)])
        assert open_home().snapshot() == known.snapshot() == QuotaTable.of(pairs)
        assert {h.entity for h in open_home().history.entries()} == {*pairs, ALICE}

    def test_a_change_amid_a_read_is_in_the_next_read(
        self, store: QuotaStore, open_home: Opener, reading: Moments
    ) -> None:
        """Of what is read and of which version it is, the version must not be the newer one."""
        other = open_home()
        made = iter(range(1, 1_000))

        def change() -> None:
            value = float(next(made))
            asked = [set_key(ALICE, PRODUCER, value), set_key(BOB, PRODUCER_IDS, value)]
            assert errors(other.alter(asked)) == [None, None]
            other.broker_settings.alter("1", {"max.connections": f"{value:.0f}"})

        moments = 0
        for number in range(200):
            change()
            reading.at(number, change)
            store.snapshot()
            if not reading.happened():
                break
            moments += 1
            assert store.snapshot() == other.snapshot(), number
            assert store.broker_settings.now() == other.broker_settings.now(), number
        assert moments >= self.fewest_steps
        for number in range(0, 200, 3):  # a store that reads for the first time
            late = open_home()
            reading.at(number, change)
            late.snapshot()
            if not reading.happened():
                break
            assert late.snapshot() == other.snapshot(), number
        assert number >= 3

    def test_a_change_amid_a_change_is_not_lost_in_silence(
        self, store: QuotaStore, open_home: Opener, changing: Moments
    ) -> None:
        other = self.impatient(open_home())

        def change() -> None:
            # Its last keys go, and then it is made again.
            asked = [set_key(ALICE, PRODUCER, None)], [set_key(ALICE, CONSUMER, 3.0)]
            assert [errors(other.alter(each)) for each in asked] == [[None], [None]]

        for number in range(200):
            value = None if number % 2 else number + 1.0
            other.alter([alteration(ALICE, producer_byte_rate=None, consumer_byte_rate=None)])
            other.alter([alteration(ALICE, producer_byte_rate=7.0)])
            changing.at(number, change)
            try:
                assert errors(store.alter([set_key(ALICE, PRODUCER, value)])) == [None]
            except StoreError as exc:
                assert exc.retriable
                told = False
            else:
                told = True
            if not changing.happened():
                break
            table = other.snapshot()
            assert table.get(ALICE, CONSUMER) == 3.0, number
            if told:  # else it may have been made after that
                assert value in {h.after for h in other.history.entries() if h.key == PRODUCER}, (
                    number
                )
                self.is_told_in_order(other)
        assert number >= 1

    def test_what_one_who_died_amid_a_change_left_is_told_in_order(
        self, store: QuotaStore, open_home: Opener, dying: Moments
    ) -> None:
        other = self.impatient(open_home())

        def die() -> None:
            raise Died

        other.alter([set_key(ALICE, PRODUCER, 1.0)])
        for number in range(200):
            value, who = 2.0 * number + 2.0, f"writer {number}"
            dying.at(number, die)
            try:
                store.alter([set_key(ALICE, PRODUCER, value)], who=who)
            except Died:
                store = open_home()
            if not dying.happened():
                break
            assert errors(other.alter([set_key(ALICE, PRODUCER, value + 1.0)])) == [None]
            self.is_told_in_order(other)
            made = [h for h in other.history.entries() if h.after == value]
            assert {h.who for h in made} <= {who}, number
        assert number >= self.fewest_steps

    def is_told_in_order(self, store: QuotaStore) -> None:
        """Each change in the history begins where the one before it ended, and ends at what is."""
        history, table = store.history.entries(), store.snapshot()
        for entity, key in {(h.entity, h.key) for h in history}:
            told = [(h.before, h.after) for h in history if (h.entity, h.key) == (entity, key)]
            assert [before for before, _ in told] == [None, *(after for _, after in told[:-1])]
            assert told[-1][1] == table.get(entity, key)

    # --- closing

    def test_a_closed_store_says_so(self, store: QuotaStore) -> None:
        seen = Seen()
        store.watch(seen)
        store.close()
        store.close()
        with pytest.raises(StoreError, match="closed"):
            store.snapshot()
        with pytest.raises(StoreError, match="closed"):
            store.alter([set_key(ALICE, PRODUCER, 1.0)])
