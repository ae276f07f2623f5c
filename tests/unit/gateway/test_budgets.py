"""What clients may cost before they log in: calls for each request, memory for what they hold."""

from __future__ import annotations

import gc
import struct
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import headgate
from headgate.gateway.charging.plans import build_plans
from headgate.gateway.identity.identity import (
    AuthenticationContext,
    DefaultPrincipalBuilder,
    Identity,
)
from headgate.gateway.identity.sasl import SaslObserver
from headgate.wire.apis import API, API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kit.playbook import START_MS

from . import conftest
from .conftest import Setup, string

Make = Callable[..., Setup]
OURS = str(Path(headgate.__file__).parent)


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions of ours a piece of work calls."""
    count = 0

    def counted(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and OURS in frame.f_code.co_filename

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def unauthenticated(gateway: Make, properties: dict[str, str]) -> Setup:
    """A session of a SASL listener on which nobody has said who it is."""
    context = AuthenticationContext("SASL", "SASL_PLAINTEXT", "10.0.0.1")
    identity = Identity(DefaultPrincipalBuilder(), context, SaslObserver())
    setup = gateway(properties=properties, identity=identity)
    setup.session.upstream_ready(START_MS)
    return setup


def begun(key: int, version: int, size: int, sent: int) -> bytes:
    """The first bytes of a request of this size."""
    head = struct.pack(">hhi", key, version, 1) + string("app")
    return struct.pack(">i", size) + head + bytes(max(0, sent - len(head) - 4))


#: Of ours, for the first request before login: 54 where it is a handshake that makes no sense.
MOST_CALLS = 62


@pytest.mark.parametrize(
    ("unknown", "keys"), [("hide", (*API, max(API) + 1, 2_000)), ("pass", (0, 52, 2_000))]
)
def test_what_is_asked_before_login_costs_few_calls_whatever_it_is_and_however_large(
    gateway: Make, unknown: str, keys: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = build_plans(pass_unknown=unknown == "pass")
    monkeypatch.setattr(conftest, "build_plans", lambda **_: plans)
    costs: dict[tuple[int, int], list[int]] = {}
    for key in keys:
        newest = API[key].max_version if key in API else 0
        for version in {newest, 0x7FFF}:
            for size, sent in ((200, 204), (400_000, 60_000)):
                session = unauthenticated(gateway, {"headgate.unknown.apis": unknown}).session
                data = memoryview(bytearray(begun(key, version, size, sent)))
                calls = calls_of(lambda s=session, d=data: s.client_data(d, START_MS))
                costs.setdefault((key, version), []).append(calls)
                if size > sent:
                    closed = session.closed is not None
                    assert closed or key in (SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE)
    assert max(map(max, costs.values())) <= MOST_CALLS, max(costs.items(), key=lambda i: max(i[1]))
    # What isn't read costs nothing more where there is more of it.
    assert all(large <= small + 2 for small, large in costs.values()), costs


@pytest.mark.parametrize("size", [4_000, 20_000])
def test_connections_that_hold_bytes_take_about_the_memory_of_those_bytes(
    gateway: Make, size: int
) -> None:
    """Each sends a request that it never ends, a little at a time, before its broker is there."""
    connections = 30
    sessions = [gateway().session for _ in range(connections)]
    data = begun(0, 9, 1_000_000, size)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for at in range(0, size, 100):
            piece = bytearray(data[at : at + 100])
            for session in sessions:
                session.client_data(memoryview(piece), START_MS)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert all(session.held_bytes == size for session in sessions)
    assert taken <= 1.5 * connections * size
