"""Flags that make no sense: a message that names the place and the way out, before Spark starts."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from headgate.cli.main import load as load_command
from headgate.cli.pipeline.opening import _why_not_started, start, table_of_store
from headgate.cli.pipeline.places import too_small, unwritable
from headgate.cli.pipeline.print import _numeric, shortened, sized
from headgate.cli.results import Result
from headgate.errors import ConfigError
from headgate.pipeline import bundled
from headgate.pipeline.answers.chargeback import load_prices
from headgate.pipeline.quotas import load
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.topic import check_topic
from headgate.store import open_store

main_usage = load_command("usage")
main_replay = load_command("replay")
main_chargeback = load_command("chargeback")
main_storms = load_command("storms")
main_effective = load_command("effective")
main_what_if = load_command("what-if")
main_recommend = load_command("recommend")


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "a.log"
    path.write_bytes(b"x\n")
    return str(path)


def test_all_mistakes_are_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.yaml").write_text("quotas:\n  - entity: {user: a}\n    producer_byte_rat: 5\n")
    argv = ["--requests", str(tmp_path / "no"), "--out", str(tmp_path / "out")]
    argv += ["--quotas", str(tmp_path / "q.yaml"), "--time-zone", "Mars", "--spark-conf", "x"]
    assert main_usage(argv) == 1
    said = capsys.readouterr().err
    assert f"--requests {tmp_path}/no: there is no such file" in said
    assert "'Mars' isn't a time zone" in said
    assert "producer_byte_rat" in said
    assert "--spark-conf x: write NAME=VALUE" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("command", "flags", "words"),
    [
        (main_what_if, ["--plan", "/no/such"], "--plan: can't read"),
        (main_usage, ["--store", "sqlite:/no/such.db"], "there is no such file"),
        (main_usage, ["--master", "spark://127.0.0.1:1"], "nobody listens there"),
        (main_usage, ["--master", "spark://nonsense"], "nobody listens there"),
        (main_chargeback, ["--prices", "/no/such"], "--prices /no/such"),
        (main_replay, ["--broker-id-pattern", "("], "isn't a regex"),
        (main_usage, ["--quotas", "/no/such"], "/no/such: "),
    ],
)
def test_what_a_flag_names_and_cant_be_used_is_a_failure(
    command: object, flags: list[str], words: str, log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(command)
    assert command(["--requests", log, "--out", "/nowhere", *flags]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "flags", "words"),
    [
        (main_what_if, [], "--plan FILE"),
        (main_usage, ["--json", "--follow"], "--follow has none"),
        (main_recommend, ["--percentile", "0"], "between 0 and 100"),
        (main_recommend, ["--headroom", "0"], "factor above 0"),
        (
            main_recommend,
            ["--max-request-bytes", "-1"],
            "--max-request-bytes is 0 or more",
        ),
        (main_recommend, ["--min-history-s", "-1"], "--min-history-s is 0 or more"),
        (main_usage, ["--topic", "t", "--incremental"], "either --requests PATH"),
        (main_usage, ["--spark-conf", "x"], "--spark-conf x: write NAME=VALUE"),
    ],
)
def test_a_flag_that_makes_no_sense_is_bad_usage(
    command: object, flags: list[str], words: str, log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(command)
    assert command(["--requests", log, "--out", "/nowhere", *flags]) == 2
    assert words in capsys.readouterr().err


def test_bad_usage_is_another_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_effective(["--requests", "x", "--out", "y"]) == 2
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


def test_an_existing_store_is_read_and_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file; give the gateway's headgate\.store"):
        table_of_store(f"sqlite:{tmp_path}/q.db")
    assert not list(tmp_path.iterdir())
    open_store(f"sqlite:{tmp_path}/q.db").close()
    assert not table_of_store(f"sqlite:{tmp_path}/q.db").entities


def test_a_place_for_tables_is_tried_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for out in (f"{tmp_path}/file/below", f"{tmp_path}/file/far/below"):
        assert unwritable(out) == [
            f"--out {out}: {tmp_path}/file is a file; give a directory for the tables"
        ]
    (said,) = unwritable("/proc/headgate")
    assert said.startswith("--out /proc/headgate: can't be written to (")
    assert unwritable(f"{tmp_path}/new/one") == unwritable("hdfs://somewhere/else") == []
    assert list((tmp_path / "new/one").iterdir()) == []


def test_why_spark_doesnt_start_is_told_without_javas_stacks(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text(
        "WARNING: Using incubator modules\n"
        "26/11/22 00:37:16 WARN Utils: Your hostname resolves to a loopback address\n"
        "org.apache.spark.SparkException: no such cluster\n"
        "\tat org.apache.spark.Some.thing(Some.scala:1)\n"
        "\t... 7 more\n"
    )
    said = _why_not_started(RuntimeError("\nthe gateway went\n  at x"), log)
    assert said == [
        "Spark doesn't start: the gateway went",
        "org.apache.spark.SparkException: no such cluster",
        f"the whole error is in {log}",
    ]
    assert _why_not_started(ValueError(), tmp_path / "no") == ["Spark doesn't start: ValueError"]


def test_what_spark_says_while_it_starts_is_in_a_file_of_our_own_and_gone_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that can be guessed in a folder of everybody's may be a link to another file."""
    logs: list[Path] = []

    def starts(app: str, log: Path, **_: object) -> SimpleNamespace:
        assert log.is_file() and log.stat().st_mode & 0o777 == 0o600
        logs.append(log)
        return SimpleNamespace(version="4", sparkContext=SimpleNamespace(master="local"))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("headgate.pipeline.session.open_session", starts)
    given = argparse.Namespace(
        format="parquet", master="local", out=None, engine="spark", remote=None
    )
    for _ in range(2):
        start("usage", given, Console(quiet=True), {})
    assert logs[0] != logs[1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--requests", "/no/such"], "--requests /no/such: there is no such file or directory"),
        (["--requests", "s3://bucket"], "s3://bucket: --incremental and --follow take local"),
        (
            ["--topic", "t", "--kafka-config", "bootstrap.servers=h:1", "--kafka-config", "x=1"],
            '--kafka-config: No such configuration property: "x"',
        ),
    ],
)
def test_what_cant_be_followed_is_named(
    flags: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_usage([*flags, "--incremental", "--out", str(tmp_path)]) == 1
    assert words in capsys.readouterr().err


def test_a_cluster_that_doesnt_answer_is_named() -> None:
    config = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(ConfigError, match=r"--topic t: no answer from 127\.0\.0\.1:1 .*address"):
        check_topic("t", config, timeout_s=0.2)


@pytest.mark.parametrize("flag", ["--quota-window-num", "--default-partitions"])
@pytest.mark.parametrize("value", ["0", "-1", "x"])
def test_counts_are_whole_and_above_0(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_replay(["--requests", "x", "--out", "y", flag, value]) == 2
    assert f"argument {flag}: '{value}': give a whole number" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "a: [1", "a: b: c"])
def test_a_price_file_that_isnt_yaml_says_where_in_a_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_prices(str(path))
    assert str(error.value).startswith(f"--prices {path}:")
    assert ": not YAML: " in str(error.value)
    assert "\n" not in str(error.value)


def test_tables_need_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("x")
    argv = ["--requests", str(bundled.bundled_log()), "--out", str(tmp_path / "out")]
    assert main_storms(argv) == 1
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
    pages: str,
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Py4JJavaError(Exception):
        __module__ = "py4j.protocol"

    def fail(arguments: argparse.Namespace) -> Result:
        raise Py4JJavaError(pages)

    monkeypatch.setattr("headgate.cli.pipeline.usage.run_usage", fail)
    assert main_usage(["--out", "tables"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"headgate usage: Spark failed: {line}"
    rest = Path(second.partition(" is in ")[2])
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
        ("1,234,567 (1.23 MB/s)", True),
        ("95% of the time", False),
        ("907 in 111 s", False),
        ("alice", False),
    ],
)
def test_numbers_stand_to_the_right_sentences_dont(text: str, right: bool) -> None:
    assert _numeric(text) is right


def test_bytes_stand_exact_and_as_people_say_them() -> None:
    assert sized(1_234_567, "producer_byte_rate") == "1,234,567 (1.23 MB/s)"
    assert sized(20_000, unit="B") == "20,000 (20 kB)"
    assert sized(999, "consumer_byte_rate:broker_bps") == "999"
    assert sized(2_000, "request_percentage") == "2,000"
    assert sized(2_000, "producer_byte_rate:shares") == "2,000"
    assert sized(None, "producer_byte_rate") == "unlimited"


def test_files_in_which_nothing_is_are_refused_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").touch()
    argv = ["--requests", str(tmp_path / "a.log"), "--out", str(tmp_path / "out")]
    assert main_usage(argv) == 1
    assert "is that logger at DEBUG?" in capsys.readouterr().err
    # With the flag only what else is wrong is left.
    assert main_usage([*argv, "--allow-empty", "--time-zone", "Mars"]) == 2
    assert "DEBUG" not in capsys.readouterr().err


def test_s3_is_named_as_spark_names_it_before_anything_starts(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_usage(["--requests", log, "--out", "s3://bucket/x"]) == 1
    said = capsys.readouterr().err
    assert "s3a://bucket/x" in said
    assert "hadoop-aws" in said


def test_a_name_that_would_fill_the_table_is_shortened() -> None:
    name = "x" * 900 + "-eu"
    assert shortened(f"{name}:c") == "x" * 60 + "…" + f"{name}:c"[-20:]
    assert shortened("y" * 119) == "y" * 119
    path = "/" + "d" * 300 + " byte 7"
    assert shortened(path) == path
    words = "because it is so " * 20
    assert shortened(words) == words


def test_a_disk_without_the_room_is_told_of_before_anything_starts(
    tmp_path: Path, log: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [(log, 1_000_000_000), (log + ".gz", 50_000_000)]
    monkeypatch.setattr("shutil.disk_usage", lambda place: Path(place).stat() and _Disk(300e6))
    (said,) = too_small("replay", str(tmp_path), files, str(tmp_path))
    # 2 GB of text: 26 % of it, and 64 MB.
    assert "the run needs about 584 MB there, and 300 MB are free" in said
    assert f"--out {tmp_path} and --spark-conf spark.local.dir {tmp_path}" in said
    assert too_small("usage", str(tmp_path), files[:1], str(tmp_path)) == []
    assert too_small("usage", "hdfs://x/y", files, "/no/such") == []
    blank = tmp_path / "a blank"
    blank.mkdir()
    (said,) = too_small("replay", str(blank), files, str(blank))
    assert f"--out {blank} and" in said
    monkeypatch.setattr("shutil.disk_usage", lambda _: _Disk(1e6))
    assert main_usage(["--requests", log, "--out", str(tmp_path / "out")]) == 1
    assert "the run needs about 64 MB there, and 1 MB are free" in capsys.readouterr().err


class _Disk:
    def __init__(self, free: float) -> None:
        self.free = free


@pytest.mark.parametrize(
    ("raised", "words", "status"),
    [
        (OSError(28, "No space left on device"), "the disk is full", 1),
        (OSError(5, "Input/output error"), "Input/output error; no table was changed", 1),
        (KeyboardInterrupt(), "stopped; no table was changed", 130),
    ],
)
def test_a_full_disk_a_broken_one_and_control_c_take_a_line(
    raised: BaseException,
    words: str,
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def function(_: argparse.Namespace) -> Result:
        raise raised

    monkeypatch.setattr("headgate.cli.pipeline.usage.run_usage", function)
    assert main_usage(["--out", str(tmp_path)]) == status
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("headgate usage: ")
    assert words in said


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--mode", "merge"], "--mode merge replaces days: add --partition-by day"),
        (["--mode", "append", "--incremental"], "make the whole tables again: leave out --mode"),
        (["--copies", "count", "--follow"], "and read it once: leave out --copies count"),
    ],
)
def test_what_cant_be_done_with_older_tables_or_growing_inputs_is_refused(
    flags: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_usage(["--requests", "r.log", "--out", str(tmp_path), *flags]) == 2
    assert words in capsys.readouterr().err


def test_state_of_a_growing_input_is_not_kept_in_an_object_store(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = "s3a://bucket/out"
    assert main_usage(["--requests", __file__, "--incremental", "--out", out]) == 1
    assert f"--out {out}: --incremental and --follow rename what they keep" in (
        capsys.readouterr().err
    )


def test_options_in_a_uri_are_refused_as_workers_would_not_get_them() -> None:
    with pytest.raises(ConfigError, match="variables such as AWS_REGION say it to workers too"):
        find_files(["s3://bucket/logs?region=eu-west-1"])


def test_an_error_of_our_own_in_a_stream_is_said_without_sparks_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.errors import StreamingQueryException

    from headgate.cli.pipeline import answers, command

    said = (
        "[STREAM_FAILED] Query terminated with exception: Error from python worker\n"
        "Traceback (most recent call last):\n  File x\n"
        "headgate.errors.ConfigError: the checkpoint is of another source, not of files\n\n"
        "\tat org.apache.spark.sql.X\n"
    )

    def fail(arguments: object) -> None:
        raise StreamingQueryException(said)

    monkeypatch.setattr(answers, "run_storms", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(command.PipelineError) as caught:
        command.run_on_spark("storms", "answers:run_storms", argparse.Namespace())
    first = str(caught.value).splitlines()[0]
    assert first == "the checkpoint is of another source, not of files; no table was changed"
