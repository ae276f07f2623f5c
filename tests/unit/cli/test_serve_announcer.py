"""``headgate serve`` says that it serves when it does: a standby not before it has taken over."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.cli.serve.announcer import Announcer
from headgate.config import Settings
from headgate.gateway import Gateway, GatewayThread
from headgate.store import open_store
from kit.upstreams import Upstream


class Log:
    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        fields.pop("pid", None)
        self.said.append((event, fields))

    warning = info


class FakeGateway:
    def __init__(self) -> None:
        self.why: str | None = "standing by"
        self.ready = True
        self.brokers: dict[int, object] = {}
        listeners = [SimpleNamespace(name="A"), SimpleNamespace(name="B")]
        self.settings = SimpleNamespace(listener_list=listeners)
        self.health = SimpleNamespace(unready=lambda: self.why)

    def fronted_at(self, listener: str) -> str:
        return "host:1" if listener == "A" else ""


def test_each_turn_is_said_once() -> None:
    gateway, log = FakeGateway(), Log()
    announcer = Announcer(gateway, log)  # type: ignore[arg-type]
    waiting = ("nothing is served yet", {"why": "standing by"})
    serving = [("serving", {"listener": "A", "at": "host:1"}), ("ready", {"brokers": [2]})]
    announcer.say()
    announcer.say()
    assert log.said == [waiting]
    gateway.why, gateway.brokers = None, {2: object()}
    announcer.say()
    announcer.say()
    assert log.said == [waiting, *serving]
    gateway.why = "standing by"  # its lease was lost
    announcer.say()
    gateway.why = None
    announcer.say()
    assert log.said == [waiting, *serving, waiting, *serving]
    gateway.why, gateway.ready = "not started, or draining", False
    announcer.say()
    assert log.said[-1] == serving[-1]


def settings(upstream: Upstream, folder: Path, **more: str) -> Settings:
    return Settings.from_properties(
        {
            "headgate.upstream": upstream.address,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "headgate.data.dir": str(folder),
            "headgate.usage": "none",
            # Released leases are had within a fifth of it; one that stands still for all of it
            # loses its own, as a busy machine may for a second.
            "headgate.lease.ttl.ms": "10000",
            **{name.replace("__", "."): value for name, value in more.items()},
        }
    )


def test_a_standby_names_its_lease_and_is_ready_when_it_has_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate.gateway")
    changed = threading.Event()
    path = f"sqlite:{tmp_path / 'quotas.db'}"
    with Upstream([1]) as upstream, open_store(path) as first, open_store(path) as second:
        with GatewayThread(lambda: Gateway(settings(upstream, tmp_path), first)) as one:
            two = GatewayThread(lambda: Gateway(settings(upstream, tmp_path), second)).start()
            assert two.gateway.not_ready() == "standing by"
            assert two.gateway.fronted_at("PLAINTEXT") == ""
            [line] = [r.getMessage() for r in caplog.records if "standing by" in r.getMessage()]
            assert "lease=gateway/kit/broker/1" in line
            log = Log()
            announcer = Announcer(two.gateway, log)
            two.call(announcer.say)
            assert [event for event, _ in log.said] == ["nothing is served yet"]

            def say() -> None:
                announcer.say()
                changed.set()

            two.gateway.fronting_changed = say
            one.stop(0)
        assert changed.wait(60)
        at = two.gateway.fronted_at("PLAINTEXT")
        assert at == two.bootstrap("PLAINTEXT")
        assert log.said[1:] == [
            ("serving", {"listener": "PLAINTEXT", "at": at}),
            ("ready", {"brokers": [1]}),
        ]
        two.stop(0)
