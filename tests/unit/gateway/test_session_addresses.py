"""No answer leaves a session with a broker's own address, however it came."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from headgate.gateway.charging.plans import build_plans
from headgate.gateway.session.session import Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, REQUEST
from headgate.wire import apis
from headgate.wire.messages.addresses import REWRITERS
from kit.playbook import FromBroker, FromClient, Playbook, Ready, ToClient
from kit.wire_oracles import (
    kio_decode,
    kio_request,
    kio_response,
    kio_schema,
    kio_versions,
    random_kio,
)

from .conftest import Setup, StillFace, StillIdentity

HOST = "upstream.example"
OURS = "gate"
SEEDS = range(16)
PLANS = build_plans()
VERSIONS = [
    (key, v) for key in sorted(REWRITERS) for v in kio_versions(key) if v >= REWRITERS[key][0]
]
LIMITED = {QuotaEntity.of(user="alice"): {PRODUCER: 1.0, CONSUMER: 1.0, REQUEST: 0.001}}


def upstreams(value: Any) -> Any:
    """Return a message whose hosts are all the upstream's; its nodes are broker 1, or 2."""
    if isinstance(value, tuple):
        return tuple(upstreams(item) for item in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        old = getattr(value, field.name)
        if field.name == "host":
            changed[field.name] = HOST
        elif field.name in ("node_id", "broker_id"):
            changed[field.name] = type(old)(1 + int(old) % 2)
        elif isinstance(old, tuple) or dataclasses.is_dataclass(old):
            changed[field.name] = upstreams(old)
    return dataclasses.replace(value, **changed)


def asked(key: int, version: int) -> bytes:
    """Return a request of that kind, and one that is answered."""
    value = random_kio(key, version, False, 5)
    if key == apis.PRODUCE:
        value = dataclasses.replace(value, acks=type(value.acks)(1))
    return kio_request(value, 7, "app")


@pytest.mark.parametrize("quotas", [{}, LIMITED], ids=["unlimited", "throttled"])
@pytest.mark.parametrize("pieces", [0, 1, 37])
@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_no_address_of_a_broker_leaves_a_session(
    gateway: Callable[..., Setup], key: int, version: int, pieces: int, quotas: Any
) -> None:
    named = shown = 0
    request = asked(key, version)
    for seed in SEEDS:
        rules = gateway(quotas).rules  # of the same, a newcomer would wait for what is owed
        frame = kio_response(upstreams(random_kio(key, version, True, seed)))
        play = Playbook(Session(rules, StillIdentity("alice"), PLANS, StillFace()))
        play >> Ready() >> FromClient(request)
        play.session.account_client(9_000_000)
        play.said.clear()
        play >> FromBroker(frame, pieces)
        assert play.session.closed is None, play.session.closed
        said = b"".join(bytes(s.data) for s in play.said if isinstance(s, ToClient))
        play.said.clear()
        assert HOST.encode() not in said
        assert int.from_bytes(said[:4], "big") == len(said) - 4
        named += HOST.encode() in frame
        if OURS.encode() in said:
            shown += 1
            flexible = kio_schema(key, version, True).__flexible__
            kio_decode(key, version, True, said[9 if flexible else 8 :])
    assert named >= 3
    if key != apis.DESCRIBE_QUORUM and not (key == apis.FETCH and pieces):
        assert shown
