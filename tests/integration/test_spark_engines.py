"""Sail's answers about made logs and journals are Spark's to the last digit; so is its source."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.feather
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import headgate.pipeline as hp
from kit import engine_client
from kit.made_logs import write_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(7_200)]
# A made log holds hundreds of cases: one is for every push, and ten of three times as many lines
# are for the nights. None is made smaller where it fails: it would take hours.
EXAMPLES = max(1, settings().max_examples // 200)
LINES = 1_500 if EXAMPLES == 1 else 4_500
# Answers that may have no rows: nothing is asked there that every log and journal has.
MAY_BE_EMPTY = {"bad_lines of journal", "demand of journal", "recommend of journal"}


def rows(table: pa.Table) -> list[str]:
    """Return a table's rows, each as text to the last digit, in one order."""
    return sorted(map(repr, table.to_pylist()))


@settings(
    max_examples=EXAMPLES,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(1, 1 << 30))
def test_every_answer_of_sails_is_sparks_to_the_last_digit(spark: SparkSession, seed: int) -> None:
    for each in (hp.KafkaRequestLog, hp.HeadgateJournal):
        spark.dataSource.register(each)
    with tempfile.TemporaryDirectory() as place:
        folder, out = Path(place, "made"), Path(place, "sail")
        folder.mkdir()
        out.mkdir()
        write_all(folder, seed, LINES)
        asked = [sys.executable, engine_client.__file__, str(folder), str(out)]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=1_800, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        names = set()
        for name, table in engine_client.ask(spark, folder):
            names.add(name)
            found = pyarrow.feather.read_table(out / f"{name}.arrow")
            assert found.column_names == table.column_names, name
            differ = [
                pair for pair in zip(rows(found), rows(table), strict=True) if len({*pair}) > 1
            ]
            assert not differ, f"{name}, seed {seed}: {len(differ)} rows differ: {differ[0]}"
            assert table.num_rows or name in MAY_BE_EMPTY, name
            if name.startswith("refused"):
                assert table["told"].to_pylist() == ["True"], name
        assert names == {path.stem for path in out.iterdir()}
