"""
The same command on a real Spark cluster: a master and two workers on loopback.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import duckdb
import pyspark
import pytest
from packaging.requirements import Requirement

import duckdb_oracle
from headgate.cli.pipeline.replay import main_replay
from headgate.embedded import spark_env

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[1] / "data" / "pipeline"
LOG, QUOTAS = DATA / "precise.log.gz", DATA / "precise.quotas.json"
SPARK = Path(pyspark.__file__).parent
RECIPE = Path(__file__).parents[2] / "docs" / "howto" / "spark-submit.md"


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
        try:
            with urlopen(f"http://127.0.0.1:{page}/json/", timeout=60) as answer:
                return answer.read().count(b'"ALIVE"') - 1  # the master's own status
        except HTTPError as early:  # its pages aren't all there yet
            early.close()
        except (OSError, HTTPException):  # it doesn't listen, or hangs up
            pass
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


@pytest.mark.slow
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


def commands(heading: str) -> list[str]:
    """Return the lines of the first example under a heading of the docs, continued ones joined."""
    text = RECIPE.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1]
    return text.split("```\n")[1].replace("\\\n", "").splitlines()


def copy_installed(site: Path, *, headgate: bool) -> None:
    """Copy what `pip install .[pipeline]` brings, pyspark left out; there's no network."""
    names, wanted = {"kafka-headgate"}, [("kafka-headgate", ("pipeline",))]
    while wanted:
        name, extras = wanted.pop()
        for text in distribution(name).requires or ():
            need = Requirement(text)
            given = [{"extra": extra} for extra in (*extras, "")]
            if need.marker is not None and not any(map(need.marker.evaluate, given)):
                continue
            if need.name not in {*names, "pyspark"}:
                names.add(need.name)
                wanted.append((need.name, tuple(need.extras)))
    for name in names - {"kafka-headgate"}:
        for file in distribution(name).files or ():
            source = Path(str(file.locate()))
            if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
                continue
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, site / file)
    if headgate:
        ours = Path(str(files("headgate")))
        shutil.copytree(ours, site / "headgate", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["archives", "py-files"])
def test_what_the_recipe_ships_is_all_that_workers_need(
    cluster: tuple[str, str], tmp_path: Path, way: str
) -> None:
    master, page = cluster
    make, pip, pack = commands("What the workers need")
    assert pip == "pipeline-env/bin/pip install '.[pipeline]'"
    env = {n: v for n, v in (os.environ | spark_env()).items() if not n.startswith("PYTHON")}
    # What is the cluster's, not the recipe's.
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "spark.driver.host 127.0.0.1\n"
        "spark.driver.bindAddress 127.0.0.1\n"
        "spark.ui.enabled false\n"
        "spark.executor.memory 512m\n"
        "spark.executor.cores 1\n"
    )
    env |= {"SPARK_CONF_DIR": str(conf), "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}
    env["PATH"] = f"{SPARK / 'bin'}:{env['PATH']}"

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-5000:]
        return done.stdout

    run(make.replace("python3", sys.executable) + " --without-pip")
    site = next((tmp_path / "pipeline-env" / "lib").glob("python3*/site-packages"))
    copy_installed(site, headgate=way == "archives")
    python = tmp_path / "pipeline-env" / "bin" / "python"
    with pytest.raises(AssertionError, match="No module named 'headgate'"):
        run(f"{python.resolve()} -c 'import headgate'")
    text = RECIPE.read_text(encoding="utf-8")
    script = text.split("```python\n")[1].split("```")[0]
    (tmp_path / "headgate_submit.py").write_text(script)
    (submit,) = commands("A standalone cluster")
    if way == "archives":
        run(pack)
    else:
        with pytest.raises(AssertionError, match="No module named 'headgate'"):
            run(f"{python} -c 'import headgate'")
        shutil.make_archive(
            str(tmp_path / "headgate"), "zip", Path(str(files("headgate"))).parent, "headgate"
        )
        submit = submit.replace("--archives pipeline-env.tar.gz#env", "--py-files headgate.zip")
        submit = submit.replace("PYSPARK_PYTHON=./env/bin/python", f"PYSPARK_PYTHON={python}")
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    lines = gzip.decompress(LOG.read_bytes()).splitlines(keepends=True)
    (logs / "r.1").write_bytes(b"".join(lines[:1200]))
    (logs / "r.2").write_bytes(b"".join(lines[1200:]))
    for word, given in {
        "spark://HOST:7077": master,
        "/mnt/logs/kafka": logs,
        "/mnt/headgate/out": out,
        "quotas.yaml": QUOTAS,
        "/tmp/numba": tmp_path / "numba",
    }.items():
        assert word in submit
        submit = submit.replace(word, str(given))
    assert "Replayed against logged" in run(submit)
    here = tmp_path / "here"
    argv = ["--requests", str(logs), "--broker-id", "1", "--quotas", str(QUOTAS)]
    assert main_replay([*argv, "--out", str(here), "--master", "local[2]"]) == 0
    rows = [
        sorted(
            duckdb.sql(f"select * from read_parquet('{o}/replay/*.parquet')").fetchall(), key=str
        )
        for o in (out, here)
    ]
    assert len(rows[0]) > 2000
    assert rows[0] == rows[1]
    with urlopen(f"{page}/json/") as answer:
        assert b"headgate replay" in answer.read()
    # Both workers ran it, out of what they were sent.
    shipped = "env/pyvenv.cfg" if way == "archives" else "headgate.zip"
    assert len(list(tmp_path.glob(f"work-*/*/*/{shipped}"))) == 2
