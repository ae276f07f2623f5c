"""Read a pipeline run's tables with pyarrow, or by Spark; only what the report needs."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from headgate.errors import ConfigError
from headgate.pipeline.schema import TABLES
from headgate.pipeline.sources.files import WrittenTables
from headgate.pipeline.table import summed
from headgate.pipeline.tables import lake
from headgate.pipeline.tables.folders import local_path
from headgate.pipeline.tables.pointer import POINTER, Pointer, earlier_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

# Reads that runs which end meanwhile may spoil.
_TRIES: Final = 5


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

    All tables are those of one pointer. Where runs that end meanwhile remove what it named, the
    newer tables are read.

    Raises:
        ConfigError: the folder doesn't exist, holds none of the tables, or one can't be read.
    """
    for _ in range(_TRIES):
        named = _named(place)
        try:
            return _read_tables(place)
        except ConfigError:
            if _named(place) == named:
                raise
    return _read_tables(place)


def _named(place: Path | str) -> Pointer | None:
    """Return what the pointer of a directory says now; None: it can't be read."""
    with contextlib.suppress(ConfigError, OSError, ValueError):
        return WrittenTables(str(place)).pointer
    return None


def _read_tables(place: Path | str) -> ReportTables:
    local = local_path(str(place))
    if local is None:
        with tempfile.TemporaryDirectory(prefix="headgate-report-") as folder:
            _fetch(str(place), Path(folder))
            return _read_folder(Path(folder), str(place))
    if not Path(local).is_dir():
        raise ConfigError(f"{place}: no such folder; --tables is the --out of a pipeline command")
    return _read_folder(Path(local), str(place))


def _read_folder(tables: Path, place: str) -> ReportTables:
    """Read what a folder here holds: the tables' own, or a copy of what ``place`` names."""
    found: dict[str, pa.Table] = {}
    problems: list[str] = []
    grain_ms = 1_000
    _refuse_lake(tables, place)
    written = WrittenTables(str(tables))
    written.refuse_lost()
    for name in REPORTED:
        try:
            files = written.files(name)
            if not files:
                continue
            data = ds.dataset(files, TABLES[name].arrow, format="parquet")
            if name == "usage":
                found[name], grain_ms = _read_usage(data)
            else:
                found[name] = data.to_table()
        except (pa.ArrowException, OSError, ValueError) as exc:
            problems.append(f"{tables / name}: can't be read as the table {name} ({exc})")
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
        written = WrittenTables(place)
        written.refuse_lost()
        system, inner = written.place.system, written.place.inner
        there = system.get_file_info(fs.FileSelector(inner, allow_not_found=True))
        names = {info.base_name: () for info in there}
        earlier_tables(names, ())
        parts = list(set(names) & set(REPORTED))
        if pointer := written.pointer:
            parts += [part for name in REPORTED for part in pointer.tables.get(name, [])]
            (folder / POINTER).write_bytes(pointer.written())
        for part in parts:
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            if system.get_file_info(f"{inner}/{part}").is_file:
                fs.copy_files(f"{inner}/{part}", str(folder / part), source_filesystem=system)
            else:
                (folder / part).mkdir()
                fs.copy_files(f"{inner}/{part}", str(folder / part), source_filesystem=system)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"--tables {place}: {exc}") from exc


def _refuse_lake(folder: Path, place: str) -> None:
    """
    Refuse tables that only Spark reads, those that an earlier Headgate left half replaced, and
    those that lie beside runs: nothing tells which is the newer one.

    Raises:
        ConfigError: says how to read them.
    """
    listed = {
        p.name: [f.name for f in p.iterdir()] if p.name in REPORTED else []
        for p in folder.iterdir()
        if p.is_dir()
    }
    found = earlier_tables(listed, REPORTED)
    if found and (folder / POINTER).is_file():
        raise ConfigError(
            f"{place}: {', '.join(found)} lie there without a run, beside tables that "
            f"{POINTER} names; move away those that don't count"
        )
    for name in found:
        for format, made in (("delta", "_delta_log"), ("iceberg", "metadata")):
            if made in listed[name]:
                raise ConfigError(
                    f"{place}: {name} is a table of {format.capitalize()}, which Spark reads: add "
                    f"--format {format}"
                )


def read_lake(spark: SparkSession, place: str, format: str) -> ReportTables:
    """
    Read Delta or Iceberg tables by Spark, which writes them to a folder here meanwhile.

    Args:
        spark: a session of this machine, which has the format.
        place: the ``--out`` of pipeline commands: a directory, its URI, or a catalog's name.
        format: delta or iceberg.

    Raises:
        ConfigError: there is no table of usage.
    """
    named = lake.is_name(place)
    root = place.rstrip("/") if named or "://" in place else str(Path(place).absolute())
    with tempfile.TemporaryDirectory(prefix="headgate-report-") as folder:
        for name in REPORTED:
            table = lake.identifier(spark, f"{root}{'.' if named else '/'}{name}", format)
            if lake.is_there(spark, table):
                spark.read.table(table).write.parquet(f"{folder}/{name}")
        return _read_folder(Path(folder), place)


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


def _read_usage(data: ds.Dataset) -> tuple[pa.Table, int]:
    """The usage table and what one row covers; in constant memory where it is large."""
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


def binned(table: pa.Table, start_ms: int, bin_ms: int) -> pa.Table:
    """Add ``bin``: which slice of ``bin_ms`` a row's time falls into, from ``start_ms`` on."""
    offset = pc.subtract(table["second_ms"], start_ms)
    return table.append_column("bin", pc.divide(offset, bin_ms))
