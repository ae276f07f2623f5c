"""Flags that make no sense: a message that names the place and the way out, before Spark starts."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from headgate.cli import pipeline
from headgate.cli.pipeline_options import _numeric, command
from headgate.cli.pipeline_reading import hint_of
from headgate.pipeline import bundled
from headgate.pipeline.chargeback import load_prices
from headgate.pipeline.quotas import load


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "a.log"
    path.write_bytes(b"x\n")
    return str(path)


def test_all_mistakes_are_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.yaml").write_text("quotas:\n  - entity: {user: a}\n    producer_byte_rat: 5\n")
    argv = ["--requests", str(tmp_path / "no"), "--out", str(tmp_path / "out")]
    argv += ["--quotas", str(tmp_path / "q.yaml"), "--time-zone", "Mars", "--spark-conf", "x"]
    assert pipeline.main_usage(argv) == 1
    said = capsys.readouterr().err
    assert f"--requests {tmp_path}/no: there is no such file" in said
    assert "'Mars' isn't a time zone" in said
    assert "producer_byte_rat" in said
    assert "--spark-conf x: write NAME=VALUE" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("command", "flags", "words"),
    [
        (pipeline.main_what_if, [], "--plan FILE"),
        (pipeline.main_what_if, ["--plan", "/no/such"], "/no/such"),
        (pipeline.main_recommend, ["--percentile", "0"], "between 0 and 100"),
        (pipeline.main_recommend, ["--headroom", "0"], "factor above 0"),
        (pipeline.main_chargeback, ["--prices", "/no/such"], "--prices /no/such"),
        (pipeline.main_replay, ["--broker-id-pattern", "("], "isn't a regex"),
        (pipeline.main_usage, ["--quotas", "/no/such"], "/no/such: "),
    ],
)
def test_a_wrong_flag_is_refused(
    command: object, flags: list[str], words: str, log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(command)
    assert command(["--requests", log, "--out", "/nowhere", *flags]) == 1
    assert words in capsys.readouterr().err


def test_bad_usage_is_another_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        pipeline.main_effective(["--requests", "x", "--out", "y"])
    assert exit_.value.code == 2
    assert "--quotas" in capsys.readouterr().err


def test_price_files_report_every_mistake(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "bytes_in_per_gb: -1\nnonsense: 2\nprincipals: {alice: {per_million_requests: x}}"
    )
    with pytest.raises(Exception, match="nonsense") as error:
        load_prices(str(path))
    assert "bytes_in_per_gb is -1" in str(error.value)
    assert "alice: per_million_requests is 'x'" in str(error.value)
    path.write_text("currency: EUR\nbytes_in_per_gb: 2\nprincipals: {a: {bytes_out_per_gb: 1}}")
    prices = load_prices(str(path))
    assert (prices.currency, prices.bytes_in_per_gb) == ("EUR", 2.0)
    assert prices.principals["a"].bytes_in_per_gb == 2.0


def test_the_bundled_log_and_its_quotas_are_there_and_small() -> None:
    assert 100_000 < bundled.bundled_log().stat().st_size < 500_000
    assert len(load(str(bundled.bundled_quotas())).tables[0].entities) == 8


def test_tables_need_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("x")
    argv = ["--requests", str(bundled.bundled_log()), "--out", str(tmp_path / "out")]
    assert pipeline.main_storms(argv) == 1
    assert "/out: is a file; give a directory" in capsys.readouterr().err


JAVA = """An error occurred while calling o1.save.
: org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:/x
\tat org.apache.hadoop.fs.FileSystem.mkdirs(FileSystem.java:1)
Caused by: java.io.IOException: deeper down"""
WORKER = """Job aborted due to stage failure: Task 0 failed 1 times, most recent failure
Traceback (most recent call last):
  File "worker.py", line 1, in main
ValueError: what the worker found
\tat org.apache.spark.api.python.BasePythonRunner.hasNext(PythonRunner.scala:1)"""


@pytest.mark.parametrize(
    ("pages", "line"),
    [
        (JAVA, "Parent path is not a directory: file:/x"),
        (WORKER, "ValueError: what the worker found"),
    ],
)
def test_a_failure_of_spark_is_a_line_and_a_file_with_the_rest(
    pages: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Py4JJavaError(Exception):
        __module__ = "py4j.protocol"

    def fail(arguments: argparse.Namespace) -> None:
        raise Py4JJavaError(pages)

    assert command("usage", fail, [], argparse.ArgumentParser()) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"headgate usage: Spark failed: {line}"
    rest = Path(second.rpartition(" ")[2])
    assert "o1.save" in rest.read_text() or "Traceback" in rest.read_text()
    rest.unlink()


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("1,234", True),
        ("43.5%", True),
        ("0.66", True),
        ("-", True),
        ("1.64 EUR", True),
        ("95% of the time", False),
        ("907 in 111 s", False),
        ("alice", False),
    ],
)
def test_numbers_stand_to_the_right_sentences_dont(text: str, right: bool) -> None:
    assert _numeric(text) is right


def test_where_no_line_is_a_request_it_says_where_to_look() -> None:
    assert "kafka.request.logger" in hint_of(36.0, 36.0)
    assert hint_of(37.0, 36.0) == ""
    assert hint_of(None, 36.0) == ""
