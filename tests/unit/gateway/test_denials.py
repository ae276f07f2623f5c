"""Requests without permission are refused before they are read; others are read in slices."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import Settings
from headgate.errors import KafkaError, RemoteProtocolError
from headgate.gateway.answered_here import denials
from headgate.gateway.answered_here.admin_listener import admin_plans
from headgate.gateway.answered_here.answers import Answers
from headgate.gateway.answered_here.denials import MOST_WAITING, SMALL_BYTES
from headgate.gateway.background import TimeSlices
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.log import PER_MINUTE
from headgate.gateway.session.commands import Ask
from headgate.quota.alteration import AlterResult
from headgate.quota.table import QuotaTable
from headgate.store.base import AuditEvent
from headgate.store.broker_rules import BROKER_SETTINGS
from headgate.wire import schema
from headgate.wire.header import parse_request_header
from headgate.wire.messages import configs, decode_response, draft, encode_request, quotas
from headgate.wire.messages.denied import DRAFT, MOST_ANSWER_BYTES, RELEASED, denied

from .conftest import support_of

DENIED = int(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
LARGE = 6_000
"""Entities of a request of some hundred kilobytes."""


def alter_quotas(count: int) -> bytes:
    entries = tuple(
        quotas.AlterEntry(
            (quotas.EntityPart("user", f"somebody-{n:09}"), quotas.EntityPart("client-id", None)),
            (quotas.AlterOp("producer_byte_rate", 1_000.0, False),),
        )
        for n in range(count)
    )
    return encode_request(49, 1, 7, "tool", quotas.AlterClientQuotasRequest(entries, False))


def alter_drafted(count: int) -> bytes:
    entries = tuple(
        draft.DraftAlterEntry(
            (draft.DraftEntityPart("user", f"somebody-{n:09}"),),
            (draft.DraftAlterOp("producer_byte_rate", "broker_bps", 1_000, False),),
        )
        for n in range(count)
    )
    return draft.encode_request(50, 7, "tool", draft.AlterQuotasRequest(entries, False))


def effective(count: int) -> bytes:
    entity = tuple(draft.DraftEntityPart(f"type-{n:09}", "somebody") for n in range(count))
    request = draft.DescribeEffectiveQuotasRequest(entity, False)
    return draft.encode_request(49, 7, "tool", request)


def alter_configs(key: int, count: int, name: str = "max.connections") -> bytes:
    resources = tuple(
        configs.AlterResource(configs.BROKER, f"{n}", (configs.AlterConfig(name, "5"),))
        for n in range(count)
    )
    version = {33: 2, 44: 1}[key]
    return encode_request(key, version, 7, "tool", configs.AlterConfigsRequest(resources))


def describe_configs(count: int) -> bytes:
    resources = tuple(
        configs.DescribeResource(configs.BROKER, f"{n}", ("max.connections",)) for n in range(count)
    )
    return encode_request(32, 4, 7, "tool", configs.DescribeConfigsRequest(resources))


def describe_quotas(count: int) -> bytes:
    components = tuple(quotas.Component(f"type-{n}", 2, None) for n in range(count))
    request = quotas.DescribeClientQuotasRequest(components, False)
    return encode_request(48, 1, 7, "tool", request)


def describe_drafted(count: int) -> bytes:
    filters = tuple(draft.Filter("user", "EXACT", f"somebody-{n}") for n in range(count))
    return draft.encode_request(48, 7, "tool", draft.DescribeQuotasRequest(filters))


def asked(frame: bytes, principal: str = "mallory", *, drafted: bool = False) -> Ask:
    plans = admin_plans() if drafted else build_plans()
    plan = plans[int.from_bytes(frame[4:8], "big")]
    if drafted:
        return Ask(plan, 7, "tool", draft.body_offset(frame), frame, principal)
    _, _, correlation, client_id, offset = parse_request_header(frame)
    return Ask(plan, correlation, client_id, offset, frame, principal)


class Desk:
    """A gateway's answers, a link, and what comes of them."""

    def __init__(self) -> None:
        self.audited: list[AuditEvent] = []
        self.altered: list[Any] = []
        self.answered: list[bytes] = []
        self.forwarded: list[bytes] = []
        self.closed: list[str] = []
        store = SimpleNamespace(
            availability=SimpleNamespace(silent=None),
            history=SimpleNamespace(audit=self.audited.append),
            alter=self._alter,
            snapshot=lambda: QuotaTable(),
        )
        settings = Settings.from_properties(
            {
                "headgate.upstream": "127.0.0.1:1",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                "super.users": "User:root",
            }
        )
        self.support = support_of(store, settings)
        nobody: Any = None
        self.answers = Answers(self.support, nobody, nobody, nobody)
        self.link: Any = SimpleNamespace(
            answer=lambda ask, frame: self.answered.append(bytes(frame)),
            forward=lambda ask, frame, merge=None: self.forwarded.append(frame),
            close=lambda reason, detail: self.closed.append(reason),
            listener=SimpleNamespace(name="PLAINTEXT"),
        )

    def _alter(self, alterations: list[Any], **_: object) -> list[AlterResult]:
        self.altered += alterations
        return [AlterResult(a.entity, None) for a in alterations]

    async def ask(self, frame: bytes, principal: str = "mallory", *, drafted: bool = False) -> None:
        ask = asked(frame, principal, drafted=drafted)
        await self.answers.answer(None, self.link, ask)  # type: ignore[arg-type]


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.support.denials.close()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What this process reads and writes of messages, by name of the struct's class."""
    seen: list[str] = []
    for name in ("read", "read_steps", "write", "write_steps"):
        original = getattr(schema.Struct, name)

        def noted(self: Any, *args: Any, _original: Any = original) -> Any:
            seen.append(self.factory.__name__)
            return _original(self, *args)

        monkeypatch.setattr(schema.Struct, name, noted)
    return seen


ALL_LARGE = [
    (describe_quotas, LARGE * 3, False),
    (alter_quotas, LARGE, False),
    (describe_drafted, LARGE * 2, True),
    (effective, LARGE * 2, True),
    (alter_drafted, LARGE, True),
    (describe_configs, LARGE * 3, False),
    (lambda count: alter_configs(33, count), LARGE * 2, False),
    (lambda count: alter_configs(44, count), LARGE * 2, False),
    (lambda count: alter_configs(33, count, "log.cleaner.threads"), LARGE * 2, False),
    (lambda count: alter_configs(44, count, "log.cleaner.threads"), LARGE * 2, False),
]


@pytest.mark.parametrize(("make", "count", "drafted"), ALL_LARGE)
async def test_a_strangers_large_request_isnt_read_by_the_gateway_itself(
    desk: Desk, read: list[str], make: Any, count: int, drafted: bool
) -> None:
    frame = make(count)
    assert len(frame) > 100 * SMALL_BYTES
    read.clear()
    await desk.ask(frame, drafted=drafted)
    assert len(desk.answered) + len(desk.forwarded) == 1
    assert not desk.closed
    assert len(read) <= 3  # an answer of one entry at most


@pytest.mark.parametrize("count", [1, 10, 300])
async def test_a_refusal_names_every_entity_whoever_made_it(desk: Desk, count: int) -> None:
    frame = alter_quotas(count)
    await desk.ask(frame)
    [answer] = desk.answered
    response = decode_response(49, 1, answer)
    assert [e.entity[0].entity_name for e in response.entries] == [
        f"somebody-{n:09}" for n in range(count)
    ]
    assert {e.entity[1].entity_name for e in response.entries} == {None}
    assert {(e.error_code, e.error_message) for e in response.entries} == {
        (DENIED, "Cluster authorization failed.")
    }
    assert answer == denied(RELEASED, 49, 1, frame)
    assert (len(frame) > SMALL_BYTES) is (count == 300)


async def test_the_drafts_refusals_name_every_entity_too(desk: Desk) -> None:
    for frame in (alter_drafted(300), effective(300)):
        await desk.ask(frame, drafted=True)
    altered, whole = desk.answered
    entries = draft.decode_response(50, altered).entries
    assert [(e.entity[0].entity_name, e.error_code) for e in entries] == [
        (f"somebody-{n:09}", DENIED) for n in range(300)
    ]
    [entry] = draft.decode_response(49, whole).entries
    assert (len(entry.entity), entry.error_code, entry.values) == (300, DENIED, ())


@pytest.mark.parametrize(("key", "version"), [(33, 2), (44, 1)])
async def test_of_a_large_request_with_a_setting_of_ours_nothing_is_passed_on(
    desk: Desk, key: int, version: int
) -> None:
    await desk.ask(alter_configs(key, 300))
    assert not desk.forwarded
    responses = decode_response(key, version, desk.answered[0]).responses
    assert [(r.resource_name, r.error_code) for r in responses] == [
        (f"{n}", DENIED) for n in range(300)
    ]
    await desk.ask(alter_configs(key, 300, "log.cleaner.threads"))
    assert desk.forwarded == [alter_configs(key, 300, "log.cleaner.threads")]


def test_every_setting_of_ours_is_found_in_a_request_by_its_bytes() -> None:
    assert all("max.connection" in name for name in BROKER_SETTINGS)


@pytest.mark.parametrize(
    ("frame", "drafted"),
    [
        (alter_quotas(300)[:-3], False),
        (alter_drafted(300)[:-3], True),
        (alter_configs(44, 300)[:-3], False),
        (alter_quotas(1)[:-3], False),
    ],
)
async def test_a_strangers_request_that_doesnt_parse_closes(
    desk: Desk, frame: bytes, drafted: bool
) -> None:
    await desk.ask(frame, drafted=drafted)
    assert desk.closed == ["malformed"]
    assert not desk.answered


def test_an_answer_much_longer_than_its_request_isnt_made() -> None:
    entries = tuple(quotas.AlterEntry((), ()) for _ in range(200_000))
    frame = encode_request(49, 1, 7, "tool", quotas.AlterClientQuotasRequest(entries, False))
    assert len(frame) < 1 << 20 < MOST_ANSWER_BYTES
    with pytest.raises(RemoteProtocolError) as caught:
        denied(RELEASED, 49, 1, frame)
    assert caught.value.reason == "oversized"


async def test_large_refusals_are_made_one_at_a_time_and_few_wait(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work: list[int] = []
    most = 0
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def beside(*_: object) -> bytes:
        nonlocal most
        at_work.append(1)
        most = max(most, len(at_work))
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        at_work.pop()
        return b"refused"

    monkeypatch.setattr(denials, "_beside", beside)
    asks = [asyncio.ensure_future(desk.ask(alter_quotas(300))) for _ in range(MOST_WAITING + 3)]
    ended = asyncio.as_completed(asks)
    await next(ended)
    await next(ended)
    assert desk.closed == ["refused"] * 2
    # Hanging up makes room for nobody: the one at work goes on, those who waited are gone.
    for ask in asks:
        ask.cancel()
    late = asyncio.ensure_future(desk.ask(alter_quotas(300)))
    await asyncio.sleep(0.01)
    assert len(at_work) <= 1
    go_on.set()
    await asyncio.gather(late, *asks, return_exceptions=True)
    assert desk.answered == [b"refused"]
    assert most == 1


@pytest.mark.parametrize("drafted", [False, True])
async def test_an_administrators_large_request_is_done_in_slices(desk: Desk, drafted: bool) -> None:
    # Each look at the clock is a nanosecond, and a slice takes a hundred, thus as many steps.
    ticks = itertools.count()
    desk.support.slices = TimeSlices(100, lambda: next(ticks))
    turns = 0
    loop = asyncio.get_running_loop()

    def turn() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    loop.call_soon(turn)
    await desk.ask((alter_drafted if drafted else alter_quotas)(LARGE), "root", drafted=drafted)
    assert len(desk.altered) == LARGE
    [answer] = desk.answered
    told = draft.decode_response(50, answer) if drafted else decode_response(49, 1, answer)
    assert [e.error_code for e in told.entries] == [0] * LARGE
    # Read, understood, told and written: each in steps of an entity at most, others in between.
    assert desk.support.slices.count > 4 * LARGE / 100
    assert turns >= desk.support.slices.count


async def test_refusals_are_logged_and_audited_ten_a_minute_and_the_rest_are_counted(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "headgate.gateway")
    now = 100.0
    monkeypatch.setattr(desk.support.refusals, "_clock", lambda: now)
    for _ in range(200):
        await desk.ask(describe_quotas(1))
    await desk.ask(describe_quotas(1), "eve")
    assert len(desk.answered) == 201
    assert len([m for m in caplog.messages if "User:mallory" in m]) == PER_MINUTE
    assert len([m for m in caplog.messages if "User:eve" in m]) == 1
    assert [e.who for e in desk.audited] == ["User:mallory"] * PER_MINUTE + ["User:eve"]
    desk.support.refusals.tell()
    assert "left_out" not in caplog.text  # its minute isn't over
    now += 60.0
    desk.support.refusals.tell()
    told = [m for m in caplog.messages if "left_out" in m]
    assert told == [
        "refused; not every one is logged  left_out=190 api=DescribeClientQuotas "
        "principal=User:mallory"
    ]
    await desk.ask(describe_quotas(1))
    assert len([m for m in caplog.messages if "refused  api" in m]) == PER_MINUTE + 2


def test_the_process_beside_is_this_python() -> None:
    assert denials._beside(DRAFT, 50, 0, alter_drafted(2)) == denied(DRAFT, 50, 0, alter_drafted(2))
    assert sys.executable
