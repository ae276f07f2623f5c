"""InitProducerId is free (KIP-936 charges a Produce), yet written down for `headgate storms`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.gateway.charging.plans import RequestPlan, build_plans
from headgate.gateway.usage_journal import UsageJournal
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.journal import activity_batches
from headgate.pipeline.sources.pieces import pieces_of
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER_IDS, REQUEST
from headgate.usage.reader import read_events
from headgate.usage.writer import JournalWriter
from headgate.wire.apis import PRODUCE
from kit.playbook import (
    NOTHING,
    START_MS,
    After,
    FromBroker,
    FromClient,
    Ready,
    ToBroker,
    ToClient,
)

from .conftest import Setup, answer, frame, string

Make = Callable[..., Setup]


def asks(version: int, correlation: int) -> bytes:
    """InitProducerId without a transaction."""
    head = struct.pack(">hhi", 22, version, correlation) + string("app")
    if version < 2:
        return frame(head, string(None), struct.pack(">i", 60_000))
    body = b"\0" + struct.pack(">i", 60_000)  # null, compact
    if version >= 3:
        body += struct.pack(">qh", -1, -1)
    return frame(head, b"\0", body, b"\0")


def given(version: int, correlation: int, error: int = 0) -> bytes:
    tags = b"\0" if version >= 2 else b""
    body = struct.pack(">ihqh", 7, error, 4_711 if not error else -1, 0)
    return answer(correlation, tags + body + tags)


@pytest.mark.parametrize("quotas", [{}, {PRODUCER_IDS: 1.0, REQUEST: 0.001}])
def test_936_ids_that_were_given_out_are_journaled_and_reach_storms_by_user(
    gateway: Make, tmp_path: Path, quotas: Any
) -> None:
    journal = UsageJournal(JournalWriter(tmp_path, "w"), 11, 1000)
    setup = gateway({QuotaEntity.of(user="alice"): quotas}, journal=journal, client_ip="10.0.0.9")
    play = setup.play
    play >> Ready()
    for number, (version, error) in enumerate([(0, 0), (1, 0), (4, 0), (4, 51), (5, 0)], 1):
        play >> FromClient(asks(version, number))
        play.said.clear()
        play >> FromBroker(given(version, number, error))
        play.said.clear()
        play >> After(200_000)  # whatever the request quota made it wait for
        play.said.clear()
    journal.close()
    events = read_events([tmp_path]).to_pylist()
    found = [event for event in events if event["kind"] == "producer_id"]
    assert [e["api_version"] for e in found] == [0, 1, 4, 5]
    columns = ("principal", "client_id", "client_ip", "api_key", "producer_ids", "amount")
    assert {tuple(e[c] for c in columns) for e in found} == {("alice", "app", "10.0.0.9", 22, 1, 1)}
    assert {e["upstream_throttle_time_ms"] for e in found} == {7}
    assert found[0]["t_ms"] == START_MS
    assert all(e["throttle_time_ms"] is None and e["bound"] is None for e in found)

    (piece,) = pieces_of(find_files([str(tmp_path)]))
    for wanted in (True, False):
        rows = [r for b in activity_batches(piece, connections=wanted) for r in b.to_pylist()]
        given_out = [
            (row["principal"], row["second_ms"], row["producer_ids"], row["requests"])
            for row in rows
            if row["kind"] == "activity" and row["quota_type"] is None
        ]
        seconds = sorted(int(e["t_ms"]) // 1000 * 1000 for e in found)
        expected = [("alice", second, 1, 0) for second in seconds]
        assert sorted(given_out) == expected


@pytest.mark.parametrize("version", [1, 4])
def test_936_2_an_id_given_out_is_neither_charged_nor_known_until_it_produces(
    gateway: Make, version: int
) -> None:
    setup = gateway({QuotaEntity.of(user="alice"): {PRODUCER_IDS: 1.0}})
    play, manager = setup.play, setup.rules.managers.producer_ids
    play >> Ready() << NOTHING
    for number in range(1, 40):  # far more than the bucket holds
        play >> FromClient(asks(version, number)) << ToBroker() << NOTHING
        play >> FromBroker(given(version, number)) << ToClient(given(version, number)) << NOTHING
    assert list(manager.sensors()) == []
    setup.rules.produce(
        play.session, play.session.context, produced_by(7), 100, frozenset({4_711}), 0,
        True, play.now_ms,
    )  # fmt: skip
    assert manager.last_new == 1
    assert [sensor.peek(play.now_ms) for sensor in manager.sensors()] == [10.0]
    setup.rules.produce(
        play.session, play.session.context, produced_by(7), 100, frozenset({4_711}), 0,
        True, play.now_ms,
    )  # fmt: skip
    assert manager.last_new == 0


def produced_by(version: int) -> RequestPlan:
    return build_plans()[PRODUCE << 16 | version]
