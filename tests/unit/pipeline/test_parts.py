"""Parts that workers write are a table like any other: whole, or as it was."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.pipeline import schema
from headgate.pipeline.tables import worker_files

TABLE = schema.BAD_LINES


def rows(*numbers: int) -> pa.RecordBatch:
    whole = {f.name: pa.nulls(len(numbers), f.type) for f in TABLE.arrow}
    whole["reason"] = pa.array([f"reason {n}" for n in numbers])
    return pa.RecordBatch.from_arrays(list(whole.values()), schema=TABLE.arrow)


def written(out: Path, *batches: pa.RecordBatch) -> list[str]:
    """Return the names of the file that one task writes."""
    part = worker_files.Part(TABLE, str(out))
    for batch in batches:
        part.add(batch)
    return part.close()


def read(folder: Path) -> list[str]:
    return sorted(pq.read_table(folder)["reason"].to_pylist())


def test_a_file_per_task_with_sparks_types_and_comments(tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = [written(out, *task) for task in ([rows(1, 2), rows(3)], [], [rows(4)])]
    assert [len(n) for n in names] == [1, 0, 1]
    worker_files.finish(TABLE, str(out), [name for task in names for name in task])
    folder = out / TABLE.name
    assert read(folder) == [f"reason {n}" for n in (1, 2, 3, 4)]
    files = sorted(folder.glob("part-*.parquet"))
    assert len(files) == 2
    assert (folder / "_SUCCESS").exists()
    kept = pq.read_metadata(files[0]).metadata[b"org.apache.spark.sql.parquet.row.metadata"]
    assert kept.decode() == TABLE.struct.json()
    assert pq.read_schema(files[0]).remove_metadata().equals(TABLE.arrow)


def test_rows_are_gathered_to_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_files, "GROUP_ROWS", 4)
    (name,) = written(tmp_path, *(rows(n) for n in range(10)))
    found = pq.read_metadata(tmp_path / TABLE.name / name)
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == [4, 4, 2]


def test_a_task_tried_again_counts_once(tmp_path: Path) -> None:
    written(tmp_path, rows(1))  # its answer never arrived
    worker_files.finish(TABLE, str(tmp_path), written(tmp_path, rows(1)))
    assert read(tmp_path / TABLE.name) == ["reason 1"]


def test_a_table_without_rows_has_its_columns(tmp_path: Path) -> None:
    assert written(tmp_path) == []
    worker_files.finish(TABLE, str(tmp_path), [])
    assert pq.read_table(tmp_path / TABLE.name).schema.remove_metadata().equals(TABLE.arrow)
