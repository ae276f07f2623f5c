"""
The same tables from an input that grows (directories or a topic), counting each line exactly once.

A batch reads what the batches before it haven't: Spark's checkpoint knows. It writes what it read
(sums by second, or the requests themselves) to a directory of its own number, replacing what a
killed attempt left. Then the tables are made of all batches so far. So a kill at
any moment and a restart give what one batch over all input gives. Each round replays all requests
that were kept: a sensor sees its charges in their order, in whatever order files come in.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Final

import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headgate.pipeline import frames, schema
from headgate.pipeline.emitted import ACTIVITY, CONNECTIONS
from headgate.pipeline.schema import REQUESTS
from headgate.pipeline.sources.files import filesystem
from headgate.pipeline.sources.pieces import FilePiece
from headgate.pipeline.tables.by_day import exact
from headgate.pipeline.workers.emit import STARTS

INPUTS: Final = "inputs"
"""The part for starts of journals' workers in a topic."""
_TABLES: Final = {t.name: t for t in (ACTIVITY, CONNECTIONS, REQUESTS, schema.BAD_LINES)}
_TABLES[INPUTS] = STARTS
# This many parts become one: a stream of a year shouldn't leave a million small files.
FOLD: Final = 16
# Requests of one joined file, about 50 bytes each.
_ROWS_PER_FILE: Final = 2_000_000
_ROW_GROUP_BYTES: Final = 16 << 20


class Parts:
    """
    What a stream has written, batch by batch; and where its checkpoint is.

    Parts of ``FOLD`` batches are joined into one when the last of them is written, and those of
    ``FOLD`` joined ones again. Joined parts are removed a batch later: only then is it certain that
    none of them will be written again.

    Args:
        spark: the session.
        root: a directory (or URI) for all of it.
        names: what to keep, of ``activity``, ``connections``, ``requests`` and ``inputs``; bad
            lines are kept besides.
    """

    def __init__(
        self, spark: SparkSession, root: str, names: Sequence[str] = (ACTIVITY.name,)
    ) -> None:
        self._spark = spark
        self.root = root
        self._names = (*names, schema.BAD_LINES.name)
        self._counted: dict[str, tuple[int, int]] = {}

    @property
    def checkpoint(self) -> str:
        """The directory in which Spark records what it has read, and which batches are whole."""
        return f"{self.root}/checkpoint"

    @property
    def emits(self) -> str:
        """What a batch is to hold: ``requests``, ``activity``, or that with ``connections``."""
        for name in (REQUESTS.name, CONNECTIONS.name):
            if name in self._names:
                return name
        return ACTIVITY.name

    def write(self, batch: DataFrame, number: int, starts: DataFrame | None = None) -> None:
        """
        Write a batch; after a kill, replace what the first attempt wrote.

        Args:
            batch: EMITTED_REQUESTS or EMITTED_ACTIVITY, as ``emits`` says.
            number: of the batch.
            starts: of journals' workers in it, where ``inputs`` are kept: STARTS.
        """
        self._remove_joined(number)
        held = batch.persist()
        held.count()  # on all cores: one file of it is written by one core
        made = {schema.BAD_LINES.name: frames.only(held, "bad", schema.BAD_LINES)}
        if self.emits == REQUESTS.name:
            made[REQUESTS.name] = frames.only(held, "request", REQUESTS)
            made[ACTIVITY.name] = frames.activity(made[REQUESTS.name])
        else:
            made[ACTIVITY.name] = frames.only(held, "activity", ACTIVITY)
            made[CONNECTIONS.name] = frames.only(held, "connection", CONNECTIONS)
        if starts is not None:
            made[INPUTS] = starts
        for name in self._names:
            rows = made[name]
            if name != REQUESTS.name:
                rows = _distinct(name, rows).coalesce(1)
            self._write(rows, self._path(name, 0, number))
        held.unpersist()
        self._join(number)

    def _join(self, number: int) -> None:
        """Join the parts that are complete with this batch."""
        size, level = FOLD, 1
        while (number + 1) % size == 0:
            for name in self._names:
                first = (number + 1 - size) // (size // FOLD)
                below = [self._path(name, level - 1, first + i) for i in range(FOLD)]
                rows = _distinct(name, self._read(name, below))
                if name == REQUESTS.name:
                    count = sum(n for folder in below for _, _, n in self._files(folder))
                    files = 1 + count // _ROWS_PER_FILE
                    joined = rows.coalesce(files).sortWithinPartitions("file", "seq")
                else:
                    joined = rows.coalesce(1)
                self._write(joined, self._path(name, level, number // size))
            size, level = size * FOLD, level + 1

    def read(self, name: str, upto: int) -> DataFrame:
        """
        Return all that was written of one table.

        Args:
            name: ``activity``, ``connections``, ``requests``, ``bad_lines`` or ``inputs``.
            upto: the last batch that counts; -1: none.
        """
        if upto < 0 or name not in self._names:
            return self._spark.createDataFrame([], _TABLES[name].struct)
        return self._read(name, self._paths(name, upto))

    def pieces(self, upto: int) -> list[FilePiece]:
        """
        Return the pieces of all requests written, for whatever reads tables ``requests``.

        Args:
            upto: the last batch that counts; -1: none.
        """
        paths = self._paths(REQUESTS.name, upto) if upto >= 0 else []
        return [
            FilePiece(path, group, group + 1, "requests")
            for folder in paths
            for path, groups, _ in self._files(folder)
            for group in range(groups)
        ]

    def last(self) -> int:
        """Return the number of the last batch that was committed; -1: none."""
        numbers = [int(name) for name in listed(f"{self.checkpoint}/commits") if name.isdecimal()]
        return max(numbers, default=-1)

    def _path(self, name: str, level: int, at: int) -> str:
        return f"{self.root}/{name}/level={level}/part={at}"

    def _paths(self, name: str, upto: int) -> list[str]:
        return [self._path(name, level, at) for level, at in cover(upto + 1)]

    @staticmethod
    def _write(rows: DataFrame, path: str) -> None:
        """Write a part; a row group is what a worker has in memory at a time."""
        writer = rows.write.mode("overwrite").option("parquet.block.size", _ROW_GROUP_BYTES)
        writer.parquet(path)

    def _read(self, name: str, paths: list[str]) -> DataFrame:
        table = _TABLES[name]
        return table.select(exact(self._spark).schema(table.struct).parquet(*paths))

    def _files(self, folder: str) -> list[tuple[str, int, int]]:
        """Return (path, row groups, rows) of a part's files."""
        system, inner = filesystem(folder)
        scheme = folder.partition("://")[0] + "://" if "://" in folder else ""
        found = []
        for info in sorted(system.get_file_info(fs.FileSelector(inner)), key=lambda i: i.path):
            if not info.path.endswith(".parquet"):
                continue
            if info.path not in self._counted:
                with pq.ParquetFile(info.path, filesystem=system) as file:
                    self._counted[info.path] = (file.num_row_groups, file.metadata.num_rows)
            found.append((scheme + info.path, *self._counted[info.path]))
        return found

    def _remove_joined(self, number: int) -> None:
        """Remove parts that were joined by the batch before this one."""
        if "://" in self.root:
            return
        size, level = FOLD, 1
        while number and number % size == 0:
            first = (number - size) // (size // FOLD)
            for name in self._names:
                for i in range(FOLD):
                    shutil.rmtree(self._path(name, level - 1, first + i), ignore_errors=True)
            size, level = size * FOLD, level + 1


def _distinct(name: str, rows: DataFrame) -> DataFrame:
    """Keep the earliest sight of each connection: one that lives for long is seen in each batch."""
    if name != "connections":
        return rows
    names = [c.name for c in CONNECTIONS.columns if c.name != "first_ms"]
    return rows.groupBy(*names).agg(F.min("first_ms").alias("first_ms"))


def listed(folder: str) -> list[str]:
    """Return the names of what a folder (a path or a URI) holds; none: there is no folder."""
    system, inner = filesystem(folder)
    return [i.base_name for i in system.get_file_info(fs.FileSelector(inner, allow_not_found=True))]


def cover(count: int) -> list[tuple[int, int]]:
    """Return the fewest parts (level, number) that hold the first ``count`` batches."""
    out: list[tuple[int, int]] = []
    level, rest = 0, count
    while rest:
        rest, single = divmod(rest, FOLD)
        out += [(level, rest * FOLD + i) for i in reversed(range(single))]
        level += 1
    return out[::-1]
