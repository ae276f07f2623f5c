"""
Follow journal directories from Spark as they are written: what was added, batch by batch.

A journal's open file grows by a batch a second and keeps its beginning when it is closed, so a file
is known by its name without suffix, and how far it was read by bytes. Only files written lately are
looked at: this is for `headgate splits`, which wants what is new; sums of everything come from
closed files (``growing``) or a topic.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headgate.clock import now_ms
from headgate.usage.files import CLOSED, OPEN, complete_batches, encode, parse_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = "file string, offset long, value binary"
_TICK: Final = "tick"
# A worker closes its file after five minutes at most; one not written for longer won't be again.
_LATELY_S: Final = 900.0


@dataclass
class Bytes(InputPartition):
    """Bytes [start, end) of a file, named without its suffix."""

    stem: str
    start: int
    end: int


class TailReader(DataSourceStreamReader):
    """
    Read what journals grow by.

    Args:
        options: ``directories`` (JSON).
    """

    def __init__(self, options: dict[str, str]) -> None:
        self._directories = json.loads(options["directories"])

    def _sizes(self) -> dict[str, int]:
        now = time.time()
        sizes: dict[str, int] = {}
        for directory in self._directories:
            for path in Path(directory).iterdir():
                if path.suffix not in (OPEN, CLOSED) or parse_name(path) is None:
                    continue
                try:
                    found = path.stat()
                except FileNotFoundError:
                    continue  # closed, or compacted, a moment ago
                if now - found.st_mtime <= _LATELY_S:
                    stem = str(path.with_suffix(""))
                    sizes[stem] = max(found.st_size, sizes.get(stem, 0))
        return sizes

    def initialOffset(self) -> dict[str, int]:
        """Return how long files are now: what is in them is old."""
        return self._sizes() | {_TICK: 0}

    def latestOffset(self) -> dict[str, int]:
        """Return how long files are, and the time: every trigger has a batch."""
        return self._sizes() | {_TICK: now_ms()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Bytes]:
        """Return a range per file that has grown."""
        ranges = [Bytes(f, start.get(f, 0), size) for f, size in end.items() if f != _TICK]
        return [r for r in ranges if r.end > r.start]

    def read(self, partition: Any) -> Iterator[tuple[str, int, bytes]]:
        """Yield the batches that end in a range, as messages of a journal's topic."""
        raw = None
        for suffix in (OPEN, CLOSED):
            try:
                with Path(partition.stem + suffix).open("rb") as file:
                    raw = file.read(partition.end)
                break
            except FileNotFoundError:
                continue
        if raw is None:
            return  # compacted a moment ago: what was new in it is missed by one round
        source = pa.BufferReader(raw)
        for batch in complete_batches(source):
            if source.tell() > partition.start:
                yield (partition.stem, source.tell(), encode(batch))


class TailSource(DataSource):
    """``spark.readStream.format("headgate_journals")``: option directories (JSON)."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "headgate_journals"

    def schema(self) -> str:
        """Return file, offset, value."""
        return SCHEMA

    def streamReader(self, schema: Any) -> TailReader:
        """Return the reader."""
        return TailReader(dict(self.options))


def follow_journals(spark: SparkSession, directories: Sequence[str]) -> DataFrame:
    """Return a stream of journal batches as they are written: file, offset, value."""
    spark.dataSource.register(TailSource)
    reader = spark.readStream.format("headgate_journals")
    absolute = [str(Path(d).absolute()) for d in directories]
    return reader.option("directories", json.dumps(absolute)).load()
