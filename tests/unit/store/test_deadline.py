"""A store that doesn't answer: one limit for a call with all its waits, and what is said then."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.errors import KafkaError, StoreError, StoreSilent
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import QuotaStore, open_store
from headgate.store.base import ChangeOrigin
from headgate.store.deadline import LimitedLock, left_s, patient, within
from headgate.store.zookeeper.alter import ZkAlterer
from headgate.store.zookeeper.client import ZkClient
from headgate.store.zookeeper.znodes import Interrupted, TransactionStep

ALICE = QuotaEntity.of(user="alice")
CHANGE = [QuotaAlteration(ALICE, (Op(PRODUCER, 5.0),))]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr("headgate.store.deadline.time", SimpleNamespace(monotonic=lambda: now.s))
    return now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QuotaStore]:
    with open_store(f"sqlite:{tmp_path / 'quotas.db'}") as opened:
        yield opened


def until(happened: Callable[[], object]) -> None:
    ends = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_waits_share_what_is_left_of_a_call(clock: SimpleNamespace) -> None:
    assert left_s(30) == 30
    with within(20):
        assert (left_s(30), left_s(5)) == (20, 5)
        clock.s += 15
        with within(60):  # an earlier end stays
            assert left_s(30) == 5
        with patient(2):
            assert left_s(30) == 2
        clock.s += 15
        assert left_s(30) == 0
    assert left_s(30) == 30


def test_a_lock_is_waited_for_as_long_as_the_call_may_take(clock: SimpleNamespace) -> None:
    held = threading.Lock()
    lock = LimitedLock("some:store", held)
    with within(0), lock:  # nobody has it
        assert held.locked()
    held.acquire()
    with within(0), pytest.raises(StoreSilent, match="some:store: earlier calls"), lock:
        pass
    held.release()
    assert not held.locked()


def test_a_change_is_refused_at_once_while_the_store_is_known_not_to_answer(
    store: QuotaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    with monkeypatch.context() as patched:

        def away(*_: object, **__: object) -> Any:
            asked.append(1)
            raise StoreSilent("some:store doesn't answer")

        patched.setattr(store, "_look", away)
        store.watch(lambda _table, _delta: None)
        until(lambda: store.availability.silent)
        asked.clear()
        patched.setattr(store, "_alter", away)
        patched.setattr(store.broker_settings, "_write", away)
        patched.setattr(store, "_look", lambda: store.home.poke.wait(60))  # looks no more
        until(lambda: store.home.poke.is_set() or not store.home.poke.wait(0))
        for change in (
            lambda: store.alter(CHANGE),
            lambda: store.broker_settings.alter("1", {"max.connections": "5"}),
        ):
            with pytest.raises(
                StoreSilent, match=r"doesn't answer\. Nothing was changed"
            ) as raised:
                change()
            assert raised.value.retriable
            assert raised.value.kafka_code == KafkaError.REQUEST_TIMED_OUT
        assert asked == []
    store.home.poke.set()
    until(lambda: store.availability.silent is None)
    assert store.alter(CHANGE)[0].error is None


def test_without_a_watch_every_change_is_tried(
    store: QuotaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:

        def away(*_: object, **__: object) -> Any:
            raise StoreSilent("some:store doesn't answer", "Nothing was changed")

        patched.setattr(store, "_alter", away)
        with pytest.raises(StoreSilent):
            store.alter(CHANGE)
    assert store.alter(CHANGE)[0].error is None  # nobody would notice that it is back


def test_a_locked_file_is_waited_for_as_long_as_the_change_may_take(store: Any) -> None:
    with contextlib.closing(sqlite3.connect(store.home.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with within(0), pytest.raises(StoreSilent, match=r"holds its lock.*Nothing was changed"):
            store.alter(CHANGE)
        assert store.snapshot().get(ALICE, PRODUCER) is None
        other.execute("ROLLBACK")
    assert store.alter(CHANGE)[0].error is None


def test_nothing_is_given_to_a_zookeeper_client_without_connection() -> None:
    """It would keep what it is given, and send it long after the change was given up."""
    client: Any = ZkClient.__new__(ZkClient)
    client.hosts, client._connected = "zk:2181", threading.Event()
    client._send = client._kazoo = None  # a call of either fails
    with within(0), pytest.raises(StoreSilent, match="zk:2181 can't be reached"):
        client.commit([[TransactionStep("create", "/x")]])
    with within(0), pytest.raises(StoreSilent, match="zk:2181 can't be reached"):
        client._ask(None, ["/x"])


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([], "Nothing was changed"),
        ([Interrupted()], r"what was sent for .*alice.* wasn't answered: it may have been made"),
        ([None], "1 entities were changed"),
    ],
)
def test_what_zookeeper_was_sent_and_did_not_answer_is_told(outcomes: list[Any], said: str) -> None:
    def away(*_: object) -> Any:
        raise StoreSilent("zk doesn't answer")

    node = SimpleNamespace(version=7, children=0, data=b"")
    sent: list[Any] = []

    def nodes(paths: Any) -> Any:
        if len(sent) == len(outcomes):
            away()
        return {path: node if "/identity/" in path else None for path in paths}

    def commit(transactions: Any) -> Any:
        sent.append(transactions)
        return outcomes

    client = SimpleNamespace(nodes=nodes, commit=commit)
    home: Any = SimpleNamespace(
        url="zk", id="id", client=client, clock_ms=lambda: 7, check_now=away
    )
    history: Any = SimpleNamespace(holds=away, prune=lambda _nodes: None)
    alterer = ZkAlterer(home, history, ChangeOrigin("ops", "t", "c", ""), None)
    bob = [QuotaAlteration(QuotaEntity.of(user="bob"), CHANGE[0].ops)]
    with pytest.raises(StoreSilent, match=f"zk doesn't answer. {said}"):
        for batch in (CHANGE, bob):
            alterer.alter(batch)


def test_what_refuses_isnt_silent() -> None:
    assert StoreError("x").kafka_code == KafkaError.UNKNOWN_SERVER_ERROR
