"""Every API in every version tells the larger throttle, in its own place, however it came."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.index import api_key_map

from headgate.gateway.charging.plans import RequestKind, build_plans
from headgate.gateway.session.session import Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import REQUEST
from headgate.wire import apis
from kit.playbook import FromBroker, FromClient, Mute, Playbook, Ready, ToClient
from kit.wire_oracles import (
    kio_decode,
    kio_request,
    kio_response,
    kio_schema,
    kio_versions,
    random_kio,
)

from .conftest import Setup, StillFace, StillIdentity

OURS = 1_000  # what the request quota tells at most, by its window
VERSIONS = [
    (key, version)
    for key in sorted(api_key_map)
    for version in kio_versions(key)
    if apis.API[key].proxied
    and apis.has_throttle(key, version)
    and build_plans()[key << 16 | version].kind is not RequestKind.ASK  # answered by the gateway
]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_the_larger_throttle_is_told_in_its_place(
    gateway: Callable[..., Setup], key: int, version: int
) -> None:
    rules = gateway({QuotaEntity.of(user="alice"): {REQUEST: 0.0001}}).rules
    request: Any = random_kio(key, version, False, 5)
    if key == apis.PRODUCE:
        request = dataclasses.replace(request, acks=type(request.acks)(1))
    trials = ((0, 0), (0, 11), (400, 0), (70_000, 0), (70_000, 11))
    for seed, (upstream_ms, pieces) in enumerate(trials):
        value = random_kio(key, version, True, seed)
        told: Any = datetime.timedelta(milliseconds=upstream_ms)
        frame = kio_response(dataclasses.replace(value, throttle_time=told))
        play = Playbook(Session(rules, StillIdentity("alice"), build_plans(), StillFace()))
        play.session.account_client(900_000_000)
        play >> Ready() >> FromClient(kio_request(request, 7, "app"))
        mutes = [said for said in play.said if isinstance(said, Mute)]
        play.said.clear()
        play >> FromBroker(frame, pieces)
        assert play.session.closed is None, play.session.closed
        said = b"".join(bytes(s.data) for s in play.said if isinstance(s, ToClient))
        mutes += [s for s in play.said if isinstance(s, Mute)]
        assert mutes == [Mute(OURS)] + [Mute(upstream_ms)] * (upstream_ms > OURS)
        play.said.clear()
        if key == apis.FETCH and b"\x7f" in said:
            continue  # endpoints masked in pieces: kio reads no unknown tags
        flexible = kio_schema(key, version, True).__flexible__ and key != apis.API_VERSIONS
        got = kio_decode(key, version, True, said[9 if flexible else 8 :])
        milliseconds = round(got.throttle_time.total_seconds() * 1000)
        assert milliseconds == max(OURS, upstream_ms)
