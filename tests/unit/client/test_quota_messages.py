"""Quotas to messages and back, in the released spelling and the draft's."""

from __future__ import annotations

import pytest

from headgate.client import quota_messages as m
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.filter import FilterComponent, MatchType
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS, QuotaKey
from headgate.wire.messages import draft as d
from headgate.wire.messages import quotas as q

ENTITIES = [
    QuotaEntity.of(user="alice"),
    QuotaEntity.of(user=DEFAULT, client_id="c"),
    QuotaEntity.of(ip=DEFAULT),
    QuotaEntity({"GROUP": "g", "user": "<default>"}),
]


@pytest.mark.parametrize("entity", ENTITIES)
def test_an_entity_comes_back_as_it_went(entity: QuotaEntity) -> None:
    assert m.entity_of(m.parts_of(entity)) == entity
    if "GROUP" not in dict(entity):
        assert m.draft_entity_of(m.draft_parts_of(entity)) == entity


def test_the_default_is_null_where_released_and_empty_in_the_draft() -> None:
    entity = QuotaEntity.of(user=DEFAULT)
    assert m.parts_of(entity) == (q.EntityPart("user", None),)
    assert m.draft_parts_of(entity) == (d.DraftEntityPart("user", ""),)


def test_values_and_ops_come_back_as_they_went() -> None:
    values = {PRODUCER: float("inf"), PRODUCER_BPS: 12.75, QuotaKey("messages_rate", ""): 0.0}
    entry = m.described(ENTITIES[0], values)
    assert [value.key for value in entry.values][1] == "producer_byte_rate:bps"
    assert m.values_of(entry) == values
    ops = (Op(PRODUCER, 0.0), Op(CONSUMER, None))
    request = m.alter_request([QuotaAlteration(ENTITIES[1], ops)], validate_only=True)
    assert request.validate_only
    assert tuple(map(m.op_of, request.entries[0].ops)) == ops


def test_filters_come_back_with_match_types_that_kafka_lacks() -> None:
    components = [
        FilterComponent("user", MatchType.EXACT, "alice"),
        FilterComponent("client-id", MatchType.DEFAULT),
        FilterComponent("ip", MatchType.ANY),
        FilterComponent("GROUP", 7, "x"),
    ]
    request = m.describe_request(components, strict=True)
    assert [c.match_type for c in request.components] == [0, 1, 2, 7]
    assert list(map(m.component_of, request.components)) == components


def test_the_drafts_values_are_whole_and_fit() -> None:
    assert m.draft_int64(2.0**63) == 2**63 - 1
    assert m.draft_op_of(d.DraftAlterOp("PRODUCER_BYTE_RATE", "RATE_BPS", 5, False)) == Op(
        PRODUCER_BPS, 5.0
    )


def test_requests_are_cut_at_ten_thousand_records_and_no_entity_is_cut() -> None:
    pair = (Op(PRODUCER, 1.0), Op(CONSUMER, 2.0))
    asked = [QuotaAlteration(QuotaEntity.of(user=f"u{n}"), pair) for n in range(10_001)]
    asked.insert(0, QuotaAlteration(QuotaEntity.of(user="one"), pair[:1]))
    parts = m.cut(asked)
    assert [a for part in parts for a in part] == asked
    assert [sum(len(a.ops) for a in part) for part in parts] == [9_999, 10_000, 4]


def test_an_entity_with_too_many_records_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m, "MAX_RECORDS_PER_REQUEST", 4)

    def alteration(ops: int) -> QuotaAlteration:
        return QuotaAlteration(QuotaEntity.of(user=str(ops)), (Op(PRODUCER, 1),) * ops)

    sizes = [[len(a.ops) for a in part] for part in m.cut([alteration(n) for n in (2, 2, 5, 1)])]
    assert sizes == [[2, 2], [5], [1]]
    assert m.cut([]) == []
