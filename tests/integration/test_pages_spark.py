"""Pages about the pipeline, followed on Spark: the library, a bill, figures that look odd."""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import headgate.pipeline as hp
from headgate.cli.main import main
from headgate.errors import ConfigError
from headgate.pipeline.bill_tables import LOG_DIRS
from headgate.pipeline.bundled import BUNDLED_BROKER_ID, bundled_log, bundled_quotas
from headgate.pipeline.spark_versions import way_to
from headgate.store import open_store
from kit.journals import traffic, write_journal
from kit.pages import ROOT, Reader, run_python

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark
USED = "select principal, sum(bytes_charged) from {requests} group by principal"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that tests work in, with a request log and its quotas."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kafka").mkdir()
    shutil.copy(bundled_log(), tmp_path / "kafka")
    shutil.copy(bundled_quotas(), tmp_path / "quotas.yaml")
    return tmp_path


def library(folder: Path) -> Reader:
    """Return a reader of the page about the library."""
    here = {
        "/var/log/kafka/kafka-request.log*": f"{folder}/kafka/*",
        "/var/log/kafka": f"{folder}/kafka",
        "/lake": f"{folder}/lake",
    }
    return Reader("docs/howto/spark.md", folder, here)


def test_tables_are_appended_to_and_merged(spark: SparkSession, folder: Path) -> None:
    page = library(folder)
    requests = hp.requests(spark, folder / "kafka", broker_id=BUNDLED_BROKER_ID)
    by_second = requests.transform(hp.usage, "quotas.yaml")
    # The last line needs Delta, which isn't here. The error names what the page names.
    way_out = way_to("delta", spark.version, "--packages {}", "--jars PATH,PATH")
    (package,) = re.findall(r"--packages (\S+)", way_out)
    assert package in (ROOT / "docs/howto/spark.md").read_text()
    with pytest.raises(ConfigError, match=re.escape(way_out)):
        run_python(page.block("hp.write("), {"hp": hp, "by_second": by_second})
    written = spark.read.parquet(f"{folder}/lake/usage")
    assert written.columns == by_second.columns
    assert written.count() == by_second.count() > 0
    assert written.exceptAll(by_second).isEmpty()


def test_a_log_is_a_data_source_and_a_stream(spark: SparkSession, folder: Path) -> None:
    seen: list[Any] = []
    names: dict[str, Any] = {"hp": hp, "spark": spark}
    run_python(library(folder).block("spark.readStream"), names, seen.append)
    *_, used, query = seen
    query.processAllAvailable()
    query.stop()
    spark.catalog.dropTempView("requests")
    requests = hp.requests(spark, folder / "kafka", broker_id=BUNDLED_BROKER_ID)
    assert sorted(used.collect(), key=str) == sorted(
        spark.sql(USED, requests=requests).collect(), key=str
    )
    streamed = spark.read.parquet(f"{folder}/lake/requests")
    assert streamed.count() == requests.count() > 0


def test_a_bill_is_shared_out(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = {
        "/var/log/kafka/kafka-request.log*": f"{folder}/kafka/*",
        '"tables"': f'"{folder}/disks"',
    }
    page = Reader("docs/howto/chargeback.md", folder, here)
    for name, first in (("bill", "amount:"), ("owners", "owners:\n")):
        (folder / f"{name}.yaml").write_text(page.block(first))
    disks = [
        {"taken_ms": 1, "broker_id": 1, "log_dir": "/d", "topic": topic, "partition": 0,
         "bytes": size, "is_future": False}
        for topic, size in (("payments.orders", 14_000_000), ("audit", 1_000_000))
    ]  # fmt: skip
    (folder / "disks" / "log_dirs").mkdir(parents=True)
    pq.write_table(LOG_DIRS.from_rows(disks), folder / "disks" / "log_dirs" / "part-0.parquet")

    requests = hp.requests(spark, folder / "kafka", broker_id=BUNDLED_BROKER_ID)
    run_python(page.block("hp.focus"), {"requests": requests, "spark": spark})
    shown = dict(re.findall(r"^\|\s*(\w+)\|\s*([\d.]+)\|$", capsys.readouterr().out, re.M))
    wanted = page.block("Bill of 1250.40 EUR")
    for owner, name in (("payments", "payments"), ("(not attributed)", "NULL")):
        assert re.search(rf"{re.escape(owner)} +│ +\d+ │ {float(shown[name]):.2f} │", wanted)

    # The command gets the table of disks in the place of a Kafka that it would ask.
    words = page.block("headgate chargeback --requests").replace("\\\n", " ")
    asked = "--bootstrap-server kafka-1:9092"
    assert asked in words
    words = words.replace(asked, f"--log-dirs {folder}/disks/log_dirs")
    assert main(shlex.split(words)[1:]) == 0
    said = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
    assert wanted in said
    assert (folder / "november.csv").read_text().count("\n") == 14


def test_figures_that_look_odd(spark: SparkSession, folder: Path) -> None:
    page = Reader("docs/howto/troubleshooting.md", folder)
    log = gzip.decompress(bundled_log().read_bytes())
    (folder / "kafka-request.log").write_bytes(log + b"garbled {\n")
    journals = folder / "headgate-data" / "usage"
    journals.mkdir(parents=True)
    sent, events = traffic(1_790_000_000_000)
    write_journal(journals, events)
    with open_store(f"sqlite:{folder / 'headgate-data' / 'quotas.db'}"):
        pass

    def rows(block: str, table: str) -> list[Row]:
        """Run a command of the page; return a table that it wrote."""
        assert main(shlex.split(page.block(block))[1:]) == 0
        found: list[Row] = hp.read_table(spark, folder / "tables", table).collect()
        return found

    assert {row["plan"] for row in rows("headgate what-if", "what_if")} == {"logged", "quotas"}
    used = rows("usage --requests headgate-data", "usage")
    assert sum(row["bytes"] for row in used) == sum(size for *_, size in sent)
    [bad] = rows("kafka-request.log", "bad_lines")
    assert bad["reason"] == "not a request line"
