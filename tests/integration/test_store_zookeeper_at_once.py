"""
The ZooKeeper store where many change one user at once: its quotas and credentials are one znode.

That znode goes with its last key. One that is made again has version 0, as the first one had, so
its version alone doesn't tell a writer that what it read is no longer there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from threading import Thread

import pytest

from contract.suite import set_key
from headgate.embedded import EmbeddedZooKeeper
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, QuotaKey
from headgate.store import open_store
from headgate.store.zookeeper.layout import decode_config
from headgate.store.zookeeper.scram import alter_credentials
from headgate.store.zookeeper.store import ZooKeeperStore
from headgate.store.zookeeper.znodes import TransactionStep

pytestmark = pytest.mark.kafka3

ZNODE = "/config/users/alice"
ALICE = QuotaEntity.of(user="alice")
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
#: Sets (a text) or removes (None) something of Alice's.
Change = Callable[[ZooKeeperStore, str | None], None]


def quota(key: QuotaKey) -> Change:
    def change(store: ZooKeeperStore, text: str | None) -> None:
        [result] = store.alter([set_key(ALICE, key, None if text is None else float(text))])
        assert result.error is None

    return change


def credential(mechanism: str) -> Change:
    def change(store: ZooKeeperStore, text: str | None) -> None:
        alter_credentials(store, "alice", {mechanism: text}, who="ops", tool="test")

    return change


CHANGES: dict[str, Change] = {
    PRODUCER.name: quota(PRODUCER),
    CONSUMER.name: quota(CONSUMER),
    SHA_256: credential(SHA_256),
    SHA_512: credential(SHA_512),
}


def found(store: ZooKeeperStore) -> dict[str, str]:
    """Return what Alice's znode holds now."""
    store.home.client.sync()
    node = store.home.client.nodes([ZNODE])[ZNODE]
    return {} if node is None else decode_config(node.data)


@pytest.fixture
def open_one(zookeeper: EmbeddedZooKeeper) -> Iterator[Callable[[], ZooKeeperStore]]:
    """Opens one more store on the test's home, as another process does."""
    url = f"zookeeper://{zookeeper.address}/at-once/{uuid.uuid4().hex}"
    opened: list[ZooKeeperStore] = []

    def opener() -> ZooKeeperStore:
        store = open_store(url)
        assert isinstance(store, ZooKeeperStore)
        opened.append(store)
        return store

    yield opener
    for store in opened:
        store.close()


@pytest.mark.parametrize("mine", [PRODUCER.name, SHA_256])
@pytest.mark.parametrize("others", [CONSUMER.name, SHA_512])
@pytest.mark.parametrize("text", ["7", None])
def test_a_znode_made_again_isnt_taken_for_the_one_that_was_read(
    open_one: Callable[[], ZooKeeperStore],
    monkeypatch: pytest.MonkeyPatch,
    mine: str,
    others: str,
    text: str | None,
) -> None:
    store, other = open_one(), open_one()
    CHANGES[mine](store, "1")
    commit = store.home.client.commit

    def overtaken(transactions: list[list[TransactionStep]]) -> list[BaseException | None]:
        monkeypatch.setattr(store.home.client, "commit", commit)
        CHANGES[mine](other, None)
        CHANGES[others](other, "3")
        return commit(transactions)

    monkeypatch.setattr(store.home.client, "commit", overtaken)
    CHANGES[mine](store, text)
    wanted = {others: "3"} if text is None else {others: "3", mine: text}
    assert found(other) == wanted


def test_of_sixty_changes_of_one_user_at_once_none_is_lost(
    open_one: Callable[[], ZooKeeperStore],
) -> None:
    """Each thread has something of Alice's to itself: what it set or removed stays so."""
    own = {name: CHANGES[name] for name in (PRODUCER.name, CONSUMER.name, SHA_256)}
    stores = {name: open_one() for name in own}
    failures: list[BaseException] = []
    lost: list[str] = []

    def write(name: str) -> None:
        store = stores[name]
        try:
            for number in range(1, 11):
                for text in (str(number), None):
                    own[name](store, text)
                    now = found(store).get(name)
                    if now != text:
                        lost.append(f"{name} {text}, found {now}")
        except BaseException as exc:
            failures.append(exc)

    threads = [Thread(target=write, args=(name,)) for name in own]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert lost == []
    store = stores[PRODUCER.name]
    assert store.home.client.nodes([ZNODE]) == {ZNODE: None}
    history = store.history.entries()
    assert len(history) == 40
    for key in {h.key for h in history}:
        told = [(h.before, h.after) for h in history if h.key == key]
        assert [before for before, _ in told] == [None, *(after for _, after in told[:-1])]
    assert len(store.history.audit_log()) == 20
