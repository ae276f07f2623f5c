"""
Simulated clients: well-behaved, greedy, reconnecting, half-silent, deaf, hostile.

A client does what its story's actions say, one connection at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulation import speech as say
from simulation.brokers import ENDLESS
from simulation.certificates import GATE, client_context
from simulation.conversations import Conversation, Sent, address_of
from simulation.loop import Host
from simulation.network import End
from simulation.peers import Peer, TlsPeer

if TYPE_CHECKING:
    from simulation.life import Life


@dataclass(slots=True)
class Load:
    """Requests of a kind: ``left`` to send, ``depth`` at once."""

    make: Callable[[], None]
    left: int
    depth: int
    flying: int = 0


class Client:
    """
    A client of the story.

    Args:
        life: where.
        name: in the story.
        principal: the name that it logs in with.
        client_id: what it calls itself.
        broker: which broker it talks to.
        versions: of Produce and Fetch.
        obeys: it pauses as long as it is told, as clients since KIP-219 do.
        secured: it comes by TLS: letters of the authorities that it trusts, and whether it speaks
            TLS 1.2.
    """

    def __init__(
        self,
        life: Life,
        name: str,
        principal: str,
        client_id: str,
        broker: int,
        versions: tuple[int, int],
        obeys: bool,
        secured: tuple[str, bool] | None = None,
    ) -> None:
        self.life = life
        self.name = name
        self.principal = principal
        self.password = "right"
        self.client_id = client_id
        self.broker = broker
        self.produce_version, self.fetch_version = versions
        self.obeys = obeys
        self.secured = secured
        self.partition = life.partition_of(broker)
        self.offsets: dict[str, int] = {}
        self.host = Host(life.loop, name, "10.9.0.1")
        self.line: Conversation | None = None
        self._opening = False
        self._waiting: list[Callable[[Conversation], None]] = []
        self._early: list[Callable[[Conversation], None]] = []
        self._producer: tuple[int, int] | None = None
        self._sequence = 0
        self.loads: list[Load] = []

    def next_sequence(self) -> tuple[int, int, int]:
        """Return producer id, epoch and sequence of the next batch."""
        if self._producer is None:
            return -1, -1, -1
        self._sequence += 1
        return (*self._producer, self._sequence - 1)

    # --- connections ------------------------------------------------------------------------

    @property
    def trusted(self) -> str:
        """Letters of the authorities that it trusts."""
        return "" if self.secured is None else self.secured[0]

    @property
    def where(self) -> tuple[str, int] | None:
        """Where it reaches its broker."""
        listener = "SASL_PLAINTEXT" if self.secured is None else "SASL_SSL"
        return self.life.address(self.broker, listener)

    def peer(
        self,
        end: End,
        on_data: Callable[[bytes], None],
        on_gone: Callable[[str], None],
        on_shaken: Callable[[str], None],
    ) -> Peer:
        """Make its side of a connection."""
        if self.secured is None:
            return Peer(end, on_data, on_gone)
        trusted, old = self.secured
        context = client_context(trusted, old=old)
        return TlsPeer(end, on_data, on_gone, context, GATE, on_shaken)

    def with_line(self, what: Callable[[Conversation], None]) -> None:
        """Do something on a connection that is logged in; open one if there is none."""
        line = self.line
        if line is not None:
            line.when_ready(lambda: what(line))
            return
        self._waiting.append(what)
        self.connect()

    def connect(self) -> None:
        """Open a connection, if there is none."""
        if self.line is not None or self._opening:
            return
        where = self.where
        if where is None:
            self._waiting.clear()
            return
        self._opening = True
        came_ns = self.life.loop.now_ns
        number = self.life.new_conversation()

        def done(found: End | OSError) -> None:
            self._opening = False
            if isinstance(found, OSError):
                self._waiting.clear()
                self.life.count("refused")
                return
            waiting, self._waiting = self._waiting, []
            early, self._early = self._early, []
            line = self.line = Conversation(self, number, found, came_ns)
            self.life.opened(line)
            for what in early:
                what(line)
            if self.life.load_over:  # this one came late, through a partition
                line.hang_up("close")
                return
            for what in waiting:
                line.when_ready(lambda what=what, line=line: what(line))  # type: ignore[misc]

        self.life.net.connect(self.host, where, done, address_of(number))

    def ended(self, line: Conversation) -> None:
        """A connection has ended."""
        if self.line is line:
            self.line = None
            self.loads.clear()
            self.life.ended(line)

    # --- what stories ask for ---------------------------------------------------------------

    def load(self, count: int, depth: int, send: Callable[[Conversation, Any], None]) -> None:
        """Send ``count`` requests, with ``depth`` unanswered at once."""

        def begin(line: Conversation) -> None:
            load = Load(lambda: send(line, lambda _: answered()), count, depth)
            self.loads.append(load)

            def answered() -> None:
                load.flying -= 1
                more()

            def more() -> None:
                while load.left and load.flying < load.depth and not line.gone:
                    load.left -= 1
                    load.flying += 1
                    load.make()

            more()

        self.with_line(begin)

    def produce(self, size: int, acks: int, count: int, depth: int) -> None:
        """Produce."""
        self.load(count, depth, lambda line, done: line.produce(size, acks, done))

    def fetch(self, topic: str, count: int, wait_ms: int, most: int) -> None:
        """Fetch again and again."""
        self.load(count, 1, lambda line, done: line.fetch(topic, wait_ms, most, done))

    def share(self, count: int, most: int) -> None:
        """Fetch again and again as a member of a share group."""
        self.load(count, 1, lambda line, done: line.share(most, done))

    def say_acks_late(self, size: int, acks: int, name: int, count: int) -> None:
        """Produce under a transactional id so long that acks come late."""
        self.load(count, 1, lambda line, done: line.produce(size, acks, done, name="x" * name))

    def chat(self, count: int, depth: int) -> None:
        """Ask what costs next to nothing: metadata, coordinators, heartbeats of a group."""
        kinds = [
            (say.METADATA, 4, struct.pack(">i", 0) + b"\0"),
            (say.FIND_COORDINATOR, 1, say.text("group") + b"\0"),
            (say.HEARTBEAT, 1, say.text("group") + struct.pack(">i", 1) + say.text("m")),
            (say.LIST_OFFSETS, 2, struct.pack(">ib", -1, 0) + struct.pack(">i", 0)),
        ]
        at = iter(range(1 << 30))
        self.load(count, depth, lambda line, done: line.ask(*kinds[next(at) % 4], done))

    def join(self) -> None:
        """Join a group, which takes a second, and stay in it for some heartbeats."""
        body = say.text("group") + struct.pack(">ii", 6_000, 6_000) + say.text("")
        body += say.text("consumer") + struct.pack(">i", 0)

        def joined(line: Conversation) -> None:
            line.ask(say.JOIN_GROUP, 2, body, lambda _: self.chat(5, 1))

        self.with_line(joined)

    def become_idempotent(self, transactional: bool) -> None:
        """Get a producer id; and with a transaction's begin and end, if it is transactional."""
        name = f"tx-{self.name}" if transactional else None
        body = say.text(name) + struct.pack(">i", 60_000)

        def begin(line: Conversation) -> None:
            def named(_: Sent) -> None:
                if name is not None and self._producer is not None:
                    tx = say.text(name) + struct.pack(">qh", *self._producer)
                    line.ask(say.ADD_PARTITIONS, 1, tx + struct.pack(">i", 0))
                    line.produce(2_000, -1, None)
                    line.ask(say.END_TXN, 1, tx + b"\1")

            line.ask(say.INIT_PRODUCER_ID, 1, body, named)

        self.with_line(begin)

    def has_producer(self, producer: int, epoch: int) -> None:
        """Take a producer id that was given."""
        self._producer, self._sequence = (producer, epoch), 0

    def half(self, size: int, cut: int, rest_ms: int) -> None:
        """Send the beginning of a produce, and its rest later; -1: never."""

        def begin(line: Conversation) -> None:
            line.produce(size, -1, None, cut=cut)
            if rest_ms >= 0:
                self.life.loop.after(rest_ms, line.say_the_rest)

        self.with_line(begin)

    def be_deaf(self, ms: int) -> None:
        """Read nothing for a while."""

        def begin(line: Conversation) -> None:
            line.peer.reads = False
            self.life.deaf[line.number] = self.life.loop.now_ns + ms * 1_000_000
            self.life.loop.after(ms, hear)

        def hear() -> None:
            line = self.line
            if line is not None:
                line.peer.reads = True
                line.peer.look()

        self.with_line(begin)

    def say_garbage(self, what: str, noise: bytes) -> None:
        """Say what no client says."""
        frames = {
            "noise": noise,
            "huge": struct.pack(">i", 2**31 - 1) + noise,
            "negative": struct.pack(">i", -5) + noise,
            "unknown": say.frame(struct.pack(">hhi", 999, 0, 1) + say.text("x") + noise),
            "short": struct.pack(">i", 3) + b"abc",
        }

        def begin(line: Conversation) -> None:
            line.broken = True
            line.say(frames[what], None)

        if what == "early":
            self._ask_early()
        else:
            self.with_line(begin)

    def _ask_early(self) -> None:
        """Ask what nobody may before login, as soon as there is a connection."""

        def ask(line: Conversation) -> None:
            line.ask(say.METADATA, 4, struct.pack(">i", 0) + b"\0")

        if self.line is not None:
            ask(self.line)
        else:
            self._early.append(ask)
            self.connect()

    def evade(self, size: int, count: int, *, fetch: bool) -> None:
        """Again and again: connect, ask, hear the answer, hang up."""

        def turn(left: int) -> None:
            if not left or self.life.over:
                return

            def begin(line: Conversation) -> None:
                def heard(_: Sent) -> None:
                    line.hang_up("close")
                    self.life.loop.after(1.0, turn, left - 1)

                if fetch:
                    line.fetch(ENDLESS, 100, size, heard)
                else:
                    line.produce(size, -1, heard)

            self.with_line(begin)

        obeys, self.obeys = self.obeys, False
        turn(count)
        self.life.loop.after(60_000, lambda: setattr(self, "obeys", obeys))

    def orphan(self, size: int, acks: int, count: int, wait_ms: float) -> None:
        """Again and again: connect, produce, hang up behind it."""

        def turn(left: int) -> None:
            if not left or self.life.over:
                return

            def begin(line: Conversation) -> None:
                line.produce(size, acks, None)
                line.hang_up("unseen")
                self.life.loop.after(wait_ms, turn, left - 1)

            self.with_line(begin)

        turn(count)
