"""
Run a pipeline command: progress while Spark works, tables written, figures for the closing table.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from headgate.errors import ConfigError
from headgate.pipeline import schema
from headgate.pipeline.session import context_of, cores_of
from headgate.pipeline.table import Table, sums
from headgate.pipeline.tables.by_day import save, time_of, with_day
from headgate.pipeline.tables.folders import Folder, HadoopFolder, LocalFolder
from headgate.pipeline.tables.publish import Staged

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, Row, SparkSession

# How often the progress bar asks Spark; asking costs a py4j call or two.
_POLL_S: Final = 0.25
_DESCRIPTION: Final = "spark.job.description"
# Tasks that look for the folder of tables, where nothing says how many run at once.
_LOOKS: Final = 8


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a run's closing table: a row of ``summary``."""

    name: str
    value: float | None = None
    text: str | None = None
    unit: str | None = None
    note: str = ""


@dataclass
class Run:
    """
    One run of one command.

    Args:
        command: its name, for ``summary``.
        spark: the session.
        out: directory (or URI) under which each table has its own.
        console: where progress goes (stderr).
        format: parquet or delta.
        mode: what becomes of older tables, of ``by_day.MODES``.
        by_day: whether tables that have a time are divided by day.
        is_here: whether all workers are on this machine.

    Attributes:
        aside: the folder in which tables are being made; None: they are made under ``out``.
        kept: paths of what ``keep`` wrote.
    """

    command: str
    spark: SparkSession
    out: str
    console: Console
    format: str = "parquet"
    mode: str = "overwrite"
    by_day: bool = False
    is_here: bool = True
    figures: list[Figure] = field(default_factory=list)
    aside: str | None = None
    kept: list[str] = field(default_factory=list)

    def path(self, table: str) -> str:
        """Return where a table lies."""
        return f"{self.place}/{table}"

    @property
    def place(self) -> str:
        """The folder of its tables: ``aside`` while they are being made there, else ``out``."""
        if self.aside is not None:
            return self.aside
        return self.out.rstrip("/") if "://" in self.out else str(Path(self.out).absolute())

    @cached_property
    def context(self) -> SparkContext | None:
        """Spark's context; None where the session has none."""
        return context_of(self.spark)

    @property
    def folder(self) -> Folder:
        """
        The folder that tables are in.

        Raises:
            ConfigError: Spark can't reach it.
        """
        return HadoopFolder(self.spark, self.out) if "://" in self.out else LocalFolder(self.out)

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """
        Let the tables that a block writes, and the summary, replace the older ones when it ends.

        They replace all of them or, where the block raises, none. Delta tables don't wait for the
        end: each has versions of its own.
        """
        if self.format != "parquet":
            try:
                yield
            finally:
                self.drop_kept()
            self.write_summary()
            return
        staged = Staged(self.folder, self.command, self.mode)
        self.aside = staged.path
        try:
            self._refuse_unshared()
            yield
            self.drop_kept()
            self.write_summary()
            staged.publish()
        finally:
            self.aside = None
            staged.discard()

    def keep(self, frame: DataFrame, table: Table, *, words: str) -> DataFrame:
        """
        Write rows that several queries read, beside the tables that are being made.

        So a log is read once, whatever the engine keeps in memory, and a lost executor takes
        nothing along. They are gone when ``replacing`` ends.

        Args:
            frame: the rows.
            table: what they are.
            words: said meanwhile.

        Returns:
            the rows that were written.
        """
        path = self.path(f"_{self.command}-{uuid.uuid4().hex[:8]}-{table.name}")
        self.kept.append(path)
        self._save(table.select(frame), table, path, words)
        return self.spark.read.schema(table.struct).parquet(path)

    def _save(
        self, rows: DataFrame, table: Table, path: str, words: str, by_day: bool = False
    ) -> None:
        """
        Write rows to a folder, as Parquet unless they are a Delta table's.

        Raises:
            ConfigError: not every worker sees the folder.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        count = Observation()
        if self._is_spread:
            rows = rows.observe(count, F.count(F.lit(1)).alias("rows"))
        with self.watch(words):
            save(rows, path, "parquet" if path in self.kept else self.format, "overwrite", by_day)
        if self._is_spread and _rows_in(path) != count.get["rows"]:
            raise ConfigError(self._unshared)
        if self.context is None and self.is_here:
            _name_as_spark(Path(path), table, by_day)

    def drop_kept(self) -> None:
        """Remove what ``keep`` wrote."""
        folder = self.folder
        for path in self.kept:
            folder.remove(path.removeprefix(f"{folder.root}/"))
        self.kept.clear()

    def write(self, frame: DataFrame, table: Table, *, words: str | None = None) -> None:
        """Write a table, replacing what an earlier run left; show Spark's progress meanwhile."""
        rows = table.select_timed(frame)
        by_day = self.by_day and time_of(table.names) is not None
        if by_day:
            rows = with_day(rows)
        words = words or f"writing {table.name}"
        self._save(rows, table.timed, self.path(table.name), words, by_day)

    @property
    def _is_spread(self) -> bool:
        """Whether workers on other machines write to a path that may be another folder there."""
        return not self.is_here and self.format == "parquet" and "://" not in self.out

    @property
    def _unshared(self) -> str:
        return (
            f"--out {self.out}: not every worker sees this folder, and each would keep a part of "
            "the tables; give one that all share (a mount, hdfs://, s3a://)"
        )

    def _refuse_unshared(self) -> None:
        """
        Refuse a folder that workers don't see; asks those workers that have started by now.

        Raises:
            ConfigError: a worker doesn't see it.
        """
        if not self._is_spread:
            return
        place, tasks = self.place, cores_of(self.spark) or _LOOKS

        def look(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                if not Path(place).is_dir():
                    yield batch

        if self.spark.range(0, tasks, 1, tasks).mapInArrow(look, "id long").collect():
            raise ConfigError(self._unshared)

    def read(self, table: Table) -> DataFrame:
        """Return a table written before."""
        reader = self.spark.read.format(self.format)
        if self.format == "parquet":  # what else somebody put there isn't the table's
            reader = reader.option("pathGlobFilter", "part-*").schema(table.timed.struct)
        return reader.load(self.path(table.name))

    def counted(self, table: Table, by: str, least: Sequence[str], most: int) -> list[Row]:
        """
        Count a written table's rows per value of ``by``.

        Args:
            table: that was written.
            by: the column whose values are counted.
            least: columns of which each value's least is given.
            most: how many values; the most frequent come first.

        Returns:
            rows of ``by``, ``count`` and ``least``.
        """
        from pyspark.sql import functions as F

        lowest = [F.min(name).alias(name) for name in least]
        rows = self.read(table).groupBy(by).agg(F.count(F.lit(1)).alias("count"), *lowest)
        return rows.orderBy(F.desc("count"), by).limit(most).collect()

    def figure(
        self,
        name: str,
        value: float | None = None,
        *,
        text: str | None = None,
        unit: str | None = None,
        note: str = "",
    ) -> None:
        """Keep a figure for ``summary``."""
        self.figures.append(Figure(name, None if value is None else float(value), text, unit, note))

    def write_summary(self) -> None:
        """Write the kept figures; other commands' figures in the same directory stay."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [{"command": self.command, **asdict(figure)} for figure in self.figures]
        data = pa.BufferOutputStream()
        pq.write_table(schema.SUMMARY.from_rows(rows), data)
        place = f"{schema.SUMMARY.name}/{self.command}.parquet"
        if self.aside is not None:
            place = f"{self.aside.rpartition('/')[2]}/{place}"
        self.folder.write(place, data.getvalue().to_pybytes())

    @contextmanager
    def watch(self, words: str) -> Iterator[None]:
        """Show how many of Spark's tasks are done until the block ends; its UI shows ``words``."""
        context = self.context
        if context is not None:
            context.setJobDescription(f"headgate {self.command}: {words}")
        stop = threading.Event()
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        loud = self.console.is_terminal
        with Progress(*columns, console=self.console, disable=not loud) as bar:
            shown = bar.add_task(words, total=None)
            thread = threading.Thread(
                target=_poll, args=(context, bar, shown, stop), daemon=True, name="progress"
            )
            thread.start()
            try:
                yield
            finally:
                if context is not None:
                    context.setLocalProperty(_DESCRIPTION, None)
                stop.set()
                thread.join()
                task = bar.tasks[0]
                total = task.total or 1
                bar.update(shown, total=total, completed=total)
        if not loud:
            self.console.print(f"{words}: done")


def _rows_in(path: str) -> int:
    """Return how many rows of a table that was written this process sees."""
    from pyarrow import parquet

    return sum(parquet.read_metadata(file).num_rows for file in Path(path).rglob("*.parquet"))


def _name_as_spark(folder: Path, table: Table, by_day: bool) -> None:
    """
    Name files as Spark does, and write one without rows where there is no file; Sail does neither.

    What another run, or another engine, takes for a table's files are those called ``part-…``.
    """
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    files = list(folder.rglob("*.parquet"))
    for file in files:
        file.rename(file.with_name(f"part-{file.name}"))
    if not files and not by_day:
        pq.write_table(table.from_rows([]), folder / "part-none.parquet")


def _poll(context: Any, bar: Progress, shown: Any, stop: threading.Event) -> None:
    """Show how many tasks are done until ``stop`` is set; a Connect client isn't told."""
    if context is None:
        return
    tracker = context.statusTracker()
    stages: dict[int, tuple[int, int]] = {}
    while not stop.wait(_POLL_S):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                stages[stage] = (info.numCompletedTasks, info.numTasks)
        active = set(tracker.getActiveStageIds())
        done = sum(t if s not in active else c for s, (c, t) in stages.items())
        total = sum(t for _, t in stages.values())
        if total:
            bar.update(shown, total=total, completed=done)


def collect_stats(emitted: DataFrame) -> dict[str, float]:
    """Return lines, input_bytes and bad_lines of an emitted frame."""
    from pyspark.sql import functions as F

    row = emitted.agg(
        *sums("lines", "input_bytes"),
        F.count(F.when(F.col("kind") == "bad", 1)).alias("bad_lines"),
    ).first()
    return {n: float(row[n] or 0) for n in ("lines", "input_bytes", "bad_lines")} if row else {}
