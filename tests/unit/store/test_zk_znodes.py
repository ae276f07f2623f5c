"""What the ZooKeeper home does with znodes that somebody emptied or wrote by hand."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.errors import StoreError
from headgate.store.zookeeper import brokers, read, scram
from headgate.store.zookeeper import identity as zk_identity
from headgate.store.zookeeper.layout import BROKERS, IDENTITY, KAFKA_HOME, OWN_HOME
from headgate.store.zookeeper.store import ZooKeeperStore
from headgate.store.zookeeper.znodes import Conflict, TransactionStep, Znode
from kit.played_zookeeper import PlayedZooKeeper


class Zk:
    """Znodes in memory, with transactions; ``before_commit`` is another process's turn."""

    def __init__(self) -> None:
        self.znodes: dict[str, tuple[bytes | None, int]] = {}
        self.before_commit: list[Any] = []

    def nodes(self, paths: Iterable[str]) -> dict[str, Znode | None]:
        return {path: self._node(path) for path in paths}

    def _node(self, path: str) -> Znode | None:
        if path not in self.znodes:
            return None
        data, version = self.znodes[path]
        return Znode(data, version, len(self._below(path)), 1, 1, 1, 0)

    def _below(self, path: str) -> list[str]:
        below = [p.removeprefix(f"{path}/") for p in self.znodes if p.startswith(f"{path}/")]
        return [name for name in below if "/" not in name]

    def children(self, paths: Iterable[str]) -> dict[str, list[str]]:
        return {path: self._below(path) for path in paths}

    def commit(self, transactions: list[list[TransactionStep]]) -> list[BaseException | None]:
        while self.before_commit:
            self.before_commit.pop()()
        return [self._transact(steps) for steps in transactions]

    def _transact(self, steps: list[TransactionStep]) -> BaseException | None:
        after = dict(self.znodes)
        for verb, path, data, version in steps:
            if verb == "create":
                if path in after:
                    return Conflict(path)
                after[path] = data, 0
            else:
                assert verb == "set"
                if path not in after or version not in (-1, after[path][1]):
                    return Conflict(path)
                after[path] = data, after[path][1] + 1
        self.znodes = after
        return None


@pytest.mark.parametrize("left", [False, True])
def test_an_identity_is_made_where_there_is_none(left: bool) -> None:
    zk: Any = Zk()
    if left:  # its child was deleted by hand
        zk.znodes[IDENTITY] = None, 3
    zk_identity.make(zk)
    found = zk_identity.read(zk, None)
    assert found is not None
    assert found.revision == 0
    zk_identity.make(zk)
    assert zk.children([IDENTITY])[IDENTITY] == [found.id]


@pytest.mark.parametrize("left", [False, True])
def test_two_processes_make_one_identity(left: bool) -> None:
    zk: Any = Zk()
    if left:
        zk.znodes[IDENTITY] = None, 3
    zk.before_commit.append(lambda: zk_identity.make(zk))
    zk_identity.make(zk)
    assert len(zk.children([IDENTITY])[IDENTITY]) == 1


def test_each_broken_znode_is_named() -> None:
    zk: Any = Zk()
    zk.znodes |= {
        f"{KAFKA_HOME}/users/alice": (b"?", 0),
        f"{KAFKA_HOME}/users/bob": (b'{"version":1,"config":{"producer_byte_rate":"9"}}', 0),
        f"{KAFKA_HOME}/clients/app": (b'{"version":1,"config":{"producer_byte_rate":"x"}}', 0),
        f"{BROKERS}/1": (b'{"version":2,"config":{}}', 0),
        f"{OWN_HOME}/users/carol": (b"[]", 0),
    }
    brokers_, app, alice, carol = read.broken(zk)
    assert brokers_.startswith(f"{BROKERS}/1 is not of the form")
    assert app == f"in {KAFKA_HOME}/clients/app producer_byte_rate is 'x', which is no number: " + (
        "it is passed over"
    )
    assert alice.startswith(f"{KAFKA_HOME}/users/alice is not of the form")
    assert carol.startswith(f"{OWN_HOME}/users/carol is not of the form")


def test_znodes_of_the_older_layout_and_broken_ones_are_a_stores_oddities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = PlayedZooKeeper()
    server.play(monkeypatch)
    with ZooKeeperStore("played") as store:
        assert store.home.oddities() == []
        older = b'{"version":1,"config":{"producer_byte_rate":"9"}}'
        server.transact([("set", f"{KAFKA_HOME}/users", older, -1)])
        server.transact([("create", f"{KAFKA_HOME}/users/alice", b"?", -1)])
        broken, old = store.home.oddities()
    assert broken.startswith(f"{KAFKA_HOME}/users/alice is not of the form")
    assert old == (
        f"{KAFKA_HOME}/users holds quotas of users/<default> in an older layout, which brokers "
        "don't read; set them again and delete them there"
    )


def test_a_znode_that_is_no_configuration_is_named() -> None:
    zk: Any = Zk()
    zk.znodes[f"{BROKERS}/1"] = b"?", 0
    with pytest.raises(StoreError, match=rf"the znode {BROKERS}/1 is not of the form .*fix it"):
        brokers.alter(zk, "1", {"max.connections": "1"}, lambda *_changed: [])
    user = f"{KAFKA_HOME}/users/alice"
    zk.znodes[user] = b"?", 0
    store: Any = SimpleNamespace(home=SimpleNamespace(client=zk), url="zookeeper://test")
    with pytest.raises(StoreError, match=rf"the znode {user} is not of the form .*fix it"):
        scram.alter_credentials(store, "alice", {"SCRAM-SHA-256": "x"}, who="me", tool="test")
