"""Plans side by side: what is counted once, and for which clients they differ most."""

from __future__ import annotations

from typing import Any

from headgate.pipeline.report.sections import differing, plans

P, BPS = "producer_byte_rate", "producer_byte_rate:bps"


def row(plan: str, who: str, ms: int, quota_type: str = P, **more: Any) -> dict[str, Any]:
    return {
        "plan": plan,
        "quota_type": quota_type,
        "quota_id": f"{who}:",
        "principal": who,
        "client_id": None,
        "requests": 10,
        "bytes": 100,
        "throttled_requests": ms // 10,
        "throttle_time_ms": ms,
        "delayed_bytes": ms // 10,
    } | more


def test_requests_under_several_limits_count_once_and_their_waiting_of_each() -> None:
    rows = [row("logged", "a", 50), row("tight", "a", 200), row("tight", "a", 90, BPS)]
    found = {p["plan"]: p for p in plans(rows)}
    assert list(found) == ["logged", "tight"]
    names = ("requests", "bytes", "throttled", "throttle_ms", "delayed", "ids")
    assert [found["tight"][n] for n in names] == [10, 100, 29, 290, 29, 2]
    # Two limits of the same requests: what they were told lies between the larger and the sum.
    least = ("throttled_least", "throttle_ms_least", "delayed_least")
    assert [found["tight"][n] for n in least] == [20, 200, 20]
    assert [found["logged"][n] for n in least] == [5, 50, 5]
    assert [found[n]["several"] for n in ("logged", "tight")] == [False, True]


def test_clients_come_by_how_far_the_plans_are_apart_the_log_aside() -> None:
    rows = [
        row("logged", "a", 9_000),
        row("one", "a", 100),
        row("two", "a", 100),
        row("one", "b", 300),
        row("two", "b", 20, broker_id=1),
        row("two", "b", 30, broker_id=2),
        row("two", "b", 700, BPS),
        row("two", "b", 0, BPS),
        row("one", "b", 0, BPS),
    ]
    assert [
        (d["quota_type"], d["principal"], d["spread"], d["plans"]) for d in differing(rows)
    ] == [
        (BPS, "b", 700, {"two": 700, "one": 0}),
        (P, "b", 250, {"one": 300, "two": 50}),
    ]


def test_one_plan_is_held_against_the_log() -> None:
    rows = [row("logged", "a", 40), row("one", "a", 100), row("one", "b", 5), row("logged", "b", 5)]
    assert [(d["principal"], d["spread"]) for d in differing(rows)] == [("a", 60)]
