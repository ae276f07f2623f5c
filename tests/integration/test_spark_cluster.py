"""
The same command on a real Spark cluster: a master and two workers on loopback.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from headgate.cli.main import load
from headgate.embedded import spark_env
from headgate.pipeline.sources.files import paths
from kit import duckdb_oracle
from kit.spark_machines import (
    SPARK,
    Cluster,
    build_wheel,
    commands,
    java,
    make_environment,
    standalone,
    submit_script,
    write_conf,
)

main_replay = load("replay")

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[1] / "data" / "pipeline"
LOG, QUOTAS = DATA / "precise.log.gz", DATA / "precise.quotas.json"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Yield a cluster whose Pythons see what this one does, where they are the same."""
    with standalone(tmp_path, {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}) as made:
        yield made


def write_logs(folder: Path) -> Path:
    """Write a log in two files: a piece for each worker."""
    folder.mkdir()
    lines = gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)
    (folder / "r.1").write_bytes(b"".join(lines[:1200]))
    (folder / "r.2").write_bytes(b"".join(lines[1200:]))
    return folder


@pytest.mark.slow
def test_usage_on_two_workers_gives_what_one_machine_gives(
    cluster: Cluster, tmp_path: Path
) -> None:
    logs, out = write_logs(tmp_path / "logs"), tmp_path / "out"
    argv = [sys.executable, "-m", "headgate.cli.main", "usage", "--requests", str(logs)]
    argv += ["--quotas", str(QUOTAS), "--out", str(out), "--master", cluster.master]
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
    assert cluster.master in done.stderr
    rows = duckdb.sql(
        "select quota_type, quota_id, quota, second_ms, requests, bytes, throttle_time_ms "
        f"from read_parquet({paths(out, 'usage')}) where quota_type like '%byte_rate'"
    ).fetchall()
    assert sorted(rows, key=str) == duckdb_oracle.usage(LOG, QUOTAS)
    assert cluster.ran("headgate usage")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["archives", "py-files"])
def test_what_the_recipe_ships_is_all_that_workers_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    env = {n: v for n, v in os.environ.items() if not n.startswith("PYTHON")} | java()
    env |= {"SPARK_CONF_DIR": str(write_conf(tmp_path / "conf", {}))}
    env["PATH"] = f"{SPARK / 'bin'}:{env['PATH']}"

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-5000:]
        return done.stdout

    wheel = build_wheel(tmp_path)
    make_environment(tmp_path, wheel if way == "archives" else None, run)
    python = tmp_path / "pipeline-env" / "bin" / "python"
    with pytest.raises(AssertionError, match="No module named 'headgate'"):
        run(f"{python.resolve()} -c 'import headgate'")
    (tmp_path / "headgate_submit.py").write_text(submit_script())
    (submit,) = commands("A standalone cluster")
    if way == "py-files":
        with pytest.raises(AssertionError, match="No module named 'headgate'"):
            run(f"{python} -c 'import headgate'")
        shutil.copyfile(wheel, tmp_path / "headgate.zip")
        submit = submit.replace("--archives pipeline-env.tar.gz#env", "--py-files headgate.zip")
        submit = submit.replace("PYSPARK_PYTHON=./env/bin/python", f"PYSPARK_PYTHON={python}")
    logs, out = write_logs(tmp_path / "logs"), tmp_path / "out"
    with standalone(tmp_path) as cluster:
        for word, given in {
            "spark://HOST:7077": cluster.master,
            "/mnt/logs/kafka": logs,
            "/mnt/headgate/out": out,
            "quotas.yaml": QUOTAS,
            "/tmp/numba": tmp_path / "numba",
        }.items():
            assert word in submit
            submit = submit.replace(word, str(given))
        assert "Replayed against logged" in run(submit)
        assert cluster.ran("headgate replay")
        # Both workers ran it, out of what they were sent.
        shipped = "env/pyvenv.cfg" if way == "archives" else "headgate.zip"
        for worker in cluster.workers:
            assert len(list(worker.home.glob(f"work/*/*/{shipped}"))) == 1
    here = tmp_path / "here"
    argv = ["--requests", str(logs), "--broker-id", "1", "--quotas", str(QUOTAS)]
    assert main_replay([*argv, "--out", str(here), "--master", "local[2]"]) == 0
    rows = [
        sorted(duckdb.sql(f"select * from read_parquet({paths(o, 'replay')})").fetchall(), key=str)
        for o in (out, here)
    ]
    assert len(rows[0]) > 2000
    assert rows[0] == rows[1]
