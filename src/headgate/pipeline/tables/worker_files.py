"""
Write a table's rows from the Python workers that make them, past Spark's JVM.

A row through the JVM (from Arrow, row by row, into Parquet) costs ten times what a replay takes to
make it. So workers write the Parquet files themselves and hand over their names; the driver keeps
the files of tasks that ended well. The folder is one that nobody reads yet (``publish``).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.pipeline.table import Table

GROUP_ROWS: Final = 1 << 17
"""Rows gathered to a row group: some tens of MB of a worker's memory, at most a batch more."""
_SPARKS_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Spark's own writer keeps types and comments of columns."""


class Part:
    """
    One task's file of a table; there is none until there are rows.

    Args:
        table: what its batches are of.
        out: the folder that the table's own is in; both are made where they aren't there.
    """

    def __init__(self, table: Table, out: str) -> None:
        self._table = table
        self._folder = Path(out) / table.name
        # A task that is tried again writes another file, and the first one's isn't handed over.
        self._name = f"part-{uuid.uuid4().hex}.snappy.parquet"
        self._group: list[Any] = []
        self._rows = 0
        self._writer: Any = None

    def add(self, batch: Any) -> None:
        """Take an Arrow batch of the table."""
        self._group.append(batch)
        self._rows += batch.num_rows
        if self._rows >= GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Figures hardly repeat; looking each up in a dictionary costs a third of the writing.
            texts = [c.name for c in self._table.columns if c.type == "string"]
            self._writer = pq.ParquetWriter(
                self._folder / self._name, _arrow(self._table), use_dictionary=texts
            )
        group = pa.Table.from_batches(self._group, self._table.arrow)
        self._writer.write_table(self._table.with_moments(group), GROUP_ROWS)
        self._group, self._rows = [], 0

    def close(self) -> list[str]:
        """Write what is left; return the file's name, if there is a file."""
        if self._rows:
            self._write()
        if self._writer is None:
            return []
        self._writer.close()
        return [self._name]


def _arrow(table: Table) -> Any:
    """Return the Arrow schema of a table's files."""
    return table.timed.arrow.with_metadata({_SPARKS_SCHEMA: table.timed.struct.json()})


def finish(table: Table, out: str, files: Collection[str]) -> None:
    """
    Keep the files of tasks that ended well; if there are none, write a file without rows.

    Args:
        table: the table.
        out: the folder that its own is in.
        files: names of those to keep.
    """
    folder = Path(out) / table.name
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.name not in files:
            file.unlink()
    if not files:
        # So that readers find the columns.
        pq.write_table(_arrow(table).empty_table(), folder / "part-none.snappy.parquet")
    (folder / "_SUCCESS").touch()
