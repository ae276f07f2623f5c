"""A bill is shared out to the cent, and what comes out is FOCUS 1.2."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.pipeline.answers.bill import WEIGHTS, Bill, Owner, Owners, load_bill, load_owners
from headgate.pipeline.answers.focus import Use, check, focus, share_out, write_file
from headgate.pipeline.bill_tables import FOCUS
from kit import focus_1_2

START, END = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
DAY = timedelta(days=1)
BILL = """
amount: 1000.00
currency: EUR
start: 2026-11-01
end: 2026-12-01
account: {id: "0042", name: Streaming}
provider: Example Cloud
publisher: Apache
invoice: R-7
weights: {bytes_in: 3, bytes_out: 1, requests: 0.5, storage: 2, connections: 0}
"""
OWNERS = """
owners:
  payments:
    principals: [alice, "pay-*"]
    topics: ["payments.*"]
    labels: {cost-center: "4711", team: Zahlungen ä}
  rest:
    principals: [pay-all]
    topics: [orders]
"""


def made(tmp_path: Path, text: str, name: str = "made.yaml") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def used(weight: str, name: str, amount: int | Fraction, day: int = 0) -> Use:
    return Use(weight, START + day * DAY, START + (day + 1) * DAY, name, amount)


USES = [
    used("bytes_in", "alice", 3 * 10**9),
    used("bytes_in", "bob", 10**9),
    used("bytes_in", "alice", 5, day=3),
    used("bytes_out", "pay-all", 1),
    used("bytes_out", "", 2),
    used("requests", "alice", 0),
    Use("storage", START, END, "payments.in", Fraction(10**9, 3)),
    Use("storage", START, END, "__consumer_offsets", 10**9),
    used("handler_time", "alice", 10**9),
]


def shared(tmp_path: Path, text: str = BILL, owners: Owners | None = None) -> pa.Table:
    return focus(load_bill(made(tmp_path, text)), USES, owners)


def costs(rows: pa.Table) -> dict[tuple[str | None, str], Decimal]:
    found: dict[tuple[str | None, str], Decimal] = {}
    for row in rows.to_pylist():
        key = row["ResourceId"], row["x_AllocatedBy"]
        found[key] = found.get(key, Decimal(0)) + row["BilledCost"]
    return found


def test_a_bill_is_shared_by_weights_and_use(tmp_path: Path) -> None:
    assert costs(shared(tmp_path)) == {
        ("user:alice", "bytes_in"): Decimal("346.15"),  # 346.1538: 3/6.5 of it, and 3/4 of that
        ("user:bob", "bytes_in"): Decimal("115.39"),  # 115.3846 lost more
        ("user:pay-all", "bytes_out"): Decimal("51.28"),
        (None, "bytes_out"): Decimal("102.57"),
        (None, "requests"): Decimal("76.92"),  # nothing of it was used
        ("topic:payments.in", "storage"): Decimal("76.92"),
        ("topic:__consumer_offsets", "storage"): Decimal("230.77"),
    }  # fmt: skip


def test_a_shared_bill_is_focus_1_2(tmp_path: Path) -> None:
    rows = shared(tmp_path, owners=load_owners(made(tmp_path, OWNERS, "owners.yaml")))
    assert rows.schema == FOCUS.arrow
    assert focus_1_2.faults(rows) == []
    assert sum(rows["BilledCost"].to_pylist()) == Decimal("1000.00")


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("BilledCost", None, "BilledCost is missing"),
        ("ServiceName", [""], "ServiceName is empty"),
        ("ChargeCategory", ["Tax"], "MUST be null of what isn't Usage"),
        ("SubAccountName", ["x"], "SubAccountName null as SubAccountId"),
        ("BillingCurrency", ["eur"], "currency_format.md"),
        ("ConsumedUnit", ["gigabytes"], "unit_format.md"),
        ("Tags", ['{"a": [1]}'], "key_value_format.md"),
    ],
)
def test_the_schema_test_sees_what_isnt_focus(
    column: str, values: list[str] | None, words: str, tmp_path: Path
) -> None:
    rows = shared(tmp_path)
    at = rows.column_names.index(column)
    if values is None:
        rows = rows.remove_column(at)
    else:
        rows = rows.slice(0, 1).set_column(at, column, pa.array(values))
    assert words in " ".join(focus_1_2.faults(rows))


def test_what_nobody_owns_stays_visible(tmp_path: Path) -> None:
    owners = load_owners(made(tmp_path, OWNERS, "owners.yaml"))
    rows = {
        (r["ResourceId"], r["x_AllocatedBy"]): r
        for r in shared(tmp_path, owners=owners).to_pylist()
    }
    assert rows["user:alice", "bytes_in"]["SubAccountId"] == "payments"
    assert (
        rows["user:alice", "bytes_in"]["Tags"] == '{"cost-center": "4711", "team": "Zahlungen ä"}'
    )
    assert rows["user:pay-all", "bytes_out"]["SubAccountId"] == "rest"  # a name before a pattern
    assert rows["user:pay-all", "bytes_out"]["Tags"] is None
    assert rows["topic:payments.in", "storage"]["SubAccountId"] == "payments"
    lost = {key: row["ChargeDescription"] for key, row in rows.items() if not row["x_IsAttributed"]}
    assert lost == {
        ("user:bob", "bytes_in"): "bytes produced of principal bob, which has no owner",
        (None, "bytes_out"): "bytes fetched of a principal that isn't known",
        (None, "requests"): "requests of nobody: none were seen in this period",
        ("topic:__consumer_offsets", "storage"):
            "bytes on disk of topic __consumer_offsets, which has no owner",
    }  # fmt: skip
    assert rows[None, "requests"]["ChargeCategory"] == "Adjustment"


def test_files_hold_what_the_table_does(tmp_path: Path) -> None:
    rows = shared(tmp_path)
    parquet, text = tmp_path / "a.parquet", tmp_path / "a.csv"
    write_file(rows, str(parquet), 2)
    assert pq.read_table(parquet).equals(rows)
    write_file(rows, str(text), 2)
    assert focus_1_2.text_faults(text) == []
    with text.open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [row["BilledCost"] for row in read] == [
        f"{c:.2f}" for c in rows["BilledCost"].to_pylist()
    ]
    assert {row["BillingPeriodStart"] for row in read} == {"2026-11-01T00:00:00Z"}
    assert Decimal(read[0]["ConsumedQuantity"]) == rows["ConsumedQuantity"][0].as_py() == 3
    assert read[-1]["SubAccountId"] == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.parquet", "made.yaml"]
    with pytest.raises(ConfigError, match=r"ends in .csv or .parquet"):
        write_file(rows, str(tmp_path / "a.txt"), 2)
    with pytest.raises(ConfigError, match="can't be written"):
        write_file(rows, str(tmp_path / "no" / "a.csv"), 2)


shares = st.lists(
    st.fractions(min_value=0, max_value=10**12, max_denominator=10**6), min_size=1, max_size=30
).filter(any)


@given(total=st.integers(-(10**15), 10**15), shares=shares)
def test_parts_sum_up_and_none_is_a_cent_off(total: int, shares: list[Fraction]) -> None:
    parts = share_out(total, shares)
    assert sum(parts) == total
    for part, share in zip(parts, shares, strict=True):
        assert abs(part - Fraction(total) * share / sum(shares)) < 1
        assert share or not part


names = st.sampled_from(["alice", "bob", "pay-1", "", 'ä "b", c'])
uses = st.lists(
    st.builds(
        used,
        st.sampled_from(list(WEIGHTS)),
        names,
        st.integers(0, 10**18),
        st.integers(0, 29),
    ),
    max_size=40,
)
weights = st.dictionaries(
    st.sampled_from(list(WEIGHTS)), st.decimals(0, 1000, places=3), min_size=1
).filter(lambda found: any(found.values()))


@settings(deadline=None)
@given(
    cents=st.integers(-(10**12), 10**12),
    decimals=st.integers(0, 4),
    weights=weights,
    uses=uses,
    owned=st.booleans(),
)
def test_rows_sum_up_to_any_bill(
    cents: int, decimals: int, weights: dict[str, Decimal], uses: list[Use], owned: bool
) -> None:
    amount = Decimal(cents).scaleb(-decimals)
    bill = Bill(amount, "EUR", START, END, "1", None, "p", "p", "i", weights, decimals)
    owners = Owners([Owner("x", None)], {"principal": {"alice": 0}}) if owned else None
    rows = focus(bill, uses, owners)
    assert sum(rows["BilledCost"].to_pylist()) == amount
    assert rows.equals(focus(bill, uses[::-1], owners))
    assert focus_1_2.faults(rows) == []
    for name, weight in weights.items():
        of_weight = [r for r in rows.to_pylist() if r["x_AllocatedBy"] == name]
        exact = Fraction(cents) * Fraction(weight) / sum(map(Fraction, weights.values()))
        got = sum(Fraction(r["BilledCost"].scaleb(decimals)) for r in of_weight)
        assert abs(got - exact) < max(1, len(of_weight))


MISTAKES = [
    ("amount: 1000.00", "amount: 12,5", "amount is '12,5'; give a number"),
    ("amount: 1000.00", "amount: 0.125", "amount 0.125 has more than 2 digits after the point"),
    ("amount: 1000.00", "", "amount is missing"),
    ("currency: EUR", "currency: euro", "three capital letters"),
    ("end: 2026-12-01", "end: 2026-11-01", "its end must be after its start"),
    ("end: 2026-12-01", "end: soon", "end is 'soon'; give a date"),
    ('{id: "0042", name: Streaming}', "{name: x}", "account needs an id"),
    ("bytes_in: 3", "bytes_up: 3", "weights has no 'bytes_up'; known: bytes_in, bytes_out"),
    ("bytes_in: 3", "bytes_in: -3", "weights must be 0 or more"),
    ("provider: Example Cloud", "provider: ' '", "provider must be a text"),
    ("invoice: R-7", "decimals: 9", "decimals must be 0 to 4"),
    ("invoice: R-7", "invoices: 9", "a bill has no 'invoices'"),
    (BILL, "- 1", "a bill must be names with values"),
    (BILL, "{", "not YAML"),
]


@pytest.mark.parametrize(("said", "instead", "words"), MISTAKES)
def test_a_mistake_in_a_bill_is_named(said: str, instead: str, words: str, tmp_path: Path) -> None:
    assert said in BILL
    path = made(tmp_path, BILL.replace(said, instead))
    with pytest.raises(ConfigError, match=re.escape(words)) as refused:
        load_bill(path)
    assert all(problem.startswith(f"--bill {path}:") for problem in refused.value.problems)


@pytest.mark.parametrize(
    ("said", "instead", "words"),
    [
        ("[orders]", "[orders]\n    topcis: [x]", "rest has no 'topcis'"),
        ("[pay-all]", "[alice]", "principal alice belongs to payments and to rest"),
        ("[orders]", "orders", "topics of rest must be a list of names"),
        ('"4711"', "[1]", "labels of payments must be texts"),
        ("rest:", "' ':", "an owner needs a name"),
        ("owners:", "owner:", "an owners file has no 'owner'"),
    ],
)
def test_a_mistake_in_an_owners_file_is_named(
    said: str, instead: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_owners(made(tmp_path, OWNERS.replace(said, instead)))


def test_a_bill_must_be_of_whole_charge_periods(tmp_path: Path) -> None:
    bill = load_bill(made(tmp_path, BILL))
    for period in ("hour", "day", "month"):
        check(bill, period)
    noon = load_bill(made(tmp_path, BILL.replace("end: 2026-12-01", "end: 2026-11-30T12:00:00Z")))
    check(noon, "hour")
    for period in ("day", "month"):
        with pytest.raises(ConfigError, match="ends within a"):
            check(noon, period)
