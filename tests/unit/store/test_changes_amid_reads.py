"""
Changes that come amid a read of ZooKeeper's znodes, or of Kafka's quotas and the topic's.

The homes are in memory, so a change can come before each single read. What is kept of which version
was read must never be newer than what was read: else the next look finds nothing new for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from contract.homes import Moments
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_IDS
from headgate.quota.table import QuotaTable
from headgate.store.home import StoreHome
from headgate.store.identity import StoreIdentity
from headgate.store.kafka.home import KafkaHome
from headgate.store.kafka.state import TopicState, quota_record
from headgate.store.kafka.store import KafkaStore
from headgate.store.watched import QuotaStore
from headgate.store.zookeeper.home import ZkHome
from headgate.store.zookeeper.layout import (
    CHANGE_PREFIX,
    CHANGES,
    HOMES,
    KAFKA_HOME,
    OWN_HOME,
    SKELETON,
    encode_config,
    encode_notice,
)
from headgate.store.zookeeper.store import ZooKeeperStore
from headgate.store.zookeeper.znodes import Znode
from headgate.wire.messages.quotas import DescribedEntry, EntityPart, QuotaValue

ALICE, BOB = QuotaEntity.of(user="alice"), QuotaEntity.of(user="bob")
MOST_MOMENTS = 100


class Zk:
    """Znodes in memory, each read separately."""

    def __init__(self) -> None:
        self.moments = Moments()
        self.reads = self.listed = self.zxid = 0
        self.notices = dict.fromkeys(HOMES, 0)
        self.znodes: dict[str, Znode] = {}
        for path in SKELETON:
            self._put(path, None)

    def _read(self) -> None:
        self.reads += 1
        self.moments.passed()

    def _put(self, path: str, data: bytes | None) -> None:
        before = self.znodes.get(path)
        if before is not None:
            self.znodes[path] = before._replace(data=data, mzxid=self.zxid)
            return
        self.znodes[path] = Znode(data, 0, 0, self.zxid, self.zxid, self.zxid, 0)
        parent, _, name = path.rpartition("/")
        if parent in self.znodes and name:
            above = self.znodes[parent]
            self.znodes[parent] = above._replace(children=above.children + 1, pzxid=self.zxid)

    def set(self, home: str, path: str, **config: str) -> None:
        """Set a znode and notify, in one transaction."""
        self.zxid += 1
        self._put(f"{home}/{path}", encode_config(config))
        number, self.notices[home] = self.notices[home], self.notices[home] + 1
        self._put(f"{CHANGES[home]}/{CHANGE_PREFIX}{number:010d}", encode_notice(path))

    def change(self, who: str, value: int) -> None:
        """Change a user's quotas under each root, Kafka's first, and a broker's settings."""
        self.set(KAFKA_HOME, f"users/{who}", producer_byte_rate=str(value))
        self.set(OWN_HOME, f"users/{who}", producer_ids_rate=str(value))
        self.set(KAFKA_HOME, "brokers/1", **{"max.connections": str(value)})

    # what the store calls

    def nodes(self, paths: Iterable[str]) -> dict[str, Znode | None]:
        return {path: self._node(path) for path in paths}

    def _node(self, path: str) -> Znode | None:
        self._read()
        return self.znodes.get(path)

    def _below(self, path: str) -> list[str]:
        below = [p.removeprefix(f"{path}/") for p in self.znodes if p.startswith(f"{path}/")]
        return sorted(name for name in below if "/" not in name)

    def children(self, paths: Iterable[str]) -> dict[str, list[str]]:
        found = {}
        for path in paths:
            self._read()
            found[path] = self._below(path)
        return found

    def watch_children(self, path: str, _fired: Any) -> tuple[list[str], int]:
        self._read()
        self.listed += 1
        return self._below(path), self.znodes[path].pzxid

    def watch_data(self, _path: str, _fired: Any) -> None:
        self._read()

    def pzxid(self, path: str) -> int:
        self._read()
        return self.znodes[path].pzxid

    def sync(self) -> None:
        self._read()


def put_together(store: QuotaStore, home: StoreHome) -> None:
    """Make a store without history, settings of brokers and leases."""
    nothing: Any = None
    QuotaStore.__init__(store, home, nothing, nothing, nothing, 10.0, lambda _name: True)


class OverZk(ZooKeeperStore):
    """A store on znodes in memory."""

    def __init__(self, zk: Zk) -> None:
        home = ZkHome.__new__(ZkHome)
        StoreHome.__init__(home, "zookeeper://test", lambda: 0)
        home.client = self._client = zk  # type: ignore[assignment]
        home.losses, self._read_at = 0, -1
        put_together(self, home)
        self._seen, self._pzxid = dict.fromkeys(HOMES, -1), dict.fromkeys(HOMES, -1)
        self._older_fired = False
        self._foreign, self._read_zxids, self._all_read_zxid = [], {}, 0

    def look(self, entity: QuotaEntity) -> tuple[float, float, str | None]:
        """Return what it knows of a user and a broker after a look; 0: nothing."""
        table = self._catch_up()
        ours = self.broker_settings.known.get("1", {}).get("max.connections")
        return table.get(entity, PRODUCER) or 0.0, table.get(entity, PRODUCER_IDS) or 0.0, ours


@pytest.mark.parametrize("who", [ALICE, BOB], ids=["the same user", "another user"])
@pytest.mark.parametrize("first", [True, False], ids=["the first look", "a later one"])
def test_a_change_amid_a_look_at_zookeeper_is_seen_in_order_and_by_the_next_look(
    first: bool, who: QuotaEntity
) -> None:
    for number in range(MOST_MOMENTS):
        zk = Zk()
        store = OverZk(zk)
        zk.change("alice", 1)
        if not first:
            assert store.look(ALICE) == (1.0, 1.0, "1")
            zk.change("alice", 2)
        zk.moments.at(number, lambda zk=zk: zk.change(who.user, 3))  # type: ignore[misc]
        in_kafka, own, _ = store.look(who)
        if not zk.moments.happened():
            break
        assert in_kafka >= own, number
        assert store.look(who) == (3.0, 3.0, "3"), number
    assert number >= 10


@pytest.mark.parametrize(
    ("home", "path", "config"),
    [
        (KAFKA_HOME, "users/bob", {"producer_byte_rate": "3"}),
        (OWN_HOME, "users/bob", {"producer_ids_rate": "3"}),
        (KAFKA_HOME, "brokers/1", {"max.connections": "3"}),
    ],
)
def test_one_change_amid_a_look_at_others_is_seen_by_the_next_look(
    home: str, path: str, config: dict[str, str]
) -> None:
    """Nothing else is noticed with it, so no other notification has it read."""
    for number in range(MOST_MOMENTS):
        zk = Zk()
        store = OverZk(zk)
        store.look(BOB)
        for each in HOMES:
            zk.set(each, "users/alice")
        zk.moments.at(number, lambda zk=zk: zk.set(home, path, **config))  # type: ignore[misc]
        store.look(BOB)
        if not zk.moments.happened():
            break
        assert {3.0, "3"} & set(store.look(BOB)), number
    assert number >= 5


@pytest.mark.parametrize("home", HOMES)
def test_what_zookeeper_notifies_is_listed_and_read_once(home: str) -> None:
    """A look that finds nothing new reads two numbers, however many notifications there are."""
    zk = Zk()
    store = OverZk(zk)
    store.look(ALICE)
    reads = []
    for value in range(1, 4):
        listed, zk.reads = zk.listed, 0
        zk.set(home, "users/alice", producer_byte_rate=str(value))
        store.look(ALICE)
        reads.append(zk.reads)
        assert zk.listed == listed + 1
        zk.reads = 0
        store.look(ALICE)
        assert (zk.listed, zk.reads) == (listed + 1, len(HOMES))
    assert reads == reads[:1] * 3


class Kafka:
    """Kafka's own quotas and Headgate's topic, in memory; it is the store's client and topic."""

    def __init__(self) -> None:
        self.moments = Moments()
        self.state = TopicState()
        self.described: tuple[DescribedEntry, ...] = ()

    def change(self, value: float) -> None:
        """Change a quota in Kafka, then one in the topic."""
        parts, values = (EntityPart("user", "alice"),), (QuotaValue("producer_byte_rate", value),)
        self.described = (DescribedEntry(parts, values),)
        self.state.apply(quota_record(BOB, PRODUCER_IDS, value))

    # what the store calls

    def describe(self) -> tuple[DescribedEntry, ...]:
        self.moments.passed()
        found = self.described
        self.moments.passed()  # the answer is on its way
        return found

    @contextmanager
    def locked(self) -> Iterator[TopicState]:
        self.moments.passed()
        yield self.state  # nothing is taken in meanwhile


class OverKafka(KafkaStore):
    """A store on both in memory."""

    def __init__(self, kafka: Kafka) -> None:
        home: Any = KafkaHome.__new__(KafkaHome)
        StoreHome.__init__(home, "kafka://test", lambda: 0)
        home.read_identity = self._read_identity
        put_together(self, home)
        self._client: Any = kafka
        self._topic: Any = kafka
        self._suspects: list[Any] = []
        self._described, self._in_kafka, self._quotas_version = None, {}, -1
        self._known = StoreIdentity("id", 0)

    def _read_identity(self) -> StoreIdentity:
        self._client.moments.passed()
        return self._known

    def look(self) -> tuple[float | None, float | None]:
        """Return what it knows after a look."""
        table: QuotaTable = self._refresh()
        return table.get(ALICE, PRODUCER), table.get(BOB, PRODUCER_IDS)


@pytest.mark.parametrize("first", [True, False], ids=["the first look", "a later one"])
def test_a_change_amid_a_look_at_kafka_is_seen_whole_or_by_the_next_look(first: bool) -> None:
    """What is in the topic was changed after what is in Kafka: never is it seen alone."""
    for number in range(MOST_MOMENTS):
        kafka = Kafka()
        store = OverKafka(kafka)
        kafka.change(1.0)
        if not first:
            assert store.look() == (1.0, 1.0)
            kafka.change(2.0)
        kafka.moments.at(number, lambda kafka=kafka: kafka.change(3.0))  # type: ignore[misc]
        in_kafka, in_topic = store.look()
        if not kafka.moments.happened():
            break
        assert in_kafka is not None
        assert in_topic is not None
        assert in_kafka >= in_topic, number
        assert store.look() == (3.0, 3.0), number
    assert number >= 5
