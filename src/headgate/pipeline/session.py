"""
Open the Spark session of the pipeline's commands: a local one, or the one of spark-submit.

Locally: all cores, no UI, loopback only, few shuffle partitions (the workers hand over little).
Under ``spark-submit`` (or with ``--master``) nothing of the cluster's own settings is touched but
what the results depend on: the session's time zone.

A local JVM maps Spark's classes from an archive instead of parsing jars: loading and verifying some
ten thousand classes is half of what starting Spark costs. The JVM's own remedy (class data sharing,
JDK 13 and newer) is an archive that one run writes and later ones map. ``make setup`` has it
written; without it Spark only starts more slowly.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.embedded.cache import cache_dir
from headgate.embedded.java import options_to_use_classes
from headgate.pipeline.spark_versions import spark_home

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# What results depend on, everywhere.
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # INT96, Spark's default, is deprecated and knows no zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# A laptop's own settings. 2 GB hold the JVM side of any log: rows stay in the Python workers.
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.sql.adaptive.enabled": "false",
    # What is persisted is read once or twice: packing its columns costs more than their memory.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Workers are forked from one that has loaded what they need.
    "spark.python.daemon.module": "headgate.pipeline.workers.daemon",
}
# A task that failed, by a read from afar perhaps, is tried again, as a cluster does.
_TRIES: Final = 3
# The JVM moves little data and lives briefly: the optimising compiler costs more than it saves, and
# so does collecting the metaspace while it's still filling. With the first compiler alone Java
# would keep 48 MB for compiled code: a session of many queries fills that, and its JVM fails.
_JAVA: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:MetaspaceSize=256m",
)

# The first JDK with -XX:ArchiveClassesAtExit.
_MIN_JAVA: Final = 13
PARALLELISM: Final = "spark.sql.leafNodeDefaultParallelism"


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return a session's context; a Connect client, which Sail's is too, has none."""
    return getattr(spark, "sparkContext", None)


def cores_of(spark: SparkSession) -> int | None:
    """
    Return how many tasks a session can run at once; None: nothing says it.

    A Connect client isn't told; ``spark.sql.leafNodeDefaultParallelism`` of the session can say it.
    """
    context = context_of(spark)
    if context is not None:
        return int(context.defaultParallelism)
    told = spark.conf.get(PARALLELISM, None)
    return int(told) if told else None


def open_remote(address: str, config: dict[str, str]) -> SparkSession:
    """
    Return a session of a Spark Connect server.

    Args:
        address: ``sc://HOST:PORT``, with what else such an address may have.
        config: settings of the session, by name.
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(address).getOrCreate()
    for name, value in (_ALWAYS | config).items():
        spark.conf.set(name, value)
    return spark


def submitted() -> bool:
    """Say whether this process was started by spark-submit (or a notebook's gateway)."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_ENV_LOADED" in os.environ


def open_session(
    app: str,
    *,
    master: str | None = None,
    config: dict[str, str] | None = None,
    log: Path | None = None,
    java_options: Sequence[str] = (),
) -> SparkSession:
    """
    Return the Spark session to use; the one that runs already, if one does.

    Args:
        app: name shown by Spark.
        master: as spark-submit's --master; None = local on all cores, or what was submitted to.
        config: further Spark settings, by name.
        log: file that takes what the driver's JVM writes to stderr; None: to this process's stderr.
        java_options: of a local JVM, in place of the archive of classes.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    conf = SparkConf().setAppName(app)
    settings = dict(_ALWAYS)
    local = False
    if not submitted():
        local = master is None or master.startswith("local")
        if local:
            # Else the JVM asks for the address of this machine's name, which not all have.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
        conf.setMaster(master or f"local[*,{_TRIES}]")
        if local:
            settings |= _LOCAL
            # For the JVM that only works out the command line of Spark's.
            os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(_JAVA[:2]))
            options = [*_JAVA, *java_options]
            if not java_options:
                options += class_options()
            settings["spark.driver.extraJavaOptions"] = " ".join(options)
            settings["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 2))
    settings |= config or {}
    conf.setAll(list(settings.items()))
    with _stderr_to(None if submitted() else log):
        context = SparkContext.getOrCreate(conf)
    if not local:  # workers read object stores themselves, as this process does
        context.environment |= {n: v for n, v in os.environ.items() if n.startswith("AWS_")}
    builder = SparkSession.builder
    for name, value in (_ALWAYS | (config or {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def class_archive() -> Path | None:
    """
    Return where the archive for this Java and this Spark lies, or would lie.

    Returns:
        None where the Java isn't known (no JAVA_HOME) or too old, or there's no folder for it.
    """
    home = os.environ.get("JAVA_HOME")
    if not home:
        return None
    program = Path(home) / "bin" / "java"
    release = program.resolve().parents[1] / "release"
    try:
        text = release.read_text() if release.is_file() else program.read_text(errors="replace")
        jars, folder = _jars(), cache_dir()
    except OSError:
        return None
    version = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    if version and int(version[1]) < _MIN_JAVA:
        return None
    key = hashlib.sha256(repr((text, jars)).encode()).hexdigest()[:16]
    return folder / f"spark-classes-{key}.jsa"


def _jars() -> list[tuple[str, int, int]]:
    """Return name, size and time of Spark's jars: the JVM takes an archive for the same only."""
    home = spark_home()
    folder = Path() if home is None else home / "jars"
    found = ((p.name, p.stat()) for p in folder.glob("*.jar"))
    return sorted((name, stat.st_size, int(stat.st_mtime)) for name, stat in found)


def class_options() -> list[str]:
    """Return the JVM's options to use the archive; none where there isn't one."""
    path = class_archive()
    return [] if path is None else options_to_use_classes(path)


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """Let a child started in this block (the JVM) write its stderr to ``log``, for good."""
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.dup2(target, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)
