"""Partitions of topics for KIP-599: asked twice at most, remembered, else guessed and counted."""

from __future__ import annotations

import asyncio
import datetime as dt
import io
import math
import struct
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from headgate.config import HostPort, SecurityProtocol
from headgate.config.security import ClientSecurity
from headgate.config.settings import Settings
from headgate.gateway.answered_here import mutations
from headgate.gateway.answered_here.mutations import Topics
from headgate.gateway.charging.journal import Journal
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.commands import Ask
from headgate.gateway.upstream import MOST_ASKED, Cluster, TopicRef
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import MUTATION
from headgate.steps import FEW, finish
from headgate.wire import messages
from headgate.wire.header import parse_request_header
from headgate.wire.messages import configs, mutation
from kit.upstreams import Upstream

from .conftest import support_of

LOGS, GONE = uuid.UUID(int=7), uuid.UUID(int=8)
HAS = {"logs": (LOGS, 6), "clicks": (uuid.UUID(int=9), 3)}
DENIED = "secret"


def framed(correlation: int, body: bytes, *, flexible: bool = False) -> bytes:
    body = struct.pack(">i", correlation) + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(body)) + body


def versions(newest: int) -> Callable[[int, int, bytes], bytes]:
    """Answer ApiVersions 0: Metadata up to a version."""
    body = struct.pack(">hihhh", 0, 1, 3, 0, newest)
    return lambda version, correlation, frame: framed(correlation, body)


def metadata(version: int, correlation: int, frame: bytes) -> bytes:
    """Answer Metadata as a broker with the topics of HAS, one of them not to be told."""
    asked = import_module(f"kio.schema.metadata.v{version}.request").MetadataRequest
    request, _ = entity_reader(asked)(frame, parse_request_header(frame)[4])
    schema = import_module(f"kio.schema.metadata.v{version}.response")
    by_id = {id: name for name, (id, _) in HAS.items()}
    topics = []
    for topic in (
        [SimpleNamespace(name=n) for n in HAS] if request.topics is None else request.topics
    ):
        id = getattr(topic, "topic_id", None)
        name = topic.name or by_id.get(id)
        id, count = HAS.get(name, (id, 0))
        code = 0 if count else 29 if name == DENIED else 3 if name else 100
        partition = schema.MetadataResponsePartition
        known: Any = {
            "partition_index": 0, "leader_id": 1, "leader_epoch": 0, "replica_nodes": (),
            "isr_nodes": (), "offline_replicas": (),
        }  # fmt: skip
        made: Any = {
            "error_code": code_of(code),
            "name": name,
            "partitions": (partition(error_code=code_of(0), **known),) * count,
        }
        if version >= 10:
            made["topic_id"] = id
        topics.append(schema.MetadataResponseTopic(**made, topic_authorized_operations=0))
    more: Any = {"cluster_authorized_operations": 0} if version < 11 else {}
    response = schema.MetadataResponse(
        throttle_time=dt.timedelta(), brokers=(), cluster_id="kit", controller_id=1,
        topics=tuple(topics), **more,
    )  # fmt: skip
    out = io.BytesIO()
    entity_writer(schema.MetadataResponse)(out, response)
    return framed(correlation, out.getvalue(), flexible=version >= 9)


def code_of(number: int) -> Any:
    return import_module("kio.schema.errors").ErrorCode(number)


def described(value: str | None) -> Callable[[int, int, bytes], bytes]:
    """Answer DescribeConfigs: num.partitions of the broker asked."""

    def answer(version: int, correlation: int, frame: bytes) -> bytes:
        request = messages.decode_request(32, version, frame, parse_request_header(frame)[4])
        (resource,) = request.resources
        found = (configs.ConfigValue("num.partitions", value),) if value else ()
        result = configs.DescribeResult(resource.resource_type, resource.resource_name, found)
        message = configs.DescribeConfigsResponse((result,))
        return messages.encode_response(32, version, correlation, message)

    return answer


def broker(newest: int = 12, value: str | None = "5") -> Upstream:
    return Upstream([1], {18: versions(newest), 3: metadata, 32: described(value)})


def silent() -> Upstream:
    nothing = dict.fromkeys((3, 18, 32), lambda *_: None)
    return Upstream([1], nothing)  # type: ignore[arg-type]


SECURITY = Settings.from_properties(
    {"headgate.upstream": "x:1", "headgate.broker.id.min": "1", "headgate.broker.id.max": "1"}
).upstream_admin


class Here:
    """A gateway's topics before one or two brokers, and what a charge needs."""

    def __init__(self, *brokers: Upstream, wait_s: float = 60) -> None:
        places = {n: HostPort("127.0.0.1", b.port) for n, b in enumerate(brokers, 1)}
        self.topics = Topics(self.own, {"PLAINTEXT": Cluster("kit", places, 1)}, wait_s)
        self.listener: Any = SimpleNamespace(
            name="PLAINTEXT",
            upstream=places[1],
            settings=SimpleNamespace(upstream_connect_timeout_ms=60_000),
        )

    async def own(self, listener: str) -> tuple[ClientSecurity, None]:
        return replace(SECURITY, security_protocol=SecurityProtocol.PLAINTEXT), None

    async def ask(self, *refs: TopicRef) -> dict[TopicRef, int]:
        return await self.topics.partitions(1, self.listener, refs)


@pytest.mark.parametrize("newest", [8, 9, 10, 11, 12, 13])
async def test_names_are_counted_by_every_broker(newest: int) -> None:
    with broker(newest) as one:
        assert await Here(one).ask("logs", "clicks", "none", DENIED) == {
            "logs": 6,
            "clicks": 3,
            "none": 0,
        }


@pytest.mark.parametrize("newest", [10, 11, 12, 13])
async def test_ids_are_counted_by_every_broker_that_has_them(newest: int) -> None:
    with broker(newest) as one:
        found = await Here(one).ask(LOGS, GONE)
        # Before v12 all topics are asked for: one that isn't told may be there or not.
        assert found == ({LOGS: 6, GONE: 0} if newest >= 12 else {LOGS: 6})


async def test_another_broker_is_asked_when_the_first_is_silent_or_gone() -> None:
    with silent() as mute, broker() as other:
        assert await Here(mute, other, wait_s=2).ask("logs") == {"logs": 6}
    with Upstream([1]) as rude, broker() as other:
        here = Here(rude, other)
        assert await here.ask("logs") == {"logs": 6}
        assert await here.topics.default(1, here.listener) == 5


async def test_what_was_heard_last_counts_when_nobody_answers() -> None:
    with ExitStack() as stack:
        one = stack.enter_context(broker())
        here = Here(one)
        assert await here.ask("logs", "none") == {"logs": 6, "none": 0}
        assert await here.topics.default(1, here.listener) == 5
        one.answers.clear()
        assert await here.ask("logs", "none", "new") == {"logs": 6, "none": 0}
        here.topics._default = (5, 0.0)  # out of date, and yet better than nothing
        assert await here.topics.default(1, here.listener) == 5


class Noting:
    """Answers Metadata as ``metadata`` does, notes how many topics each question was about."""

    def __init__(self, most: int = 1_000) -> None:
        self.asked: list[int] = []
        self.most = most

    def __call__(self, version: int, correlation: int, frame: bytes) -> bytes | None:
        asked = import_module(f"kio.schema.metadata.v{version}.request").MetadataRequest
        request, _ = entity_reader(asked)(frame, parse_request_header(frame)[4])
        self.asked.append(-1 if request.topics is None else len(request.topics))
        return metadata(version, correlation, frame) if len(self.asked) <= self.most else None


def noting(notes: Noting, newest: int = 12) -> Upstream:
    return Upstream([1], {18: versions(newest), 3: notes})  # type: ignore[dict-item]


async def test_many_topics_are_asked_for_in_several_questions_each_topic_once() -> None:
    notes = Noting()
    names = ["logs", *(f"t{n}" for n in range(2 * MOST_ASKED)), "clicks"]
    with noting(notes) as one:
        found = await Here(one).ask(*names, "logs", "t7", "logs")
    assert notes.asked == [MOST_ASKED, MOST_ASKED, 2]
    assert found == {**dict.fromkeys(names, 0), "logs": 6, "clicks": 3}


async def test_a_broker_that_can_only_tell_all_topics_is_asked_once() -> None:
    notes = Noting()
    with noting(notes, 11) as one:
        found = await Here(one).ask(LOGS, *(uuid.UUID(int=n) for n in range(50, 60 + MOST_ASKED)))
    assert notes.asked == [-1]
    assert found == {LOGS: 6}


async def test_another_broker_is_asked_only_for_what_is_left() -> None:
    first, second = Noting(1), Noting()
    names = ["logs", *(f"t{n}" for n in range(2 * MOST_ASKED - 2)), "clicks"]
    with noting(first) as one, noting(second) as other:
        found = await Here(one, other, wait_s=2).ask(*names)
    assert first.asked == [MOST_ASKED, MOST_ASKED]
    assert second.asked == [MOST_ASKED]
    assert found == {**dict.fromkeys(names, 0), "logs": 6, "clicks": 3}


async def test_what_nobody_answered_any_more_is_remembered() -> None:
    notes = Noting()
    some = [f"t{n}" for n in range(MOST_ASKED)]
    with noting(notes) as one:
        here = Here(one, wait_s=1)
        assert await here.ask("logs", "clicks") == {"logs": 6, "clicks": 3}
        notes.most = 2  # the next question is the last that it answers
        # What is named last is asked for first.
        assert await here.ask("logs", "new", *some) == {"logs": 6, **dict.fromkeys(some, 0)}


async def test_no_step_looks_at_more_than_a_few_topics() -> None:
    steps: list[int] = []

    async def run(work: Any) -> Any:
        done = 0
        while True:
            try:
                next(work)
            except StopIteration as end:
                steps.append(done)
                return end.value
            done += 1

    names = [f"t{n}" for n in range(3 * FEW)]
    with noting(Noting()) as one:
        here = Here(one)
        found = await here.topics.partitions(1, here.listener, names, run)
    assert found == dict.fromkeys(names, 0)
    once, *asked, heard = steps
    assert (once, heard) == (3, len(names))
    assert len(asked) == 2 * math.ceil(len(names) / MOST_ASKED)  # reads, and counts


class Link:
    """Takes what a charge answers or forwards."""

    def __init__(self, session: Any, listener: Any) -> None:
        self.session = session
        self.listener = listener
        self.answered: bytes | None = None
        self.forwarded: bytes | None = None

    def answer(self, ask: Ask, frame: bytes) -> None:
        self.answered = frame

    def forward(self, ask: Ask, frame: bytes, merge: Any = None) -> None:
        self.forwarded = frame
        self.merge = merge


Gateway = Callable[..., Any]


async def charge(here: Here, gateway: Gateway, key: int, version: int, request: Any) -> Any:
    """Charge a request; return the rules, what was charged, and the link."""
    charged: list[float] = []

    class Noted(Journal):
        def note(self, kind: str, *event: Any, **_: Any) -> None:
            if kind in ("record", "strict", "norecord"):
                charged.append(event[5])

    setup = gateway({QuotaEntity.of(user="alice"): {MUTATION: 1e9}}, journal=Noted())
    setup.session.context = setup.rules.context("alice", "app")
    frame = messages.encode_request(key, version, 1, "app", request)
    ask = Ask(build_plans()[key << 16 | version], 1, "app", parse_request_header(frame)[4], frame,
              "alice")  # fmt: skip
    link = Link(setup.session, here.listener)
    await mutations.charge(support_of(None), here.topics, setup.rules, link, ask)  # type: ignore[arg-type]
    assert link.forwarded == frame
    return setup.rules, charged, link


def deletes(*refs: TopicRef) -> Any:
    return mutation.DeleteTopicsRequest(
        tuple(
            mutation.DeletableTopic(None, ref)
            if isinstance(ref, uuid.UUID)
            else mutation.DeletableTopic(ref)
            for ref in refs
        )
    )


async def test_deletes_are_charged_their_partitions_by_name_and_by_id(gateway: Gateway) -> None:
    with broker() as one:
        rules, charged, _ = await charge(Here(one), gateway, 20, 6, deletes(LOGS, "clicks", "none"))
    assert charged == [6, 3, 0]
    assert rules.meters.mutations_guessed == 0


async def test_what_nobody_can_tell_is_charged_one_and_counted(gateway: Gateway) -> None:
    with Upstream([1]) as rude:
        rules, charged, _ = await charge(Here(rude), gateway, 20, 6, deletes(LOGS, "clicks"))
        assert charged == [1, 1]
        assert rules.meters.mutations_guessed == 2
        grown = mutation.CreatePartitionsRequest((mutation.GrowingTopic("logs", 10),))
        rules, charged, _ = await charge(Here(rude), gateway, 37, 3, grown)
        assert charged == [1]
        assert rules.meters.mutations_guessed == 1
    with broker() as one:  # a topic that our own user may not see
        rules, charged, _ = await charge(Here(one), gateway, 20, 6, deletes(DENIED))
        assert charged == [1]
        assert rules.meters.mutations_guessed == 1


async def test_growth_is_charged_what_is_added_and_nothing_for_no_topic(gateway: Gateway) -> None:
    grown = mutation.CreatePartitionsRequest(
        (mutation.GrowingTopic("logs", 10), mutation.GrowingTopic("none", 10))
    )
    with broker() as one:
        _, charged, _ = await charge(Here(one), gateway, 37, 3, grown)
    assert charged == [4, 0]


@pytest.mark.parametrize(("value", "expected", "guessed"), [("5", 5, 0), (None, 1, 1)])
async def test_an_open_partition_count_is_the_clusters_default(
    gateway: Gateway, value: str | None, expected: int, guessed: int
) -> None:
    request = mutation.CreateTopicsRequest(
        (mutation.CreatableTopic("open", -1, 1), mutation.CreatableTopic("three", 3, 1))
    )
    with broker(value=value) as one:
        rules, charged, _ = await charge(Here(one), gateway, 19, 7, request)
    assert charged == [expected, 3]
    assert rules.meters.mutations_guessed == guessed


class Kept(Link):
    """Keeps what is merged, and closes nothing."""

    def close(self, reason: str, detail: str) -> None:
        raise AssertionError(detail)


@pytest.mark.parametrize(("count", "later"), [(3, False), (MOST_ASKED, True)])
async def test_many_refusals_are_put_into_a_short_answer_in_slices(
    gateway: Gateway, count: int, later: bool
) -> None:
    setup = gateway({QuotaEntity.of(user="alice"): {MUTATION: 0.001}})
    setup.session.context = setup.rules.context("alice", "app")
    topics = tuple(mutation.CreatableTopic(f"t{n}", 2, 1) for n in range(count))
    frame = messages.encode_request(19, 6, 1, "app", mutation.CreateTopicsRequest(topics))
    ask = Ask(build_plans()[19 << 16 | 6], 1, "app", parse_request_header(frame)[4], frame, "alice")
    link: Any = Kept(setup.session, None)
    answers, topics_here = support_of(None), Here.__new__(Here)
    await mutations.charge(answers, topics_here, setup.rules, link, ask)  # type: ignore[arg-type]
    made = mutation.CreateTopicsResponse((mutation.CreatedTopic("t0"),))
    told = link.merge(messages.encode_response(19, 6, 1, made))
    assert (told is ask) is later
    await asyncio.gather(*answers._finishing)
    response = messages.decode_response(19, 6, link.answered if later else told)
    assert [t.error_code for t in response.topics] == [0, *[89] * (count - 1)]
    assert [t.name for t in response.topics] == [t.name for t in topics]


@pytest.mark.parametrize(
    ("last", "steps", "leaves"),
    [
        (mutation.CreatableTopic("t", 1, 1), 10, False),
        (mutation.CreatableTopic("t", -1, 1, (mutation.Assignment((1,), 0),)), 10, False),
        (mutation.CreatableTopic("t", -1, 1), 9, True),
    ],
)
async def test_topics_that_leave_their_number_open_are_looked_for_a_few_at_a_time(
    last: mutation.CreatableTopic, steps: int, leaves: bool
) -> None:
    others = [mutation.CreatableTopic("t", 1, 1)] * (10 * FEW - 1)
    request = mutation.CreateTopicsRequest((*others, last))
    assert len(list(mutations._leaves_open(request))) == steps
    assert finish(mutations._leaves_open(request)) is leaves
