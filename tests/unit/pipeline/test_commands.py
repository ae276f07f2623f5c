"""Flags that make no sense: a message that names the place and the way out, before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.cli import pipeline
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
