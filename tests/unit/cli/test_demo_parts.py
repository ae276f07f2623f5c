"""The demo's parts: KIP-55's figures, whole cycles, the live table, its folder."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from headgate.cli.main import load
from headgate.demo import demo
from headgate.demo import sample as demo_plan
from headgate.demo.load import ClientTally
from headgate.demo.progress import View, live_table, rate_text, spark
from headgate.demo.quota_ids import QuotaIdLine, attained, lines_of, scaled, take
from headgate.demo.result import ResultRow, out_of_bounds, row_of
from headgate.demo.whole_cycles import whole_cycles
from headgate.errors import HeadgateError
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, QuotaType
from headgate.quota.precedence import resolve
from headgate.store import open_store
from headgate.throttle.manager import ClientQuotaManager
from kit import kip_55

main_demo = load("demo")

T0 = 1_795_262_069_485


@pytest.fixture
def sample(tmp_path: Path) -> str:
    """A store with the demo's quotas, set by its own command lines."""
    from headgate.cli.kafka_configs import kafka_configs

    url = f"sqlite:{tmp_path / 'quotas.db'}"
    for entry in demo_plan.SAMPLE:
        assert kafka_configs.main(entry.command(url)) == 0
    return url


def test_55_17_the_sample_configuration_is_the_kips_times_the_scale(sample: str) -> None:
    store = open_store(sample)
    found = store.snapshot()
    store.close()
    kips = kip_55.table().entities
    assert len(kips) == 6
    assert found.entities == {
        entity: {key: value * demo_plan.SCALE for key, value in values.items()}
        for entity, values in kips.items()
    }


def test_55_18_where_the_kips_json_and_prose_disagree_the_json_counts() -> None:
    (entry,) = [e for e in demo_plan.SAMPLE if e.words == "user2's clientA"]
    kept = json.loads(kip_55.NODES["/config/users/user2/clients/clientA"])["config"]
    assert (str(entry.produce), str(entry.fetch)) == tuple(kept.values()) != ("10", "20")


def test_55_20_the_demos_quota_ids_are_the_kips(sample: str) -> None:
    lines = {(line.quota_id, line.what): line for line in lines_of(sample)}
    produce = {quota_id for quota_id, what in lines if what == "produce"}
    assert produce == {"user1:", "user2:", "user2:clientA", "user2:clientB", "user3:", "ANONYMOUS:"}
    assert lines["user3:", "fetch"].source == "users/<default>"
    assert lines["user2:clientA", "fetch"].quota == 3_000
    assert not lines["ANONYMOUS:", "produce"].saturating


def test_every_quota_id_is_used_on_one_broker_only_for_quotas_hold_per_broker(sample: str) -> None:
    store = open_store(sample)
    table = store.snapshot()
    store.close()
    brokers: dict[str, set[int]] = {}
    for client in demo_plan.CLIENTS:
        found = resolve(table, client.name, client.client_id, PRODUCER)
        brokers.setdefault(found.quota_id, set()).add(client.broker)
    assert all(len(found) == 1 for found in brokers.values())
    assert set().union(*brokers.values()) == {1, 2}
    assert {c.client_id for c in demo_plan.CLIENTS if c.user == ""} == {"sensor", "meter"}


def test_clients_that_share_a_quota_id_are_added_up(sample: str) -> None:
    lines = {(line.quota_id, line.what): line for line in lines_of(sample)}
    rows = [
        [place, role, 100 * (place + 1), 10, 1, 6, 5, 1.0]
        for place in range(len(demo_plan.CLIENTS))
        for role in ("produce", "fetch")
    ]
    take({"s": 2.0, "rows": rows}, lines)
    assert lines["user1:", "produce"].seen.wire_bytes == 100 + 200
    assert lines["user2:clientA", "produce"].seen.wire_bytes == 300
    assert lines["user1:", "produce"].seen.messages == 10
    assert lines["user1:", "produce"].seen.meant == 12
    assert lines["user3:", "fetch"].seen.wire_bytes == 600 + 700
    assert lines["ANONYMOUS:", "fetch"].seen.told_ms == 20
    assert sum(line.seen.wire_bytes for line in lines.values()) == 2 * sum(
        100 * n for n in range(1, 10)
    )


def test_what_unthrottled_clients_attain_is_a_share_of_what_they_meant(sample: str) -> None:
    lines = lines_of(sample)
    for line in lines:
        line.seconds, line.seen.slowest_ack_ms = 10.0, 7.0 if line.saturating else 5.0
        line.seen.meant, line.seen.messages = (0, 900) if line.saturating else (3_000, 2_850)
    assert attained(lines) == (0.95, 5.0)


def saturated(num: int, quota: float, size: int, seconds: int) -> tuple[list[int], list[int]]:
    """A client that sends as soon as its throttle time is over."""
    manager = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE, num_samples=num, start_ms=T0)
    manager.update_quota(QuotaEntity.of(user="u"), quota, T0)
    times, now = [], T0
    while now < T0 + seconds * 1000:
        times.append(now)
        now += 3 + max(0, manager.record("u", "c", size, now).throttle_time_ms)
    return times, [size] * len(times)


@pytest.mark.parametrize(("num", "seconds"), [(3, 30), (4, 45), (11, 120)])
@pytest.mark.parametrize(("quota", "size"), [(1_000, 300), (102_400, 3_000), (1_000_000, 32_000)])
def test_a_saturated_clients_mean_over_whole_cycles_is_its_quota(
    num: int, seconds: int, quota: float, size: int
) -> None:
    times, amounts = saturated(num, quota, size, seconds)
    whole = whole_cycles(times, amounts, num * 1_000)
    assert whole is not None
    count, rate = whole
    assert count >= 4
    assert rate == pytest.approx(quota, rel=0.05)


def test_a_periodic_clients_mean_is_exact_wherever_it_is_cut() -> None:
    for phase in range(0, 4_000, 300):
        times = [T0, *(T0 + phase + 4_000 * k for k in range(1, 12)), T0 + 45_000]
        whole = whole_cycles(times, [0, *[4_000] * 11, 0], 4_000)
        assert whole == (8, pytest.approx(1_000))


def test_too_short_a_time_holds_no_whole_cycle() -> None:
    assert whole_cycles([], [], 4_000) is None
    assert whole_cycles([T0, T0 + 15_000], [1, 1], 4_000) is None


def row(**values: object) -> ResultRow:
    fields: dict[str, object] = {
        "quota_id": "u:", "what": "produce", "source": "users/u", "quota": 100.0, "rate": 100.0,
        "cycles": 6, "saturating": True, "requests": 9, "throttled": 3, "told_ms": 5,
        "client_told_ms": 5, "replay_differs": 0,
    }  # fmt: skip
    return ResultRow(**{**fields, **values})  # type: ignore[arg-type]


FREE = {"saturating": False, "rate": 30.0, "throttled": 0, "client_told_ms": 0}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, None),
        ({"rate": 104.9}, None),
        ({"rate": 95.1}, None),
        ({"rate": 105.1}, "u: produce got 105.1% of its quota, not within 5% of it"),
        ({"rate": 94.0}, "u: produce got 94.0% of its quota, not within 5% of it"),
        ({"cycles": 3}, "u: produce ran for 3 whole cycles; 4 are needed to tell"),
        ({"replay_differs": 1}, "u: produce was told other times than Spark replays by 1 of its 9"),
        (FREE, None),
        ({**FREE, "throttled": 1}, "u: produce wants less than its quota, and was told to wait 1"),
        ({**FREE, "client_told_ms": 1}, "u: produce wants less than its quota, and was told"),
    ],
)
def test_a_figure_that_is_out_is_named(values: dict[str, object], says: str | None) -> None:
    said = out_of_bounds(
        [row(**values)], [QuotaIdLine("u:", "produce", 100.0, "users/u", True)], 0.0
    )
    assert len(said) == (says is not None)
    assert all(text.startswith(says or "") for text in said)


def test_a_quota_id_without_requests_is_out() -> None:
    lines = [QuotaIdLine("u:", "produce", 1.0, "", True), QuotaIdLine("u:", "fetch", 1.0, "", True)]
    assert out_of_bounds([row()], lines, 99.0) == ["u: fetch made no request"]


@pytest.mark.parametrize(
    ("values", "busy"),
    [
        ({"rate": 80.0}, True),
        ({"cycles": 2}, True),
        ({"rate": 120.0}, False),
        ({"rate": 80.0, "replay_differs": 2}, False),
        ({**FREE, "throttled": 1}, False),
        ({}, False),
    ],
)
def test_a_busy_machine_explains_what_clients_could_not_use_and_nothing_else(
    values: dict[str, object], busy: bool
) -> None:
    lines = [QuotaIdLine("u:", "produce", 100.0, "users/u", True)]
    late = out_of_bounds([row(**values)], lines, 0.51)
    assert any("waited for a processor 51% of the time" in text for text in late) is busy
    on_time = out_of_bounds([row(**values)], lines, 0.49)
    assert on_time == late[: len(late) - busy]  # out all the same


@pytest.mark.parametrize(("out", "status"), [([], 0), (["u: produce got 80%"], 1)])
def test_the_demo_fails_where_a_figure_is_out(
    out: list[str],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(demo.Demo, "run", lambda _self: out)
    assert main_demo(["--dir", str(tmp_path / "demo")]) == status
    assert capsys.readouterr().err == "".join(f"headgate demo: {text}\n" for text in out)


def test_the_live_table_fits_narrow_and_wide_consoles(sample: str) -> None:
    lines = lines_of(sample)
    for second in range(1, 20):
        for line in lines:
            line.add(second, ClientTally(second * 1_000, second * 50, second))
    for width in (80, 100, 132, 160):
        out = io.StringIO()
        Console(file=out, width=width, force_terminal=True).print(live_table(lines, 9, 45, width))
        text = out.getvalue()
        assert "…" not in text
        assert "user2:clientA" in text
        assert ("saw-tooth, 1 s" in text) == (width > 107)
        assert ("users/user2/clients/clientA" in text) == (width >= 98)


def test_without_a_terminal_there_are_plain_progress_lines(sample: str) -> None:
    out = io.StringIO()
    view = View(Console(file=out, width=120))
    lines = lines_of(sample)
    for second in range(30):
        view.update(lines, second, 30)
    said = [line for line in out.getvalue().splitlines() if "mean so far" in line]
    assert len(said) >= 3
    assert "\x1b" not in out.getvalue()


def test_on_a_terminal_the_table_is_live_and_its_last_state_stays(sample: str) -> None:
    out = io.StringIO()
    view = View(Console(file=out, width=120, height=40, force_terminal=True), clock=lambda: 0.0)
    lines = lines_of(sample)
    view.step(3, "clients")
    for second in (10, 20, 30):
        view.update(lines, second, 30)
    view.done(lines, 30, 30)
    view.say("gone on")
    text = out.getvalue()
    assert "second 30 of 30" in text
    assert text.rstrip().endswith("gone on")
    assert "\x1b[?25h" in text  # the cursor is back


def test_bars_and_rates_are_drawn_to_scale() -> None:
    assert spark([0, 5, 10], 10) == " ▄█"
    assert spark([1, 2], 0) == ""
    assert rate_text(None) == "unlimited"
    assert rate_text(102_400) == "102.4 kB/s"


def test_scaled_quotas_are_a_quotas_file_with_every_figure_so_many_times(
    sample: str, tmp_path: Path
) -> None:
    from headgate.quota.file import read_quotas_file

    for name, factor in (("twice", 2.0), ("half", 0.5)):
        (tmp_path / f"{name}.yaml").write_text(scaled(sample, factor), encoding="utf-8")
    table = read_quotas_file(tmp_path / "twice.yaml").table
    assert table.get(QuotaEntity.of(user="user1"), PRODUCER) == 204_800
    half = read_quotas_file(tmp_path / "half.yaml").table
    assert half.get(QuotaEntity.of(user="user1"), PRODUCER) == 51_200
    assert len(table.entities) == len(demo_plan.SAMPLE)


def test_only_a_demos_own_folder_is_emptied(tmp_path: Path) -> None:
    place = tmp_path / "new"
    assert demo.prepared(place) == place
    (place / "old").write_text("")
    assert not (demo.prepared(place) / "old").exists()
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").write_text("")
    with pytest.raises(HeadgateError, match="isn't empty and no demo made it"):
        demo.prepared(other)
    assert (other / "precious").exists()


def test_too_short_a_load_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_demo(["--seconds", "5"]) == 2
    assert "at least 30" in capsys.readouterr().err


def test_a_throttled_request_counts_once_in_the_result() -> None:
    """Its charge and its answer are rows of the replayed journal."""
    charge = {"event": "record", "record_ms": 1_000.0, "amount": 500.0, "throttle_time_ms": None}
    told = {"event": "told", "record_ms": 1_000.0, "amount": 0.0, "throttle_time_ms": 290}
    events = pa.Table.from_pylist(
        [
            charge | {"decided_throttle_time_ms": 0, "replayed_throttle_time_ms": 0},
            charge | {"decided_throttle_time_ms": 300, "replayed_throttle_time_ms": 300},
            told | {"decided_throttle_time_ms": 290, "replayed_throttle_time_ms": None},
        ]
    )
    line = QuotaIdLine("alice:", "produce", 1_000.0, "users/alice", saturating=False)
    row = row_of(line, events)
    assert (row.requests, row.throttled, row.told_ms, row.replay_differs) == (2, 1, 290, 0)
