"""A real broker's log answers why a client waited: as its lines tell, and without Spark."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headgate.live.picture import QuotaUse
from headgate.live.why import why
from headgate.pipeline.answers import past_logs
from headgate.pipeline.answers.past_logs import PastLogs, last_ms
from headgate.pipeline.bundled import bundled_log, bundled_quotas
from headgate.pipeline.quotas import load
from headgate.pipeline.sources.pieces import FilePiece, pieces_of
from headgate.pipeline.workers.log_reader import ReadOptions, RequestsOfLogs
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, REQUEST
from headgate.quota.table import QuotaTable

TABLE = load(str(bundled_quotas())).tables[0]
BOB = ("bob", "bob-etl", "producer_byte_rate")

READER = ("bob-reader", "consumer_byte_rate")


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> list[FilePiece]:
    """Pieces of the bundled log, as a plain file."""
    plain = tmp_path_factory.mktemp("log") / "request.log"
    plain.write_bytes(gzip.decompress(bundled_log().read_bytes()))
    files = [(str(plain), plain.stat().st_size)]
    return pieces_of(files, broker_id=1, piece_bytes=1 << 19)


@pytest.fixture(scope="module")
def told(pieces: list[FilePiece]) -> list[dict[str, Any]]:
    """Lines that told some client to wait, in order of time."""
    rows: list[dict[str, Any]] = []
    for piece in pieces:
        for batch in RequestsOfLogs(ReadOptions(tuple(pieces), scan=False)).read(piece):
            rows += [row for row in batch.to_pylist() if row["throttle_time_ms"]]
    return sorted(rows, key=lambda row: float(row["record_ms"]))


def of(told: list[dict[str, Any]], *whose: str) -> list[dict[str, Any]]:
    names = ("principal", "client_id", "quota_type")
    return [row for row in told if tuple(row[name] for name in names) == whose]


def found(pieces: list[FilePiece], at_ms: int, user: str, client_id: str | None) -> PastLogs:
    past = PastLogs(TABLE, at_ms, user, client_id, ReadOptions(()))
    past.take(pieces)
    return past


def use_of(past: PastLogs, key: str) -> QuotaUse:
    [broker] = past.past.picture(TABLE).brokers
    [use] = [use for use in broker.quotas if use.key == key]
    return use


def test_a_rate_is_the_one_that_the_broker_throttled_by(
    pieces: list[FilePiece], told: list[dict[str, Any]]
) -> None:
    lines, off_ms = of(told, *BOB)[::8], list[float]()
    for row in lines:
        at_ms = int(row["record_ms"] + 0.5)
        use = use_of(found(pieces, at_ms, *BOB[:2]), BOB[2])
        assert use.limit is not None
        # QuotaUtils.throttleTime, of the rate, the limit and the window.
        wait_ms = (use.rate - use.limit) / use.limit * use.window_ms
        off_ms.append(abs(wait_ms - row["throttle_time_ms"]))
        assert (use.held, use.held_until_ms) == (1, at_ms + row["throttle_time_ms"])
    # The broker's first answers took long, so the log's estimate of their times is rough.
    assert len(off_ms) == 8
    assert max(off_ms) < 100
    assert sorted(off_ms)[5] < 2


def test_a_wait_is_over_when_the_log_says(
    pieces: list[FilePiece], told: list[dict[str, Any]]
) -> None:
    row = of(told, "alice", "alice-reader", "consumer_byte_rate")[3]
    until_ms = int(row["record_ms"] + 0.5) + row["throttle_time_ms"]
    for at_ms, state in ((until_ms - 1, "held"), (until_ms, "free")):
        past = found(pieces, at_ms, "alice", "alice-reader")
        answer = why(past.past.picture(TABLE), "alice", "alice-reader", "consumer_byte_rate")
        assert ("waits 1 ms more" in answer.sentence) == (state == "held")


def test_only_pieces_of_the_last_minutes_are_read(
    pieces: list[FilePiece], told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = of(told, *BOB)[-1]
    at_ms = int(row["record_ms"] + 0.5)
    whole = found(pieces, at_ms, *BOB[:2])
    monkeypatch.setattr(past_logs, "PERIOD_MS", 15_000)
    past = found(pieces, at_ms, *BOB[:2])
    assert 0 < past.read < whole.read / 2
    assert len(list(past._within(pieces))) < len(list(whole._within(pieces)))
    early = found(pieces, int(told[0]["record_ms"] + 0.5), *BOB[:2])
    assert len(list(early._within(pieces))) < len(pieces)
    assert use_of(past, BOB[2]).rate == use_of(whole, BOB[2]).rate
    assert "latest part" not in past.note
    monkeypatch.setattr(past_logs, "MOST_LINES", 1)
    least = found(pieces, at_ms, *BOB[:2])
    assert least.read < past.read
    assert "latest part" in least.note


def test_a_client_is_charged_with_all_who_share_its_quota(
    pieces: list[FilePiece], told: list[dict[str, Any]]
) -> None:
    at_ms = last_ms(pieces, "UTC")
    assert at_ms is not None and at_ms >= told[-1]["record_ms"]
    row = of(told, "alice", "alice-app-0", "producer_byte_rate")[-1]
    use = use_of(found(pieces, int(row["record_ms"] + 0.5), "alice", "alice-app-0"), BOB[2])
    assert {c.client_id for c in use.clients} >= {"alice-app-0", "alice-app-1", "alice-app-2"}
    assert {c.principal for c in use.clients} == {"alice"}


def test_a_wait_counts_as_the_request_quotas_where_the_rate_was_within_its_limit(
    pieces: list[FilePiece], told: list[dict[str, Any]]
) -> None:
    entity = QuotaEntity.of(user="bob")
    own = {PRODUCER: 1e9, CONSUMER: 80_000.0, REQUEST: 50.0}
    table = QuotaTable.of({entity: own})
    last = int(told[-1]["record_ms"] + 1)
    counted: dict[str, int] = {}
    for client_id in ("bob-etl", "bob-reader"):
        past = PastLogs(table, last, "bob", client_id, ReadOptions(()))
        past.take(pieces)
        [broker] = past.past.picture(table).brokers
        counted |= {use.key: use.throttled for use in broker.quotas if use.throttled}
    writes, reads = (len(of(told, "bob", name, key)) for name, key in (BOB[1:], READER))
    # No produce request was beyond its limit; a throttled fetch's bytes aren't in the log.
    assert counted == {"request_percentage": writes, "consumer_byte_rate": reads}


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; from headgate.cli.main import load; code = load('why')(sys.argv[1:]); "
        "print('spark' if 'pyspark' in sys.modules else 'no spark'); sys.exit(code)"
    )
    return subprocess.run(
        [sys.executable, "-c", code, "--requests", str(bundled_log()), *flags],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_command_says_it_without_spark(tmp_path: Path) -> None:
    quotas = ("--quotas", str(bundled_quotas()))
    done = run(*quotas, "--user", "bob", "--client-id", "bob-etl", "--broker-id", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "At 2026-11-21T11:49:17.297Z:"
    assert lines[1].startswith("bob/bob-etl waits 737 ms more, because users/bob/clients/bob-etl")
    assert lines[-1] == "no spark"
    assert "Times are those of the log" in done.stdout
    for flags, said in (
        ((), "request logs name no quotas"),
        ((*quotas, "--time-zone", "Mars/Base"), "--time-zone"),
        ((*quotas, "--at", "2026-11-20T00:00:00Z"), "there are no requests in the 30 min before"),
    ):
        refused = run(*flags, "--user", "bob")
        assert refused.returncode != 0
        assert said in refused.stderr
