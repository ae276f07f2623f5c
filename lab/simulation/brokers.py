"""
Simulated Kafka brokers: a log for each partition, and nothing of the product's code.

As a broker's network and request threads do, a connection's requests are handled one after the
other, and its next one is read when the answer to the last is sent. Answers are held back by a
drawn time, long polls by theirs. There are no quotas here: throttle times are always 0, so all
that a client is told comes from the gateway.
"""

from __future__ import annotations

import bisect
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from simulation import speech as say
from simulation.certificates import broker_context
from simulation.loop import Host, Process, SimLoop
from simulation.network import End
from simulation.peers import Frames, Peer, TlsPeer

NOT_LEADER, OUT_OF_ORDER, STALE_EPOCH, UNSUPPORTED, BAD_LOGIN = 6, 45, 47, 35, 58
ENDLESS: Final = "endless"
"""A topic whose partitions always have more to read."""
VERSIONS: Final = {
    say.PRODUCE: (3, 9), say.FETCH: (4, 12), say.LIST_OFFSETS: (1, 5), say.METADATA: (0, 8),
    say.OFFSET_COMMIT: (2, 7), say.FIND_COORDINATOR: (0, 2), say.JOIN_GROUP: (0, 5),
    say.HEARTBEAT: (0, 3), say.LEAVE_GROUP: (0, 1), say.SYNC_GROUP: (0, 3),
    say.SASL_HANDSHAKE: (0, 1), say.API_VERSIONS: (0, 2), say.INIT_PRODUCER_ID: (0, 1),
    say.ADD_PARTITIONS: (0, 2), say.END_TXN: (0, 2), say.SASL_AUTHENTICATE: (0, 1),
    say.SHARE_FETCH: (1, 1),
}  # fmt: skip
SESSIONS_MS: Final = 6_000


@dataclass(slots=True)
class Partition:
    """One log."""

    leader: int
    bases: list[int] = field(default_factory=list)
    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    sequences: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """By producer id: epoch, last sequence, its offset."""
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def append(self, records: bytes) -> int:
        """Add a batch; return its offset."""
        offset = self.end
        self.bases.append(offset)
        self.batches.append(struct.pack(">q", offset) + records[8:])
        self.end += 1
        waiting, self.waiting = self.waiting, []
        for wake in waiting:
            wake()
        return offset


@dataclass(slots=True)
class Stored:
    """A Produce that a broker took: what the laws read."""

    t_ns: int
    broker: int
    correlation: int
    principal: str
    client: str | None
    size: int
    acks: int
    token: int
    error: int
    offset: int


class Cluster:
    """
    All brokers of a life, and what they share.

    Args:
        loop: the loop.
        count: of brokers.
        tls: they speak TLS.
        partitions: of each topic.
        batch_bytes: of a batch of the endless topic.

    Attributes:
        stored: what was produced, in order.
        acknowledged: tokens whose answer without an error left a broker, with their offsets.
    """

    def __init__(
        self,
        loop: SimLoop,
        count: int = 2,
        partitions: int = 4,
        batch_bytes: int = 5_000,
        *,
        tls: bool = False,
    ) -> None:
        self.tls = tls
        self.loop = loop
        self.batch_bytes = batch_bytes
        self.stored: list[Stored] = []
        self.acknowledged: dict[int, int] = {}
        self.next_producer = 1_000
        self.transactions: dict[str, tuple[int, int]] = {}
        self.groups: dict[str, _Group] = {}
        self.topics: dict[str, list[Partition]] = {
            topic: [Partition(1 + at % count) for at in range(partitions)]
            for topic in ("t", ENDLESS)
        }
        self.brokers = {
            number: SimBroker(self, number, Host(loop, f"broker{number}", f"10.0.1.{number}"))
            for number in range(1, count + 1)
        }
        self.refused_logins = 0

    def move(self, topic: str, partition: int, leader: int) -> None:
        """Give a partition another leader."""
        self.topics[topic][partition].leader = leader


@dataclass(slots=True)
class _Group:
    generation: int = 0
    members: dict[str, int] = field(default_factory=dict)
    joins: list[tuple[_Connection, say.Head, str]] = field(default_factory=list)


class SimBroker:
    """
    One broker.

    Attributes:
        slow: what its own time is multiplied with.
        process: what it runs in; another one after a restart.
    """

    port = 9092

    def __init__(self, cluster: Cluster, number: int, host: Host) -> None:
        self.cluster = cluster
        self.number = number
        self.host = host
        self.loop = cluster.loop
        self.slow = 1.0
        self.deaf_until_ns = 0
        self.chance = self.loop.seed.stream("broker", number)
        self.connections: dict[_Connection, None] = {}
        self.loop.network.names[f"broker{number}"] = host.address
        self.start()

    def start(self) -> None:
        """Listen."""
        self.process = Process(self.host, self.host.name)
        self.listener = self.loop.network.listen(self.process, "", self.port, 100)
        process = self.process

        def accept() -> None:
            while self.listener.backlog:
                _Connection(self, self.listener.accept()[0])

        process.run(self.loop.add_reader, self.listener.fd, accept)

    def die(self, *, power: bool = False) -> None:
        """End, with the kernel saying so to every peer, or with nobody left to say it."""
        for connection in list(self.connections):
            if power:
                connection.peer.end.vanish()
                connection.peer.gone = True
            else:
                connection.peer.close()
            connection.done = True
        self.connections.clear()
        self.process.end(crashed=True)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.alive


class _Connection:
    """A connection to a broker: one request at a time."""

    def __init__(self, broker: SimBroker, end: End) -> None:
        self.broker = broker
        self.cluster = broker.cluster
        self.loop = broker.loop
        self.frames = Frames()
        self.queue: deque[bytes] = deque()
        self.busy = False
        self.done = False
        self.principal = ""
        self.raw = False  # bare tokens come next
        self.session: tuple[int, say.Fetched] | None = None
        if self.cluster.tls:
            self.peer: Peer = TlsPeer(end, self._data, self._gone, broker_context())
        else:
            self.peer = Peer(end, self._data, self._gone)
        broker.connections[self] = None
        self.peer.look()

    def _gone(self, _how: str) -> None:
        self.done = True
        self.broker.connections.pop(self, None)

    def _data(self, data: bytes) -> None:
        self.queue.extend(self.frames.feed(data))
        self._next()

    def _next(self) -> None:
        if self.busy or self.done or not self.queue:
            return
        self.busy = True
        data = self.queue.popleft()
        broker = self.broker
        ms = (0.1 + broker.chance.expovariate(1.0)) * broker.slow
        deaf_ns = broker.deaf_until_ns - self.loop.now_ns
        self.loop.after(ms + max(deaf_ns, 0) / 1e6, self._handle, data)

    def _handle(self, data: bytes) -> None:
        if self.done:
            return
        head = say.head_of(data)
        self.loop.digest.note("asked", self.broker.number, self.loop.now_ns, head.key, head.size)
        handler: Any = _HANDLERS.get(head.key)
        low, high = VERSIONS.get(head.key, (1, 0))
        known = handler is not None and low <= head.version <= high
        if head.key == say.API_VERSIONS and not known:
            self._versions(data, head, UNSUPPORTED)
        elif known and (self.principal or head.key in _BEFORE_LOGIN):
            handler(self, data, head)
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        self.peer.close()
        self._gone("")

    def answer(self, head: say.Head, *body: bytes) -> None:
        """Send an answer, and go on with the next request."""
        self.send(say.answer(head.key, head.version, head.correlation, *body))

    def send(self, data: bytes | None) -> None:
        """Send a frame, if there is one, and go on."""
        if self.done:
            return
        if data is not None:
            self.peer.send(data)
        self.busy = False
        self._next()

    # --- who, and what is there -------------------------------------------------------------

    def _versions(self, data: bytes, head: say.Head, error: int = 0) -> None:
        ranges = [struct.pack(">hhh", key, *both) for key, both in VERSIONS.items()]
        body = struct.pack(">hi", error, len(ranges)) + b"".join(ranges)
        version = 0 if error else head.version
        self.answer(head, body, b"\0\0\0\0" if version >= 1 else b"")

    def _handshake(self, data: bytes, head: say.Head) -> None:
        self.answer(head, struct.pack(">hi", 0, 1) + say.text("PLAIN"))

    def _authenticate(self, data: bytes, head: say.Head) -> None:
        token = say.Reader(data, head.body, False).blob() or b""
        _, user, password = token.split(b"\0")
        if password != b"right":
            self.cluster.refused_logins += 1
            self.answer(head, struct.pack(">h", BAD_LOGIN) + say.text("no") + b"\0\0\0\0",
                        struct.pack(">q", 0) if head.version >= 1 else b"")  # fmt: skip
            self.loop.after(1.0, self._hang_up)
            return
        self.principal = user.decode()
        lifetime = struct.pack(">q", 0) if head.version >= 1 else b""
        self.answer(head, struct.pack(">h", 0) + say.text(None) + b"\0\0\0\0", lifetime)

    def _metadata(self, data: bytes, head: say.Head) -> None:
        cluster, version = self.cluster, head.version
        brokers = [
            struct.pack(">i", b.number) + say.text(f"broker{b.number}")
            + struct.pack(">i", b.port) + (say.text(None) if version >= 1 else b"")
            for b in cluster.brokers.values() if b.alive
        ]  # fmt: skip
        reader = say.Reader(data, head.body, False)
        count = reader.size()
        names = list(cluster.topics) if count < 0 else [reader.text() or "" for _ in range(count)]
        topics = [self._topic(name, version) for name in names if name in cluster.topics]
        least = min(b.number for b in cluster.brokers.values() if b.alive)
        parts = [b"\0\0\0\0" if version >= 3 else b"", _array(brokers)]
        parts.append(say.text("cluster") if version >= 2 else b"")
        parts.append(struct.pack(">i", least) if version >= 1 else b"")
        parts += [_array(topics), struct.pack(">i", -(2**31)) if version >= 8 else b""]
        self.answer(head, *parts)

    def _topic(self, name: str, version: int) -> bytes:
        rows = []
        for index, partition in enumerate(self.cluster.topics[name]):
            leader = partition.leader
            row = struct.pack(">hii", 0, index, leader)
            row += struct.pack(">i", 0) if version >= 7 else b""
            row += struct.pack(">iiii", 1, leader, 1, leader)
            rows.append(row + (struct.pack(">i", 0) if version >= 5 else b""))
        head = struct.pack(">h", 0) + say.text(name) + (b"\0" if version >= 1 else b"")
        return head + _array(rows) + (struct.pack(">i", -(2**31)) if version >= 8 else b"")

    def _offsets(self, data: bytes, head: say.Head) -> None:
        self.answer(head, struct.pack(">i", 0), _array([]))

    # --- records ----------------------------------------------------------------------------

    def _produce(self, data: bytes, head: say.Head) -> None:
        asked = say.read_produce(data, head)
        batch = say.batch_of(asked.records)
        cluster = self.cluster
        partition = cluster.topics[asked.topic][asked.partition]
        error, offset = self._take(partition, asked, batch)
        cluster.stored.append(
            Stored(self.loop.now_ns, self.broker.number, head.correlation, self.principal,
                   head.client, head.size, asked.acks, batch.token, error, offset)
        )  # fmt: skip
        if asked.acks == 0:
            if error:
                self._hang_up()
            else:
                self.send(None)
            return
        if not error:
            cluster.acknowledged[batch.token] = offset
        self.send(
            say.produce_answer(
                head.version, head.correlation, asked.topic, asked.partition, error, offset, 0
            )
        )

    def _take(self, log: Partition, asked: say.Produced, batch: say.Batch) -> tuple[int, int]:
        """Append a batch, unless it was before or comes too early; return error and offset."""
        if log.leader != self.broker.number:
            return NOT_LEADER, -1
        if batch.producer >= 0:
            known = log.sequences.get(batch.producer)
            if known is not None:
                epoch, last, offset = known
                if batch.epoch < epoch:
                    return STALE_EPOCH, -1
                if batch.epoch == epoch and batch.sequence == last:
                    return 0, offset
                if batch.epoch == epoch and batch.sequence != last + 1:
                    return OUT_OF_ORDER, -1
            elif batch.sequence != 0:
                return OUT_OF_ORDER, -1
        offset = log.append(asked.records)
        if batch.producer >= 0:
            log.sequences[batch.producer] = (batch.epoch, batch.sequence, offset)
        return 0, offset

    def _fetch(self, data: bytes, head: say.Head) -> None:
        asked = say.read_fetch(data, head)
        session = 0
        if asked.epoch == 0 and asked.topic is not None:
            session = self.broker.chance.randrange(1, 2**30)
            self.session = (session, asked)
        elif asked.epoch > 0 and self.session is not None and self.session[0] == asked.session:
            session, before = self.session
            asked.topic, asked.partition = before.topic, before.partition
            asked.offset, asked.most = before.offset, before.most
        elif asked.epoch > 0:
            none = b"\x01\0" if head.version >= 12 else struct.pack(">i", 0)
            self.answer(head, struct.pack(">ihi", 0, 70, 0), none)
            return
        if asked.topic is None:
            self.send(say.fetch_answer(head.version, head.correlation, None, 0, 0, 0, b""))
            return
        self._deliver(head, asked, session, self.loop.now_ns + asked.wait_ms * 1_000_000)

    def _deliver(self, head: say.Head, asked: say.Fetched, session: int, until_ns: int) -> None:
        """Answer a fetch, now or when there is something, or its time is over."""
        assert asked.topic is not None
        partition = self.cluster.topics[asked.topic][asked.partition]
        error = NOT_LEADER if partition.leader != self.broker.number else 0
        records, following = (b"", asked.offset) if error else self._read(partition, asked)
        left_ns = until_ns - self.loop.now_ns
        if not error and len(records) < asked.min_bytes and left_ns > 0:
            again = _Once(lambda: self._deliver(head, asked, session, until_ns))
            partition.waiting.append(again)
            self.loop.at(until_ns, again)
            return
        if self.session is not None and session:
            self.session[1].offset = following
        high = following + 1 if asked.topic == ENDLESS else partition.end
        self.send(
            say.fetch_answer(
                head.version, head.correlation, asked.topic, asked.partition, error, high,
                records, session,
            )
        )  # fmt: skip

    def _read(self, partition: Partition, asked: say.Fetched) -> tuple[bytes, int]:
        """Return whole batches from an offset on, one at least, and the offset behind them."""
        most = min(asked.max_bytes, asked.most)
        if asked.topic == ENDLESS:
            return self._endless(most, asked.offset)
        at = bisect.bisect_left(partition.bases, asked.offset)
        taken: list[bytes] = []
        size = 0
        for data in partition.batches[at:]:
            if taken and size + len(data) > most:
                break
            taken.append(data)
            size += len(data)
        return b"".join(taken), asked.offset + len(taken)

    def _endless(self, most: int, offset: int) -> tuple[bytes, int]:
        """Return as many batches as may be, one at least, and the offset behind them."""
        size = self.cluster.batch_bytes
        count = max(most // size, 1)
        payload = say.batch(0, size - say.BATCH_BYTES)[8:]
        heads = (struct.pack(">q", offset + at) for at in range(count))
        return b"".join(head + payload for head in heads), offset + count

    def _share(self, data: bytes, head: say.Head) -> None:
        records, _ = self._endless(say.read_share_fetch(data, head), 0)
        self.send(say.share_answer(head.correlation, 0, records))

    # --- producers and groups ---------------------------------------------------------------

    def _init(self, data: bytes, head: say.Head) -> None:
        cluster = self.cluster
        name = say.Reader(data, head.body, False).text()
        if name is not None and name in cluster.transactions:
            producer, epoch = cluster.transactions[name]
            epoch += 1
        else:
            cluster.next_producer += 1
            producer, epoch = cluster.next_producer, 0
        if name is not None:
            cluster.transactions[name] = (producer, epoch)
        self.answer(head, struct.pack(">ihqh", 0, 0, producer, epoch))

    def _transaction(self, data: bytes, head: say.Head) -> None:
        reader = say.Reader(data, head.body, False)
        name = reader.text() or ""
        producer, epoch = reader.fixed("q"), reader.fixed("h")
        error = 0 if self.cluster.transactions.get(name) == (producer, epoch) else STALE_EPOCH
        if head.key == say.END_TXN:
            self.answer(head, struct.pack(">ih", 0, error))
        else:
            self.answer(head, struct.pack(">ii", 0, 0))

    def _coordinator(self, data: bytes, head: say.Head) -> None:
        least = min(b.number for b in self.cluster.brokers.values() if b.alive)
        where = struct.pack(">i", least) + say.text(f"broker{least}") + struct.pack(">i", 9092)
        told = b"\0\0\0\0" if head.version >= 1 else b""
        message = say.text(None) if head.version >= 1 else b""
        self.answer(head, told, struct.pack(">h", 0), message, where)

    def _join(self, data: bytes, head: say.Head) -> None:
        """Hold a member until the others have joined, or a second has passed."""
        name = say.Reader(data, head.body, False).text() or ""
        group = self.cluster.groups.setdefault(name, _Group())
        member = f"member-{head.correlation}"
        group.joins.append((self, head, member))
        if len(group.joins) == 1:
            self.loop.after(1_000.0, self._joined, group)

    def _joined(self, group: _Group) -> None:
        group.generation += 1
        group.members = {member: group.generation for _, _, member in group.joins}
        joins, group.joins = group.joins, []
        for connection, head, member in joins:
            told = struct.pack(">i", 0) if head.version >= 2 else b""
            body = struct.pack(">hi", 0, group.generation) + say.text("range")
            body += say.text(joins[0][2]) + say.text(member) + struct.pack(">i", 0)
            if not connection.done:
                connection.answer(head, told, body)

    def _sync(self, data: bytes, head: say.Head) -> None:
        self.answer(head, struct.pack(">ih", 0, 0), struct.pack(">i", 0))

    def _heartbeat(self, data: bytes, head: say.Head) -> None:
        self.answer(head, struct.pack(">ih", 0, 0))

    def _commit(self, data: bytes, head: say.Head) -> None:
        self.answer(head, struct.pack(">ii", 0, 0))


class _Once:
    """Calls something the first time that it is called."""

    def __init__(self, what: Callable[[], None]) -> None:
        self._what: Callable[[], None] | None = what

    def __call__(self) -> None:
        what, self._what = self._what, None
        if what is not None:
            what()


def _array(rows: list[bytes]) -> bytes:
    return struct.pack(">i", len(rows)) + b"".join(rows)


_BEFORE_LOGIN: Final = {say.API_VERSIONS, say.SASL_HANDSHAKE, say.SASL_AUTHENTICATE}
_HANDLERS: Final[dict[int, Any]] = {
    say.API_VERSIONS: _Connection._versions,
    say.SASL_HANDSHAKE: _Connection._handshake,
    say.SASL_AUTHENTICATE: _Connection._authenticate,
    say.METADATA: _Connection._metadata,
    say.LIST_OFFSETS: _Connection._offsets,
    say.PRODUCE: _Connection._produce,
    say.FETCH: _Connection._fetch,
    say.SHARE_FETCH: _Connection._share,
    say.INIT_PRODUCER_ID: _Connection._init,
    say.ADD_PARTITIONS: _Connection._transaction,
    say.END_TXN: _Connection._transaction,
    say.FIND_COORDINATOR: _Connection._coordinator,
    say.JOIN_GROUP: _Connection._join,
    say.SYNC_GROUP: _Connection._sync,
    say.HEARTBEAT: _Connection._heartbeat,
    say.LEAVE_GROUP: _Connection._heartbeat,
    say.OFFSET_COMMIT: _Connection._commit,
}
