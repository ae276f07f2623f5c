"""
Clients of one broker on a clock of our own: real sessions and real rules, everything else played.

The broker answers a millisecond after it was asked: a fetch with as many batches as were asked for
(one at least), anything else with success. A client does what its script says when it is answered.
"""

from __future__ import annotations

import heapq
import itertools
import struct
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

from headgate.config import Settings
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.journal import NO_JOURNAL, Journal
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session import commands
from headgate.gateway.session.session import Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.table import QuotaTable, table_delta
from kit.playbook import START_MS

PLANS: Final = build_plans()
BATCH: Final = 1_000
FETCH, PRODUCE = 1, 0
READ_BYTES: Final = 262_144
Quotas = Mapping[QuotaEntity, Mapping[QuotaKey, float]]


def frame(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


def string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else struct.pack(">h", len(text)) + text.encode()


def fetch_request(correlation: int, client: str = "app", wait_ms: int = 500) -> bytes:
    """A full Fetch v11 of one partition."""
    body = struct.pack(">iiiibii", -1, wait_ms, 1, 52_428_800, 0, 0, 0)
    body += struct.pack(">i", 1) + string("t") + struct.pack(">i", 1)
    body += struct.pack(">iiqqi", 0, -1, 0, -1, 1_048_576) + struct.pack(">i", 0) + string("")
    return frame(struct.pack(">hhi", FETCH, 11, correlation), string(client), body)


def fetch_answer(correlation: int, records: int, session: int = 0) -> bytes:
    body = struct.pack(">ihi", 0, 0, session) + struct.pack(">i", 1) + string("t")
    body += struct.pack(">i", 1) + struct.pack(">ihqqqii", 0, 0, 0, 0, 0, -1, -1)
    body += struct.pack(">i", records) + bytes(records)
    return frame(struct.pack(">i", correlation), body)


NO_RECORDS: Final = len(fetch_answer(1, 0))


def produce_request(correlation: int, size: int, client: str = "app", acks: int = -1) -> bytes:
    """A Produce v7 of exactly ``size`` bytes as Kafka counts them."""
    head = struct.pack(">hhi", PRODUCE, 7, correlation) + string(client) + string(None)
    head += struct.pack(">hi", acks, 1000) + struct.pack(">i", 1) + string("t")
    head += struct.pack(">ii", 1, 0)
    filler = size - len(head) - 4
    return frame(head, struct.pack(">i", filler) + bytes(filler))


def produce_answer(correlation: int) -> bytes:
    body = struct.pack(">i", 1) + string("t") + struct.pack(">i", 1)
    body += struct.pack(">ihqqq", 0, 0, 0, -1, 0) + struct.pack(">i", 0)
    return frame(struct.pack(">i", correlation), body)


class World:
    """
    A clock, a broker, its rules.

    Args:
        quotas: in force.
        properties: settings besides.

    Attributes:
        now_ms: the clock.
        delivered: (time, client's name, bytes of records) of every fetch that reached its client.
        passed: (time, client's name, bytes) of every produce that reached the broker.
        asked: fetches that reached the broker: (time, MaxWait, MaxBytes).
        batch: bytes of a record batch in the log.
        longest_ms: the longest that a fetch took to be answered.
        available: how many bytes of records a fetch finds; None: without end.
    """

    def __init__(
        self,
        quotas: Quotas,
        properties: Mapping[str, str] | None = None,
        journal: Journal = NO_JOURNAL,
    ) -> None:
        self.now_ms = START_MS
        given = {
            "headgate.upstream": "127.0.0.1:9092",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
        }
        self.settings = Settings.from_properties({**given, **(properties or {})})
        self.rules = Enforcement(self.settings, 1, lambda: self.now_ms, journal)
        self.table = QuotaTable.of(quotas)
        self.rules.load(self.table, START_MS)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.delivered: list[tuple[int, str, int]] = []
        self.passed: list[tuple[int, str, int]] = []
        self.asked: list[tuple[int, int, int]] = []
        self.longest_ms = 0
        self.batch = BATCH
        self.available: Callable[[str], int | None] = lambda _name: None

    def at(self, t_ms: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (t_ms, next(self._order), do))

    def run(self, ms: int) -> None:
        """Let time pass."""
        end = self.now_ms + ms
        while self._events and self._events[0][0] <= end:
            t_ms, _, do = heapq.heappop(self._events)
            self.now_ms = max(self.now_ms, t_ms)
            do()
        self.now_ms = end

    def change(self, quotas: Quotas) -> None:
        """Put other quotas in force."""
        table = QuotaTable.of(quotas)
        self.rules.update(table_delta(self.table, table), self.now_ms)
        self.table = table


class Client:
    """
    A connection, and what its client does.

    Args:
        world: where.
        answered: called with the client, the API key, the bytes of records and the throttle time
            told, ms.
        principal, name: who.
    """

    def __init__(
        self,
        world: World,
        answered: Callable[[Client, int, int, int], None],
        principal: str = "alice",
        name: str = "",
    ) -> None:
        self.world = world
        self.answered = answered
        self.name = name or principal
        identity: Any = SimpleNamespace(
            principal=principal, authenticated=True, close_reason=None, close_text="", raw=False
        )
        face: Any = SimpleNamespace(addresses={1: ("gate", 19092)}, unknown_brokers=lambda _: None)
        self.session = Session(world.rules, identity, PLANS, face)
        self.session.nudge = lambda: world.at(world.now_ms, self._called)
        self.session.last_ms = world.now_ms
        self.correlation = 0
        self.asked: dict[int, tuple[int, int]] = {}
        self._to_client = bytearray()
        self._unread: list[bytes] = []
        self._reads = True
        self._half = self._later = b""
        self._paused = self.left = False
        self._unseen = b""
        self.session.upstream_ready(world.now_ms)
        self._settle()

    @property
    def gone(self) -> bool:
        return self.session.closed is not None

    def fetch(self, client: str = "app", wait_ms: int = 500) -> None:
        self.correlation += 1
        self.asked[self.correlation] = (FETCH, self.world.now_ms)
        self.say(fetch_request(self.correlation, client, wait_ms))

    def produce(self, size: int, client: str = "app", acks: int = -1, cut: int = 0) -> None:
        """Produce some bytes; ``cut`` of them at once, and the rest five milliseconds later."""
        self.correlation += 1
        self.asked[self.correlation] = (PRODUCE, self.world.now_ms)
        request = produce_request(self.correlation, size, client, acks)
        if not cut or self._later:
            self.say(request)
        else:
            self.say(request[:cut])
            self._later = request[cut:]
            self.world.at(self.world.now_ms + 5, self._say_the_rest)

    def _say_the_rest(self) -> None:
        rest, self._later = self._later, b""
        self.say(rest)

    def say(self, data: bytes) -> None:
        if self._later and data is not self._later:  # in order
            self._later += data
        elif data:
            self._unseen += data
            self._hear()

    def _hear(self) -> None:
        """Have the gateway read what was sent, as far as it reads; then it sees a hang-up."""
        while self._unseen and not self._paused and not self.gone:
            data, self._unseen = self._unseen[:READ_BYTES], self._unseen[READ_BYTES:]
            self.session.client_data(memoryview(bytearray(data)), self.world.now_ms)
            self._settle()
        if self.left and not self._unseen:
            self.hang_up()

    def hang_up(self) -> None:
        self.left = True
        if not self.gone:
            self.session.close("client-gone", "", self.world.now_ms)

    def hang_up_behind(self) -> None:
        """Hang up; the gateway doesn't see it before it has read all that was sent."""
        self.left = True
        self._hear()

    def _called(self) -> None:
        if not self.gone:
            self.session.nudged(self.world.now_ms)
            self._settle()

    def _wake(self) -> None:
        if not self.gone:
            self.session.wake(self.world.now_ms)
            self._settle()

    def _settle(self) -> None:
        session, world = self.session, self.world
        while session.to_broker or session.to_client or session.commands:
            sent = b"".join(session.to_broker)
            session.to_broker.clear()
            self._to_client += b"".join(session.to_client)
            session.to_client.clear()
            orders = session.commands[:]
            session.commands.clear()
            for order in orders:
                if isinstance(order, commands.WakeAt):
                    world.at(max(order.t_ms, world.now_ms + 1), self._wake)
                elif isinstance(order, commands.PauseClient):
                    self._paused = True
                elif isinstance(order, commands.ResumeClient):
                    self._paused = False
                    world.at(world.now_ms, self._hear)
                elif isinstance(order, commands.PauseBroker):
                    self._reads = False
                elif isinstance(order, commands.ResumeBroker):
                    self._reads = True
                    world.at(world.now_ms, self._read)
                elif isinstance(order, commands.Ask):
                    self._questioned(order)
            self._broker(sent)
        self._client()

    def _questioned(self, ask: commands.Ask) -> None:
        raise NotImplementedError("a client that asks what the gateway answers itself")

    def _answer_of(self, key: int, asked: bytes) -> bytes:
        """Return a broker's answer to what is neither a fetch nor a Produce."""
        raise NotImplementedError(f"API {key}")

    def _told(self, key: int, said: bytes) -> int:
        """Return the throttle time in an answer that isn't a fetch's, ms."""
        return int(struct.unpack_from(">i", said, len(said) - 4)[0])

    def _broker(self, sent: bytes) -> None:
        self._half += sent
        while len(self._half) >= 4:
            size = struct.unpack_from(">i", self._half)[0] + 4
            if len(self._half) < size:
                return
            asked, self._half = self._half[:size], self._half[size:]
            key, _, correlation, named = struct.unpack_from(">hhih", asked, 4)
            world = self.world
            if key == PRODUCE:
                world.passed.append((world.now_ms, self.name, size - 4))
                at = 14 + max(named, 0) + 2
                if struct.unpack_from(">h", asked, at)[0]:
                    self._answer(produce_answer(correlation), 1)
                continue
            if key != FETCH:
                self._answer(self._answer_of(key, asked), 1)
                continue
            wait_ms, _, most = struct.unpack_from(">iii", asked, 14 + max(named, 0) + 4)
            world.asked.append((world.now_ms, wait_ms, most))
            there = world.available(self.name)
            if there == 0:
                self._answer(fetch_answer(correlation, 0), max(wait_ms, 1))
                continue
            batch = world.batch
            records = max(min(most, 1_048_576) // batch, 1) * batch
            self._answer(
                fetch_answer(correlation, records if there is None else min(records, there)), 1
            )

    def _answer(self, data: bytes, ms: int) -> None:
        def come() -> None:
            self._unread.append(data)
            self._read()

        self.world.at(self.world.now_ms + ms, come)

    def _read(self) -> None:
        while self._unread and self._reads and not self.gone:
            data = self._unread.pop(0)
            self.session.broker_data(memoryview(bytearray(data)), self.world.now_ms)
            self._settle()

    def _client(self) -> None:
        while len(self._to_client) >= 4:
            size = struct.unpack_from(">i", self._to_client)[0] + 4
            if len(self._to_client) < size:
                return
            said, self._to_client = bytes(self._to_client[:size]), self._to_client[size:]
            correlation, told = struct.unpack_from(">ii", said, 4)
            key, asked_ms = self.asked.pop(correlation)
            waited_ms = self.world.now_ms - asked_ms
            self.world.longest_ms = max(self.world.longest_ms, waited_ms if key == FETCH else 0)
            records = 0
            if key == FETCH:
                records = max(len(said) - NO_RECORDS, 0)
                if records:
                    self.world.delivered.append((self.world.now_ms, self.name, records))
            else:
                told = self._told(key, said)
            self.answered(self, key, records, told)
