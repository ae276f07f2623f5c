"""What the report says first: the right quotas, their figures, commands that do as they say."""

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_tables import everything, usage_row, write

from headgate.cli.main import main
from headgate.pipeline.report import build_report, read_tables, render
from headgate.pipeline.report.what_to_do import MOST_STEPS, Step, Steps, what_to_do
from headgate.pipeline.schema import TABLES
from headgate.quota.entity import DEFAULT, QuotaEntity, quota_id


def row(table: str, **values: Any) -> dict[str, Any]:
    return dict.fromkeys(TABLES[table].names) | values


def advice(user: str, action: str, recommended: float | None, **values: Any) -> dict[str, Any]:
    fields = {
        "quota_type": "producer_byte_rate", "entity": str(QuotaEntity.of(user=user)), "user": user,
        "is_default_user": False, "is_default_client_id": False, "action": action,
        "current": 1000.0, "recommended": recommended, "reason": "it needs that",
    }  # fmt: skip
    return row("recommend", **(fields | values))


def used(user: str, told_ms: int = 0, **values: Any) -> list[dict[str, Any]]:
    """Usage of 44 s: of a limit of 1,000 B/s, told to wait in every eleventh second."""
    fields = {
        "quota_id": quota_id(user, ""), "quota_user": user, "quota": 1000.0, "amount": 500,
        "quota_source": str(QuotaEntity.of(user=user)),
    }  # fmt: skip
    return [
        usage_row(s, throttle_time_ms=told_ms, max_throttle_time_ms=told_ms,
                  throttled_requests=int(told_ms > 0), **(fields | values))
        for s in range(0, 44, 11)
    ]  # fmt: skip


def found(place: Path, **tables: list[dict[str, Any]]) -> dict[str, Steps]:
    report = build_report(read_tables(write(place, **tables)))
    return {group.title: group for group in what_to_do(report)}


def step(groups: dict[str, Steps], title: str) -> Step:
    (only,) = groups[title].steps
    return only


def test_who_waited_most_comes_first_with_the_figure_and_the_way_to_relieve_it(
    tmp_path: Path,
) -> None:
    usage = used("a", 2000) + used("b", 9000) + used("c", 1000) + used("d", 500)
    told = [
        advice("a", "set", 1500.0),
        advice("b", "keep", 1000.0),
        advice("c", "split", 900.0, entity="{user=c, client-id=big}", client_id="big"),
        advice("d", "keep", 1000.0),
    ]
    steps = found(tmp_path, usage=usage, recommend=told)["Throttled most"].steps
    assert [s.what for s in steps] == [
        "Try twice the produce quota for {user=b}, 1 kB/s now",
        "Raise the produce quota of {user=a} from 1 kB/s to 1.5 kB/s",
        "Give {user=c, client-id=big} a produce quota of its own: 900 B/s",
    ]
    # Four waits of 9 s in the 34 s from the first to the last second.
    assert steps[0].why == (
        "Told to wait 36 s in 4 requests, 100\u00a0% of its time. Its busiest 11 s used "
        "4.55\u00a0% of 1 kB/s. What it would have sent isn't seen: look again after the change."
    )
    assert "8 s in 4 requests, 23.5\u00a0% of its time" in steps[1].why
    assert steps[2].why.endswith("It needs that.")
    assert steps[0].command.startswith("headgate kafka-configs --alter --add-config ")


def test_a_limit_that_is_gone_is_no_reason_to_raise_one(tmp_path: Path) -> None:
    # Both waited under 1 kB/s; "a" has 1 MB/s now, and "gone" has none any more.
    usage = used("a", 9000) + used("gone", 2000)
    told = [advice("a", "set", 110_000.0, current=1e6)]
    groups = found(tmp_path, usage=usage, recommend=told)
    assert [s.what for s in groups.get("Throttled most", Steps("", "", "", (), 0)).steps] == [
        "Try twice the produce quota for {user=a}, 1 MB/s now"
    ]


def test_a_quiet_brokers_last_limit_isnt_the_last_of_all(tmp_path: Path) -> None:
    usage = [
        *used("a", 9000, broker_id=2),
        usage_row(5, quota_id=quota_id("a", ""), quota_user="a", quota=3.0, broker_id=1,
                  quota_source="{user=<default>}", amount=5),
    ]  # fmt: skip
    (tenant,) = build_report(read_tables(write(tmp_path, usage=usage))).tenants
    assert (tenant.quota, tenant.source) == (1000.0, "{user=a}")


def test_the_same_command_is_told_once(tmp_path: Path) -> None:
    usage = used("a", 9000) + used("a", 2000, quota_id="a:x", quota_client_id="x")
    told = [advice("a", "split", 900.0, entity="{user=a, client-id=x}", client_id="x")]
    steps = found(tmp_path, usage=usage, recommend=told)["Throttled most"].steps
    assert [s.what for s in steps] == [
        "Give {user=a, client-id=x} a produce quota of its own: 900 B/s"
    ]


def test_without_recommendations_the_command_that_makes_them_is_given(tmp_path: Path) -> None:
    only = step(found(tmp_path / "a b", usage=used("a", 2000)), "Throttled most")
    assert only.what == "Look for a produce quota for {user=a} that fits, 1 kB/s now"
    assert shlex.split(only.command)[-1] == str(tmp_path / "a b")


def test_quotas_that_bind_nobody_are_told_apart_by_why(tmp_path: Path) -> None:
    def dead(key: str, source: QuotaEntity, value: float = 5.0) -> dict[str, Any]:
        return row("effective", kind="dead", quota_key=key, source=str(source), value=value,
                   requests=0, bytes=0)  # fmt: skip

    produce, default = "producer_byte_rate:broker_bps", QuotaEntity.of(user=DEFAULT)
    effective = [
        dead(produce, default, 2e6),
        dead(produce, QuotaEntity.of(user="gone")),
        dead("connection_creation_rate:per_s", QuotaEntity.of(ip="10.0.0.1")),
        *(row("effective", kind="applied", quota_key=produce, principal="a", client_id=client,
              quota_id="a:", value=1000.0, source="{user=a}", requests=1, bytes=1,
              overridden="{user=<default>}=2000000; {client-id=<default>}=7")
          for client in ("x", "y")),
    ]  # fmt: skip
    groups = found(tmp_path, usage=used("a"), effective=effective)
    unused = step(groups, "Quotas that nobody uses")
    assert unused.what == "Remove the produce quota of {user=gone}"
    assert unused.why == "Its 5 B/s bound no request of this period."
    hidden = step(groups, "Quotas that others hide")
    assert hidden.what == "Remove the produce quota of {user=<default>}"
    assert hidden.why == (
        "All 2 clients that it matches are bound by {user=a} in place of its 2 MB/s."
    )
    # An address' limit binds connections: requests can't tell whether it is used.
    assert not any("10.0.0.1" in s.what for g in groups.values() for s in g.steps)


def test_a_limit_far_above_use_is_lowered_to_its_figure(tmp_path: Path) -> None:
    usage = used("calm", quota=1e6) + used("busy", amount=11_000) + used("new", quota=1e6)
    told = [
        advice("calm", "set", 110_000.0, current=1e6),
        advice("busy", "set", 900.0),
        advice("new", "wait", None, current=1e6),
    ]
    only = step(found(tmp_path, usage=usage, recommend=told), "Limits far above use")
    assert only.what == "Lower the produce quota of {user=calm} from 1 MB/s to 110 kB/s"
    assert only.why == "Its busiest 11 s used 45.5 B/s, 0.00455\u00a0% of it."


NAMES = ("CN=a b,O=*", "it's", "$(touch x)", "--help", "<script>\n", "\u202eevil", "<default>")
NAMED = ("producer_byte_rate=5", "consumer_byte_rate:bps=5", "request_percentage=5")
PAIR = "--entity-type users --entity-name a --entity-type clients --entity-default"


def test_the_commands_do_what_they_say_whatever_the_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:{tmp_path / 'quotas.db'}"
    monkeypatch.setenv("HEADGATE_STORE", store)
    monkeypatch.setattr("headgate.pipeline.report.what_to_do.MOST_STEPS", 99)
    usage = [r for n, name in enumerate(NAMES) for r in used(name, 100 + n)]
    told = [advice(name, "set", 1500.5) for name in NAMES]
    pair = QuotaEntity.of(user="a", client_id=DEFAULT)
    keys = ("producer_byte_rate:broker_bps", "consumer_byte_rate:bps", "request_percentage:percent")
    effective = [
        row("effective", kind="dead", quota_key=key, source=str(pair), value=5.0) for key in keys
    ]
    groups = found(tmp_path, usage=usage, recommend=told, effective=effective)
    steps = [s for group in groups.values() for s in group.steps]
    assert len(steps) == len(NAMES) + len(keys)

    def run(*words: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as told:
            assert main(list(words)) == 0
        return told.getvalue()

    run(*f"kafka-configs --alter --add-config {','.join(NAMED)} {PAIR}".split())
    for one in steps:
        name, *words = shlex.split(one.command)
        assert name == "headgate"
        run(*words)
    listed = yaml.safe_load(run("export"))["quotas"]
    assert {q["entity"]["user"]: q["producer_byte_rate"] for q in listed} == dict.fromkeys(
        NAMES, 1501
    )


def test_steps_are_few_and_the_rest_is_counted_on_the_page(tmp_path: Path) -> None:
    place = everything(tmp_path, 60, 30)
    report = build_report(read_tables(place))
    first = what_to_do(report)[0]
    waiting = sum(1 for t in report.tenants if t.throttle_ms)
    assert (len(first.steps), first.more) == (MOST_STEPS, waiting - MOST_STEPS)
    text = render(report, generated_ms=1, title="t")
    assert text.index('id="todo"') < text.index('id="overview"')
    assert f'<a href="#throttling">and {first.more} more</a>' in text
    # Who waited most of the time isn't said to wait no longer.
    assert len(re.findall(r'<td class="n">not seen</td>', text)) == waiting
