"""`hp.demand` and `headgate what-if --closed-loop`, of a real journal's files, on Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

import headgate.pipeline as hp
from headgate.cli.main import load
from headgate.demand.forecast import forecast, infer
from headgate.demand.rhythm import Charge
from headgate.pipeline import schema
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.sources.files import paths
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.quota.table import QuotaTable
from headgate.usage.format import Event, Origin
from headgate.usage.writer import JournalWriter
from kit.pipeline_rows import same_schema
from kit.throttled_clients import START_MS, Application, Eager, run, steady

main_what_if = load("what-if")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
A = 100_000.0
SECONDS = 20
CLIENTS = {"driven": Application(steady(3 * A, SECONDS)), "job": Eager(16_384, 0.3, work=14 * A)}


@pytest.fixture(scope="module")
def seen() -> dict[str, list[Charge]]:
    """Charges of two clients under A."""
    return {name: run(lambda c=client: [c], A, SECONDS) for name, client in CLIENTS.items()}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory, seen: dict[str, list[Charge]]) -> Path:
    """The same as a gateway writes them."""
    folder = tmp_path_factory.mktemp("journal")
    origins = {
        name: Origin(
            "record", "producer_byte_rate", 1, "L", name, "", f"{name}:", name, "app",
            "10.0.0.1", name, 0, 9, 11, 1000, rule="sampled",
        )
        for name in seen
    }  # fmt: skip
    writer = JournalWriter(folder, "w")
    writer.start()
    events = sorted((c.t_ms, name, c) for name, charges in seen.items() for c in charges)
    for t_ms, name, c in events:
        wait = int(c.throttle_ms)
        writer.append(Event(origins[name], t_ms, c.amount, A, wait, wait, 0, int(c.amount), 0.1))
    writer.close()
    return folder


def quotas(bound: float, name: str) -> Quotas:
    table = {QuotaEntity.of(user=user): {PRODUCER: bound} for user in CLIENTS}
    return Quotas.of(QuotaTable.of(table), name)


def test_the_frame_says_what_the_core_says(
    spark: SparkSession, journal: Path, seen: dict[str, list[Charge]]
) -> None:
    requests = hp.requests(spark, journal)
    end = max(c.t_ms for charges in seen.values() for c in charges)
    found = hp.demand(requests, [quotas(A / 2, "half"), quotas(2 * A, "double")])
    assert same_schema(found.drop("first_at", "day"), schema.DEMAND)
    rows = {(r["plan"], r["quota_user"]): r for r in found.collect()}
    assert len(rows) == 4
    for (plan, user), row in rows.items():
        own = [c._replace(client=f"{user}\0app", connection=user) for c in seen[user]]
        demand = infer(own, end, gated=False)
        said = forecast(demand, {"half": A / 2, "double": 2 * A}[plan], gated=False)
        assert row["kind"] == demand.kind == ("rate-bound" if user == "driven" else "fixed work")
        assert row["rate_per_s"] == said.rate.figure
        assert row["throttle_least_s"] == said.throttle_ms.least / 1000
        assert row["first_ms"] == START_MS + int(seen[user][0].t_ms - START_MS)


@pytest.mark.slow
def test_rows_of_a_frame_say_what_the_same_files_say(spark: SparkSession, journal: Path) -> None:
    requests = hp.requests(spark, journal)
    plans = [quotas(A / 2, "half")]
    of_files, of_rows = (
        hp.demand(frame, plans).orderBy("quota_id").collect()
        for frame in (requests, requests.where("record_ms > 0"))
    )
    assert len(of_files) == 2
    assert of_files == of_rows


@pytest.mark.slow
def test_the_command_writes_the_table_and_prints_intervals(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "half.json"
    entries = [{"entity": {"user": u}, "producer_byte_rate": A / 2} for u in CLIENTS]
    plan.write_text(json.dumps({"quotas": entries}))
    out = tmp_path / "out"
    arguments = ["--requests", str(journal), "--plan", str(plan), "--out", str(out)]
    assert main_what_if([*arguments, "--closed-loop"]) == 0
    rows = duckdb.sql(
        f"select quota_id, kind, rate_per_s, finish_s from read_parquet({paths(out, 'demand')}) "
        "order by quota_id"
    ).fetchall()
    assert [row[:2] for row in rows] == [("driven:", "rate-bound"), ("job:", "fixed work")]
    assert rows[0][2] == pytest.approx(A / 2, rel=0.6)
    assert rows[0][3] is None
    assert rows[1][3] > SECONDS
    said = capsys.readouterr().out
    assert "Closed-loop: how clients would fare" in said
