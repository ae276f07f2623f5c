"""Read a pipeline run's Parquet tables with pyarrow, only the columns the report needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from headgate.errors import ConfigError
from headgate.pipeline.schema import TABLES

REPORTED = (
    "usage",
    "what_if",
    "recommend",
    "chargeback",
    "storms",
    "effective",
    "bad_lines",
    "summary",
)
"""Tables the report draws; `requests` and `replay` are too big and summed up in the others."""


@dataclass(frozen=True)
class ReportTables:
    """
    The tables found, by name, each an Arrow table with the schema's columns.

    Args:
        tables: those that exist.
        place: the folder they came from.
    """

    tables: Mapping[str, pa.Table]
    place: str

    def __contains__(self, name: str) -> bool:
        return name in self.tables

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return a table as dictionaries; [] if it doesn't exist."""
        if name not in self.tables:
            return []
        found: list[dict[str, Any]] = self.tables[name].to_pylist()
        return found


def read_tables(place: Path) -> ReportTables:
    """
    Read what is there.

    Args:
        place: the folder given to pipeline commands as ``--out``.

    Raises:
        ConfigError: the folder doesn't exist, holds none of the tables, or one can't be read.
    """
    if not place.is_dir():
        raise ConfigError(f"{place}: no such folder; --tables is the --out of a pipeline command")
    found: dict[str, pa.Table] = {}
    problems: list[str] = []
    for name in REPORTED:
        folder = place / name
        if not folder.is_dir() or not any(folder.rglob("*.parquet")):
            continue
        try:
            found[name] = _read(folder, name)
        except (pa.ArrowException, OSError, ValueError) as exc:
            problems.append(f"{folder}: can't be read as the table {name} ({exc})")
    if problems:
        raise ConfigError(problems)
    if "usage" not in found:
        raise ConfigError(
            f"{place}: holds no usage table; run headgate usage --requests … --out {place} first"
        )
    return ReportTables(found, str(place))


def _read(folder: Path, name: str) -> pa.Table:
    """One table; a column that an older run lacks becomes nulls."""
    data = ds.dataset(folder, format="parquet", partitioning="hive")
    wanted = TABLES[name].arrow
    have = [field.name for field in wanted if field.name in data.schema.names]
    read = data.to_table(columns=have)
    columns = [
        read[field.name].cast(field.type) if field.name in have else pa.nulls(len(read), field.type)
        for field in wanted
    ]
    return pa.table(columns, schema=wanted)


def grouped(
    table: pa.Table, keys: Sequence[str], sums: Sequence[str], *, largest: Sequence[str] = ()
) -> pa.Table:
    """Sum columns (and take the largest of others) per key; names stay as they were."""
    wanted = [(name, "sum") for name in sums] + [(name, "max") for name in largest]
    done = table.group_by(list(keys)).aggregate(wanted)
    return (
        done.rename_columns([*keys, *sums, *largest])
        if _keys_first(done, keys)
        else (done.rename_columns([*sums, *largest, *keys]))
    )


def _keys_first(table: pa.Table, keys: Sequence[str]) -> bool:
    return table.column_names[: len(keys)] == list(keys)


def binned(table: pa.Table, column: str, start_ms: int, bin_ms: int) -> pa.Table:
    """Add ``bin``: which slice of ``bin_ms`` a row's time falls into, from ``start_ms`` on."""
    offset = pc.subtract(table[column], pa.scalar(start_ms, pa.int64()))
    return table.append_column("bin", pc.divide(offset, pa.scalar(bin_ms, pa.int64())))
