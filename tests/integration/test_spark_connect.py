"""
The library over Spark Connect, with Delta: the same answers as in a classic session.

``HEADGATE_GOLDEN=write`` writes the classic session's sums again; look at the difference.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset
import pytest

from headgate.embedded import free_ports, spark_env
from headgate.embedded.process import Child
from headgate.pipeline.sources.files import paths
from kit import connect_client

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DATA = Path(__file__).parents[1] / "data" / "pipeline"
GOLDEN = DATA / "golden" / "library.json"
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
LOG, QUOTAS = str(DATA / "precise.log.gz"), str(DATA / "precise.quotas.json")


def test_every_function_gives_the_same_over_connect(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if os.environ.get("HEADGATE_GOLDEN") == "write":
        spark = request.getfixturevalue("spark")
        classic = connect_client.answers(spark, LOG, QUOTAS, tmp_path / "classic")
        GOLDEN.write_text(json.dumps(classic, indent=1) + "\n")
    # A process of its own: one that has a classic session can't have the other kind.
    command = [sys.executable, connect_client.__file__, LOG, QUOTAS, str(tmp_path / "connect")]
    environment = {**os.environ, **spark_env(), "SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    client = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert client.returncode == 0, client.stderr[-4000:]
    told = json.loads(client.stdout.splitlines()[-1])
    found, here = told["answers"], json.loads(GOLDEN.read_text())
    assert told["session"] == "pyspark.sql.connect.session"
    assert found.pop("delta") == here["usage"]
    assert found.pop("delta twice") == [2 * here["usage"][0], 2 * here["usage"][2]]
    assert found == here
    assert here["written"] == here["usage"]
    assert here["source"] == here["requests"]
    assert all(here[name][0] for name in here.keys() - {"storms", "bad_lines"})


def test_commands_run_on_a_server_of_spark_connect(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.daemon.module": "headgate.pipeline.workers.daemon",
    }
    known = {**spark_env(), "SPARK_LOCAL_IP": "127.0.0.1"}
    home = Path(find_spec("pyspark").origin or "").parent
    command = ["env", *(f"{name}={value}" for name, value in known.items())]
    command += [f"{home}/bin/spark-submit", "--master", "local[2]", "--class", CONNECT_SERVER]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    log = tmp_path / "server.log"
    server = Child([*command, "spark-internal"], name="Spark Connect", output=log, log=log)
    program = "import sys; from headgate.cli.main import main; sys.exit(main(sys.argv[1:]))"
    try:
        for name in ("usage", "recommend"):
            flags = ["--requests", LOG, "--quotas", QUOTAS, "--broker-id", "1"]
            flags += ["--out", str(tmp_path / name), "--remote", f"sc://127.0.0.1:{port}"]
            # A process of its own, as above; it waits for the server.
            asked = [sys.executable, "-c", program, name, *flags]
            done = subprocess.run(asked, capture_output=True, text=True, timeout=400, check=False)
            assert done.returncode == 0, done.stderr[-4000:]
    finally:
        server.kill()
    read = pyarrow.dataset.dataset(paths(tmp_path / "usage", "usage"), format="parquet").to_table()
    names = ("bytes", "requests", "throttle_time_ms")
    sums = [len(read), *(pc.sum(read[name]).as_py() for name in names)]
    assert sums == json.loads(GOLDEN.read_text())["usage"]
    assert paths(tmp_path / "recommend", "recommend")
