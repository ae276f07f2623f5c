"""
Ask every command and every function of the pipeline once, on the PySpark of this Python.

    python scripts/spark_answers.py commands FOLDER
    python scripts/spark_answers.py library FOLDER

``make bounds SPARK=3.5`` runs both in an environment with that PySpark and in the pinned one, and
compares. FOLDER gets a file for each table: its rows as text, to the last digit, in one order; or
the sentence with which it was refused, or the error. ``library`` uses a stock SparkSession.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parent.parent
BUNDLED = ROOT / "src" / "headgate" / "pipeline" / "data"
QUOTAS = str(BUNDLED / "quotas.yaml")
# Others, so that a plan differs.
PLAN = str(ROOT / "tests" / "data" / "pipeline" / "public.quotas.json")
NOW_MS = 1_790_000_000_000
COMMANDS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "usage": (["--quotas", QUOTAS], ("usage", "usage_hour", "usage_day", "bad_lines")),
    "requests": ([], ("requests",)),
    "replay": (["--quotas", QUOTAS], ("replay",)),
    "what-if": (
        ["--quotas", QUOTAS, "--plan", QUOTAS, "--plan", PLAN, "--closed-loop"],
        ("what_if", "demand"),
    ),
    "storms": (["--connections-per-second", "1"], ("storms",)),
    "effective": (["--quotas", QUOTAS], ("effective",)),
    "chargeback": (["--quotas", QUOTAS], ("chargeback",)),
    "recommend": (["--quotas", QUOTAS], ("recommend",)),
    "usage --incremental": (["--quotas", QUOTAS, "--incremental"], ("usage",)),
}
"""What each command is told, and which tables are looked at."""


def inputs(folder: Path) -> dict[str, str]:
    """Return a log and a journal; the journal is written again."""
    from kit.journals import traffic, write_journal

    journal = folder / "journal"
    journal.mkdir(parents=True, exist_ok=True)
    write_journal(journal, traffic(NOW_MS)[1])
    return {"log": str(BUNDLED / "request.log.gz"), "journal": str(journal)}


def keep(folder: Path, name: str, rows: Iterable[object]) -> None:
    """Write rows as text, in one order."""
    lines = sorted(map(repr, rows))
    (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    print(f"{name}: {len(lines)} rows", flush=True)


def refuse(folder: Path, name: str, why: str) -> None:
    """Write why there are no rows."""
    (folder / f"{name}.txt").write_text(why + "\n")
    print(f"{name}: {why}", flush=True)


def run_commands(folder: Path, given: dict[str, str]) -> None:
    """Run every command on every input."""
    import pyarrow.dataset

    from headgate.cli.main import main
    from headgate.pipeline.sources.files import paths

    for source, path in given.items():
        for command, (flags, tables) in COMMANDS.items():
            with tempfile.TemporaryDirectory(prefix="headgate-bounds-") as out:
                words = [*command.split(), "--requests", path, "--broker-id", "1", *flags]
                said = io.StringIO()
                with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                    status = main([*words, "--out", out, "--quiet"])
                for table in tables:
                    name = f"{source} - headgate {command} - {table}"
                    if status not in (0, 3):  # 3: storms were found
                        refuse(folder, name, f"refused: {said.getvalue().strip()}")
                        continue
                    found = pyarrow.dataset.dataset(paths(out, table), format="parquet")
                    keep(folder, name, found.to_table().to_pylist())


def answers(requests: DataFrame) -> dict[str, Callable[[], DataFrame]]:
    """Return every answer of a frame."""
    import headgate.pipeline as hp
    from headgate.pipeline.answers.storms import Thresholds

    plans = {"one": QUOTAS, "two": PLAN}
    asked: dict[str, Callable[..., DataFrame]] = {
        "usage": partial(hp.usage, quotas=QUOTAS),
        "usage by hour": partial(hp.usage, quotas=QUOTAS, by="hour"),
        "usage by day": partial(hp.usage, quotas=QUOTAS, by="day"),
        "replay": partial(hp.replay, quotas=QUOTAS),
        "what_if": partial(hp.what_if, plans=plans, in_force=QUOTAS),
        "demand": partial(hp.demand, plans=plans),
        "storms": partial(hp.storms, thresholds=Thresholds(connections_per_s=1)),
        "effective": partial(hp.effective, quotas=QUOTAS),
        "chargeback": partial(hp.chargeback, quotas=QUOTAS),
        "recommend": partial(hp.recommend, quotas=QUOTAS),
        "activity": hp.activity,
    }
    return {name: partial(ask, requests) for name, ask in asked.items()}


def written(spark: SparkSession, frame: DataFrame, work: str) -> DataFrame:
    """Write a frame twice, the second time merged by a key, and read it."""
    import headgate.pipeline as hp

    key = ("broker_id", "listener", "principal", "client_id", "quota_type", "second_ms")
    hp.write(frame, f"{work}/merged", mode="merge", key=key)
    hp.write(frame, f"{work}/merged", mode="merge", key=key)
    return spark.read.parquet(f"{work}/merged")


def streamed(spark: SparkSession, path: str, work: str) -> DataFrame:
    """Read a path as a stream, to a table, and read that."""
    import headgate.pipeline as hp

    assert hp.KafkaRequestLog.name() == "kafka-request-log"
    source = spark.readStream.format("kafka-request-log").option("brokerId", 1).load(path)
    writer = source.writeStream.option("checkpointLocation", f"{work}/kept")
    query = writer.trigger(availableNow=True).start(f"{work}/streamed", format="parquet")
    query.awaitTermination()
    return spark.read.parquet(f"{work}/streamed")


def run_library(folder: Path, given: dict[str, str]) -> None:
    """Ask every function on every input, in a stock session."""
    from pyspark.sql import SparkSession

    import headgate.pipeline as hp

    # Nothing but what keeps it on this machine.
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    # And what a small input needs: two hundred tasks of a few rows take long.
    spark = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for source, path in given.items():
        requests = hp.requests(spark, path, broker_id=1)
        with tempfile.TemporaryDirectory(prefix="headgate-bounds-") as work:
            asked = {"requests": lambda r=requests: r} | answers(requests)
            asked["by_second"] = partial(hp.by_second, spark, path, broker_id=1)
            asked["bad_lines"] = partial(hp.bad_lines, spark, path)
            asked["write, merged"] = partial(written, spark, hp.activity(requests), work)
            reader = spark.read.format("kafka-request-log").option("brokerId", 1)
            asked["data source"] = partial(read_source, reader, path)
            asked["data source as a stream"] = partial(streamed, spark, path, work)
            for name, ask in asked.items():
                full = f"{source} - hp - {name}"
                try:
                    rows = [row.asDict(recursive=True) for row in ask().collect()]
                except Exception as exc:
                    refuse(folder, full, said_of(exc))
                else:
                    keep(folder, full, rows)
    spark.stop()


def read_source(reader: Any, path: str) -> DataFrame:
    """Read a path by the data source."""
    import headgate.pipeline as hp

    assert hp.KafkaRequestLog.name() == "kafka-request-log"
    frame: DataFrame = reader.load(path)
    return frame


def said_of(exc: Exception) -> str:
    """Return the sentence of an error of Headgate's, or the error."""
    from headgate.errors import HeadgateError

    text = str(exc)
    if isinstance(exc, HeadgateError):
        return f"refused: {text}"
    # An error of the data source's comes in a page of Spark's.
    sentence = [line for line in text.splitlines() if "ConfigError: " in line]
    if sentence:
        return f"refused: {sentence[-1].partition('ConfigError: ')[2]}"
    return f"failed: {type(exc).__name__}: {' '.join(text.split())[:2000]}"


def main() -> int:
    """Run one of the two."""
    what, folder = sys.argv[1], Path(sys.argv[2]).absolute()
    sys.path.insert(0, str(ROOT / "tests"))
    folder.mkdir(parents=True, exist_ok=True)
    from headgate.embedded.java import spark_env

    os.environ.update(spark_env())
    given = inputs(folder.parent)
    {"commands": run_commands, "library": run_library}[what](folder, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
