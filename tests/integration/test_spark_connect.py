"""
The library over Spark Connect, with Delta: the same answers as in a classic session.

``HEADGATE_GOLDEN=write`` writes the classic session's sums again; look at the difference.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import connect_client
from headgate.embedded import spark_env

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DATA = Path(__file__).parents[1] / "data" / "pipeline"
GOLDEN = DATA / "golden" / "library.json"
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
