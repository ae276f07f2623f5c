"""Peers that don't read, or don't say goodbye, keep no descriptor."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.gateway.connection.link import FULL_SWEEPS, HangupWatch
from headgate.gateway.connection.pool import ReadBuffer
from headgate.gateway.connection.transports import LINGER_S, ClientSide


class Transport:
    """A TLS transport whose peer never says goodbye."""

    def __init__(self) -> None:
        self.closing = self.aborted = False

    def get_extra_info(self, name: str) -> object:
        return object() if name == "sslcontext" else None

    def set_write_buffer_limits(self, **_: int) -> None: ...

    def set_read_buffer_limits(self, **_: int) -> None: ...

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.aborted = True


class Timers:
    """Takes a loop's timers, in place of waiting for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.due: list[SimpleNamespace] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", self.call_later)

    def call_later(self, delay: float, call: Any, *args: Any) -> SimpleNamespace:
        timer = SimpleNamespace(delay=delay, run=lambda: call(*args))
        timer.cancel = lambda: self.due.remove(timer)
        self.due.append(timer)
        return timer


def closed_side() -> tuple[ClientSide, Transport]:
    """A client's side that was closed over TLS with nothing left to send."""
    link: Any = SimpleNamespace(closed="malformed", client=None)
    side, transport = ClientSide(link, ReadBuffer()), Transport()
    side.connection_made(transport)  # type: ignore[arg-type]
    side.close()
    assert transport.closing
    return side, transport


async def test_a_tls_client_that_says_no_goodbye_gives_its_descriptor_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    _, transport = closed_side()
    (timer,) = timers.due
    assert (timer.delay, transport.aborted) == (LINGER_S, False)
    timer.run()
    assert transport.aborted


async def test_one_that_says_goodbye_leaves_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer keeps the transport, and TLS keeps a third of a megabyte with it."""
    timers = Timers(monkeypatch)
    side, _ = closed_side()
    side.connection_lost(None)
    assert timers.due == []


class Peer:
    """A link, for the watch."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    def client_gone(self, detail: str) -> None:
        self.gone.set()


async def test_a_hang_up_is_noticed_once_a_broker_has_taken_nothing_for_many_sweeps() -> None:
    loop = asyncio.get_running_loop()
    watch, patient, stuck = HangupWatch(loop), Peer(), Peer()
    pairs = [socket.socketpair() for _ in range(2)]
    transports: list[Any] = [
        SimpleNamespace(get_extra_info=lambda _, ours=ours: ours) for ours, _ in pairs
    ]
    try:
        for _ in range(FULL_SWEEPS):
            watch.found_full(patient, transports[0])
            watch.found_full(stuck, transports[1])
        for _, theirs in pairs:
            theirs.close()
        watch.forget(patient)  # its broker took what there was
        watch.found_full(patient, transports[0])
        await asyncio.sleep(0.01)
        assert not (patient.gone.is_set() or stuck.gone.is_set())  # what they sent is still read
        watch.found_full(stuck, transports[1])
        await asyncio.wait_for(stuck.gone.wait(), 60)
        assert not patient.gone.is_set()
    finally:
        watch.close()
        for ours, _ in pairs:
            ours.close()
