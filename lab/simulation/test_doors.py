"""Nothing of the outside gets into a life, and nothing of a life into the next."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from typing import Any

import pytest

from simulation import doors
from simulation.brokers import Cluster
from simulation.gateways import SimGateway
from simulation.hashes import told_with_two_hash_seeds
from simulation.loop import Host, SimLoop
from simulation.network import Network
from simulation.run import live
from simulation.seed import Seed
from simulation.story import draw

OVER_TLS = 7
"""A seed whose clients come by TLS, and whose brokers speak it."""
PROPERTIES = {
    "headgate.upstream": "broker1:9092",
    "listeners": "SASL_PLAINTEXT://10.0.2.1:9092",
    "headgate.broker.id.min": "1",
    "headgate.broker.id.max": "2",
    "headgate.upstream.admin.sasl.username": "admin",
    "headgate.upstream.admin.sasl.password": "right",
}


def small_life(number: int) -> str:
    """A gateway starts, rests and ends; return what happened as a fingerprint."""
    loop = SimLoop(Seed(number))
    net = Network(loop)
    Cluster(loop)
    gateway = SimGateway(loop, Host(loop, "gate1", "10.0.2.1"), PROPERTIES)
    loop.run(30_000)
    assert gateway.started, gateway.failed
    gateway.stop()
    loop.run(40_000)
    assert gateway.stopped
    assert not gateway.process.failures
    assert not net.ends
    assert [task for task in gateway.process.tasks if not task.done()] == []
    text = loop.digest.text()
    loop.close()
    return text


def test_one_seed_is_one_life() -> None:
    with doors.opened():
        first, second, other = small_life(1), small_life(1), small_life(2)
    assert first == second != other


def test_every_place_is_left_as_it_was() -> None:
    before = doors.places()
    assert before
    with doors.opened():
        assert [place for place in doors.places() if place[1] != "accept"] == []
    assert [place[:3] for place in doors.places()] == [place[:3] for place in before]


def test_no_place_leads_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A life runs while the real clocks, sockets, threads and sources of chance raise."""

    def no(what: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise AssertionError(f"a life asked for the real {what}")

        return refuse

    with doors.opened():
        small_life(3)  # what is loaded late is loaded now
        over_tls = draw(OVER_TLS)
        assert over_tls.secured
        assert over_tls.brokers_tls
        live(over_tls)
        with monkeypatch.context() as patched:
            for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter_ns",
                         "thread_time_ns", "sleep"):  # fmt: skip
                patched.setattr(time, name, no(f"time.{name}"))
            patched.setattr(os, "urandom", no("os.urandom"))
            patched.setattr(socket, "socket", no("socket"))
            patched.setattr(threading.Thread, "start", no("thread"))
            for name in ("random", "uniform", "shuffle", "getrandbits"):
                patched.setattr(random, name, no(f"random.{name}"))
            small_life(3)
            assert live(over_tls).broken == ("", "")


def test_hash_order_has_no_part_in_it() -> None:
    """The same seed in two processes that hash strings differently."""
    program = (
        "from simulation import doors\nfrom simulation.test_doors import small_life\n"
        "with doors.opened():\n    print(small_life(4))"
    )
    told = told_with_two_hash_seeds(program)
    assert told[0] == told[1] != ""
