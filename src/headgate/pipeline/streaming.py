"""
The same sums under Structured Streaming: from a growing directory or a topic, exactly once.

Spark's checkpoint says which files (or offsets) belong to which batch; each batch writes its sums
to a directory of its own number, replacing what a killed attempt left. So a kill at any moment and
a restart give what one batch over all input gives. ``merge`` makes the tables of the parts.

A directory is followed file by file: a file counts once, as it is when first seen, so point at
rolled files, not at the one the broker is writing.
"""

from __future__ import annotations

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
_PARTS: Final = {"activity": ACTIVITY, "bad_lines": schema.BAD_LINES}
# Files of one batch: bounds what a kill repeats, and a batch's memory.
FILES_PER_BATCH: Final = 64


@dataclass(frozen=True)
class ActivityOfFiles:
    """
    Sum up the files that a batch brought: rows (path, length) in, EMITTED_ACTIVITY out.

    A ``mapInArrow`` function; arguments as ``headgate usage`` takes them.
    """

    time_zone: str = "UTC"
    broker_id: int | None = None
    broker_id_pattern: str | None = None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read the files named in ``batches``."""
        import pyarrow as pa

        for batch in batches:
            paths = [local_path(p) for p in batch.column(0).to_pylist()]
            files = list(zip(paths, batch.column(1).to_pylist(), strict=True))
            splits = cut(files, broker_id=self.broker_id, broker_id_pattern=self.broker_id_pattern)
            numbers = pa.RecordBatch.from_pydict({"id": list(range(len(splits)))})
            yield from EmitActivity(ReadPlan(tuple(splits), self.time_zone))(iter([numbers]))


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


def part(out: str, table: str) -> str:
    """Return where a table's parts lie."""
    return f"{out}/_stream/{table}"


def write_parts(
    emitted: DataFrame, out: str, *, once: bool, trigger_s: float = 10.0
) -> StreamingQuery:
    """
    Start writing a stream of EMITTED_ACTIVITY, batch by batch, under ``out``.

    Args:
        emitted: the stream.
        out: the run's directory; parts and checkpoint lie in ``_stream`` there.
        once: take what is there now, then end.
        trigger_s: seconds between batches.
    """

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        for name, table in _PARTS.items():
            kind = "activity" if name == "activity" else "bad"
            # The same number after a kill writes the same rows over what was begun.
            only(batch, kind, table).coalesce(1).write.mode("overwrite").parquet(
                f"{part(out, name)}/batch={number}"
            )
        batch.unpersist()

    writer = emitted.writeStream.foreachBatch(write).option(
        "checkpointLocation", part(out, "checkpoint")
    )
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{trigger_s} seconds").start()


def read_parts(spark: SparkSession, out: str, name: str) -> DataFrame:
    """Return all that a stream has written of one table: ``activity`` or ``bad_lines``."""
    table = _PARTS[name]
    path = part(out, name)
    if "://" not in path and not any(Path(path).glob("batch=*/*.parquet")):
        return spark.createDataFrame([], table.struct)
    frame = spark.read.schema(table.struct).option("basePath", path).parquet(f"{path}/batch=*")
    columns: DataFrame = table.select(frame)
    return columns
