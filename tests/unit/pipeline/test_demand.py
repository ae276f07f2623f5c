"""What workers make of charges when they infer demand; Spark only orders the rows between."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa

from headgate.demand.forecast import forecast, infer
from headgate.demand.rhythm import Charge
from headgate.pipeline.answers.demand import CHARGED, Assign, Foretell, TakeCharged
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.workers.emit import EmitRequests
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER
from headgate.quota.table import QuotaTable
from kit.throttled_clients import START_MS, Application, run, steady

A = 100_000.0
END = START_MS + 20_000.0
ALICE = QuotaEntity.of(user="alice")


def plan(name: str, bound: float | None) -> Quotas:
    quotas = {} if bound is None else {ALICE: {PRODUCER: bound, CONSUMER: bound}}
    return Quotas.of(QuotaTable.of(quotas), name)


def charges() -> list[Charge]:
    return run(lambda: [Application(steady(3 * A, 20))], A, 20)


def rows_of(seen: list[Charge], **more: Any) -> pa.RecordBatch:
    """Charges as the frame has them before quotas are known."""
    rows = [
        {
            "principal": "alice",
            "client_id": "app",
            "quota_type": "producer_byte_rate",
            "broker_id": 1,
            "record_ms": charge.t_ms,
            "file": "f",
            "seq": n,
            "connection": charge.connection,
            "amount": float(charge.amount),
            "throttle_ms": int(charge.throttle_ms),
            "told_ms": int(charge.told_ms),
            "is_exact": True,
            "end_ms": END,
            **more,
        }
        for n, charge in enumerate(seen)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=CHARGED.arrow)


def told(batch: pa.RecordBatch, *plans: Quotas) -> list[dict[str, Any]]:
    """Go through both functions, ordered by group as Spark orders."""
    asked = pa.Table.from_batches(list(Assign(plans)(iter([batch]))))
    keys = ("plan", "quota_type", "quota_user", "quota_client_id", "broker_id", "record_ms", "seq")
    ordered = asked.sort_by([(key, "ascending") for key in keys])
    batches = iter(ordered.to_batches(max_chunksize=100))
    names = tuple(each.name for each in plans)
    return [row for made in Foretell(names, 11, 1000)(batches) for row in made.to_pylist()]


def test_rows_say_what_the_core_says() -> None:
    seen = charges()
    rows = told(rows_of(seen), plan("now", A), plan("double", 2 * A), plan("none", None))
    demand = infer([c._replace(client="alice\0app") for c in seen], END, gated=False)
    assert [row["plan"] for row in rows] == ["now", "double", "none"]
    for row, bound in zip(rows, (A, 2 * A, None), strict=True):
        said = forecast(demand, bound, gated=False)
        assert (row["kind"], row["quota"], row["connections"]) == ("rate-bound", bound, 1)
        assert row["quota_id"] == ("alice:" if bound else ":app")
        assert row["rate_per_s"] == said.rate.figure
        assert row["wanted_per_s"] == demand.wanted.figure
        assert row["throttle_most_s"] == said.throttle_ms.most / 1000
        assert row["finish_s"] is None
        assert row["reason"] is (said.reason or demand.reason or None)


def test_what_nothing_bounds_is_null() -> None:
    seen = [Charge(START_MS + n * 100, 90, 100, 100, "c") for n in range(50)]
    fetched = rows_of(seen, quota_type="consumer_byte_rate", is_exact=False)
    (row,) = told(fetched, plan("now", A))
    assert (row["kind"], row["rate_per_s"], row["wanted_most_per_s"]) == ("unknown", None, None)
    assert "isn't recorded" in row["reason"]


def test_what_was_taken_back_alone_is_no_charge() -> None:
    assert told(rows_of([Charge(START_MS, -5, 0, 0, "c")]), plan("now", A)) == []


def test_of_files_only_charges_for_bytes_are_handed_over_and_each_brokers_end(
    tmp_path: Path,
) -> None:
    log = tmp_path / "request.log"
    text = (Path(__file__).parents[2] / "data" / "pipeline" / "precise.log.gz").read_bytes()
    log.write_bytes(gzip.decompress(text))
    options = ReadOptions(tuple(pieces_of(find_files([str(log)]), broker_id=7)), "UTC")
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(options.pieces)))})
    every = pa.Table.from_batches(list(EmitRequests(options)(iter([numbers])))).to_pylist()
    found = pa.Table.from_batches(list(TakeCharged(options)(iter([numbers])))).to_pylist()
    wanted = [
        (r["seq"], r["principal"], r["amount"], r["throttle_time_ms"])
        for r in every
        if r["kind"] == "request" and r["is_charged"] and r["quota_type"].endswith("_byte_rate")
    ]
    charged = [r for r in found if r["quota_type"] is not None]
    assert [(r["seq"], r["principal"], r["amount"], r["told_ms"]) for r in charged] == wanted
    assert len(wanted) > 100
    assert all(r["throttle_ms"] == r["told_ms"] and r["connection"] for r in charged)
    ends = [r for r in found if r["quota_type"] is None]
    assert {r["broker_id"] for r in ends} == {7}
    assert max(r["end_ms"] for r in ends) == max(r["record_ms"] or 0 for r in every)
    assert len(ends) < 10
