"""
Read and answer in one job of two stages that exchange plain bytes, without Spark's SQL.

Planning a query, compiling it and writing its rows cost a small log ten times what it takes to
read it. Here workers of the first stage read and pack, Spark's shuffle brings together what belongs
together, and workers of the second stage write the tables (``tables.worker_files``). The JVM sees
neither rows nor plans. All workers must see the folder of the tables: it is for local masters.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headgate.pipeline import schema
from headgate.pipeline.table import Table
from headgate.pipeline.tables.worker_files import Part

if TYPE_CHECKING:
    from pyspark import SparkContext

Key = tuple[Any, ...]
"""Number of the answer's part, then what its records are sorted by."""


@dataclass
class Left:
    """
    The results of a task, or of a whole job.

    Attributes:
        files: names of the files it has written, by table.
        counts: sums, by name.
        found: whatever else it hands to the driver.
    """

    files: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    found: list[Any] = field(default_factory=list)

    def close(self, part: Part, table: Table) -> None:
        """End a task's file."""
        self.files.setdefault(table.name, []).extend(part.close())

    def count(self, **counts: float) -> None:
        """Add to the sums."""
        for name, value in counts.items():
            self.counts[name] = self.counts.get(name, 0) + value

    def add(self, other: Left) -> None:
        """Add the results of another task."""
        for table, names in other.files.items():
            self.files.setdefault(table, []).extend(names)
        self.count(**other.counts)
        self.found += other.found


class Reading(Protocol):
    """What the first stage does: read pieces, and pack what is in them."""

    def emit(self, numbers: Iterator[int]) -> Iterator[Any]:
        """Yield Arrow batches of the pieces with some numbers; ``kind`` tells what of."""

    def packed(self, batches: Iterator[Any]) -> Iterator[tuple[Key, Any]]:
        """Pack batches that have no bad lines and counts any more."""


@dataclass(frozen=True)
class _Read:
    """The first stage: keep bad lines and counts aside, pass the rest on."""

    reading: Reading
    out: str

    def __call__(self, numbers: Iterator[int]) -> Iterator[tuple[Key, Any]]:
        left, bad = Left(), Part(schema.BAD_LINES, self.out)
        batches = self.reading.emit(numbers)
        yield from self.reading.packed(_without_side(batches, left, bad))
        left.close(bad, schema.BAD_LINES)
        yield (0,), left


def _without_side(batches: Iterator[Any], left: Left, bad: Part) -> Iterator[Any]:
    for batch in batches:
        is_side = pc.is_in(batch["kind"], pa.array(["bad", "stat"]))
        side = batch.filter(is_side)
        if side.num_rows:
            lines = side.filter(pc.equal(side["kind"], "bad")).select(schema.BAD_LINES.names)
            if lines.num_rows:
                bad.add(lines)
            left.count(
                lines=pc.sum(side["lines"]).as_py() or 0,
                input_bytes=pc.sum(side["input_bytes"]).as_py() or 0,
                bad_lines=lines.num_rows,
            )
            batch = batch.filter(pc.invert(is_side))
        if batch.num_rows:
            yield batch


@dataclass(frozen=True)
class _Answer:
    """The second stage: add the first stage's results (``Left``), answer the other records."""

    answer: Callable[[Iterator[tuple[Key, Any]]], Left]

    def __call__(self, records: Iterator[tuple[Key, Any]]) -> Iterator[Left]:
        left = Left()
        left.add(self.answer(_without_left(records, left)))
        yield left


def _without_left(records: Iterator[tuple[Key, Any]], left: Left) -> Iterator[tuple[Key, Any]]:
    for key, value in records:
        if isinstance(value, Left):
            left.add(value)
        else:
            yield key, value


def part_of(text: str, parts: int) -> int:
    """Return which part of an answer a text belongs to; the same in all processes."""
    return zlib.crc32(text.encode()) % parts


def run(
    context: SparkContext,
    pieces: int,
    tasks: int,
    reading: Reading,
    answer: Callable[[Iterator[tuple[Key, Any]]], Left],
    parts: int,
    out: str,
) -> Left:
    """
    Run the two stages.

    Args:
        context: Spark's, with a local master.
        pieces: how many there are to read.
        tasks: how many tasks read them.
        reading: the first stage.
        answer: the second; gets the records of a part, sorted by their keys.
        parts: how many parts the answer has.
        out: folder of the tables that workers write.
    """
    read = context.parallelize(range(pieces), tasks).mapPartitions(_Read(reading, out))
    together = read.repartitionAndSortWithinPartitions(parts, itemgetter(0))
    whole = Left(counts={"lines": 0, "input_bytes": 0, "bad_lines": 0})
    for left in together.mapPartitions(_Answer(answer)).collect():
        whole.add(left)
    return whole
