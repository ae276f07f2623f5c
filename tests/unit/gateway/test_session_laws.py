"""Laws of a session, whatever is said and however it is cut."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.config import Settings
from headgate.gateway.enforcement import Enforcement
from headgate.gateway.mute import MuteState
from headgate.gateway.plans import build_plans
from headgate.gateway.session import HELD_BYTES, Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, REQUEST
from headgate.quota.table import QuotaTable
from headgate.testing.playbook import START_MS

from .conftest import (
    StillFace,
    StillIdentity,
    beaten,
    fetch,
    fetched,
    heartbeat,
    produce,
    produced,
)

SETTINGS = Settings.from_properties(
    {
        "headgate.upstream": "127.0.0.1:9092",
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
    }
)
PLANS = build_plans()


def session(quotas: Any = None, **options: Any) -> Session:
    rules = Enforcement(SETTINGS, 1, START_MS)
    rules.load(QuotaTable.of(quotas or {}), START_MS)
    made = Session(rules, PLANS, StillIdentity("alice"), StillFace(), **options)
    made.upstream_ready(START_MS)
    return made


def take(out: list[Any]) -> bytes:
    said = b"".join(out)
    out.clear()
    return said


KINDS = st.sampled_from(["heartbeat", "produce", "acks0", "fetch"])


def exchange(kind: str, number: int, size: int) -> tuple[bytes, bytes]:
    if kind == "heartbeat":
        return heartbeat(number), beaten(number)
    if kind == "produce":
        return produce(60 + size, number), produced(number)
    if kind == "acks0":
        return produce(60 + size, number, acks=0), b""
    return fetch(number), fetched(size, number)


@given(
    st.lists(st.tuples(KINDS, st.integers(0, 5_000)), min_size=1, max_size=20),
    st.lists(st.integers(1, 700), min_size=1, max_size=10),
)
def test_without_quotas_every_byte_passes_as_it_came(
    turns: list[tuple[str, int]], cuts: list[int]
) -> None:
    pairs = [exchange(kind, n, size) for n, (kind, size) in enumerate(turns)]
    asked, told = b"".join(p[0] for p in pairs), b"".join(p[1] for p in pairs)
    made = session()
    at, passed = 0, b""
    for turn in range(len(asked)):
        step = cuts[turn % len(cuts)]
        made.client_data(memoryview(bytearray(asked[at : at + step])), START_MS)
        passed += take(made.to_broker)
        at += step
        if at >= len(asked):
            break
    assert passed == asked
    at, back = 0, b""
    while at < len(told):
        step = cuts[at % len(cuts)]
        made.broker_data(memoryview(bytearray(told[at : at + step])), START_MS)
        back += take(made.to_client)
        at += step
    assert back == told
    assert made.at_rest
    assert made.closed is None


@given(st.binary(max_size=2_000), st.integers(1, 100))
def test_no_bytes_of_a_client_do_more_than_close_it(data: bytes, cut: int) -> None:
    made = session({QuotaEntity.of(user="alice"): {PRODUCER: 1.0}}, max_request_bytes=10_000)
    for at in range(0, len(data), cut):
        made.client_data(memoryview(bytearray(data[at : at + cut])), START_MS)
    assert made.held_bytes <= HELD_BYTES + cut
    assert len(made._head) <= 40_000


FRAMES = st.builds(
    lambda key, version, body, client: (
        struct.pack(">ihhih", 10 + len(client) + len(body), key, version, 1, len(client))
        + client
        + body
    ),
    st.integers(0, 90),
    st.integers(0, 15),
    st.binary(max_size=300),
    st.binary(max_size=10),
)


@given(st.lists(FRAMES, min_size=1, max_size=5), st.binary(max_size=300))
def test_no_request_of_whatever_api_and_no_answer_does_more_than_close(
    frames: list[bytes], answer: bytes
) -> None:
    quotas = {QuotaEntity.of(user="alice"): {PRODUCER: 1.0, CONSUMER: 1.0, REQUEST: 1.0}}
    for limits in ({}, quotas):
        made = session(limits)
        for frame in frames:
            made.client_data(memoryview(bytearray(frame)), START_MS)
        take(made.to_broker)
        told = struct.pack(">ii", 4 + len(answer), 1) + answer
        made.broker_data(memoryview(bytearray(told)), START_MS)
        made.broker_data(memoryview(bytearray(answer)), START_MS)
        made.wake(START_MS + 10**9)


@given(
    st.lists(st.tuples(KINDS, st.integers(0, 9_000)), min_size=1, max_size=30),
    st.integers(1, 20_000),
)
def test_under_a_quota_one_request_is_in_flight_and_none_is_lost(
    turns: list[tuple[str, int]], bound: int
) -> None:
    pairs = [exchange(kind, n, size) for n, (kind, size) in enumerate(turns)]
    made = session({QuotaEntity.of(user="alice"): {PRODUCER: float(bound), CONSUMER: float(bound)}})
    now = START_MS
    for asked, _ in pairs:
        made.client_data(memoryview(bytearray(asked)), now)
    passed = take(made.to_broker)
    for asked, told in pairs:
        if not passed:
            assert made.throttled_until_ms > now
            now = made.throttled_until_ms
            made.wake(now)
            passed += take(made.to_broker)
        assert passed[:12] == asked[:12]
        assert len(passed) >= len(asked)
        passed = passed[len(asked) :]
        if told:
            assert made.in_flight == 1
            assert not passed
            made.broker_data(memoryview(bytearray(told)), now)
            assert take(made.to_client)[4:8] == told[4:8]
            passed += take(made.to_broker)
    assert made.in_flight == 0
    assert made.held_bytes == 0
    assert made.mute.state in (MuteState.NOT_MUTED, MuteState.MUTED_AND_THROTTLED)
