"""
The same sums under Structured Streaming: from a growing directory or a topic, exactly once.

Spark's checkpoint says which files (or offsets) belong to which batch; each batch writes its sums
to a directory of its own number, replacing what a killed attempt left, and then the tables are made
of all batches so far. So a kill at any moment and a restart give what one batch over all input
gives.

A directory is followed file by file: a file counts once, as it is when first seen, so point at
rolled files, not at the one the broker is writing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

from headgate.pipeline import schema
from headgate.pipeline.filesplits import cut
from headgate.pipeline.sources import only
from headgate.pipeline.worker import ACTIVITY, EMITTED_ACTIVITY, EmitActivity, ReadPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_FILE_SCHEMA: Final = "path string, modificationTime timestamp, length long, content binary"
CONNECTIONS: Final = schema.Table(
    "connections",
    "First sights of connections, one row per piece of input that shows one.",
    (
        schema.Column("broker_id", "int", "broker"),
        schema.Column("listener", "string", "listener name"),
        schema.Column("client_ip", "string", "peer address"),
        schema.Column("connection", "string", "connection id as logged"),
        schema.Column("first_ms", "double", "when it was first seen, epoch ms"),
    ),
)
_PARTS: Final = {
    "activity": ("activity", ACTIVITY),
    "connections": ("connection", CONNECTIONS),
    "bad_lines": ("bad", schema.BAD_LINES),
}
# Files of one batch: bounds what a kill repeats, and a batch's memory.
FILES_PER_BATCH: Final = 64
# So many parts become one: a stream of a year shouldn't leave a million small files.
FOLD: Final = 16


@dataclass(frozen=True)
class ActivityOfFiles:
    """
    Sum up the files that a batch brought: rows (path, length) in, EMITTED_ACTIVITY out.

    A ``mapInArrow`` function; arguments as ``headgate usage`` takes them.
    """

    time_zone: str = "UTC"
    broker_id: int | None = None
    broker_id_pattern: str | None = None
    connections: bool = False

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read the files named in ``batches``."""
        import pyarrow as pa

        for batch in batches:
            paths = [local_path(p) for p in batch.column(0).to_pylist()]
            files = list(zip(paths, batch.column(1).to_pylist(), strict=True))
            splits = cut(files, broker_id=self.broker_id, broker_id_pattern=self.broker_id_pattern)
            numbers = pa.RecordBatch.from_pydict({"id": list(range(len(splits)))})
            plan = ReadPlan(tuple(splits), self.time_zone, self.connections)
            yield from EmitActivity(plan)(iter([numbers]))


def local_path(uri: str) -> str:
    """Return the path of a ``file:`` URI as Spark writes it; other URIs as they are."""
    parsed = urlparse(uri)
    return unquote(parsed.path) if parsed.scheme == "file" else uri


def follow_directory(
    spark: SparkSession, directory: str, *, files_per_batch: int = FILES_PER_BATCH
) -> DataFrame:
    """Return a stream of (path, length): each file under ``directory`` once."""
    return (
        spark.readStream.format("binaryFile")
        .schema(_FILE_SCHEMA)
        .option("recursiveFileLookup", "true")
        .option("maxFilesPerTrigger", str(files_per_batch))
        .load(directory)
        .select("path", "length")
    )


def activity_of_files(task: ActivityOfFiles) -> Callable[[DataFrame], DataFrame]:
    """Sum up a stream of files: (path, length) -> EMITTED_ACTIVITY."""
    return lambda files: files.mapInArrow(task, EMITTED_ACTIVITY.struct)


class Parts:
    """
    What a stream has written, batch by batch; and where its checkpoint is.

    Parts of ``FOLD`` batches are joined into one when the last of them is written, and those of
    ``FOLD`` joined ones again. Joined parts are removed a batch later: only then is it certain that
    none of them will be written again.

    Args:
        spark: the session.
        root: a directory (or URI) for all of it.
        connections: also keep first sights of connections.
    """

    def __init__(self, spark: SparkSession, root: str, *, connections: bool = False) -> None:
        self._spark = spark
        self.root = root
        self._names = [n for n in _PARTS if connections or n != "connections"]

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps what it has read."""
        return f"{self.root}/checkpoint"

    def write(self, emitted: DataFrame, number: int) -> None:
        """Write a batch of EMITTED_ACTIVITY; again after a kill, over what was begun."""
        self._remove_joined(number)
        emitted.persist()
        for name in self._names:
            kind, table = _PARTS[name]
            rows = _distinct(name, only(emitted, kind, table))
            rows.coalesce(1).write.mode("overwrite").parquet(self._path(name, 0, number))
        emitted.unpersist()
        size = FOLD
        level = 1
        while (number + 1) % size == 0:
            for name in self._names:
                first = (number + 1 - size) // (size // FOLD)
                below = [self._path(name, level - 1, first + i) for i in range(FOLD)]
                joined = _distinct(name, self._read(name, below)).coalesce(1)
                joined.write.mode("overwrite").parquet(self._path(name, level, number // size))
            size, level = size * FOLD, level + 1

    def read(self, name: str, upto: int) -> DataFrame:
        """
        Return all that was written of one table.

        Args:
            name: ``activity``, ``connections`` or ``bad_lines``.
            upto: the last batch that counts; -1: none.
        """
        if upto < 0 or name not in self._names:
            return self._spark.createDataFrame([], _PARTS[name][1].struct)
        paths = [self._path(name, level, at) for level, at in cover(upto + 1)]
        return self._read(name, paths)

    def last(self) -> int:
        """Return the number of the last batch that Spark has committed; -1: none."""
        commits = Path(self.checkpoint) / "commits"
        if "://" in self.root or not commits.is_dir():
            return -1
        return max((int(p.name) for p in commits.iterdir() if p.name.isdecimal()), default=-1)

    def _path(self, name: str, level: int, at: int) -> str:
        return f"{self.root}/{name}/level={level}/part={at}"

    def _read(self, name: str, paths: list[str]) -> DataFrame:
        table = _PARTS[name][1]
        columns: DataFrame = table.select(self._spark.read.schema(table.struct).parquet(*paths))
        return columns

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
    from pyspark.sql import functions as F

    if name != "connections":
        return rows
    names = [c.name for c in CONNECTIONS.columns if c.name != "first_ms"]
    return rows.groupBy(*names).agg(F.min("first_ms").alias("first_ms"))


def cover(count: int) -> list[tuple[int, int]]:
    """Return the fewest parts (level, number) that hold the first ``count`` batches."""
    out: list[tuple[int, int]] = []
    level, rest = 0, count
    while rest:
        rest, single = divmod(rest, FOLD)
        out += [(level, rest * FOLD + i) for i in reversed(range(single))]
        level += 1
    return out[::-1]


def start(
    emitted: DataFrame,
    parts: Parts,
    after: Callable[[int], None],
    *,
    once: bool,
    trigger_s: float = 10.0,
) -> StreamingQuery:
    """
    Start writing a stream of EMITTED_ACTIVITY, batch by batch.

    Args:
        emitted: the stream.
        parts: where to.
        after: called with the batch's number when its parts are there, before it is committed.
        once: take what is there now, then end.
        trigger_s: seconds between batches.
    """

    def write(batch: DataFrame, number: int) -> None:
        parts.write(batch, number)
        after(number)

    writer = emitted.writeStream.foreachBatch(write).option("checkpointLocation", parts.checkpoint)
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{trigger_s} seconds").start()
