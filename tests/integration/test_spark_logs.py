"""
The commands on real logs: against SQL on DuckDB to the byte, against golden tables, in any order.

``HEADGATE_GOLDEN=write`` writes the golden tables again; look at the difference.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import jsonschema
import pyarrow.parquet as pq
import pytest

from headgate.cli import exit_codes
from headgate.cli.main import load, main
from headgate.pipeline.sources.files import paths
from headgate.pipeline.tables.pointer import POINTER
from kit import duckdb_oracle
from kit.pages import Reader, run_python
from kit.schemas import schema_of

main_usage = load("usage")
main_replay = load("replay")
main_chargeback = load("chargeback")
main_storms = load("storms")
main_effective = load("effective")
main_what_if = load("what-if")
main_recommend = load("recommend")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
DATA = Path(__file__).parents[1] / "data" / "pipeline"
PUBLIC, PRECISE = DATA / "public.log.gz", DATA / "precise.log.gz"
QUOTAS = DATA / "public.quotas.json"
BYTES = """
select quota_type, quota_id, quota, second_ms, requests, bytes, throttle_time_ms
from usage where quota_type like '%byte_rate'
"""


def run(command: Callable[[list[str]], int], out: Path, *flags: str, log: Path = PUBLIC) -> None:
    argv = ["--requests", str(log), "--broker-id", "1", "--out", str(out), *flags]
    assert command(argv) == (exit_codes.FOUND if command is main_storms else exit_codes.DONE)


def query(out: Path, sql: str) -> list[tuple[Any, ...]]:
    """Run SQL on DuckDB over the tables that a command wrote."""
    db = duckdb.connect()
    for name in json.loads((out / POINTER).read_bytes())["tables"]:
        db.execute(f"create view {name} as from read_parquet({paths(out, name)})")
    rows: list[tuple[Any, ...]] = db.execute(sql).fetchall()
    return rows


def golden(out: Path, name: str, *left_out: str, where: str = "true") -> None:
    """Compare a table with its golden rows, but for TIMESTAMPs and days; doubles to nine digits."""
    columns = f"columns(lambda c: c not in {('', 'day', *left_out)} and not ends_with(c, '_at'))"
    rows = query(out, f"select {columns} from {name} where {where} order by all")
    got = [[float(f"{v:.9g}") if isinstance(v, float) else v for v in row] for row in rows]
    path = DATA / "golden" / f"{name}.json"
    text = "[\n" + ",\n".join(json.dumps(row) for row in got) + "\n]\n"
    if os.environ.get("HEADGATE_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert got == json.loads(path.read_text())


def figures(out: Path) -> dict[str, float]:
    return dict(query(out, "select name, value from summary"))  # type: ignore[arg-type]


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """Write the produce and fetch lines of brokers 2.8 to 4.3 as one log."""
    folder = tmp_path / "logs"
    folder.mkdir()
    lines = map(json.loads, gzip.decompress((DATA / "others.jsonl.gz").read_bytes()).splitlines())
    # Neither share fetches, which the SQL doesn't know, nor a stamp that it can't read.
    texts = [o["line"] + "\n" for o in lines if "ASCII" not in o["broker"]]
    text = "".join(text for text in texts if '"SHARE_FETCH"' not in text)
    quotas = [
        {"entity": {"user": "alice"}, "config": {"producer_byte_rate": 20_000}},
        {"entity": {"user": None}, "config": {"consumer_byte_rate": 40_000}},
        {"entity": {"user": "a:b=c%20+&", "client": None}, "config": {"producer_byte_rate": 7}},
        {"entity": {"client": "raw"}, "config": {"consumer_byte_rate": 50_000}},
    ]
    (folder / "others.quotas.json").write_text(json.dumps({"quotas": quotas}))
    (folder / "others.log.gz").write_bytes(gzip.compress(text.encode()))
    return folder / "others.log.gz"


@pytest.mark.parametrize("log", [PUBLIC, PRECISE, None], ids=["public", "precise", "others"])
def test_usage_agrees_with_sql_on_duckdb_to_the_byte(
    spark: SparkSession,
    tmp_path: Path,
    log: Path | None,
    others: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Several brokers' lines under one broker-id leave gaps, which look like requests not logged.
    all_read = "Every line was read." if log else "Every line that the log holds was read; "
    log = log or others
    tmp_path = tmp_path / "out"
    quotas = log.with_name(log.name.replace(".log.gz", ".quotas.json"))
    run(main_usage, tmp_path, "--quotas", str(quotas), log=log)
    assert sorted(query(tmp_path, BYTES), key=str) == duckdb_oracle.usage(log, quotas)
    # Sums are conserved from lines to seconds to days.
    sums = "sum(requests), sum(bytes), sum(throttle_time_ms), sum(handler_ms)"
    whole = query(tmp_path, f"select {sums} from usage")[0]
    for name in ("usage_hour", "usage_day"):
        assert query(tmp_path, f"select {sums} from {name}")[0] == pytest.approx(whole)
    found = figures(tmp_path)
    assert found["requests"] == whole[0]
    assert found["bytes"] == whole[1]
    assert found["bad_lines"] == 0
    printed = capsys.readouterr()
    assert "busiest quota-ids" in printed.out
    assert all_read in printed.out
    assert "time zone of logs that print none: UTC" in printed.err


def test_replay_writes_a_row_per_request_and_says_how_near_it_is(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(main_replay, tmp_path, "--quotas", str(QUOTAS))
    counts = query(tmp_path, "select count(*), count(distinct seq) from replay")
    assert counts == [(31356, 31356)]
    found = figures(tmp_path)
    assert found["producer_byte_rate.equal_decisions_share"] >= 0.98
    assert found["producer_byte_rate.within_1_ms_share"] >= 0.83
    logged = found["producer_byte_rate.logged_s"]
    assert abs(found["producer_byte_rate.replayed_s"] - logged) <= 0.02 * logged
    assert "98.4%" in capsys.readouterr().out


def test_a_rolling_directory_gives_the_same_in_any_order_and_keeps_bad_lines(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = gzip.decompress(PRECISE.read_bytes()).splitlines(keepends=True)
    logs = tmp_path / "broker-7"
    logs.mkdir()
    (logs / "z.log").write_bytes(b"".join(lines[:700]) + b"garbled {\n")
    (logs / "a.log.gz").write_bytes(gzip.compress(b"".join(lines[700:1500])))
    (logs / "m.log").write_bytes(b"".join(lines[1500:]) + lines[0][:200])
    out = tmp_path / "out"
    argv = ["--requests", str(logs), "--out", str(out), "--broker-id-pattern", r"broker-(\d+)"]
    quotas = DATA / "precise.quotas.json"
    assert main_usage([*argv, "--quotas", str(quotas)]) == 0
    assert query(out, "select distinct broker_id from usage") == [(7,)]
    assert sorted(query(out, BYTES), key=str) == duckdb_oracle.usage(PRECISE, quotas)
    bad = query(out, "select regexp_extract(file, '[a-z]+.log'), reason from bad_lines order by 1")
    assert bad == [
        ("m.log", "cut off: 2 braces of its JSON are open at the end"),
        ("z.log", "not a request line"),
    ]
    assert "2 lines couldn't be read" in capsys.readouterr().out


def test_answers_on_a_real_log_are_golden(spark: SparkSession, tmp_path: Path) -> None:
    tight = tmp_path / "tight.json"
    tight.write_text(QUOTAS.read_text().replace("120000", "60000"))
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nbytes_in_per_gb: 50\nprincipals: {bob: {bytes_in_per_gb: 5}}")
    quotas = ("--quotas", str(QUOTAS))
    run(main_what_if, tmp_path, *quotas, "--plan", str(tight))
    run(main_chargeback, tmp_path, *quotas, "--prices", str(prices), "--period", "hour")
    run(main_storms, tmp_path, "--connections-per-second", "2")
    run(main_effective, tmp_path, *quotas)
    run(main_recommend, tmp_path, *quotas, "--max-request-bytes", "65536")
    golden(tmp_path, "what_if", "first_ms", "last_ms")
    golden(tmp_path, "chargeback")
    golden(tmp_path, "storms")
    golden(tmp_path, "effective", where="quota_key not like 'request%'")
    golden(tmp_path, "recommend")
    # One file of figures per command, for the report.
    names = {Path(path).stem: path for path in paths(tmp_path, "summary")}
    commands = ("what-if", "chargeback", "storms", "effective", "recommend")
    assert set(names) == {f"part-{command}" for command in commands}
    columns = pq.read_schema(names["part-what-if"]).names
    assert columns == ["command", "name", "value", "text", "unit", "note"]


@pytest.mark.parametrize("name", ["usage", "effective", "replay", "what-if", "storms"])
def test_a_commands_object_keeps_its_schema_and_quiet_is_quiet(
    name: str, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--requests", str(PUBLIC), "--out", str(tmp_path), "--quotas", str(QUOTAS)]
    if name == "storms":
        words += ["--connections-per-second", "2"]
    status = main([name, *words, "--broker-id", "1", "--json", "--quiet"])
    assert status == (exit_codes.FOUND if name == "storms" else exit_codes.DONE)
    printed = capfd.readouterr()
    told = json.loads(printed.out)
    jsonschema.validate(told, schema_of(name))
    assert printed.err == ""
    assert {figure["name"] for figure in told["figures"]} >= {"lines", "bad_lines"}
    assert [place for place in told["tables"].values() if not Path(place).is_dir()] == []


@pytest.mark.slow
def test_the_documented_functions_give_the_commands_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first example in docs/howto/spark.md, run as it stands, against the commands' tables."""
    log = tmp_path / "log.gz"
    log.write_bytes(PUBLIC.read_bytes())
    (tmp_path / "quotas.yaml").write_text(QUOTAS.read_text())
    (tmp_path / "tight.yaml").write_text(QUOTAS.read_text().replace("120000", "60000"))
    (tmp_path / "prices.yaml").write_text("currency: EUR\nbytes_in_per_gb: 50\n")
    monkeypatch.chdir(tmp_path)
    here = {"/var/log/kafka/kafka-request.log*": str(log), "Europe/Berlin": "UTC"}
    example = Reader("docs/howto/spark.md", tmp_path, here).block("hp.requests(")
    made: dict[str, Any] = {"spark": spark}
    run_python(example, made)
    out = tmp_path / "out"
    quotas = ("--quotas", "quotas.yaml")
    run(main_usage, out, *quotas, log=log)
    run(main_chargeback, out, *quotas, "--prices", "prices.yaml", "--period", "day", log=log)
    run(main_effective, out, *quotas, log=log)
    run(main_what_if, out, *quotas, "--plan", "tight.yaml", "--closed-loop", log=log)
    run(main_replay, out, *quotas, log=log)
    for name, table in {
        "by_second": "usage",
        "by_hour": "usage_hour",
        "bills": "chargeback",
        "whose": "effective",
        "compared": "what_if",
        "wanted": "demand",
        "each": "replay",
    }.items():
        frame = made[name]
        columns = [name for name in frame.columns if not name.endswith("_at")]
        want = query(out, f"select {', '.join(columns)} from {table}")
        got = [tuple(row) for row in frame.select(*columns).collect()]
        assert len(got) == len(want) > 0, name
        assert sorted(got, key=repr) == sorted(want, key=repr), name
