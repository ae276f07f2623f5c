"""
Clients of a simulated world that take thread time and change topics.

The gateway's own code charges topic changes (``answered_here.mutations``), on the world's clock: it
may take a while, and clients may hang up meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from headgate.gateway.answered_here import mutations
from headgate.gateway.session import commands
from headgate.steps import Work
from headgate.wire.apis import CREATE_TOPICS
from headgate.wire.header import parse_request_header
from headgate.wire.messages import decode_request, encode_request, encode_response, mutation
from kit.simulated_clients import PLANS, Client, World, frame, string

HEARTBEAT: Final = 12
PERMISSIVE, STRICT = 4, 6
"""Versions of CreateTopics: topics over quota are throttled; they are refused."""
T = TypeVar("T")


class _Pause:
    def __init__(self, ms: int) -> None:
        self.ms = ms

    def __await__(self) -> Any:
        yield self.ms


def drive(world: World, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on the world's clock."""

    def step() -> None:
        try:
            ms = work.send(None)
        except StopIteration:
            return
        world.at(world.now_ms + ms, step)

    world.at(world.now_ms, step)


class Played:
    """
    What ``mutations.charge`` needs of a gateway's answers.

    Args:
        world: where.
        pause_ms: how long each slice of the work waits for its turn; 0: all is done at once.
    """

    def __init__(self, world: World, pause_ms: int) -> None:
        self._world = world
        self._pause_ms = pause_ms
        self.slices = self
        self.topics = None  # only CreateTopics that say how many partitions are asked for

    async def run(self, work: Work[T]) -> T:
        while True:
            try:
                next(work)
            except StopIteration as end:
                done: T = end.value
                return done
            if self._pause_ms:
                await _Pause(self._pause_ms)

    def merge(
        self, link: Any, ask: commands.Ask, work: Work[bytes], _answer: bytes
    ) -> bytes | commands.Ask:
        if not self._pause_ms:
            try:
                while True:
                    next(work)
            except StopIteration as end:
                done: bytes = end.value
                return done

        async def later() -> None:
            await _Pause(self._pause_ms)
            link.answer(ask, await self.run(work))

        drive(self._world, later())
        return ask


class Admin(Client):
    """
    A connection of a client that sends heartbeats and creates topics, one request at a time.

    Args:
        world, answered, principal, name: as for ``Client``.
        pause_ms: as for ``Played``.

    Attributes:
        passed: what reached the broker: (time, API key, client-id, partitions).
    """

    def __init__(
        self,
        world: World,
        answered: Callable[[Any, int, int, int], None] = lambda *_: None,
        principal: str = "alice",
        name: str = "",
        pause_ms: int = 0,
    ) -> None:
        self.passed: list[tuple[int, int, str, int]] = []
        self._played = Played(world, pause_ms)
        self._version = 0
        super().__init__(world, answered, principal, name)

    @property
    def waits(self) -> bool:
        """Whether a request isn't answered."""
        return bool(self.asked)

    def heartbeat(self, nanos: int, client: str = "app") -> None:
        """Send a heartbeat that takes this thread time."""
        self.correlation += 1
        body = string("g") + struct.pack(">i", 1) + string("m") + string(None)
        head = struct.pack(">hhi", HEARTBEAT, 3, self.correlation)
        self._ask(HEARTBEAT, frame(head, string(client), body), nanos)

    def create(
        self, *partitions: int, client: str = "app", version: int = PERMISSIVE, nanos: int = 0
    ) -> None:
        """Create topics, each of as many partitions as its number says."""
        self.correlation += 1
        self._version = version
        topics = tuple(
            mutation.CreatableTopic(f"t{n}", count, 1) for n, count in enumerate(partitions)
        )
        request = mutation.CreateTopicsRequest(topics)
        asked = encode_request(CREATE_TOPICS, version, self.correlation, client, request)
        self._ask(CREATE_TOPICS, asked, nanos)

    def _ask(self, key: int, asked: bytes, nanos: int) -> None:
        self.asked[self.correlation] = (key, self.world.now_ms)
        self.say(asked)
        self.session.account_client(nanos)  # as the shell does, when the bytes are dealt with

    def _questioned(self, ask: commands.Ask) -> None:
        link: Any = SimpleNamespace(
            session=self.session, listener=None, answer=self._answer_itself, forward=self._forward
        )
        answers: Any = self._played
        drive(self.world, mutations.charge(answers, answers.topics, self.world.rules, link, ask))

    def _answer_itself(self, ask: commands.Ask, answer: bytes) -> None:
        self.session.answer(ask, answer, self.world.now_ms)
        self._settle()

    def _forward(self, ask: commands.Ask, frame: bytes, merge: Any = None) -> None:
        self.session.forward(ask, frame, merge, self.world.now_ms)
        self._settle()

    def _answer_of(self, key: int, asked: bytes) -> bytes:
        _, version, correlation, client, body = parse_request_header(asked)
        if key == HEARTBEAT:
            self.passed.append((self.world.now_ms, key, client or "", 0))
            return frame(struct.pack(">iih", correlation, 0, 0))
        topics = decode_request(key, version, asked, body).topics
        count = sum(topic.num_partitions for topic in topics)
        self.passed.append((self.world.now_ms, key, client or "", count))
        created = tuple(mutation.CreatedTopic(topic.name) for topic in topics)
        response = mutation.CreateTopicsResponse(created)
        return encode_response(key, version, correlation, response)

    def _told(self, key: int, said: bytes) -> int:
        version = 3 if key == HEARTBEAT else self._version
        at = PLANS[key << 16 | version].throttle_at
        return int(struct.unpack_from(">i", said, at)[0])
