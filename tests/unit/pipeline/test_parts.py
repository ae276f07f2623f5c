"""Parts that workers write are a table like any other: whole, or as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.pipeline import schema
from headgate.pipeline.tables import worker_files as parts

TABLE = schema.BAD_LINES


def rows(*numbers: int) -> pa.RecordBatch:
    whole = {f.name: pa.nulls(len(numbers), f.type) for f in TABLE.arrow}
    whole["reason"] = pa.array([f"reason {n}" for n in numbers])
    return pa.RecordBatch.from_arrays(list(whole.values()), schema=TABLE.arrow)


def same(batches: Any) -> Any:
    return batches


class Frame:
    """As much of a DataFrame as ``write`` asks for: tasks of batches, some tried twice."""

    def __init__(self, *tasks: list[pa.RecordBatch], failed: list[pa.RecordBatch] | None = None):
        self.tasks, self.failed = tasks, failed

    def mapInArrow(self, task: parts.WriteParts, struct: Any) -> Frame:
        self.task = task
        return self

    def collect(self) -> list[dict[str, Any]]:
        if self.failed is not None:
            list(self.task(iter(self.failed)))  # its answer never arrived
        found = [row for task in self.tasks for row in self.task(iter(task))]
        return [row for batch in found for row in batch.to_pylist()]


def read(folder: Path) -> list[str]:
    return sorted(pq.read_table(folder)["reason"].to_pylist())


def test_a_file_per_task_with_sparks_types_and_comments(tmp_path: Path) -> None:
    frame = Frame([rows(1, 2), rows(3)], [], [rows(4)])
    assert parts.write(frame, same, TABLE, str(tmp_path / "out" / "bad_lines")) == 4
    folder = tmp_path / "out" / "bad_lines"
    assert read(folder) == [f"reason {n}" for n in (1, 2, 3, 4)]
    files = sorted(folder.glob("part-*.parquet"))
    assert len(files) == 2
    assert (folder / "_SUCCESS").exists()
    kept = pq.read_metadata(files[0]).metadata[b"org.apache.spark.sql.parquet.row.metadata"]
    assert kept.decode() == TABLE.struct.json()
    assert pq.read_schema(files[0]).remove_metadata().equals(TABLE.arrow)


def test_rows_are_gathered_to_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "GROUP_ROWS", 4)
    folder = tmp_path / "bad_lines"
    parts.write(Frame([rows(n) for n in range(10)]), same, TABLE, str(folder))
    (file,) = folder.glob("part-*.parquet")
    found = pq.read_metadata(file)
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == [4, 4, 2]


def test_a_task_tried_again_counts_once(tmp_path: Path) -> None:
    folder = tmp_path / "bad_lines"
    parts.write(Frame([rows(1)], failed=[rows(1)]), same, TABLE, str(folder))
    assert read(folder) == ["reason 1"]


def test_a_table_without_rows_has_its_columns(tmp_path: Path) -> None:
    folder = tmp_path / "bad_lines"
    assert parts.write(Frame([]), same, TABLE, str(folder)) == 0
    assert pq.read_table(folder).schema.remove_metadata().equals(TABLE.arrow)
