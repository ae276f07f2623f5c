"""
Follow a growing input, and keep a command's tables up to date with what was read of it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.errors import StreamingQueryException

from headgate.errors import ConfigError
from headgate.pipeline import schema
from headgate.pipeline.growing.parts import Parts, listed
from headgate.pipeline.run import Run
from headgate.pipeline.sources.files import filesystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POLLING: Final = "spark.sql.streaming.pollingDelay"
"""Spark's setting: how long a query waits before it looks again where nothing was new."""
_OF_FILES: Final = "round"
"""Key of the offsets of files (``library.stream``) that those of a topic don't have."""


class GrowingTables:
    """
    Makes the tables of all parts so far, in place of the older ones.

    Args:
        run: the command's run.
        parts: what was read.
        write: writes the tables of all parts up to a batch.
        time_zone: assumed where a log prints none.
    """

    def __init__(
        self,
        run: Run,
        parts: Parts,
        write: Callable[[int], None],
        time_zone: str,
    ) -> None:
        self.run = run
        self.parts = parts
        self._write = write
        self._time_zone = time_zone
        self._busy = threading.Lock()
        self._made = False

    def make(self, upto: int) -> None:
        """Make them of the parts up to a batch; all of them, or (told to stop) none."""
        with self._busy:
            before, self.run.figures = self.run.figures, []
            try:
                self._make(upto)
            except BaseException:
                self.run.figures = before
                raise
            self._made = True

    def make_last(self) -> None:
        """Make them of all parts, unless they were made before."""
        with self._busy:  # a round that was told to stop may still be on its way out
            made = self._made
        if not made:
            self.make(self.parts.last())

    def _make(self, upto: int) -> None:
        run = self.run
        with run.replacing():
            self._write(upto)
            run.write(self.parts.read(schema.BAD_LINES.name, upto), schema.BAD_LINES)
            bad = run.read(schema.BAD_LINES).count()
            run.figure("bad_lines", bad, unit="lines", note="kept in table bad_lines")
            run.figure("time_zone", text=self._time_zone, note="assumed where a log prints none")


class Source(Protocol):
    """
    Where rounds come from.

    Attributes:
        keeps: parts that it needs where requests are kept.
        has_limit: whether a round may leave something for the next.
    """

    keeps: tuple[str, ...]
    has_limit: bool

    def stream(self, spark: SparkSession, parts: Parts) -> DataFrame:
        """Return what is new, batch by batch."""

    def write(self, batch: DataFrame, number: int, parts: Parts) -> None:
        """Read a batch, and write what came of it as the parts of this number (``Parts.write``)."""


def follow(
    source: Source,
    tables: GrowingTables,
    stop: threading.Event,
    say: Callable[[str], None],
    *,
    once: bool,
    every_s: float,
) -> None:
    """
    Read what is new round by round, and make the tables after each round; or do one round.

    Args:
        source: where rounds come from.
        tables: what to make.
        stop: ends it.
        say: gets a sentence about each round.
        once: take what is there now, make the tables and end.
        every_s: seconds between rounds.

    Raises:
        ConfigError: what was kept is of another source, or of an earlier version.
        Exception: what ended it.
    """
    parts, spark = tables.parts, tables.run.spark
    refuse_other_checkpoint(parts.checkpoint, is_of_files=source.has_limit)
    failures: list[Exception] = []

    def write(batch: DataFrame, number: int) -> None:
        try:
            source.write(batch, number, parts)
            if not once:
                began = time.monotonic()
                tables.make(number)
                say(f"round {number}: tables are made, in {time.monotonic() - began:.1f} s")
        except Exception as exc:
            failures.append(exc)  # Spark's own wraps it
            raise

    writer = source.stream(spark, parts).writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", parts.checkpoint)
    if once:
        query = writer.trigger(availableNow=True).start()
    elif source.has_limit:  # rounds go on while there's something new
        with _pause(spark, every_s):
            query = writer.trigger(processingTime="0 seconds").start()
    else:
        query = writer.trigger(processingTime=f"{every_s} seconds").start()
    try:
        while query.isActive and not stop.is_set():
            query.awaitTermination(1)
    except KeyboardInterrupt:
        stop.set()
    except StreamingQueryException:
        pass  # it's asked for below
    finally:
        query.stop()
    failure = None if stop.is_set() else query.exception()
    if failure is not None:
        raise failures[-1] if failures else failure


@contextmanager
def _pause(spark: SparkSession, every_s: float) -> Iterator[None]:
    """Let queries that start in a block wait ``every_s`` seconds where nothing is new."""
    before = spark.conf.get(_POLLING, None)
    spark.conf.set(_POLLING, f"{max(int(every_s * 1000), 10)}ms")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_POLLING)
        else:
            spark.conf.set(_POLLING, before)


def refuse_other_checkpoint(checkpoint: str, *, is_of_files: bool) -> None:
    """
    Refuse a checkpoint that this source can't go on from.

    Args:
        checkpoint: its directory.
        is_of_files: whether the source is files, not a topic.

    Raises:
        ConfigError: what was kept is of another source, or of an earlier version.
    """
    out = "start again with another --out, or without --incremental and --follow"
    offsets = [int(name) for name in listed(f"{checkpoint}/offsets") if name.isdecimal()]
    if not offsets and listed(f"{checkpoint}/commits"):
        raise ConfigError(
            f"{checkpoint} is of an earlier version of Headgate, and says nothing of what was read "
            f"that this one could go on from; {out}"
        )
    if not offsets:
        return
    system, newest = filesystem(f"{checkpoint}/offsets/{max(offsets)}")
    with system.open_input_stream(newest) as file:
        lines = file.read().decode().splitlines()
    try:
        known = json.loads(lines[-1])
    except (IndexError, ValueError):  # Spark says what is wrong with it
        return
    if isinstance(known, dict) and (_OF_FILES in known) != is_of_files:
        was, now = ("a topic", "files") if is_of_files else ("files", "a topic")
        raise ConfigError(
            f"{checkpoint} says what was read of {was}, and this run reads {now}; {out}"
        )
