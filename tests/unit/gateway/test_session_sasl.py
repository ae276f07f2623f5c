"""A session while its client authenticates with bare tokens (SaslHandshake version 0)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from headgate.errors import KafkaError
from headgate.gateway.connection.link import Link
from headgate.gateway.connection.pool import ReadBuffer
from headgate.gateway.identity.identity import (
    AuthenticationContext,
    DefaultPrincipalBuilder,
    Identity,
)
from headgate.gateway.identity.sasl import MAX_TOKEN_BYTES, SaslObserver
from headgate.gateway.session.commands import Ask
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.wire.messages import decode_response
from kit.playbook import (
    NOTHING,
    START_MS,
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
    frame,
    heartbeat,
    produce,
    produced,
    request,
    string,
)

Make = Callable[..., Setup]
PLAIN = frame(b"\0alice\0pw")
YES = frame(b"")
OFFERED = struct.pack(">hi", 0, 1) + string("PLAIN")
FIRST = frame(b"n,,n=alice,r=mine")
CHALLENGE = frame(b"r=mineyours,s=AAAA,i=4096")
FINAL = frame(b"c=biws,r=mineyours,p=AAAA")
PROVEN = frame(b"v=AAAA")


def handshake(mechanism: str = "PLAIN", version: int = 0) -> bytes:
    return request(17, version, 1, string(mechanism))


def identity(**options: Any) -> Identity:
    context = AuthenticationContext("SASL", "SASL_PLAINTEXT", "10.0.0.1")
    return Identity(DefaultPrincipalBuilder(), context, SaslObserver(**options))


def begun(gateway: Make, mechanism: str = "PLAIN", pieces: int = 0, **quotas: Any) -> Setup:
    """A session whose handshake of version 0 is over."""
    setup = gateway(identity=identity(), **quotas)
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(handshake(mechanism), pieces) << ToBroker(handshake(mechanism))
    told = answer(1, OFFERED)
    play >> FromBroker(told) << ToClient(told) << NOTHING
    return setup


@pytest.mark.parametrize("pieces", [0, 1, 3])
def test_bare_tokens_pass_until_the_broker_says_yes(gateway: Make, pieces: int) -> None:
    setup = begun(gateway, "SCRAM-SHA-256", pieces)
    play, session = setup.play, setup.session
    play >> FromClient(FIRST, pieces) << ToBroker(FIRST)
    play >> FromBroker(CHALLENGE, pieces) << ToClient(CHALLENGE)
    assert not session.identity.authenticated
    play >> FromClient(FINAL, pieces) << ToBroker(FINAL)
    play >> FromBroker(PROVEN, pieces) << ToClient(PROVEN)
    assert (session.identity.principal, session.identity.authenticated) == (
        "alice",
        True,
    )
    play >> FromClient(heartbeat(2), pieces) << ToBroker()
    play >> FromBroker(beaten(2)) << ToClient(beaten(2)) << NOTHING
    assert session.at_rest


def test_the_principals_quotas_hold_from_the_first_request(gateway: Make) -> None:
    play = begun(gateway, quotas={QuotaEntity.of(user="alice"): {PRODUCER: 1_000.0}}).play
    play >> FromClient(PLAIN) << ToBroker(PLAIN)
    play >> FromBroker(YES) << ToClient(YES) << NOTHING
    play >> FromClient(produce(11_000, 2)) << ToBroker() << Mute(1_000)
    play >> FromBroker(produced(2)) << ToClient(produced(2, 1_000)) << NOTHING


def test_what_a_client_sends_too_early_waits_its_turn(gateway: Make) -> None:
    setup = gateway(identity=identity())
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(handshake() + PLAIN + heartbeat(2)) << ToBroker(handshake())
    told = answer(1, OFFERED)
    play >> FromBroker(told) << ToBroker(PLAIN) << ToClient(told)
    play >> FromBroker(YES) << ToBroker(heartbeat(2)) << ToClient(YES)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (struct.pack(">i", MAX_TOKEN_BYTES + 1), "oversized"),
        (struct.pack(">i", -1), "oversized"),
        (frame(b"no name in here"), "unreadable"),
        (heartbeat(2), "unreadable"),
    ],
)
def test_a_bare_token_that_cant_be_one_closes(gateway: Make, token: bytes, reason: str) -> None:
    begun(gateway).play >> FromClient(token) << Closed(reason)


def test_a_token_in_small_pieces_is_kept_once(gateway: Make) -> None:
    setup = begun(gateway)
    session = setup.session
    setup.play >> FromClient(struct.pack(">i", MAX_TOKEN_BYTES)) << NOTHING
    for _ in range(100):
        setup.play >> FromClient(bytes(5_000), 500) << NOTHING
    assert session.partial_since_ms
    assert (session.held_bytes, session.retained()) == (0, 4 + 100 * 5_000)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (struct.pack(">i", 2**30), "upstream-oversized"),
        (struct.pack(">i", -5), "upstream-oversized"),
        (YES + YES, "upstream-unexpected"),
    ],
)
def test_an_answer_that_cant_be_one_closes(gateway: Make, told: bytes, reason: str) -> None:
    play = begun(gateway).play
    play >> FromClient(PLAIN) << ToBroker(PLAIN)
    play >> FromBroker(told) << Closed(reason)


def test_an_answer_before_any_token_closes(gateway: Make) -> None:
    begun(gateway).play >> FromBroker(YES) << Closed("upstream-unexpected")


TOKEN = b"n,,n=token-id,r=mine,tokenauth=true"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("known", [True, False])
def test_a_delegation_token_waits_until_its_owner_is_known(
    gateway: Make, version: int, known: bool
) -> None:
    owners: dict[str, str] = {}
    setup = gateway(identity=identity(owner_of=owners.get))
    play, session = setup.play, setup.session
    said = frame(TOKEN) if not version else request(36, 1, 2, frame(TOKEN))
    play >> Ready() << NOTHING
    play >> FromClient(handshake("SCRAM-SHA-256", version)) << ToBroker()
    told = answer(1, OFFERED)
    play >> FromBroker(told) << ToClient(told) << NOTHING
    session.client_data(memoryview(bytearray(said + heartbeat(3))), START_MS)
    (ask,) = session.commands
    session.commands.clear()
    assert isinstance(ask, Ask)
    assert (ask.token_id, session.to_broker) == ("token-id", [])
    if not known:
        session.resume(ask, START_MS)
        assert session.closed is not None
        assert session.closed.reason == "delegation-token"
        assert session.to_broker == []
        # A bare token has no answer that could say why.
        refusals = [decode_response(36, 1, bytes(said)) for said in session.to_client]
        assert [refusal.error_code for refusal in refusals] == ([58] if version else [])
        return
    owners["token-id"] = "alice"
    session.resume(ask, START_MS)
    assert b"".join(session.to_broker) == said
    session.to_broker.clear()
    session.resume(ask, START_MS)  # nothing is asked any more
    assert session.to_broker == []


def test_a_second_handshake_after_bare_tokens_closes(gateway: Make) -> None:
    play = begun(gateway).play
    play >> FromClient(PLAIN) << ToBroker(PLAIN)
    play >> FromBroker(YES) << ToClient(YES)
    play >> FromClient(handshake(version=1)) << Closed("sasl-state")


def test_a_refusal_comes_after_the_support_of_earlier_requests(gateway: Make) -> None:
    refusal = frame(struct.pack(">i", 2) + b"refused")

    class Refusing(StillIdentity):
        def request(self, key: int, version: int, frame: bytes, body: int) -> bytes | None:
            return refusal

    play = gateway(identity=Refusing("alice")).play
    play >> Ready() << NOTHING
    handshake = request(17, 1, 2, string("PLAIN"))
    play >> FromClient(produce(200, 1) + handshake) << ToBroker(produce(200, 1))
    play >> FromBroker(produced(1)) << ToClient(produced(1) + refusal)
    play << Closed("authentication-failed") << NOTHING


@pytest.mark.parametrize(
    ("version", "refused", "reason"),
    [(1, True, "authentication-failed"), (1, False, "client-gone"), (0, True, "client-gone")],
)
async def test_who_hangs_up_after_a_refusal_failed_to_authenticate(
    gateway: Make, version: int, *, refused: bool, reason: str
) -> None:
    # With a bare token (version 0) nothing says whether the broker refused it.
    setup = gateway(identity=identity())
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(handshake(version=version)) << ToBroker(handshake(version=version))
    told = answer(1, OFFERED)
    play >> FromBroker(told) << ToClient(told) << NOTHING
    if version:
        asked = request(36, 1, 2, struct.pack(">i", 9) + b"\0alice\0pw")
        play >> FromClient(asked) << ToBroker(asked)
        error = KafkaError.SASL_AUTHENTICATION_FAILED if refused else 0
        told = answer(2, struct.pack(">hhiq", error, -1, 0, 0))
        play >> FromBroker(told) << ToClient(told)
    else:
        play >> FromClient(PLAIN) << ToBroker(PLAIN)
    closes: list[str] = []
    nobody: Any = mock.MagicMock()
    link = Link(
        setup.session,
        ReadBuffer(),
        nobody,
        lambda *_: None,
        lambda _, reason, __: closes.append(reason),
    )
    link.client.transport = link.broker.transport = nobody
    link.lost(link.client, None)
    if not closes:
        link.close("client-gone")  # what its timer does once late answers are no longer awaited
    assert closes == [reason]
