"""Exchange: two stages give the same tables however pieces and answers are parted."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headgate.pipeline import schema
from headgate.pipeline.answers import usage_parts
from headgate.pipeline.answers.usage import PackUsage, UnpackUsage
from headgate.pipeline.bundled import bundled_log, bundled_quotas
from headgate.pipeline.emitted import ACTIVITY
from headgate.pipeline.quotas import load
from headgate.pipeline.replaying import replay
from headgate.pipeline.replaying.packed_format import PackOptions
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import FilePiece, pieces_of
from headgate.pipeline.table import Table
from headgate.pipeline.tables import worker_files
from headgate.pipeline.workers import exchange
from headgate.pipeline.workers.emit import EmitActivity
from headgate.pipeline.workers.exchange import Left
from headgate.pipeline.workers.log_reader import ReadOptions

QUOTAS = load(str(bundled_quotas()))
BAD = b'[2026-11-19 09:00:00,001] DEBUG Completed request:{"oops (kafka.request.logger)\n'


class Tasks:
    """As much of Spark as ``run`` asks for: tasks get and leave what can be pickled."""

    def __init__(self, parts: list[list[Any]], *, fails: bool = False) -> None:
        self.parts, self.fails = parts, fails

    def parallelize(self, numbers: range, tasks: int) -> Tasks:
        return Tasks([list(numbers[n::tasks]) for n in range(tasks)], fails=self.fails)

    def mapPartitions(self, function: Callable[[Iterator[Any]], Iterator[Any]]) -> Tasks:
        made = []
        for part in self.parts:
            here = pickle.loads(pickle.dumps(function))
            if self.fails and part:  # a task is lost when it's done, and tried again
                list(here(iter(part)))
            made.append(pickle.loads(pickle.dumps(list(here(iter(part))))))
        return Tasks(made)

    def repartitionAndSortWithinPartitions(self, n: int, part: Callable[[Any], int]) -> Tasks:
        rows: list[list[Any]] = [[] for _ in range(n)]
        for made in reversed(self.parts):
            for key, value in made:
                rows[part(key) % n].append((key, value))
        return Tasks([sorted(r, key=lambda pair: pair[0]) for r in rows])

    def collect(self) -> list[Any]:
        return [row for part in self.parts for row in part]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> list[FilePiece]:
    """The bundled log in some pieces, one of them with lines that can't be read."""
    import gzip

    folder = tmp_path_factory.mktemp("logs")
    lines = gzip.decompress(bundled_log().read_bytes()).splitlines(keepends=True)
    third = len(lines) // 3
    for n in range(3):
        mine = lines[n * third : (n + 1) * third if n < 2 else None]
        (folder / f"request.log.{n}").write_bytes(b"".join(mine) + BAD * (n == 1))
    return pieces_of(find_files([str(folder)]))


def usage_tables(pieces: list[FilePiece], out: Path, tasks: Tasks, n: int, m: int) -> Left:
    reading = usage_parts.ReadUsage(ReadOptions(tuple(pieces)), QUOTAS, m)
    answer = usage_parts.WriteUsage(str(out))
    left = exchange.run(tasks, len(pieces), n, reading, answer, m, str(out))
    for table in (schema.USAGE, schema.USAGE_HOUR, schema.USAGE_DAY, schema.BAD_LINES):
        worker_files.finish(table, str(out), left.files.get(table.name, ()))
    return left


def replay_table(pieces: list[FilePiece], out: Path, tasks: Tasks, n: int, m: int) -> Left:
    options = PackOptions((QUOTAS,), True)
    reading = replay.ReadPacked(ReadOptions(tuple(pieces)), options, m)
    answer = replay.WriteReplayed(options, str(out))
    left = exchange.run(tasks, len(pieces), n, reading, answer, m, str(out))
    worker_files.finish(schema.REPLAY, str(out), left.files.get(schema.REPLAY.name, ()))
    return left


def rows_of(out: Path, table: Table) -> pa.Table:
    found = pq.read_table(out / table.name).replace_schema_metadata(None)
    return found.sort_by([(name, "ascending") for name in found.column_names])


@pytest.mark.parametrize("make", [usage_tables, replay_table])
def test_tables_and_figures_are_the_same_however_work_is_parted(
    pieces: list[FilePiece], tmp_path: Path, make: Callable[..., Left]
) -> None:
    one = make(pieces, tmp_path / "one", Tasks([]), 1, 1)
    some = make(pieces, tmp_path / "some", Tasks([], fails=True), 3, 4)
    assert one.counts["lines"] > 400
    assert one.counts["bad_lines"] == 1
    assert some.counts == one.counts
    made = [p.name for p in (tmp_path / "one").iterdir()]
    assert len(made) == (4 if make is usage_tables else 2)
    for name in set(made) & {t for t in schema.TABLES if t != "bad_lines" or "usage" in made}:
        table = schema.TABLES[name]
        assert rows_of(tmp_path / "some", table).equals(rows_of(tmp_path / "one", table))
        assert rows_of(tmp_path / "one", table).num_rows
    if make is usage_tables:
        assert usage_parts.first_of(some.found) == usage_parts.first_of(one.found)
        used = rows_of(tmp_path / "one", schema.USAGE)
        assert one.counts["requests"] == sum(used["requests"].to_pylist())
    else:
        assert replay.added_up(some.found) == replay.added_up(one.found)


def test_a_frames_usage_is_the_tables_however_it_is_parted(
    pieces: list[FilePiece], tmp_path: Path
) -> None:
    usage_tables(pieces, tmp_path, Tasks([]), 1, 1)
    read = ReadOptions(tuple(pieces))
    numbers = [pa.record_batch({"id": [n]}) for n in range(len(pieces))]
    for parts in (1, 5):
        sums = [
            b.filter(pc.equal(b["kind"], "activity")) for b in EmitActivity(read)(iter(numbers))
        ]
        packed = [b for rows in sums for b in PackUsage(QUOTAS, parts)(iter([rows]))]
        found = {part for batch in packed for part in batch["part"].to_pylist()}
        assert found <= set(range(parts))
        assert len(found) > parts / 2
        for table in (schema.USAGE, schema.USAGE_HOUR, schema.USAGE_DAY):
            rows = pa.Table.from_batches(UnpackUsage(table)(iter(packed)))
            rows = rows.sort_by([(name, "ascending") for name in rows.column_names])
            written = rows_of(tmp_path, table).select(rows.column_names)
            assert rows.equals(written.sort_by([(n, "ascending") for n in rows.column_names]))


def test_a_part_has_the_whole_day_of_a_quota_id_at_a_broker() -> None:
    rows = [
        {"broker_id": broker, "listener": "L", "principal": who, "client_id": "c"}
        | {"quota_type": "producer_byte_rate", "is_charged": True, "amount": 1.0, "requests": 1}
        | {"second_ms": day * 86_400_000 + second * 1000, "request_ns": 0}
        for broker in range(8)
        for day in range(4)
        for second in (0, 86_399)
        for who in ("alice", "bob")
    ]
    task = PackUsage(QUOTAS, 6)
    activity = pa.Table.from_pylist(rows, schema=ACTIVITY.arrow).to_batches()
    (packed,) = task(iter(activity))
    days = UnpackUsage(schema.USAGE_DAY)
    one_by_one = [pa.Table.from_batches(days(iter([packed.slice(n, 1)]))) for n in range(6)]
    assert max(len(part) for part in one_by_one) < 64 / 2
    found = pa.concat_tables(one_by_one)
    assert len(found) == 64
    assert set(found["active_seconds"].to_pylist()) == {2}


def used(*amounts: float | None, kind: str = "producer_byte_rate") -> pa.Table:
    """USAGE of one quota-id, a row per second."""
    n = len(amounts)
    made: dict[str, Any] = {
        "quota_type": [kind] * n,
        "quota_id": ["alice:"] * n,
        "quota_user": ["alice"] * n,
        "quota_client_id": [""] * n,
        "second_ms": [1000 * i for i in range(n)],
        "amount": list(amounts),
    }
    for name in ("requests", "bytes", "throttle_time_ms", "throttled_requests"):
        made[name] = [1] * n
    arrays = [
        pa.array(made[f.name], f.type) if f.name in made else pa.nulls(n, f.type)
        for f in schema.USAGE.arrow
    ]
    return pa.Table.from_arrays(arrays, schema=schema.USAGE.arrow)


def test_percentiles_lie_between_two_seconds_as_sparks_do() -> None:
    (day,) = usage_parts.rolled(used(4.0, 1.0, 10.0, 2.0), schema.USAGE_DAY).to_pylist()
    # Position 1.5 of 1, 2, 4, 10; then 2.85 and 2.97.
    assert day["p50_per_s"] == 0.5 * 2.0 + 0.5 * 4.0
    assert day["p95_per_s"] == pytest.approx(0.15 * 4.0 + 0.85 * 10.0)
    assert (day["peak_per_s"], day["active_seconds"], day["amount"]) == (10.0, 4, 17.0)
    (day,) = usage_parts.rolled(used(None, 3.0), schema.USAGE_DAY).to_pylist()
    assert (day["p50_per_s"], day["p99_per_s"], day["active_seconds"]) == (3.0, 3.0, 2)
    (day,) = usage_parts.rolled(used(None), schema.USAGE_DAY).to_pylist()
    assert (day["p50_per_s"], day["peak_per_s"], day["handler_ms"]) == (None, None, None)


def test_a_days_sum_does_not_depend_on_the_order_nor_overflow() -> None:
    amounts = [0.1, 0.2, 0.3, 1e12, 7e11]
    there = usage_parts.rolled(used(*amounts * 40), schema.USAGE_DAY)
    back = usage_parts.rolled(used(*(amounts * 40)[::-1]), schema.USAGE_DAY)
    assert there["amount"].to_pylist() == back["amount"].to_pylist() == [40 * 1_700_000_000_000.6]


def test_hours_are_those_of_the_clock() -> None:
    table = used(1.0, 2.0).set_column(
        schema.USAGE.names.index("second_ms"), "second_ms", pa.array([3_599_000, 3_600_000])
    )
    hours = usage_parts.rolled(table, schema.USAGE_HOUR)
    assert sorted(hours["period_ms"].to_pylist()) == [0, 3_600_000]
