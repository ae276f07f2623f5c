"""Who is refused here hears of it after a while, as from a broker (KIP-306)."""

from __future__ import annotations

import ast
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.config import Settings
from headgate.gateway import Gateway, GatewayThread
from headgate.gateway.connection.link import Link
from headgate.gateway.connection.pool import ReadBuffer
from headgate.gateway.connection.refusals import DELAYED, Refusals
from headgate.gateway.identity import sasl
from headgate.gateway.identity.identity import (
    AuthenticationContext,
    DefaultPrincipalBuilder,
    Identity,
)
from headgate.gateway.identity.sasl import SaslObserver
from kit.playbook import START_MS
from kit.upstreams import Upstream

from .conftest import Setup, heartbeat, request, string

Make = Callable[..., Setup]


class Loop:
    """A clock, in seconds, and timers that run when it is moved."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[SimpleNamespace] = []

    def clock(self) -> float:
        return self.now

    def later(self, delay_s: float, call: Callable[[], None]) -> Any:
        timer = SimpleNamespace(at=self.now + delay_s, call=call)
        timer.cancel = lambda: self.timers.remove(timer)
        self.timers.append(timer)
        return timer

    def go(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 6)
        while due := [t for t in self.timers if t.at <= self.now]:
            self.timers.remove(due[0])
            due[0].call()


def made(delay_ms: int = 100, most: int = 1_000) -> tuple[Loop, Refusals]:
    loop = Loop()
    return loop, Refusals(delay_ms, most, loop.clock, loop.later)


def test_each_waits_its_own_time_with_one_timer_for_all() -> None:
    loop, refusals = made()
    told: list[str] = []
    assert refusals.hold("a", lambda: told.append("a"))
    loop.go(0.05)
    assert refusals.hold("b", lambda: told.append("b"))
    assert refusals.hold("c", lambda: told.append("c"))
    assert len(loop.timers) == 1
    loop.go(0.04)
    assert told == []
    loop.go(0.01)
    assert told == ["a"]
    refusals.forget("b")
    loop.go(0.05)
    assert told == ["a", "c"]
    assert len(refusals) == 0
    assert loop.timers == []


def test_without_a_delay_nobody_waits_and_with_nobody_there_is_no_timer() -> None:
    loop, refusals = made(delay_ms=0)
    assert not refusals.hold("a", lambda: None)
    assert (len(refusals), loop.timers) == (0, [])
    loop, refusals = made()
    refusals.hold("a", lambda: None)
    refusals.forget("a")
    refusals.forget("a")
    assert (len(refusals), loop.timers) == (0, [])


def test_only_so_many_wait_the_oldest_goes_early() -> None:
    loop, refusals = made(most=2)
    told: list[int] = []
    for number in range(5):
        refusals.hold(number, lambda n=number: told.append(n))  # type: ignore[misc]
        assert len(refusals) <= 2
    assert told == [0, 1, 2]
    loop.go(0.1)
    assert told == [0, 1, 2, 3, 4]


def test_one_who_cant_be_told_keeps_nobody_waiting() -> None:
    loop, refusals = made()
    told: list[str] = []

    def fails() -> None:
        raise RuntimeError("its transport is gone")

    refusals.hold("a", fails)
    refusals.hold("b", lambda: told.append("b"))
    with pytest.raises(RuntimeError):
        loop.go(0.1)
    loop.go(0.01)
    assert told == ["b"]


def test_every_refusal_of_a_login_waits() -> None:
    tree = ast.parse(Path(sasl.__file__).read_text(encoding="utf-8"))
    reasons = {
        node.args[-1].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("_failed", "_refuse")
        and isinstance(node.args[-1], ast.Constant)
    }
    assert len(reasons) > 6
    assert reasons <= DELAYED


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        assert not self.closed
        self.written += bytes(data)

    def writelines(self, pieces: list[Any]) -> None:
        self.write(b"".join(pieces))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0


class Refused:
    """A link whose session refuses what its client says, with fake transports."""

    def __init__(self, make: Callable[..., Setup], said: bytes, delay_ms: int = 100) -> None:
        self.loop, self.refusals = made(delay_ms)
        self.closes: list[str] = []
        context = AuthenticationContext("SASL", "SASL_PLAINTEXT", "10.0.0.1")
        identity = Identity(DefaultPrincipalBuilder(), context, SaslObserver())
        session = make(identity=identity).session
        session.upstream_ready(START_MS)
        hangup: Any = SimpleNamespace(forget=lambda link: None, full={})
        self.link = Link(
            session, ReadBuffer(), hangup, lambda link, ask: None, self._closed, self.refusals
        )
        self.client, self.broker = Transport(), Transport()
        self.link.client.transport = self.client
        self.link.broker.transport = self.broker
        buffer = bytearray(said)
        session.client_data(memoryview(buffer), START_MS)
        self.link.settle()
        buffer[:] = bytes(len(buffer))  # the loop's buffer is used again at once

    def _closed(self, link: Any, reason: str, detail: str) -> None:
        self.closes.append(reason)

    @property
    def told(self) -> tuple[int, ...]:
        """Correlation id and error code."""
        return struct.unpack_from(">ih", self.client.written, 4) if self.client.written else ()


def handshake(mechanism: str) -> bytes:
    return request(17, 1, 7, string(mechanism))


NO = (7, 33)
GSSAPI = handshake("GSSAPI")


def test_answer_and_close_wait_together_and_the_upstream_doesnt(gateway: Make) -> None:
    one = Refused(gateway, GSSAPI)
    assert (one.told, one.client.closed) == ((), False)
    assert one.broker.closed
    one.link.lost(one.link.broker, None)
    one.link.settle()
    assert (one.told, one.closes) == ((), [])
    one.loop.go(0.1)
    assert (one.told, one.client.closed) == (NO, True)
    assert one.closes == ["gssapi"]


def test_what_isnt_answered_waits_as_well(gateway: Make) -> None:
    one = Refused(gateway, heartbeat())
    assert not one.client.closed
    one.loop.go(0.1)
    assert (one.told, one.client.closed, one.closes) == ((), True, ["unauthenticated"])


def test_other_closes_dont_wait_nor_does_any_without_a_delay(gateway: Make) -> None:
    one = Refused(gateway, GSSAPI, delay_ms=0)
    assert (one.told, one.client.closed, one.closes) == (NO, True, ["gssapi"])
    one = Refused(gateway, struct.pack(">i", 2**30) + bytes(20))
    assert (one.client.closed, one.closes, len(one.refusals)) == (True, ["oversized"], 0)


def test_a_client_that_goes_meanwhile_is_forgotten(gateway: Make) -> None:
    one = Refused(gateway, GSSAPI)
    one.client.closed = True
    one.link.lost(one.link.client, None)
    assert (one.closes, len(one.refusals), one.loop.timers) == (["gssapi"], 0, [])
    one.loop.go(1)
    assert one.closes == ["gssapi"]


def test_a_drain_doesnt_wait_for_them(gateway: Make) -> None:
    one = Refused(gateway, GSSAPI)
    one.link.close("drained")
    assert (one.told, one.client.closed, one.closes) == (NO, True, ["gssapi"])
    assert len(one.refusals) == 0


def test_a_refusal_that_no_session_saw_waits_too(gateway: Make) -> None:
    one = Refused(gateway, b"")
    one.link.refuse("no-upstream-credentials", "nobody lends")
    one.link.refuse("no-upstream-credentials", "once is enough")
    assert (one.closes, len(one.refusals)) == ([], 1)
    one.loop.go(0.1)
    assert one.closes == ["no-upstream-credentials"]


def test_a_refused_login_waits_and_its_broker_hears_nothing(tmp_path: Path) -> None:
    with Upstream([1]) as upstream:
        settings = Settings.from_properties(
            {
                "headgate.upstream": upstream.address,
                "headgate.upstream.security.protocol": "PLAINTEXT",
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                "headgate.data.dir": str(tmp_path),
                "headgate.usage": "none",
                "connection.failed.authentication.delay.ms": "3600000",
            }
        )
        with GatewayThread(lambda: Gateway(settings)) as thread:
            front = thread.gateway.brokers[1]
            port = int(thread.bootstrap("SASL_PLAINTEXT").rpartition(":")[2])
            body = struct.pack(">hhih", 17, 1, 7, -1) + struct.pack(">h", 6) + b"GSSAPI"
            with socket.create_connection(("127.0.0.1", port), 60) as client:
                client.sendall(struct.pack(">i", len(body)) + body)
                deadline = time.monotonic() + 60
                while not thread.call(lambda: len(front.refusals)):
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                client.setblocking(False)
                with pytest.raises(BlockingIOError):
                    client.recv(1)
                assert thread.call(lambda: len(front.links)) == 1  # it counts as long as it waits
                client.setblocking(True)
                client.settimeout(60)
                thread.stop(0)
                size, correlation, error = struct.unpack(">iih", client.recv(10))
                assert (correlation, error) == (7, 33)
                assert size > 6
        assert front.meters.listeners["SASL_PLAINTEXT"].closed == {"gssapi": 1}
