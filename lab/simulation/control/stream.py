"""
The stream that divides cluster-wide quotas over gateways: its topic, who writes it, who reads it.

Splits are worked out by the product's ``ClusterSplitter``, of demand that is drawn, and encoded by
the product. The topic keeps order and whole rounds, as Kafka's transactions do; a writer that was
replaced may still get a round in. Every gateway's reader is the product's, on a consumer that is
played.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER_BPS
from headgate.throttle.cluster import ClusterSplitter
from headgate.throttle.observation import Observation
from headgate.throttle.overrides import Tags
from headgate.usage.splits import Heartbeat, Split, encode, encode_heartbeat
from simulation import fibers
from simulation.loop import PROCESS, Host

if TYPE_CHECKING:
    from simulation.control.machines import Fleet

PERIOD_MS: Final = 1_000
VALID_MS: Final = 3 * PERIOD_MS
USERS: Final = ("alice", "bob", "dave")
"""Whose demand the stream sees."""
CLOCKS_MS: Final = (0, 0, 0, -300, 300, -2_000, 2_000, -8_000, 8_000)


@dataclass
class Round:
    """
    What a writer wrote at once.

    Attributes:
        number: in the topic.
        quotas: by tags, of which the splits are parts.
        splits: by broker and tags.
        until_ms: when they expire, by the writer's clock.
        messages: keys and values.
        seen_ms: simulated, from when on it can be read.
    """

    number: int
    epoch: int
    quotas: Mapping[Tags, float]
    splits: Mapping[tuple[int, Tags], float]
    until_ms: int
    messages: Sequence[tuple[bytes, bytes]]
    seen_ms: float


@dataclass
class Reading:
    """What one run of a gateway has read: when, simulated ms and by its host's clock, and what."""

    rounds: list[tuple[float, int, Round]] = field(default_factory=list)


class Consumer:
    """Stands in for confluent-kafka's: reads the topic from its beginning."""

    def __init__(self, stream: Stream, rng: random.Random) -> None:
        self._stream = stream
        self._rng = rng
        self._place = 0
        self.process = PROCESS.get()
        self._reading = stream.readings.setdefault(self.process, Reading())

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Say that the topic is there, once somebody has written."""
        fibers.sleep(self._rng.uniform(0.001, 0.02))
        held = SimpleNamespace(error=None, partitions={0: None})
        return SimpleNamespace(topics={topic: held} if self._stream.rounds else {})

    def assign(self, _partitions: Any) -> None:
        """Begin at the beginning."""
        self._place = 0

    def consume(self, _most: int, timeout: float) -> list[Any]:
        """Return what has come since."""
        fibers.sleep(timeout * self._rng.random())
        stream, now = self._stream, self._stream.loop.now_ms
        if now < stream.stalled_until.get(self.process.host.name, 0.0):
            return []
        if self._rng.random() < 0.01:
            self._place = max(self._place - 3, 0)  # what was read isn't known, and is read again
        found: list[Any] = []
        while self._place < len(stream.rounds) and stream.rounds[self._place].seen_ms <= now:
            one = stream.rounds[self._place]
            self._place += 1
            wall_ms = self.process.host.wall_ns() // 1_000_000
            self._reading.rounds.append((now, wall_ms, one))
            found += [_Message(key, value, one.seen_ms) for key, value in one.messages]
        return found

    def close(self) -> None:
        """Read no more."""


class _Message:
    """A message as confluent-kafka has it."""

    def __init__(self, key: bytes, value: bytes, written_ms: float) -> None:
        self._said = key, value, written_ms

    def key(self) -> bytes:
        return self._said[0]

    def value(self) -> bytes:
        return self._said[1]

    def error(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_790_000_000_000 + int(self._said[2])


class Stream:
    """
    The topic and its writers.

    Args:
        fleet: whose quotas are divided.

    Attributes:
        rounds: in the topic, in order.
        readings: by process of a gateway.
        stalled_until: simulated ms, by name of a host whose consumers hear nothing.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.loop = fleet.loop
        self.rounds: list[Round] = []
        self.readings: dict[Any, Reading] = {}
        self.stalled_until: dict[str, float] = {}
        self.writer: Writer | None = None
        self._rng = fleet.seed.stream("stream")
        self._names = 0
        self.store_gone = False
        self._known: dict[Tags, float] = {}

    def consumer(self, _config: Any) -> Consumer:
        """Make a consumer for the process that asks."""
        self._names += 1
        return Consumer(self, self.fleet.seed.stream("consumer", self._names))

    def begin(self) -> None:
        """Start a writer; one that wrote before is replaced."""
        self._names += 1
        rng = self.fleet.seed.stream("writer", self._names)
        host = Host(self.loop, f"stream{self._names}", "10.3.0.1", rng.choice(CLOCKS_MS))
        self.writer = Writer(self, host, rng)

    def heal(self) -> None:
        """Let its readers hear of it again, and its writer read its store."""
        self.store_gone = False
        self.stalled_until.clear()

    def end(self) -> None:
        """Kill the writer."""
        if self.writer is not None:
            self.writer.alive = False
            self.writer = None

    def quotas(self) -> dict[Tags, float]:
        """Return the cluster-wide quotas in the store, or the last that were read."""
        held = self.fleet.home.contents
        if held is not None and not self.store_gone:
            entities = held.table.entities
            default = entities.get(QuotaEntity.of(user=DEFAULT), {}).get(PRODUCER_BPS)
            found = {
                user: entities.get(QuotaEntity.of(user=user), {}).get(PRODUCER_BPS, default)
                for user in USERS
            }
            self._known = {(user, ""): quota for user, quota in found.items() if quota is not None}
        return dict(self._known)


class Writer:
    """
    One run of `headgate splits`: a round every period.

    Attributes:
        zombie: another writes already; what this one still has to write comes behind it.
    """

    def __init__(self, stream: Stream, host: Host, rng: random.Random) -> None:
        self._stream = stream
        self._host = host
        self._rng = rng
        self.alive = True
        self.loses = 0
        self._splitter: ClusterSplitter[int] = ClusterSplitter(PERIOD_MS)
        highest = max((one.epoch for one in stream.rounds), default=0)
        self.epoch = max(highest + 1, self._wall_ms() // 1_000)
        self._write({}, {}, 0)
        stream.loop.after(rng.uniform(100, PERIOD_MS), self._round)

    def _wall_ms(self) -> int:
        return self._host.wall_ns() // 1_000_000

    def _round(self) -> None:
        stream, rng = self._stream, self._rng
        late = stream.writer is not self
        if not self.alive or (late and rng.random() < 0.5):
            return  # a writer that was replaced gets a round in now and then
        quotas = stream.quotas()
        brokers = range(1, stream.fleet.shape.brokers + 1)
        seen = {
            broker: {
                tags: Observation(rng.uniform(0, 2 * quota), throttled=rng.random() < 0.3)
                for tags, quota in quotas.items()
                if rng.random() < 0.8
            }
            for broker in brokers
        }
        splits = self._splitter.round(quotas, list(brokers), seen)
        flat = {(broker, tags): one for tags, its in splits.items() for broker, one in its.items()}
        if self.loses:
            self.loses -= 1  # the transaction was aborted
        else:
            for _ in range(2 if rng.random() < 0.05 else 1):
                self._write(quotas, flat, VALID_MS)
        stream.loop.after(PERIOD_MS * rng.uniform(0.97, 1.03), self._round)

    def _write(
        self, quotas: Mapping[Tags, float], splits: Mapping[tuple[int, Tags], float], valid_ms: int
    ) -> None:
        stream, now = self._stream, self._wall_ms()
        made = [
            Split(*tags, PRODUCER_BPS.name, broker, split, self.epoch, now, valid_ms, quotas[tags])
            for (broker, tags), split in splits.items()
        ]
        messages = [encode(one) for one in made]
        messages.append(encode_heartbeat(Heartbeat(self.epoch, now, valid_ms)))
        before = stream.rounds[-1].seen_ms if stream.rounds else 0.0
        seen_ms = max(stream.loop.now_ms + self._rng.uniform(2, 80), before)
        number = len(stream.rounds)
        stream.rounds.append(
            Round(number, self.epoch, quotas, splits, now + valid_ms, messages, seen_ms)
        )


FAULTS: Final[tuple[tuple[float, str], ...]] = (
    (3, "stream dies"), (2, "second stream"), (2, "stream stalls"), (2, "rounds are lost"),
    (1, "stream without its store"), (1, "stream's clock"),
)  # fmt: skip


def do(stream: Stream, what: str, host: str, number: int) -> None:
    """Do what goes wrong with a stream."""
    after = stream.loop.after
    if what == "stream dies":
        stream.end()
        after(number, _again, stream)
    elif what == "second stream":
        stream.begin()
    elif what == "stream stalls":
        stream.stalled_until[host] = stream.loop.now_ms + number
    elif what == "rounds are lost" and stream.writer is not None:
        stream.writer.loses = number % 5 + 1
    elif what == "stream without its store":
        stream.store_gone = True
        after(number, setattr, stream, "store_gone", False)
    elif what == "stream's clock" and stream.writer is not None:
        stream.writer._host.step(number - 5_000)


def _again(stream: Stream) -> None:
    if stream.writer is None:
        stream.begin()
