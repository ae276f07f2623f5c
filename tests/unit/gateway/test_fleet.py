"""The line between workers and their supervisor, and what the supervisor makes of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate.gateway.fleet import pipe as questions
from headgate.gateway.fleet.fleet import Fleet
from headgate.gateway.fleet.pipe import LineLost, Pipe, Status, socket_pair
from headgate.metrics.expose import draw, page
from headgate.metrics.samples import Sample
from headgate.steps import finish


async def silence(question: str, body: bytes) -> bytes:
    await asyncio.Event().wait()
    return b""


async def echo(question: str, body: bytes) -> bytes:
    return msgspec.msgpack.encode(question + msgspec.msgpack.decode(body))


async def pair(
    one: Callable[[str, bytes], Awaitable[bytes]], two: Callable[[str, bytes], Awaitable[bytes]]
) -> tuple[Pipe, Pipe]:
    ours, theirs = socket_pair()
    pipes = Pipe(one), Pipe(two)
    await pipes[0].open(ours)
    await pipes[1].open(theirs)
    return pipes


async def test_both_sides_ask_and_each_gets_its_own_answers() -> None:
    one, two = await pair(echo, echo)
    bodies = [msgspec.msgpack.encode(str(n)) for n in range(50)]
    asked = [one.ask("a", body, 30) for body in bodies] + [two.ask("b", b, 30) for b in bodies]
    answers = [msgspec.msgpack.decode(a) for a in await asyncio.gather(*asked)]
    assert answers == [f"a{n}" for n in range(50)] + [f"b{n}" for n in range(50)]
    one.close()
    await two.closed.wait()


async def test_silence_and_a_lost_line_are_errors_not_waits() -> None:
    one, two = await pair(echo, silence)
    asked = asyncio.ensure_future(one.ask("x", questions.NOTHING, 60))
    with pytest.raises(LineLost, match="no answer within"):
        await one.ask("y", questions.NOTHING, 0.01)
    two.close()
    with pytest.raises(LineLost, match="gone"):
        await asked
    with pytest.raises(LineLost, match="gone"):
        await one.ask("z", questions.NOTHING, 60)


async def test_a_question_that_cant_be_answered_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(question: str, body: bytes) -> bytes:
        if question == "bad":
            raise ValueError("no")
        return body

    one, two = await pair(echo, fails)
    with pytest.raises(LineLost, match="no answer within"):
        await one.ask("bad", questions.NOTHING, 0.2)
    assert await one.ask("good", questions.NOTHING, 60) == questions.NOTHING
    assert "couldn't be answered  question=bad" in caplog.text
    one.close()
    two.close()


async def test_nonsense_ends_the_line() -> None:
    ours, theirs = socket_pair()
    one = Pipe(echo)
    await one.open(ours)
    theirs.sendall(b"\x00\x00\x00\x03abc")
    await one.closed.wait()
    theirs.close()
    one.close()


class Worker:
    """A worker's end that says what a test tells it to."""

    def __init__(self, broker: int, not_ready: str | None = None) -> None:
        self.broker = broker
        self.not_ready = not_ready
        self.note: str | None = None
        self.hanging: dict[int, str] = {}  # brokers
        self.silent = self.garbled = False
        self.pipe = Pipe(self.answer)

    async def answer(self, question: str, body: bytes) -> bytes:
        if self.silent:
            await asyncio.Event().wait()
        if self.garbled:
            return msgspec.msgpack.encode(["what", "is", "this"])
        if question == questions.METRICS:
            at = (("broker", str(self.broker)),)
            samples = [Sample("headgate_store_up", at, 1.0), Sample("headgate_info", at, 1.0)]
            return msgspec.msgpack.encode(finish(draw(samples)))
        return msgspec.msgpack.encode(Status(self.not_ready, [1, 2], self.note, self.hanging))

    async def join(self, sock: socket.socket) -> None:
        await self.pipe.open(sock)
        await self.pipe.ask(questions.HELLO, questions.NOTHING, 30)


async def shown(fleet: Fleet, name: str = "") -> list[Sample]:
    """The series of a fleet whose names begin so, as a scrape has them."""
    text = page(await fleet.metrics()).decode()
    return [
        Sample(s.name, tuple(s.labels.items()), s.value)
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.name.startswith(name)
    ]


async def test_a_fleet_is_as_well_as_its_worst_worker_and_says_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet([1, 2], answer_s=0.05)
    assert await fleet.ready() == "broker 1: not started yet\nbroker 2: not started yet"
    workers = {1: Worker(1), 2: Worker(2, "standing by")}
    for broker, one in workers.items():
        ours, theirs = socket_pair()
        await fleet.start(broker, ours)
        said = await fleet.health()
        assert said is not None
        assert f"broker {broker}: starting" in said
        await one.join(theirs)
    fleet._answer_s = 60  # answers may take long on a busy machine; only silence is cut short
    assert await fleet.health() is None
    assert await fleet.ready() == "broker 2: standing by"
    samples = await shown(fleet)
    assert [(s.name, s.labels[0][1], s.value) for s in samples] == [
        ("headgate_store_up", "1", 1.0),
        ("headgate_store_up", "2", 1.0),
        ("headgate_worker_up", "1", 1.0),
        ("headgate_worker_up", "2", 1.0),
        *[("headgate_worker_restarts_total", broker, 0.0) for broker in "1122"],
        *[("headgate_worker_kills_total", broker, 0.0) for broker in "1122"],
        ("headgate_info", "1", 1.0),
        ("headgate_info", "2", 1.0),
    ]
    workers[1].silent = True
    line = fleet._pipes[1]
    with monkeypatch.context() as impatient:  # with the silent one alone: the other may be slow
        short = partial(type(line).ask, line, timeout_s=0.05)
        impatient.setattr(line, "ask", lambda question, body, _timeout_s: short(question, body))
        assert await fleet.health() == "broker 1: no answer"
        up = [s.value for s in await shown(fleet, "headgate_worker_up")]
        assert up == [0.0, 1.0]
    workers[1].silent, workers[2].garbled = False, True
    assert await fleet.health() == "broker 2: no answer"  # of a release that speaks otherwise
    workers[1].silent = True
    fleet._answer_s = 0.05
    workers[2].pipe.close()
    fleet.left(2, "not running, ended with -9")
    said = await fleet.ready()
    assert said == "broker 1: no answer\nbroker 2: not running, ended with -9"
    workers[1].pipe.close()
    fleet.left(1, "over")


@pytest.mark.parametrize("only", [1, 2, 3])
async def test_each_question_is_asked_of_each_worker(only: int) -> None:
    """One of three is different, in turn: who asks the first only, or any one, isn't told."""
    fleet = Fleet([1, 2, 3], answer_s=60)
    workers = {broker: Worker(broker) for broker in fleet.brokers}
    for broker, one in workers.items():
        ours, theirs = socket_pair()
        await fleet.start(broker, ours)
        await one.join(theirs)
    assert await fleet.ready() is None
    assert await fleet.note() is None
    assert await fleet.health() is None
    workers[only].not_ready = "standing by"
    assert await fleet.ready() == f"broker {only}: standing by"
    workers[only].not_ready, workers[only].note = None, "broker 7 doesn't answer"
    assert await fleet.note() == f"broker {only}: broker 7 doesn't answer"
    assert await fleet.ready() is None
    shows = {dict(s.labels)["broker"] for s in await shown(fleet, "headgate_store_up")}
    assert shows == {"1", "2", "3"}
    bodies = dict.fromkeys((only, 2), questions.NOTHING)
    asked = await fleet.ask(questions.STATUS, questions.STATUS_DECODER, bodies)
    assert asked.keys() == bodies.keys()
    workers[only].garbled = True
    assert await fleet.health() == f"broker {only}: no answer"
    up = {dict(s.labels)["broker"]: s.value for s in await shown(fleet, "headgate_worker_up")}
    assert up == {**dict.fromkeys("123", 1.0), str(only): 0.0}
    for broker, one in workers.items():
        one.pipe.close()
        fleet.left(broker, "over")


async def test_workers_serve_while_some_broker_answers_and_each_learns_which_do_not() -> None:
    fleet = Fleet([1, 2], answer_s=60)
    workers = {broker: Worker(broker) for broker in fleet.brokers}
    for broker, one in workers.items():
        ours, theirs = socket_pair()
        await fleet.start(broker, ours)
        await one.join(theirs)
    workers[2].hanging = {2: "it hangs"}
    assert await fleet.ready() is None
    for one in workers.values():  # whichever a client is connected to
        asked = await one.pipe.ask(questions.SILENT, questions.NOTHING, 60)
        assert questions.SILENT_DECODER.decode(asked) == {2: "it hangs"}
    workers[1].hanging = {1: "so does it"}
    assert await fleet.ready() == "broker 1: so does it\nbroker 2: it hangs"
    for broker, one in workers.items():
        one.pipe.close()
        fleet.left(broker, "over")
