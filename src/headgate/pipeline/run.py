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
from headgate.pipeline.table import Table, sums, time_of
from headgate.pipeline.tables import by_day as days
from headgate.pipeline.tables import lake
from headgate.pipeline.tables.folders import Folder, HadoopFolder, LocalFolder, local_path
from headgate.pipeline.tables.runs import Staged, pointer_in, refuse_earlier

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, Row, SparkSession

# How often the progress bar asks Spark; asking costs a py4j call or two.
_POLL_S: Final = 0.25
_DESCRIPTION: Final = "spark.job.description"
# Tasks that look for the folder of tables, where nothing says how many run at once.
_LOOKS: Final = 8


@dataclass(frozen=True, slots=True)
class RunFigure:
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
        out: directory (or URI) of the tables; of Delta and Iceberg also ``catalog.db``.
        console: where progress goes (stderr).
        format: of ``lake.FORMATS``.
        mode: what becomes of older tables, of ``by_day.MODES``.
        by_day: whether tables that have a time are divided by day.
        is_here: whether all workers are on this machine.

    Attributes:
        aside: the folder in which tables are being made; None: none are.
        made: the folder of the Parquet tables that were made last.
        kept: paths of what ``keep`` wrote.
        written: the tables that were written, and whether each is divided by day.
    """

    command: str
    spark: SparkSession
    out: str
    console: Console
    format: str = "parquet"
    mode: str = "overwrite"
    by_day: bool = False
    is_here: bool = True
    figures: list[RunFigure] = field(default_factory=list)
    aside: str | None = None
    made: str | None = None
    kept: list[str] = field(default_factory=list)
    written: dict[str, tuple[Table, bool]] = field(default_factory=dict)

    def path(self, table: str) -> str:
        """Return where this run wrote a table: a folder, or the name of a catalog's table."""
        if self.aside is None and self._is_named:
            return f"{self.out}.{table}"
        return f"{self.aside or self.made or self.root}/{table}"

    @property
    def root(self) -> str:
        """The directory of all runs; where tables go to a catalog, Spark's own for tables."""
        if self._is_named:
            place = str(self.spark.conf.get("spark.sql.warehouse.dir")).rstrip("/")
            return f"/{place.removeprefix('file:').lstrip('/')}" if place[:5] == "file:" else place
        local = local_path(self.out)
        return self.out.rstrip("/") if local is None else str(Path(local).absolute())

    def for_spark(self, path: str) -> str:
        """Return a path below ``root`` as Spark takes it, whatever its default file system is."""
        return f"file://{path}" if self.out.startswith("file:") and path[0] == "/" else path

    @property
    def _is_named(self) -> bool:
        return self.format != "parquet" and lake.is_name(self.out)

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
        root = self.root
        if "://" in root:
            return HadoopFolder(self.spark, root)
        return LocalFolder(root)

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """
        Let the tables that a block writes, and the summary, replace the older ones when it ends.

        Parquet tables replace all of them or, where the block raises, none. Tables of Delta and
        Iceberg are changed when the block ends, one after the other.
        """
        folder, is_lake = self.folder, self.format != "parquet"
        if not self._is_named:
            refuse_earlier(folder, lake=is_lake)
        staged = Staged(folder, self.command, self.mode)
        self.aside = staged.path
        self.written.clear()
        try:
            self._refuse_unshared()
            yield
            self.drop_kept()
            self.write_summary()
            if is_lake:
                for table, by_day in self.written.values():
                    self._hand_over(table, by_day)
            else:
                staged.publish(name for name, (_, by_day) in self.written.items() if not by_day)
                self.made = staged.path
        finally:
            self.aside = None
            staged.discard()

    def _hand_over(self, table: Table, by_day: bool) -> None:
        """Write a table that was made to the Delta or Iceberg table of its name."""
        from pyspark.sql import functions as F

        rows = self.read(table)
        path = self.for_spark(f"{self.root}/{table.name}")
        place = f"{self.out}.{table.name}" if self._is_named else path
        with self.watch(f"writing {table.name}"), lake.explained(self.format, self.spark.version):
            if table is schema.SUMMARY:
                lake.replace(rows, place, self.format, F.col("command") == self.command)
                return
            whole = table is schema.BAD_LINES or (self.mode == "merge" and not by_day)
            mode = "overwrite" if whole else self.mode
            lake.save(rows, place, self.format, mode, by_day)

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
        return days.exact(self.spark).schema(table.struct).parquet(self.for_spark(path))

    def _save(
        self, rows: DataFrame, table: Table, path: str, words: str, by_day: bool = False
    ) -> None:
        """
        Write rows to a folder.

        Raises:
            ConfigError: not every worker sees the folder.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        count = Observation()
        if self._is_spread:
            rows = rows.observe(count, F.count(F.lit(1)).alias("rows"))
        with self.watch(words):
            days.save(rows, self.for_spark(path), "overwrite", by_day)
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
        words = words or f"writing {table.name}"
        self._save(rows, table.timed, self.path(table.name), words, by_day)
        self.written[table.name] = table, by_day

    @property
    def _is_spread(self) -> bool:
        """Whether workers on other machines write to a path that may be another folder there."""
        return not self.is_here and "://" not in self.root

    @property
    def _unshared(self) -> str:
        where = f"spark.sql.warehouse.dir {self.root}" if self._is_named else f"--out {self.out}"
        return (
            f"{where}: not every worker sees this folder, and each would keep a part of "
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
        place, tasks = str(self.aside), cores_of(self.spark) or _LOOKS

        def look(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                if not Path(place).is_dir():
                    yield batch

        if self.spark.range(0, tasks, 1, tasks).mapInArrow(look, "id long").collect():
            raise ConfigError(self._unshared)

    def read(self, table: Table) -> DataFrame:
        """Return a table written before: while tables are being made, what this run wrote."""
        if self.aside is None and self.format != "parquet":
            path = self.path(table.name)
            place = path if self._is_named else self.for_spark(path)
            name = lake.identifier(self.spark, place, self.format)
            return table.timed.select(self.spark.read.table(name))
        places = [self.path(table.name)]
        if self.aside is None:
            parts = pointer_in(self.folder).tables.get(table.name, [])
            places = [f"{self.root}/{part}" for part in parts]
        if not places:
            return self.spark.createDataFrame([], table.timed.struct)
        return days.read(self.spark, map(self.for_spark, places), table)

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
        self.figures.append(
            RunFigure(name, None if value is None else float(value), text, unit, note)
        )

    def write_summary(self) -> None:
        """Write the kept figures to the tables that are being made."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [{"command": self.command, **asdict(figure)} for figure in self.figures]
        data = pa.BufferOutputStream()
        pq.write_table(schema.SUMMARY.from_rows(rows), data)
        place = f"{schema.SUMMARY.name}/part-{self.command}.parquet"
        self.folder.write(f"{str(self.aside).rpartition('/')[2]}/{place}", bytes(data.getvalue()))
        self.written[schema.SUMMARY.name] = schema.SUMMARY, False

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
