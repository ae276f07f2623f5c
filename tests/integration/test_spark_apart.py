"""
Two workers that share no folder: logs and tables in object storage, and one of them lost.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headgate.embedded import free_ports
from headgate.embedded.jars import S3A, ensure_jars
from headgate.pipeline.tables.pointer import POINTER
from kit.machines import Machine
from kit.object_store import Bucket, rows, s3_server
from kit.spark_machines import (
    SPARK,
    Cluster,
    asked,
    build_wheel,
    commands,
    java,
    make_environment,
    standalone,
    submit_script,
    write_conf,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DATA = Path(__file__).parents[1] / "data" / "pipeline"
QUOTAS = DATA / "precise.quotas.json"
TABLES = {
    "usage": ("usage", "usage_hour", "usage_day", "bad_lines"),
    "replay": ("replay",),
    "what-if --plan quotas.yaml": ("what_if",),
}
LOGS = 12
"""Each is compressed, and so a task of its own."""


@pytest.fixture(scope="module")
def logs() -> dict[str, bytes]:
    """The same log on twelve days, by name."""
    text = gzip.decompress((DATA / "precise.log.gz").read_bytes())
    assert text.startswith(b"[2026-11-21 ")
    days = {day: b"[2026-10-%02d " % day for day in range(1, LOGS + 1)}
    return {
        f"r.{day}.gz": gzip.compress(text.replace(b"[2026-11-21 ", stamp), 1)
        for day, stamp in days.items()
    }


@pytest.fixture(scope="module")
def one_machines(logs: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables that one machine makes, of files in a folder."""
    folder = tmp_path_factory.mktemp("one")
    (folder / "logs").mkdir()
    for name, data in logs.items():
        (folder / "logs" / name).write_bytes(data)
    (folder / "quotas.yaml").write_bytes(QUOTAS.read_bytes())
    for command in TABLES:
        argv = [sys.executable, "-m", "headgate.cli.main", *command.split(), "--master", "local[2]"]
        argv += ["--requests", str(folder / "logs"), "--broker-id", "1"]
        # What-if names the quotas in force by their file: the same as the docs' line has.
        argv += ["--quotas", str(folder / "quotas.yaml"), "--out", str(folder / "out")]
        done = subprocess.run(
            argv, cwd=folder, env=os.environ | java(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
    return folder / "out"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packed environment of the docs, Headgate's wheel in it."""
    folder = tmp_path_factory.mktemp("shipped")
    rest = {n: v for n, v in os.environ.items() if not n.startswith("PYTHON")}

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=rest, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    make_environment(folder, build_wheel(folder), run)
    return folder


@pytest.fixture
def bucket(logs: dict[str, bytes], tmp_path: Path) -> Iterator[Bucket]:
    with s3_server(tmp_path / "s3", "kafka") as made:
        for name, data in logs.items():
            made.put(f"logs/{name}", data)
        yield made


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with standalone(tmp_path) as made:
        yield made


class Job(NamedTuple):
    """What spark-submit runs, and the page that tells how far it is."""

    driver: Machine
    page: str

    def ended(self) -> None:
        """Wait until it has done its work."""
        assert self.driver.process.wait(1800) == 0, self.driver.said[-5000:]


@contextlib.contextmanager
def sent(
    command: str, cluster: Cluster, bucket: Bucket, shipped: Path, home: Path
) -> Iterator[Job]:
    """Send a command to a cluster as the docs say, from a machine of its own."""
    jars, [port] = f"{ensure_jars(S3A)}/*", free_ports(1)
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.ui.liveUpdate.period": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{home}/events",
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.sql.shuffle.partitions": "4",
    }
    (home / "events").mkdir(parents=True)
    (home / "quotas.yaml").write_bytes(QUOTAS.read_bytes())
    (home / "headgate_submit.py").write_text(submit_script())
    export, line = commands("Object storage")
    assert export.startswith("export AWS_ACCESS_KEY_ID=")
    for word, given in {
        "spark://HOST:7077": cluster.master,
        "headgate_submit.py usage": f"headgate_submit.py {command}",
        "=pipeline-env/": f"={shipped}/pipeline-env/",
        "--archives ": f"--archives {shipped}/",
        # What the machines have already: jars, and a folder of their own for Numba.
        "--packages org.apache.hadoop:hadoop-aws:3.5.0": "",
        "--conf spark.executorEnv.NUMBA_CACHE_DIR=/tmp/numba": "",
    }.items():
        assert word in line
        line = line.replace(word, given)
    variables = {
        **bucket.environment,
        **java(),
        "SPARK_CONF_DIR": str(write_conf(home / "conf", settings)),
        "PATH": f"{SPARK / 'bin'}:{os.environ['PATH']}",
    }
    job = Job(Machine(home, ["bash", "-c", line], variables), f"http://127.0.0.1:{port}")
    try:
        yield job
    finally:
        job.driver.kill()


def check(command: str, bucket: Bucket, one_machines: Path, folder: Path) -> None:
    """Compare the tables in a bucket with one machine's; nothing else may have been left there."""
    out = bucket.fetch("out", folder / "out")
    for table in TABLES[command]:
        found = rows(out, table)
        assert table == "bad_lines" or len(found) > (100 if table in {"usage", "replay"} else 0)
        assert found == rows(one_machines, table), table
    names = [name.partition("/")[2] for name in bucket.objects() if name.startswith("out/")]
    names.remove(POINTER)
    assert len({name.partition("/")[0] for name in names}) == 1
    assert {name.split("/")[1] for name in names} == {*TABLES[command], "bad_lines", "summary"}
    assert not [name for name in names if "_temporary" in name]


@pytest.mark.parametrize("command", TABLES)
def test_workers_that_share_no_folder_give_what_one_machine_gives(
    command: str,
    cluster: Cluster,
    bucket: Bucket,
    shipped: Path,
    one_machines: Path,
    tmp_path: Path,
) -> None:
    with sent(command, cluster, bucket, shipped, tmp_path / "driver") as job:
        job.ended()
    assert cluster.ran(f"headgate {command.partition(' ')[0]}")
    check(command, bucket, one_machines, tmp_path)
    for worker in cluster.workers:
        # Each ran it out of what it was sent, and made the scan's machine code for itself.
        assert len(list(worker.home.glob("work/*/*/env/pyvenv.cfg"))) == 1
        assert len(list(worker.home.glob("cache/scan-*.o"))) == 1
    # No table was written to a machine's own disk.
    places = [job.driver, *cluster.workers]
    assert not [p for m in places for p in m.home.rglob("part-*.parquet")]


class Executor(NamedTuple):
    """How far an executor is."""

    app: str
    id: str
    active: int
    completed: int


def executors(page: str) -> list[Executor]:
    """Return how far a job's executors are; none before it has some, and when it has ended."""
    for app in asked(f"{page}/api/v1/applications") or ():
        told = asked(f"{page}/api/v1/applications/{app['id']}/executors") or ()
        return [
            Executor(app["id"], e["id"], e["activeTasks"], e["completedTasks"])
            for e in told
            if e["id"] != "driver"
        ]
    return []


def kill_one(cluster: Cluster, job: Job) -> str:
    """
    Kill a worker, its executor too, that has done tasks of a job and is in the middle of one.

    It is stopped first, and killed only if it still had a task then, as far as it had told.
    """
    while job.driver.process.poll() is None:
        for found in executors(job.page):
            if not found.active or not found.completed:
                continue
            machine = cluster.worker_of(found.app, found.id)
            machine.freeze()
            seen = settled(job.page)
            if any(e.id == found.id and e.active for e in seen):
                machine.kill()
                return found.id
            machine.thaw()
        time.sleep(0.02)
    raise AssertionError(f"the job ended before a worker was killed\n{job.driver.said[-3000:]}")


def settled(page: str) -> list[Executor]:
    """Return how far executors are, once what they had told was heard."""
    seen = executors(page)
    for _ in range(100):
        time.sleep(0.1)
        before, seen = seen, executors(page)
        if seen == before:
            break
    return seen


def events(home: Path) -> list[dict[str, Any]]:
    """Return what Spark has logged of a job."""
    [log] = home.glob("events/**/events_*")
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.parametrize("command", TABLES)
def test_a_worker_killed_in_mid_job_changes_no_total(
    command: str,
    cluster: Cluster,
    bucket: Bucket,
    shipped: Path,
    one_machines: Path,
    tmp_path: Path,
) -> None:
    with sent(command, cluster, bucket, shipped, tmp_path / "driver") as job:
        killed = kill_one(cluster, job)
        job.ended()
    ends = [e for e in events(job.driver.home) if e["Event"] == "SparkListenerTaskEnd"]
    lost = [
        n
        for n, e in enumerate(ends)
        if e["Task Info"]["Executor ID"] == killed
        and e["Task End Reason"]["Reason"] == "ExecutorLostFailure"
    ]
    # It had a task under way, and others were done before and after.
    assert lost
    done = [n for n, e in enumerate(ends) if e["Task End Reason"]["Reason"] == "Success"]
    assert min(done) < min(lost) < max(done)
    check(command, bucket, one_machines, tmp_path)
