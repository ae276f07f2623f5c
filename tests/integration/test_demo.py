"""`headgate demo`, whole: quotas set, enforced on real clients, accounted by Spark, drawn."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.alone]


TRIES = 3


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    # What a busy machine does to clients that run against the clock happens once; what is wrong
    # with the demo happens again. Where it is busy each time, the demo has to say so.
    for _ in range(TRIES):
        place = tmp_path_factory.mktemp("demo") / "run"
        done = run(place)
        if done.returncode == 0:
            break
    assert done.returncode == 0 or "too busy to tell" in done.stderr, done.stdout + done.stderr
    return place, done.stdout


def run(place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headgate.cli.main", "demo", "--dir", str(place), "--seconds", "32"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def figures(place: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((place / "demo.json").read_text(encoding="utf-8"))
    return read


@pytest.fixture(scope="module")
def told(demo: tuple[Path, str]) -> dict[str, Any]:
    return figures(demo[0])


def test_it_prints_its_steps_the_reports_path_and_a_closing_table(demo: tuple[Path, str]) -> None:
    place, said = demo
    for step in range(1, 6):
        assert f"\n{step}. " in said
    assert "the JSON counts" in said
    assert "$ kafka-configs --store sqlite:./quotas.db --alter" in said
    assert "What each quota-id got" in said
    assert said.rstrip().endswith(f"Report: {place / 'report.html'}")


def test_every_quota_id_of_the_kips_sample_has_its_row(told: dict[str, Any]) -> None:
    seen = {(row["quota_id"], row["what"]) for row in told["rows"]}
    ids = ("user1:", "user2:", "user2:clientA", "user2:clientB", "user3:", "ANONYMOUS:")
    assert seen == {(quota_id, what) for quota_id in ids for what in ("produce", "fetch")}


def test_saturated_clients_get_their_quota_over_whole_cycles(told: dict[str, Any]) -> None:
    saturated = [row for row in told["rows"] if row["saturating"]]
    assert all(row["cycles"] >= 4 for row in saturated)
    # The demo's exit status says that each is within 5 %.
    assert all(row["rate"] / row["quota"] <= 1.05 for row in saturated)


def test_clients_under_their_quota_are_never_told_to_wait(told: dict[str, Any]) -> None:
    free = [row for row in told["rows"] if not row["saturating"]]
    assert len(free) == 2
    assert all(row["throttled"] == 0 and row["client_told_ms"] == 0 for row in free)
    assert 0.95 < told["figures"]["free_share"] <= 1


def test_clients_heard_what_the_gateway_told(told: dict[str, Any]) -> None:
    gateway, clients = told["figures"]["told_s"], told["figures"]["client_told_s"]
    assert gateway > 60
    assert clients == pytest.approx(gateway, rel=0.03)


def test_the_pipeline_replays_every_decision_to_the_millisecond(told: dict[str, Any]) -> None:
    assert told["figures"]["events"] > 2_000
    assert told["figures"]["replay_differs"] == 0


def test_a_real_brokers_log_went_through_it_too(told: dict[str, Any]) -> None:
    assert told["figures"]["log_producer_byte_rate.equal_decisions_share"] > 0.9


def test_both_reports_are_there_and_self_contained(demo: tuple[Path, str]) -> None:
    for name in ("report.html", "broker-log.html"):
        text = (demo[0] / name).read_text(encoding="utf-8")
        assert text.startswith("<!doctype html>")
        assert 'src="http' not in text
    assert "user2:clientA" in (demo[0] / "report.html").read_text(encoding="utf-8")
