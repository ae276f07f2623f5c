"""A bill over a real log: what the command writes, what the library gives, and SQL as the judge."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow.parquet as pq
import pytest

import headgate.pipeline as hp
from headgate.cli.main import main
from headgate.errors import ConfigError
from headgate.pipeline.bill_tables import FOCUS, LOG_DIRS
from headgate.pipeline.sources.files import paths
from kit import focus_1_2

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]
LOG = Path(__file__).parents[1] / "data" / "pipeline" / "public.log.gz"
BILL = """
amount: 1250.40
currency: EUR
start: {start}
end: {end}
account: {{id: "4711"}}
provider: Example Cloud
weights: {{bytes_in: 3, bytes_out: 1, requests: 1, handler_time: 1.5, connections: 1, storage: 2,
  partitions: 1}}
"""
OWNERS = "owners: {team: {principals: [alice], topics: ['t*'], labels: {env: prod}}}"
DISKS = [
    {"taken_ms": taken, "broker_id": b, "log_dir": "/d", "topic": t, "partition": p, "bytes": n,
     "is_future": moving}
    for taken, b, t, p, n, moving in (
        (1, 1, "t1", 0, 1000, False), (1, 2, "t1", 0, 1000, False), (1, 1, "__x", 0, 500, False),
        (1, 1, "t2", 0, 7, True), (2, 1, "t1", 0, 3000, False),
    )
]  # fmt: skip
USED = """
with charged as (from requests where is_charged),
first as (
    select min_by(principal, record_ms) as principal from charged
    group by broker_id, listener, connection
)
select 'bytes_in', principal, sum(bytes_charged)::bigint from charged
    where quota_type = 'producer_byte_rate' group by 2
union all select 'bytes_out', principal, sum(bytes_charged)::bigint from charged
    where quota_type = 'consumer_byte_rate' group by 2
union all select 'requests', principal, count(*) from charged group by 2
union all select 'connections', principal, count(*) from first group by 2
"""
"""What principals used, by SQL over the requests."""


@pytest.fixture
def bill(spark: SparkSession, tmp_path: Path) -> Path:
    """A bill over the days of the log, owners, and what the disks held."""
    seen = hp.requests(spark, LOG, broker_id=1).selectExpr(
        "date_sub(to_date(min(record_at)), 1)", "date_add(to_date(max(record_at)), 2)"
    )
    start, end = seen.collect()[0]
    text = BILL.format(start=start, end=end)
    (tmp_path / "bill.yaml").write_text(text)
    (tmp_path / "owners.yaml").write_text(OWNERS)
    (tmp_path / "disks").mkdir()
    pq.write_table(LOG_DIRS.from_rows(DISKS), tmp_path / "disks" / "part-0.parquet")
    return tmp_path / "bill.yaml"


def test_the_command_shares_a_bill_as_sql_would(
    spark: SparkSession, bill: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, file = tmp_path / "out", tmp_path / "focus.csv"
    words = ["--requests", str(LOG), "--broker-id", "1", "--out", str(out)]
    words += ["--bill", str(bill), "--owners", str(tmp_path / "owners.yaml")]
    words += ["--log-dirs", str(tmp_path / "disks"), "--focus", str(file)]
    assert main(["chargeback", *words]) == 0
    printed = capsys.readouterr().out
    assert "Bill of 1250.40 EUR" in printed
    assert "(not attributed)" in printed
    assert "of principal ANONYMOUS, which has no owner." in printed
    written = pq.read_table(paths(out, "focus"))
    types = [(field.name, field.type) for field in written.schema]
    assert types == [(field.name, field.type) for field in FOCUS.arrow]
    assert focus_1_2.faults(written) == []
    assert focus_1_2.text_faults(file) == []
    assert sum(written["BilledCost"].to_pylist()) == Decimal("1250.40")
    read = duckdb.connect().execute(f"select sum(BilledCost::decimal(18, 2)) from '{file}'")
    assert read.fetchall() == [(Decimal("1250.40"),)]

    requests = hp.requests(spark, LOG, broker_id=1)
    ours = requests.transform(
        hp.focus, bill, owners=tmp_path / "owners.yaml",
        log_dirs=spark.read.parquet(str(tmp_path / "disks")),
    )  # fmt: skip
    assert sorted(map(str, ours.collect())) == sorted(
        map(str, spark.read.parquet(*paths(out, "focus")).collect())
    )

    assert main(["requests", *words[:4], "--out", str(tmp_path / "rows")]) == 0
    db = duckdb.connect()
    db.execute(f"create view requests as from read_parquet({paths(tmp_path / 'rows', 'requests')})")
    used = {(weight, who): amount for weight, who, amount in db.execute(USED).fetchall() if amount}
    used |= {("storage", "t1"): Fraction(5000, 2), ("storage", "__x"): Fraction(500, 2),
             ("storage", "t2"): Fraction(7, 2), ("partitions", "t1"): Fraction(3, 2),
             ("partitions", "__x"): Fraction(1, 2)}  # fmt: skip
    shares = {"bytes_in": 3, "bytes_out": 1, "requests": 1, "connections": 1, "storage": 2,
              "partitions": 1}  # fmt: skip
    paid: dict[tuple[str, str], list[Decimal]] = {}
    for row in written.to_pylist():
        paid.setdefault((row["x_AllocatedBy"], row["ResourceName"]), []).append(row["BilledCost"])
    assert {key for key in paid if key[0] != "handler_time"} == set(used)
    for (weight, who), amount in used.items():
        whole = sum(Fraction(n) for (name, _), n in used.items() if name == weight)
        exact = Fraction("1250.40") * Fraction(shares[weight]) / Fraction("10.5") * amount / whole
        costs = paid[weight, who]
        assert abs(Fraction(sum(costs)) - exact) < Fraction(len(costs), 100)
    assert all(row["SubAccountId"] == "team" for row in written.to_pylist()
               if row["ResourceName"] in ("alice", "t1", "t2"))  # fmt: skip


def test_what_a_bill_weighs_must_be_given(spark: SparkSession, bill: Path) -> None:
    requests = hp.requests(spark, LOG, broker_id=1)
    with pytest.raises(ConfigError, match="weighs storage, partitions: give log_dirs"):
        hp.focus(requests, bill)
    with pytest.raises(ConfigError, match="weighs connections, which sums don't have"):
        hp.focus(hp.activity(requests), bill)
    with pytest.raises(ConfigError, match="choose a shorter --period"):
        hp.focus(requests, bill, period="month")
