"""What-if on a journal, held to the managers themselves and to the pipeline's replay of it all."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.cli.main import load
from headgate.console import serve as serve_module
from headgate.console import what_if as what_if_module
from headgate.console.what_if import preload, what_if
from headgate.pipeline.answers.what_if import options_of
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying import replay
from headgate.pipeline.replaying.packed_format import ORDER
from headgate.pipeline.replaying.packer import PackRequests
from headgate.pipeline.replaying.replay import ReplayPacked
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import PRODUCER, PRODUCER_SHARES, QuotaType
from headgate.quota.plan import Plan, plan_of
from headgate.quota.table import QuotaTable, TableChange
from headgate.store import open_store
from headgate.throttle.manager import ClientQuotaManager
from headgate.usage.format import Event
from kit.journals import Sent, traffic, write_journal

NOW = 1_800_000_000_000
ALICE, BOB = QuotaEntity.of(user="alice"), QuotaEntity.of(user="bob")
EVERYONE = QuotaEntity.of(user=DEFAULT)
CURRENT = QuotaTable({EVERYONE: {PRODUCER: 9_000.0}, ALICE: {PRODUCER: 30_000.0}})


def plan(*changes: tuple[QuotaEntity, float | None], table: QuotaTable = CURRENT) -> Plan:
    return plan_of(table, [TableChange(e, PRODUCER, table.get(e, PRODUCER), v) for e, v in changes])


def decided(table: QuotaTable, sent: list[Sent]) -> Counter[tuple[str, str]]:
    """Throttle times by client, as a broker's manager decides request by request."""
    manager = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE)
    manager.load(table.for_key(PRODUCER), sent[0][0])
    found: Counter[tuple[str, str]] = Counter()
    for at, user, client_id, size in sent:
        found[user, client_id] += manager.record(user, client_id, size, at).throttle_time_ms
    return found


@pytest.mark.parametrize(
    ("tried", "who"),
    [
        (plan((BOB, 4_000.0)), {"bob"}),
        (plan((EVERYONE, 20_000.0)), {"bob", "carol"}),
        # Without any quota of users, client-ids' own sensors count everybody's requests.
        (plan((EVERYONE, None), (ALICE, None), (QuotaEntity.of(client_id="x"), 5_000.0)),
         {"alice", "bob", "carol"}),
    ],
)  # fmt: skip
def test_waits_are_those_that_a_broker_would_have_told(
    tmp_path: Path, tried: Plan, who: set[str]
) -> None:
    sent, events = traffic(NOW)
    write_journal(tmp_path, events)
    found = what_if(tmp_path, tried, NOW)
    before, after = decided(tried.current, sent), decided(tried.desired, sent)
    assert {row.principal for row in found.rows} == who
    assert sum(after.values()) > 0
    for row in found.rows:
        assert row.before.ms == before[row.principal, row.client_id]
        assert row.after.ms == after[row.principal, row.client_id]
        mine = [s for s in sent if s[1:3] == (row.principal, row.client_id)]
        assert (row.requests, row.amount) == (len(mine), sum(s[3] for s in mine))
        assert row.told.ms == 3 * len(mine)
    assert found.events == sum(s[1] in who for s in sent)


def test_answers_are_no_further_charges(tmp_path: Path) -> None:
    """A throttled request has two rows: its charge, and the answer that tells what is left."""
    _, events = traffic(NOW)
    charges = [event._replace(upstream_throttle_time_ms=None) for event in events]
    told = [
        Event(replace(event.origin, kind="told"), event.t_ms + 1, 1.0, event.bound, 2, 2, 0)
        for event in events
    ]
    both = [event for pair in zip(charges, told, strict=True) for event in pair]
    for name, rows in (("charges", charges), ("both", both)):
        (tmp_path / name).mkdir()
        write_journal(tmp_path / name, rows)
    tried = plan((EVERYONE, 3_000.0))
    alone, found = (what_if(tmp_path / name, tried, NOW) for name in ("charges", "both"))
    assert found._replace(foretold=()) == alone._replace(foretold=())
    assert found.rows[0].told.requests == found.rows[0].requests > 0


def test_the_pipeline_says_the_same(tmp_path: Path) -> None:
    _, events = traffic(NOW)
    write_journal(tmp_path, events)
    tried = plan((EVERYONE, 3_000.0))
    options = options_of([Quotas.of(tried.current, "before"), Quotas.of(tried.desired, "after")])
    pieces = tuple(pieces_of(find_files([str(tmp_path)])))
    ids = pa.RecordBatch.from_pydict({"id": list(range(len(pieces)))})
    packed = pa.Table.from_batches(PackRequests(options, ReadOptions(pieces))(iter([ids])))
    packed = packed.filter(pc.equal(packed["kind"], "chunk"))
    packed = packed.sort_by([(name, "ascending") for name in ORDER]).combine_chunks()
    sums = pa.Table.from_batches(ReplayPacked(options)(iter(packed.to_batches()))).to_pylist()
    found = {
        (row["principal"], row["client_id"], row["plan"]): row["throttle_time_ms"] for row in sums
    }
    rows = what_if(tmp_path, tried, NOW).rows
    assert len(rows) == 4
    for row in rows:
        whose = (row.principal, row.client_id)
        waits = [row.told.ms, row.before.ms, row.after.ms]
        assert waits == [found[*whose, plan] for plan in (-1, 0, 1)]


def test_a_first_quota_is_tried_on_requests_that_had_none(tmp_path: Path) -> None:
    sent, events = traffic(NOW, "norecord")
    write_journal(tmp_path, events)
    tried = plan((BOB, 4_000.0), table=QuotaTable())
    rows = what_if(tmp_path, tried, NOW).rows
    after = decided(tried.desired, sent)
    assert after["bob", "x"] > 0
    found = {(row.principal, row.client_id): row.after.ms for row in rows}
    assert found == {("bob", client): after["bob", client] for client in "xy"}


def test_a_tenant_reads_its_own_requests_alone(tmp_path: Path) -> None:
    write_journal(tmp_path, traffic(NOW)[1])
    found = what_if(tmp_path, plan((EVERYONE, 100.0)), NOW, principals={"bob"})
    assert {row.principal for row in found.rows} == {"bob"}


def test_what_is_too_old_or_too_much_is_left_out_and_said(tmp_path: Path) -> None:
    sent, events = traffic(NOW)
    write_journal(tmp_path, events[:1500])
    write_journal(tmp_path, events[1500:], 1501)
    shares = TableChange(BOB, PRODUCER_SHARES, None, 5.0)
    tried = plan_of(CURRENT, [*plan((EVERYONE, 100.0)).changes, shares])
    found = what_if(tmp_path, tried, NOW, most_events=1000)
    assert found.since_ms == sent[1499][0] + 1
    assert [note.partition(": ")[0] for note in found.notes] == [
        "producer_byte_rate:shares isn't tried",
        "the journal is large",
    ]
    assert found.events == sum(s[1] != "alice" and s[0] >= found.since_ms for s in sent)
    assert what_if(tmp_path, tried, NOW + 3_600_000).rows == ()


@pytest.mark.parametrize(
    ("waits_ms", "quota", "hides"),
    [
        (900, 30_000.0, True),
        (900, 4_000.0, False),
        (400, 30_000.0, True),
        (40, 30_000.0, False),
        (900, None, True),
    ],
)
def test_who_waits_hides_what_it_would_do_with_more(
    tmp_path: Path, waits_ms: int, quota: float | None, hides: bool
) -> None:
    _, events = traffic(NOW, users=("bob",), client_ids=("x",))
    every = [event._replace(t_ms=NOW - 600_000.0 + 1_000 * n, throttle_time_ms=waits_ms)
             for n, event in enumerate(events[:500])]  # fmt: skip
    write_journal(tmp_path, every)
    table = QuotaTable({BOB: {PRODUCER: 9_000.0}})
    found = what_if(tmp_path, plan((BOB, quota), table=table), NOW)
    (row,) = found.rows
    assert row.held == pytest.approx(waits_ms / 1_000)
    assert row.hides == hides
    assert not row.hides_now
    assert found.longest_ms == max(row.told.ms, row.before.ms, 0 if hides else row.after.ms)


@pytest.mark.parametrize(
    ("bound", "now", "then", "hides_now", "hides"),
    [
        (3_000.0, 30_000.0, 3_000.0, True, False),  # undo of a raise
        (3_000.0, 3_000.0, 30_000.0, False, True),  # undo of a mistake
        (3_000.0, None, 9_000.0, True, True),
        (9_000.0, 9_000.0, 4_000.0, False, False),
    ],
)
def test_what_waited_under_a_lower_quota_than_those_tried_is_not_known(
    tmp_path: Path, bound: float, now: float | None, then: float, hides_now: bool, hides: bool
) -> None:
    _, events = traffic(NOW, users=("bob",), client_ids=("x",))
    every = [
        event._replace(
            t_ms=NOW - 600_000.0 + 1_000 * n, amount=500.0, bound=bound, throttle_time_ms=300
        )
        for n, event in enumerate(events[:500])
    ]
    write_journal(tmp_path, every)
    table = QuotaTable({} if now is None else {BOB: {PRODUCER: now}})
    found = what_if(tmp_path, plan((BOB, then), table=table), NOW)
    (row,) = found.rows
    assert (row.hides_now, row.hides) == (hides_now, hides)
    sides = [row.told, *([] if hides_now else [row.before]), *([] if hides else [row.after])]
    assert found.longest_ms == max(side.ms for side in sides)


def test_who_waited_for_others_quota_id_hides_what_it_would_do_alone(tmp_path: Path) -> None:
    _, events = traffic(NOW, users=("bob",), client_ids=("x", "y"))
    every = [
        event._replace(t_ms=NOW - 600_000.0 + 1_000 * n, amount=500.0, throttle_time_ms=300)
        for n, event in enumerate(events[:500])
    ]
    write_journal(tmp_path, every)
    table = QuotaTable({BOB: {PRODUCER: 9_000.0}})
    alone = QuotaEntity.of(user="bob", client_id="x")
    found = what_if(tmp_path, plan((alone, 8_000.0), table=table), NOW)
    assert {(row.client_id, row.hides_now, row.hides) for row in found.rows} == {
        ("x", False, True),
        ("y", False, False),
    }


def test_kernels_are_loaded_on_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[threading.Thread] = []
    done = threading.Event()

    def load() -> None:
        loaded.append(threading.current_thread())
        done.set()
        raise ImportError("numba")  # the first what-if says so

    monkeypatch.setattr(replay, "preload", load)
    preload()
    assert done.wait(10)
    loaded[0].join()
    assert loaded != [threading.main_thread()]


def test_an_empty_journal_answers_nothing(tmp_path: Path) -> None:
    found = what_if(tmp_path, plan((BOB, 1.0)), NOW)
    assert (found.rows, found.events) == ((), 0)


def test_spark_is_not_loaded(tmp_path: Path) -> None:
    _, events = traffic(NOW, count=50)
    write_journal(tmp_path, events)
    code = (
        "import sys, pathlib, time\n"
        "from headgate.console.what_if import what_if\n"
        "from headgate.quota.entity import QuotaEntity\n"
        "from headgate.quota.key import PRODUCER\n"
        "from headgate.quota.plan import plan_of\n"
        "from headgate.quota.table import TableChange, QuotaTable\n"
        "change = TableChange(QuotaEntity.of(user='bob'), PRODUCER, None, 1.0)\n"
        "plan = plan_of(QuotaTable(), [change])\n"
        f"found = what_if(pathlib.Path({str(tmp_path)!r}), plan, {NOW})\n"
        "assert found.rows\n"
        "assert not {'pyspark', 'py4j'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("reads", [True, False])
def test_a_console_with_a_journal_loads_kernels_when_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    told: list[str] = []
    monkeypatch.setattr(what_if_module, "preload", lambda: told.append("loaded"))

    def serve(_: object, sock: socket.socket, __: object, ready: Callable[[], None]) -> None:
        ready()
        sock.close()

    monkeypatch.setattr(serve_module, "serve", serve)
    open_store(f"sqlite:{tmp_path / 'quotas.db'}").close()
    place = ["--store", f"sqlite:{tmp_path / 'quotas.db'}", "--listen", "127.0.0.1:0"]
    assert load("console")([*place, *(["--journal", str(tmp_path)] if reads else [])]) == 0
    assert told == (["loaded"] if reads else [])
