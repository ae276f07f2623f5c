"""
Write a table's rows from the Python workers that make them, past Spark's JVM.

A row through the JVM (from Arrow, row by row, into Parquet) costs ten times what a replay takes to
make it. So workers write the Parquet files themselves and hand over their names; the driver keeps
the files of tasks that ended well. The folder is one that nobody reads yet (``publish``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.pipeline import schema
from headgate.pipeline.table import Table, make_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP_ROWS: Final = 1 << 17
"""Rows gathered to a row group: some tens of MB of a worker's memory, at most a bundle more."""
_SPARKS_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Spark's own writer keeps types and comments of columns."""
WRITTEN: Final = make_table(
    "written",
    "One row per file.",
    ("file", "string", "its name"),
    ("rows", "long", "rows in it"),
)


@dataclass(frozen=True)
class WriteParts:
    """
    Write what a function makes of batches to a file of its own. A ``mapInArrow`` function.

    Args:
        make: yields batches of the table.
        table: name of the table.
        folder: where the file is written; it is there.
        struct: Spark's schema of the table, as JSON.
    """

    make: Callable[[Iterator[Any]], Iterator[Any]]
    table: str
    folder: str
    struct: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield one WRITTEN row, or none where nothing was made."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrow = schema.TABLES[self.table].arrow.with_metadata({_SPARKS_SCHEMA: self.struct})
        # A task that is tried again writes another file, and the first one's isn't handed over.
        name = f"part-{uuid.uuid4().hex}.snappy.parquet"
        writer: Any = None
        rows = 0
        for group in _groups(self.make(batches)):
            if writer is None:
                writer = pq.ParquetWriter(f"{self.folder}/{name}", arrow)
            writer.write_table(pa.Table.from_batches(group, group[0].schema), GROUP_ROWS)
            rows += sum(batch.num_rows for batch in group)
        if writer is not None:
            writer.close()
            yield pa.RecordBatch.from_pydict({"file": [name], "rows": [rows]}, WRITTEN.arrow)


def _groups(batches: Iterator[Any]) -> Iterator[list[Any]]:
    """Gather batches to as many rows as a row group has."""
    group: list[Any] = []
    rows = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        if rows >= GROUP_ROWS:
            yield group
            group, rows = [], 0
    if rows:
        yield group


def can_write(frame: DataFrame, path: str) -> bool:
    """Say whether workers and driver see the same folder: all of them are on this machine."""
    return "://" not in path and frame.sparkSession.sparkContext.master.startswith("local")


def write(
    frame: DataFrame,
    make: Callable[[Iterator[Any]], Iterator[Any]],
    table: Table,
    path: str,
) -> int:
    """
    Make a table of a frame.

    Args:
        frame: what the function gets, batch by batch.
        make: a ``mapInArrow`` function that yields batches of the table.
        table: the table.
        path: its folder, local, which isn't there yet.

    Returns:
        The number of rows.
    """
    folder = Path(path)
    folder.mkdir(parents=True)
    task = WriteParts(make, table.name, path, table.struct.json())
    found = frame.mapInArrow(task, WRITTEN.struct).collect()
    kept = {row["file"] for row in found}
    for file in folder.iterdir():
        if file.name not in kept:
            file.unlink()
    if not kept:
        _write_empty(folder, table)
    (folder / "_SUCCESS").touch()
    return sum(row["rows"] for row in found)


def _write_empty(folder: Path, table: Table) -> None:
    """Write a file without rows, so that readers find the columns."""
    import pyarrow.parquet as pq

    arrow = table.arrow.with_metadata({_SPARKS_SCHEMA: table.struct.json()})
    pq.write_table(arrow.empty_table(), folder / "part-none.snappy.parquet")
