"""What the report computes: sums conserved, means and windows right, nothing dropped silently."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from made_tables import T0, everything, tenants, usage_row, write

from headgate.errors import ConfigError
from headgate.pipeline.report import build_report, read_tables
from headgate.pipeline.report import tables as tables_module
from headgate.pipeline.report.model import MOST_TENANTS
from headgate.pipeline.report.tables import MOST_BINS, bin_length_ms
from headgate.pipeline.schema import TABLES
from headgate.pipeline.sources.files import WrittenTables
from headgate.pipeline.tables.pointer import POINTER, Pointer


def test_sums_over_tenants_are_the_sums_over_the_usage_table(made: Path) -> None:
    report = build_report(read_tables(made))
    rows = tenants(20)
    assert report.totals["bytes"] == sum(r["bytes"] for r in rows)
    assert sum(t.bytes for t in report.tenants) == report.totals["bytes"]
    drawn = sum(sum(s.amounts) for t in report.tenants for s in t.series)
    assert drawn == report.totals["amount"] == sum(r["amount"] for r in rows)
    told = sum(sum(s.throttle_ms) for t in report.tenants for s in t.series)
    assert told == report.totals["throttle_time_ms"] == sum(r["throttle_time_ms"] for r in rows)
    flow = sum(sum(v) for k, v in report.flow.items() if k != "throttle_ms")
    assert flow == report.totals["amount"]


def test_a_saw_tooth_over_whole_windows_is_its_quota(tmp_path: Path) -> None:
    rows = [
        usage_row(s, amount=11_000 if s % 11 == 0 else 0, quota=1000.0, quota_source="{user=user1}")
        for s in range(44)
    ]
    report = build_report(read_tables(write(tmp_path, usage=rows)))
    (tenant,) = report.tenants
    assert tenant.mean == 1000.0
    assert tenant.peak == 1000.0
    assert tenant.utilisation == 1.0
    assert tenant.source == "{user=user1}"
    assert tenant.series[0].amounts[:12] == [11_000, *[0] * 10, 11_000]


def test_a_window_that_begins_late_counts_seconds_without_requests_as_zero(tmp_path: Path) -> None:
    rows = [usage_row(s, amount=1100) for s in (0, 5, 10, 11, 30)]
    (tenant,) = build_report(read_tables(write(tmp_path, usage=rows))).tenants
    assert tenant.peak == 300.0
    assert tenant.mean == pytest.approx(5500 / 31)
    assert tenant.quota is None
    assert tenant.utilisation is None


def test_brokers_are_kept_apart_because_quotas_hold_per_broker(tmp_path: Path) -> None:
    rows = [
        usage_row(s, amount=100 * b, broker_id=b, quota=1000.0) for b in (1, 2) for s in range(11)
    ]
    (tenant,) = build_report(read_tables(write(tmp_path, usage=rows))).tenants
    assert [(s.broker_id, s.mean) for s in tenant.series] == [(1, 100.0), (2, 200.0)]
    assert tenant.mean == 200.0


@pytest.mark.parametrize(
    ("seconds", "bin_s"),
    [(1, 1), (240, 1), (241, 2), (3_600, 15), (86_400, 600), (86_400 * 600, 259_200)],
)
def test_bins_stay_few_and_pleasant(seconds: int, bin_s: int) -> None:
    length = bin_length_ms(0, (seconds - 1) * 1000)
    assert length == bin_s * 1000
    assert seconds / (length / 1000) <= MOST_BINS


def test_more_tenants_than_pages_are_summed_up(tmp_path: Path) -> None:
    rows = [usage_row(0, amount=n + 1, quota_id=f"u{n}:") for n in range(MOST_TENANTS + 5)]
    report = build_report(read_tables(write(tmp_path, usage=rows)))
    assert len(report.tenants) == MOST_TENANTS
    assert report.others["count"] == 5
    assert report.others["bytes"] == 1 + 2 + 3 + 4 + 5
    assert report.totals["bytes"] == sum(range(1, MOST_TENANTS + 6))


def test_usage_too_large_to_hold_is_added_up_to_bins_and_loses_nothing(
    made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = build_report(read_tables(made))
    monkeypatch.setattr(tables_module, "MOST_ROWS", 200)
    monkeypatch.setattr(tables_module, "MOST_BINS", 30)
    coarse = read_tables(made)
    assert coarse.grain_ms == 5_000
    report = build_report(coarse)
    assert report.totals == whole.totals
    assert report.flow.keys() == whole.flow.keys()
    assert [(t.quota_id, t.bytes, t.throttle_ms, t.quota, t.source) for t in report.tenants] == [
        (t.quota_id, t.bytes, t.throttle_ms, t.quota, t.source) for t in whole.tenants
    ]
    for found, exact in zip(report.tenants, whole.tenants, strict=True):
        assert sum(sum(s.amounts) for s in found.series) == exact.amount
        assert found.mean == pytest.approx(exact.mean, rel=0.05)


def test_plans_members_and_advice_find_their_tenant(made: Path) -> None:
    report = build_report(read_tables(made))
    assert [p["plan"] for p in report.plans] == ["logged", "double", "half"]
    logged = next(p for p in report.plans if p["plan"] == "logged")
    assert logged["ids"] == sum(1 for t in report.tenants if t.throttled)
    odd = next(t for t in report.tenants if t.quota_id.startswith("CN%3D"))
    assert [m["client_id"] for m in odd.members] == ["etl", "web"]
    assert {m["principal"] for m in odd.members} == {"CN=a b,O=*"}
    assert len(odd.advice) == 1
    assert [p["plan"] for p in odd.plans] == ["double", "half", "logged"]


def test_a_member_that_had_several_limits_stands_once(tmp_path: Path) -> None:
    def row(unit: str, value: float, requests: int) -> dict[str, Any]:
        fields = dict.fromkeys(TABLES["effective"].names)
        return fields | {
            "kind": "applied", "quota_key": f"producer_byte_rate:{unit}", "principal": "user1",
            "client_id": "etl", "quota_id": "user1:", "value": value, "requests": requests,
            "bytes": requests * 10,
        }  # fmt: skip

    rows = [row("broker_bps", 1.0, 3), row("broker_bps", 2.0, 4), row("bps", 5.0, 7)]
    usage = [usage_row(0, amount=70, quota_id="user1:", quota_user="user1")]
    report = build_report(read_tables(write(tmp_path, usage=usage, effective=rows)))
    (tenant,) = report.tenants
    assert tenant.members == [
        {"principal": "user1", "client_id": "etl", "requests": 7, "bytes": 70}
    ]


def test_bad_lines_are_counted_by_reason(made: Path) -> None:
    report = build_report(read_tables(made))
    assert report.bad_total == 7
    assert [(b["reason"], b["count"]) for b in report.bad] == [("not JSON", 4), ("cut off", 3)]
    figures = {(row["command"], row["name"]): row["value"] for row in report.summary}
    assert figures["replay", "producer_byte_rate.equal_decisions_share"] == 0.984


def test_only_usage_is_needed(tmp_path: Path) -> None:
    report = build_report(read_tables(write(tmp_path, usage=[usage_row(0, amount=5)])))
    assert report.start_ms == report.end_ms == T0
    assert report.recommendations == report.plans == report.bad == []


def test_a_column_that_an_older_run_lacks_is_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [usage_row(s, amount=5, quota=1000.0) for s in range(4)]
    place = write(tmp_path, usage=rows)
    file = place / "usage" / "part-0.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["quota", "handler_ms"]), file)
    for most in (tables_module.MOST_ROWS, 3):
        monkeypatch.setattr(tables_module, "MOST_ROWS", most)
        usage = read_tables(place).tables["usage"]
        assert usage.schema == TABLES["usage"].arrow
        assert usage["quota"].null_count == usage["handler_ms"].null_count == 4
        assert usage["amount"].to_pylist() == [5.0] * 4


@pytest.mark.parametrize("broker", [1, None])
def test_rates_are_over_all_seconds_also_of_a_broker_that_isnt_known(
    tmp_path: Path, broker: int | None
) -> None:
    rows = [usage_row(s, amount=100 * s, broker_id=broker) for s in range(1, 21)]
    (tenant,) = build_report(read_tables(write(tmp_path, usage=rows))).tenants
    assert (tenant.mean, tenant.peak) == (1050.0, 1500.0)
    (series,) = tenant.series
    assert (series.broker_id, series.amounts) == (broker, [100.0 * s for s in range(1, 21)])


def test_an_empty_usage_table_is_no_error(tmp_path: Path) -> None:
    report = build_report(read_tables(write(tmp_path, usage=[])))
    assert report.tenants == []
    assert report.totals["ids"] == 0


def test_a_place_without_tables_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="run headgate usage --requests"):
        read_tables(tmp_path)
    with pytest.raises(ConfigError, match="no such folder"):
        read_tables(tmp_path / "nothing")


def test_every_unreadable_table_is_named(tmp_path: Path) -> None:
    everything(tmp_path, 2, 5)
    for name in ("storms", "what_if"):
        (tmp_path / name / "part-0.parquet").write_bytes(b"not parquet")
    with pytest.raises(ConfigError) as caught:
        read_tables(tmp_path)
    named = [Path(p.split(":")[0]).name for p in caught.value.problems]
    assert named == ["what_if", "storms"]


@pytest.mark.parametrize("uri", [False, True])
def test_the_tables_that_the_pointer_names_are_read(tmp_path: Path, uri: bool) -> None:
    old, new = (f"run-20261127T100000-usage-0000000{number}" for number in (1, 2))
    for run, amount in ((old, 1), (new, 5)):
        write(tmp_path / run, usage=[usage_row(0, amount=amount)])
    (tmp_path / old / "storms").mkdir()
    pointer = Pointer({"usage": [f"{new}/usage"], "storms": [f"{old}/storms"]}, [f"{old}/usage"])
    (tmp_path / POINTER).write_bytes(pointer.written())
    read = read_tables(f"file://{tmp_path}" if uri else tmp_path)
    assert [row["amount"] for row in read.rows("usage")] == [5.0]
    assert read.rows("storms") == []


@pytest.mark.parametrize("uri", [False, True])
def test_a_table_that_is_gone_and_one_beside_the_runs_are_refused(
    tmp_path: Path, uri: bool
) -> None:
    run = "run-20261127T100000-usage-00000001"
    write(tmp_path / run, usage=[usage_row(0, amount=1)])
    pointer = Pointer({"usage": [f"{run}/usage"], "storms": [f"{run}/storms"]})
    (tmp_path / POINTER).write_bytes(pointer.written())
    place = f"file://{tmp_path}" if uri else tmp_path
    with pytest.raises(ConfigError, match=f"{run}/storms"):
        read_tables(place)
    (tmp_path / run / "storms").mkdir()
    assert len(read_tables(place).rows("usage")) == 1
    write(tmp_path, usage=[usage_row(0, amount=5)])  # as an earlier version, or hp.write
    with pytest.raises(ConfigError, match="usage lie there without a run, beside tables that"):
        read_tables(place)


def test_a_page_is_of_one_pointer_and_goes_on_though_runs_end_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(number: int) -> None:
        name = f"run-20261127T100000-usage-0000000{number}"
        bad = {"file": "a.log", "reason": f"of {number}"}
        write(tmp_path / name, usage=[usage_row(0, amount=number)], bad_lines=[bad])
        pointer = Pointer({table: [f"{name}/{table}"] for table in ("usage", "bad_lines")})
        (tmp_path / POINTER).write_bytes(pointer.written())

    def read() -> tuple[float, str]:
        found = read_tables(tmp_path)
        return found.rows("usage")[0]["amount"], found.rows("bad_lines")[0]["reason"]

    def later(self: WrittenTables, table: str) -> list[str]:
        found = real(self, table)
        if table == "usage" and after:
            after.pop()()
        return found

    def one_more() -> None:
        run(2)

    def two_more() -> None:
        run(3)
        for old in tmp_path.glob("run-*[12]"):
            shutil.rmtree(old)

    real = WrittenTables.files
    monkeypatch.setattr(WrittenTables, "files", later)
    run(1)
    after = [one_more]
    assert read() == (1.0, "of 1")
    after = [two_more]
    assert read() == (3.0, "of 3")
    (tmp_path / "run-20261127T100000-usage-00000003" / "usage" / "part-0.parquet").unlink()
    with pytest.raises(ConfigError, match="holds no usage table"):
        read_tables(tmp_path)


def test_folders_that_arent_tables_arent_looked_into(tmp_path: Path) -> None:
    """They may be somebody else's (lost+found), or a run that is being removed."""
    write(tmp_path, usage=[usage_row(0, amount=5)])
    listed = []
    real = Path.iterdir

    def watch(self: Path) -> Any:
        listed.append(self.name)
        return real(self)

    for name in ("lost+found", "run-20261127T100000-usage-00000001"):
        (tmp_path / name).mkdir()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "iterdir", watch)
        assert len(read_tables(tmp_path).rows("usage")) == 1
    assert listed == [tmp_path.name, "usage"]


def test_tables_that_only_spark_reads_and_half_replaced_ones_are_refused(tmp_path: Path) -> None:
    place = write(tmp_path, usage=[usage_row(0, amount=5)])
    for made, format in (("_delta_log", "delta"), ("metadata", "iceberg")):
        (place / "usage" / made).mkdir()
        with pytest.raises(ConfigError, match=f"which Spark reads: add --format {format}"):
            read_tables(place)
        (place / "usage" / made).rmdir()
    (place / ".headgate-usage-0").mkdir()
    for given in (place, f"file://{place}"):
        with pytest.raises(ConfigError, match="an earlier Headgate began and didn't end"):
            read_tables(given)
