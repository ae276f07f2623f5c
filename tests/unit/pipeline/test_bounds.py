"""What a plan's limits can add up to."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.pipeline.answers.bounds import Bounds, bounds_by_plan, overlaps

P, C, R = "producer_byte_rate", "consumer_byte_rate", "request_percentage"


def row(
    quota_type: str, n: int, *, plan: str = "p", client: str = "c", **more: Any
) -> dict[str, Any]:
    return {
        "plan": plan,
        "quota_type": quota_type,
        "broker_id": 1,
        "principal": "a",
        "client_id": client,
        "throttled_requests": n,
        "throttle_time_ms": 100 * n,
        "delayed_bytes": 10 * n,
        **more,
    }


def sums(n: int) -> tuple[int, int, int]:
    return n, 100 * n, 10 * n


def test_limits_of_the_same_requests_lie_between_the_hardest_and_their_sum() -> None:
    rows = [row(P, 3), row(f"{P}:bps", 5), row(f"{P}:shares", 1), row("producer_ids_rate", 2)]
    assert bounds_by_plan(rows) == {"p": Bounds(sums(5), sums(11))}
    assert overlaps(r["quota_type"] for r in rows)


def test_requests_of_different_kinds_and_clients_add_up() -> None:
    rows = [row(P, 3), row(C, 4), row(P, 5, client="d"), row(P, 1, broker_id=2)]
    found = bounds_by_plan(rows)["p"]
    assert found == Bounds(sums(13), sums(13))
    assert found.is_exact
    assert not overlaps(r["quota_type"] for r in rows)


@pytest.mark.parametrize(("told", "least"), [(2, 7), (9, 9)])
def test_request_percentage_is_charged_for_all_of_them(told: int, least: int) -> None:
    rows = [row(P, 3), row(C, 4), row(R, told)]
    assert bounds_by_plan(rows)["p"] == Bounds(sums(least), sums(7 + told))
    assert overlaps([R])


def test_a_cluster_wide_rate_overlaps_with_every_brokers() -> None:
    rows = [row(P, 3), row(P, 4, broker_id=2), row(f"{P}:bps", 6, broker_id=None)]
    assert bounds_by_plan(rows)["p"] == Bounds(sums(7), sums(13))


def test_each_plan_has_its_own_and_rows_of_several_quota_ids_are_one_limit() -> None:
    rows = [row(P, 3), row(P, 2), row(f"{P}:bps", 4), row(P, 1, plan="q")]
    found = bounds_by_plan(rows)
    assert found == {"p": Bounds(sums(5), sums(9)), "q": Bounds(sums(1), sums(1))}
    assert not found["p"].is_exact
