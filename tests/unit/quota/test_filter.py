from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ApiError
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.filter import (
    FilterComponent,
    MatchType,
    QuotaFilter,
    match_type_of,
    matches,
    validate_filter,
)

CASES = Path(__file__).parents[2] / "data" / "cases"
DATA = json.loads((CASES / "describe_filters.json").read_text(encoding="utf-8"))
ENTITIES = [
    QuotaEntity({t: DEFAULT if n is None else n for t, n in row["entity"].items()})
    for row in DATA["entities"]
]


def components_of(rows: list[dict[str, Any]]) -> list[FilterComponent]:
    return [
        FilterComponent(r["entity_type"], match_type_of(r["match_type"]), r["match"]) for r in rows
    ]


@pytest.mark.parametrize("case", DATA["filters"], ids=lambda c: json.dumps(c)[:80])
def test_filters_select_what_kafka_selects(case: dict[str, Any]) -> None:
    components = components_of(case["components"])
    validate_filter(components)
    found = [i for i, e in enumerate(ENTITIES) if matches(components, e, case["strict"])]
    assert len(found) == case["expected_count"]
    if "expected_entity_indexes" in case:
        assert found == case["expected_entity_indexes"]


@pytest.mark.parametrize("case", DATA["errors"], ids=lambda c: json.dumps(c["components"])[:60])
def test_filters_are_refused_with_kafkas_texts(case: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        validate_filter(components_of(case["components"]))
    assert int(caught.value.code) == case["error"]
    if "message" in case:
        assert caught.value.message == case["message"]
    else:
        assert case["message_contains"] in str(caught.value.message)


def test_546_14_exact_with_the_constant_selects_the_default_and_prefix_never_does() -> None:
    default, named = QuotaEntity.of(user=DEFAULT), QuotaEntity.of(user="<default>")
    exact = QuotaFilter(QuotaEntity.Type.USER, QuotaFilter.Rule.EXACT, "").component()
    assert exact.accepts(default)
    assert not exact.accepts(named)
    prefix = QuotaFilter(QuotaEntity.Type.USER, QuotaFilter.Rule.PREFIX, "").component()
    assert not prefix.accepts(default)
    assert prefix.accepts(named)


def test_546_19_conditions_are_anded() -> None:
    both = [
        FilterComponent("user", MatchType.PREFIX, "user-"),
        FilterComponent("client-id", MatchType.EXACT, "client-id-1"),
    ]
    assert [e.user for e in ENTITIES if matches(both, e)] == ["user-1", "user-2"]


def test_a_name_or_default_becomes_its_component() -> None:
    assert FilterComponent.of_name("user", DEFAULT).match_type is MatchType.DEFAULT
    assert FilterComponent.of_name("user", "a") == FilterComponent("user", MatchType.EXACT, "a")
