"""How commands reach quotas: in a store without threads, and a change is sent once."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.cli.kafka_configs import kafka_configs
from headgate.cli.main import load
from headgate.cli.quotas import kafka_quotas
from headgate.quota.alteration import AlterResult, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store.sqlite.store import SqliteStore

ALICE = QuotaEntity.of(user="alice")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quotas.db"


@pytest.fixture
def file(tmp_path: Path) -> str:
    found = tmp_path / "quotas.yaml"
    found.write_text(json.dumps({"quotas": [{"entity": {"user": "alice"}, PRODUCER.name: 5}]}))
    return str(found)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of threads and event loops that are made from now on."""
    made: list[str] = []

    def noting(before: Callable[..., Any], name: str) -> Callable[..., Any]:
        def note(*args: Any, **kwargs: Any) -> Any:
            made.append(name)
            return before(*args, **kwargs)

        return note

    monkeypatch.setattr(threading.Thread, "start", noting(threading.Thread.start, "a thread"))
    monkeypatch.setattr(asyncio, "new_event_loop", noting(asyncio.new_event_loop, "a loop"))
    return made


def value(path: Path) -> float | None:
    with SqliteStore(path, create=False) as store:
        return store.snapshot().get(ALICE, PRODUCER)


def test_commands_on_a_sqlite_store_make_no_thread_and_no_event_loop(
    path: Path, file: str, started: list[str]
) -> None:
    where = ["--store", f"sqlite:{path}"]
    alice = ["--entity-type", "users", "--entity-name", "alice"]
    quotas, configs = kafka_quotas.main, kafka_configs.main
    add = "--add=producer_byte_rate=7"
    assert quotas([*where, "--alter", "--names=user=alice", add]) == 0
    assert value(path) == 7.0
    assert quotas([*where, "--list"]) == 0
    assert quotas([*where, "--describe", "--names=user=alice,client-id=etl"]) == 0
    assert configs([*where, "--alter", *alice, "--add-config", "producer_byte_rate=8"]) == 0
    assert value(path) == 8.0
    assert configs([*where, "--describe", *alice]) == 0
    assert load("plan")([*where, file]) == 3
    assert load("apply")([*where, file]) == 0
    assert value(path) == 5.0
    assert load("history")(where) == 0
    assert load("export")(where) == 0
    assert started == []
    # What is counted is counted: servers are asked by a loop on a thread of its own.
    assert quotas(["--bootstrap-server", "127.0.0.1:1", "--list"]) == 1
    assert started == ["a loop", "a thread"]


def test_apply_checks_a_change_once_and_sends_it_once(
    path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bool] = []
    before = SqliteStore.alter

    def alter(
        self: SqliteStore,
        alterations: Sequence[QuotaAlteration],
        *,
        validate_only: bool = False,
        **more: Any,
    ) -> list[AlterResult]:
        sent.append(validate_only)
        return before(self, alterations, validate_only=validate_only, **more)

    monkeypatch.setattr(SqliteStore, "alter", alter)
    assert load("apply")(["--store", f"sqlite:{path}", file]) == 0
    assert sent == [True, False]
    assert value(path) == 5.0


def test_a_plan_that_was_made_before_the_store_makes_it(
    path: Path, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where, plan = ["--store", f"sqlite:{path}"], str(tmp_path / "plan.json")
    assert load("plan")([*where, file, "--out", plan]) == 3
    assert not path.exists()
    assert load("apply")([*where, plan, "--validate-only"]) == 0
    assert not path.exists()
    assert load("apply")([*where, plan]) == 0
    assert "Applied: 1 entity changed." in capsys.readouterr().out
    assert value(path) == 5.0
