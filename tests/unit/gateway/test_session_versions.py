"""What a session closes for, and what it does with every version of an API."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from headgate.gateway.session.requests import REPLAYS
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.wire.apis import API
from headgate.wire.apis import PRODUCE as PRODUCE_API
from kit.playbook import (
    ANY,
    NOTHING,
    Closed,
    FromBroker,
    FromClient,
    Mute,
    Ready,
    ToBroker,
    ToClient,
)

from .conftest import (
    Setup,
    StillIdentity,
    answer,
    beaten,
    heartbeat,
    produce,
    request,
    string,
)

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (struct.pack(">i", 104_857_601) + bytes(20), "oversized"),
        (struct.pack(">i", -1) + bytes(20), "malformed"),
        (struct.pack(">i", 9) + bytes(20), "malformed"),
        (b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", "oversized"),
        (request(32_000, 0, 1, b""), "unknown-api"),
        (request(0, 55, 1, bytes(100)), "unsupported-version"),
        (request(53, 0, 1, bytes(100)), "unknown-api"),
        (request(200, 0, 1, bytes(100)), "unknown-api"),  # of a Kafka to come
        (struct.pack(">ihhih", 20, 12, 3, 1, 3_000) + bytes(20), "malformed"),
    ],
)
def test_what_cant_be_a_request_closes_with_a_reason(
    gateway: Make, said: bytes, reason: str
) -> None:
    play = gateway().play
    play >> Ready() << NOTHING
    play >> FromClient(said) << Closed(reason) << NOTHING
    play >> FromClient(heartbeat(1)) << NOTHING


@pytest.mark.parametrize(
    "begin", [b"GET ", b"POST /", b"HEAD / HTTP/1.1\r\n", b"OPTIONS * HTTP/1.1", b"PRI * HTTP/2.0"]
)
def test_a_request_of_http_is_called_that(gateway: Make, begin: bytes) -> None:
    setup = gateway()
    setup.play >> Ready() << NOTHING
    setup.play >> FromClient(begin) << Closed("oversized")
    closed = setup.session.closed
    assert closed is not None
    assert closed.detail.startswith("from the client: an HTTP request at a port for Kafka clients")


@pytest.mark.parametrize("between", [0, 3, REPLAYS - 1])
def test_a_correlation_id_again_before_its_answer_closes(gateway: Make, between: int) -> None:
    play = gateway().play
    first = b"".join(heartbeat(n) for n in range(7, 8 + between))
    play >> Ready() << NOTHING
    play >> FromClient(first) << ToBroker(first)
    play >> FromClient(heartbeat(7)) << Closed("replayed-correlation-id") << NOTHING


def test_a_correlation_id_may_come_again_once_it_is_answered(gateway: Make) -> None:
    play = gateway().play
    play >> Ready() << NOTHING
    for _ in range(3):
        play >> FromClient(heartbeat(7)) << ToBroker(heartbeat(7))
        play >> FromBroker(beaten(7)) << ToClient(beaten(7)) << NOTHING
    downwards = heartbeat(2**31 - 1) + heartbeat(-(2**31)) + heartbeat(3) + heartbeat(2)
    play >> FromClient(downwards) << ToBroker(downwards) << NOTHING


@pytest.mark.parametrize("version", [5, 64, 65, 32_767])
def test_any_version_of_api_versions_is_answered_by_the_broker(gateway: Make, version: int) -> None:
    play = gateway().play
    asked = request(18, version, 1, b"\0" + b"whatever it means")
    refused = answer(1, struct.pack(">hihhh", 35, 1, 18, 0, 4))
    play >> Ready() << NOTHING
    play >> FromClient(asked) << ToBroker(asked)
    play >> FromBroker(refused)
    play << ToClient(ANY) << NOTHING


def offered(correlation: int, *ranges: tuple[int, int, int]) -> bytes:
    """An ApiVersions answer (version 0) that offers these keys and versions."""
    body = struct.pack(">hi", 0, len(ranges)) + b"".join(struct.pack(">hhh", *r) for r in ranges)
    return answer(correlation, body)


@pytest.mark.parametrize("rule", ["hide", "pass"])
def test_apis_nobody_knows_are_hidden_unless_they_shall_pass(gateway: Make, rule: str) -> None:
    play = gateway(properties={"headgate.unknown.apis": rule}).play
    asked = request(18, 0, 1, b"")
    beyond = 40  # a Produce of a version that nobody can read is never offered
    play >> Ready() << NOTHING
    play >> FromClient(asked) << ToBroker(asked)
    play >> FromBroker(offered(1, (0, 3, beyond), (12, 0, beyond), (200, 0, 1)))
    shown = [(0, 3, API[PRODUCE_API].max_version), (12, 0, beyond)]
    shown += [(200, 0, 1)] if rule == "pass" else []
    shown += [(48, 0, 1), (49, 0, 1)]  # quotas, which the gateway answers itself
    play << ToClient(offered(1, *shown)) << NOTHING
    new = request(200, 1, 2, b"whatever it means")
    play >> FromClient(new)
    play << (ToBroker(new) if rule == "pass" else Closed("unknown-api")) << NOTHING


@pytest.mark.parametrize(("key", "version"), [(12, 40), (76, 0), (77, 0), (90, 7)])
def test_other_versions_of_known_apis_pass_untouched(gateway: Make, key: int, version: int) -> None:
    play = gateway({ALICE: {PRODUCER: 1.0}}).play
    asked, told = request(key, version, 1, b"in whatever form"), answer(1, b"\x7f" * 30)
    play >> Ready() << NOTHING
    play >> FromClient(asked, 5) << ToBroker(asked) << NOTHING
    play >> FromBroker(told, 7) << ToClient(told) << NOTHING


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (beaten(2), "upstream-out-of-order"),
        (beaten(1) + beaten(1), "upstream-unexpected"),
        (struct.pack(">ii", 3, 1) + bytes(20), "upstream-malformed"),
    ],
)
def test_an_answer_that_isnt_due_closes_with_a_reason(
    gateway: Make, told: bytes, reason: str
) -> None:
    play = gateway().play
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1)) << ToBroker(heartbeat(1))
    play >> FromBroker(told)
    assert any(said == Closed(reason) for said in play.said)


def test_before_authentication_little_is_said_and_less_is_passed(gateway: Make) -> None:

    play = gateway(identity=StillIdentity("ANONYMOUS", authenticated=False)).play
    play >> Ready() << NOTHING
    play >> FromClient(struct.pack(">i", 600_000) + bytes(20)) << Closed("oversized")
    play = gateway(identity=StillIdentity("ANONYMOUS", authenticated=False)).play
    play >> Ready() << NOTHING
    play >> FromClient(heartbeat(1)) << Closed("unauthenticated")
    play = gateway(identity=StillIdentity("ANONYMOUS", authenticated=False)).play
    play >> Ready() << NOTHING
    play >> FromClient(produce(100, 1)) << Closed("unauthenticated")


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
@pytest.mark.parametrize("transaction", [None, "", "tx"])
@pytest.mark.parametrize("upstream", [0, 300, 5_000])
def test_every_produce_version_is_charged_and_told(
    gateway: Make, version: int, transaction: str | None, upstream: int
) -> None:
    play = gateway({ALICE: {PRODUCER: 1_000.0}}).play
    flexible = version >= 9
    if flexible:
        name = b"\0" if transaction is None else bytes([len(transaction) + 1])
        start = b"\0" + name + (transaction or "").encode()
    else:
        start = string(transaction)
    said = request(0, version, 1, start + struct.pack(">hi", -1, 1000) + bytes(10_960))

    def told(ms: int) -> bytes:
        # No topics: nobody asks what was produced.
        none = b"\0\1" if flexible else struct.pack(">i", 0)
        return answer(1, none + struct.pack(">i", ms) + (b"\0" if flexible else b""))

    play >> Ready() << NOTHING
    throttle = len(said) - 4 - 10_000
    play >> FromClient(said) << ToBroker(said) << Mute(throttle) << NOTHING
    play >> FromBroker(told(upstream)) << ToClient(told(max(upstream, throttle)))
    play << (Mute(upstream) if upstream > throttle else NOTHING)


@pytest.mark.parametrize("version", [3, 9])
def test_acks_0_is_known_in_every_version(gateway: Make, version: int) -> None:
    play = gateway({ALICE: {PRODUCER: 1_000.0}}).play
    start = b"\0\0" if version >= 9 else string(None)
    said = request(0, version, 1, start + struct.pack(">hi", 0, 1000) + bytes(10_960))
    play >> Ready() << NOTHING
    play >> FromClient(said) << ToBroker(said)
    assert play.session.in_flight == 0
    assert play.session.throttled_until_ms > play.now_ms
    play.said.clear()
