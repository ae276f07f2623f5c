"""
The same command on a real Spark cluster: a master and two workers on loopback.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import duckdb
import pyspark
import pytest

import duckdb_oracle
from headgate.embedded import spark_env

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[1] / "data" / "pipeline"
LOG, QUOTAS = DATA / "precise.log.gz", DATA / "precise.quotas.json"
SPARK = Path(pyspark.__file__).parent


@pytest.fixture
def cluster(free_ports: Callable[..., list[int]], tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Yield (master's URL, its page) with two workers of one core each registered."""
    port, page, *pages = free_ports(4)
    master = f"spark://127.0.0.1:{port}"
    env = os.environ | spark_env()
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK), "SPARK_DAEMON_MEMORY": "256m"}

    children: list[subprocess.Popen[bytes]] = []

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        deploy = "org.apache.spark.deploy."
        argv = [str(SPARK / "bin" / "spark-class"), deploy + arguments[0], "--host", "127.0.0.1"]
        with (tmp_path / f"{len(children)}.log").open("wb") as log:
            return subprocess.Popen([*argv, *arguments[1:]], env=env, stdout=log, stderr=log)

    def workers() -> int:
        with contextlib.suppress(URLError), urlopen(f"http://127.0.0.1:{page}/json/") as answer:
            return answer.read().count(b'"ALIVE"') - 1  # the master says so of itself
        return 0

    children.append(run("master.Master", "--port", str(port), "--webui-port", str(page)))
    try:
        for number in pages:
            flags = ["--cores", "1", "--memory", "1g", "--webui-port", str(number)]
            flags += ["--work-dir", str(tmp_path / f"work-{number}"), master]
            children.append(run("worker.Worker", *flags))
        deadline = time.monotonic() + 120
        while workers() < 2:
            assert time.monotonic() < deadline, "the workers don't register"
            assert all(child.poll() is None for child in children)
            time.sleep(0.2)
        yield master, f"http://127.0.0.1:{page}"
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait()


def test_usage_on_two_workers_gives_what_one_machine_gives(
    cluster: tuple[str, str], tmp_path: Path
) -> None:
    master, page = cluster
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    lines = gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)
    (logs / "r.1").write_bytes(b"".join(lines[:1200]))  # a piece for each worker
    (logs / "r.2").write_bytes(b"".join(lines[1200:]))
    argv = [sys.executable, "-m", "headgate.cli.main", "usage", "--requests", str(logs)]
    argv += ["--quotas", str(QUOTAS), "--out", str(out), "--master", master]
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
    }.items():
        argv += ["--spark-conf", f"{name}={value}"]
    env = os.environ | spark_env() | {"SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert master in done.stderr
    rows = duckdb.sql(
        "select quota_type, quota_id, quota, second_ms, requests, bytes, throttle_time_ms "
        f"from read_parquet('{out}/usage/*.parquet') where quota_type like '%byte_rate'"
    ).fetchall()
    assert sorted(rows, key=str) == duckdb_oracle.usage(LOG, QUOTAS)
    with urlopen(f"{page}/json/") as answer:
        assert b"headgate usage" in answer.read()  # it ran there
