"""Read a pipeline run's tables, Parquet or Delta, with pyarrow; only what the report needs."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from headgate.errors import ConfigError
from headgate.pipeline.report.delta import is_delta, live_files
from headgate.pipeline.schema import TABLES
from headgate.pipeline.sources.files import filesystem
from headgate.pipeline.table import summed

REPORTED = (
    "usage",
    "usage_by_topic_day",
    "what_if",
    "demand",
    "recommend",
    "chargeback",
    "storms",
    "effective",
    "bad_lines",
    "summary",
)
"""Tables the report draws; `requests` and `replay` are too big and summed up in the others."""


MOST_ROWS: Final = 8_000_000
"""Rows of usage read second by second (about 1 GB); more are added up to bins while reading."""
MOST_BINS: Final = 240
"""Points of a line: about as many as a screen can tell apart in a card."""
BIN_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)


@dataclass(frozen=True)
class ReportTables:
    """
    The tables that are reported, by name, each an Arrow table with the schema's columns.

    Args:
        tables: those found; one that doesn't exist is empty.
        place: the folder they came from.
        grain_ms: what a row of usage covers: a second, or a bin where there were too many.
    """

    tables: Mapping[str, pa.Table]
    place: str
    grain_ms: int = 1_000

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return a table as dictionaries."""
        return self.tables[name].to_pylist()


def read_tables(place: Path | str) -> ReportTables:
    """
    Read what is there.

    Args:
        place: the folder given to pipeline commands as ``--out``, or its URI.

    Raises:
        ConfigError: the folder doesn't exist, holds none of the tables, or one can't be read.
    """
    if isinstance(place, str):
        with tempfile.TemporaryDirectory(prefix="headgate-report-") as folder:
            _fetch(place, Path(folder))
            return _read_folder(Path(folder), place)
    if not place.is_dir():
        raise ConfigError(f"{place}: no such folder; --tables is the --out of a pipeline command")
    return _read_folder(place, str(place))


def _read_folder(tables: Path, place: str) -> ReportTables:
    """Read what a folder here holds: the tables' own, or a copy of what ``place`` names."""
    found: dict[str, pa.Table] = {}
    problems: list[str] = []
    grain_ms = 1_000
    for name in REPORTED:
        folder = tables / name
        if not folder.is_dir() or not any(folder.rglob("*.parquet")):
            continue
        try:
            if name == "usage":
                found[name], grain_ms = _read_usage(folder)
            else:
                found[name] = _dataset(folder, name).to_table()
        except (pa.ArrowException, OSError, ValueError) as exc:
            out = "; write it with --format parquet" if is_delta(folder) else ""
            problems.append(f"{folder}: can't be read as the table {name} ({exc}){out}")
    if problems:
        raise ConfigError(problems)
    if "usage" not in found:
        raise ConfigError(
            f"{place}: holds no usage table; run headgate usage --requests … --out {place} first"
        )
    empty = {name: TABLES[name].arrow.empty_table() for name in REPORTED}
    return ReportTables(empty | found, place, grain_ms)


def _fetch(place: str, folder: Path) -> None:
    """
    Copy the tables of a URI to a folder here.

    Raises:
        ConfigError: they can't be reached.
    """
    try:
        system, inner = filesystem(place)
        there = system.get_file_info(fs.FileSelector(inner, allow_not_found=True))
        for name in {info.base_name for info in there} & set(REPORTED):
            (folder / name).mkdir()
            fs.copy_files(f"{inner}/{name}", str(folder / name), source_filesystem=system)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"--tables {place}: {exc}") from exc


def bin_length_ms(start_ms: int, end_ms: int) -> int:
    """Return the shortest pleasant bin that keeps a series within MOST_BINS points."""
    seconds = (end_ms - start_ms) / 1000 + 1
    for length in BIN_SECONDS:
        if seconds / length <= MOST_BINS:
            return length * 1000
    days = math.ceil(seconds / 86_400 / MOST_BINS)
    return days * 86_400_000


_KEYS: Final = ("quota_type", "quota_id", "broker_id", "second_ms")
_SUMS: Final = ("requests", "bytes", "amount", "throttle_time_ms", "throttled_requests")
_LARGEST: Final = ("max_throttle_time_ms", "quota", "quota_source")


def _read_usage(folder: Path) -> tuple[pa.Table, int]:
    """The usage table and what one row covers; in constant memory where it is large."""
    data = _dataset(folder, "usage")
    if data.count_rows() <= MOST_ROWS:
        return data.to_table(), 1_000
    low: int | None = None
    high = 0
    for batch in data.to_batches(columns=["second_ms"]):
        if len(batch):
            ends = pc.min_max(batch["second_ms"]).as_py()
            low = ends["min"] if low is None else min(low, ends["min"])
            high = max(high, ends["max"])
    start = low or 0
    grain_ms = bin_length_ms(start, high)
    parts: list[pa.Table] = []
    held = 0
    for batch in data.to_batches(columns=[*_KEYS, *_SUMS, *_LARGEST]):
        part = _coarse(pa.Table.from_batches([batch]), start, grain_ms)
        parts.append(part)
        held += len(part)
        if held > MOST_ROWS // 8:
            parts = [_coarse(pa.concat_tables(parts), start, grain_ms)]
            held = len(parts[0])
    read = _coarse(pa.concat_tables(parts), start, grain_ms)
    empty = TABLES["usage"].arrow.empty_table()  # its other columns become nulls
    return pa.concat_tables([empty, read], promote_options="default"), grain_ms


def _coarse(table: pa.Table, start_ms: int, grain_ms: int) -> pa.Table:
    """Add rows up to one per quota-id, broker and bin."""
    bins = binned(table, start_ms, grain_ms)["bin"]
    at = table.column_names.index("second_ms")
    table = table.set_column(at, "second_ms", pc.add(pc.multiply(bins, grain_ms), start_ms))
    return summed(table, _KEYS, _SUMS, _LARGEST)


def _dataset(folder: Path, name: str) -> ds.Dataset:
    """The files that make up a table; a column that an older run lacks becomes nulls."""
    if is_delta(folder):  # its log names those that count
        return ds.dataset(live_files(folder), TABLES[name].arrow, format="parquet")
    return ds.dataset(folder, TABLES[name].arrow, format="parquet", partitioning="hive")


def binned(table: pa.Table, start_ms: int, bin_ms: int) -> pa.Table:
    """Add ``bin``: which slice of ``bin_ms`` a row's time falls into, from ``start_ms`` on."""
    offset = pc.subtract(table["second_ms"], start_ms)
    return table.append_column("bin", pc.divide(offset, bin_ms))
