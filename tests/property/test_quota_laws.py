"""Laws of quotas: round trips, resolution, plans."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import (
    DEFAULT,
    EntityName,
    QuotaEntity,
    entity_from_path,
    parse_entity,
)
from headgate.quota.file import dump_quotas, parse_quotas
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS, QuotaKey
from headgate.quota.plan import diff
from headgate.quota.precedence import level_matches, resolve
from headgate.quota.sanitizer import desanitize, sanitize
from headgate.quota.table import QuotaTable, alterations_of, table_delta

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
few_names: st.SearchStrategy[EntityName] = st.sampled_from(["a", "b", "<default>"]) | st.just(
    DEFAULT
)


def entities(
    name: st.SearchStrategy[EntityName],
) -> st.SearchStrategy[QuotaEntity]:
    return st.one_of(
        st.builds(lambda u: QuotaEntity.of(user=u), name),
        st.builds(lambda c: QuotaEntity.of(client_id=c), name),
        st.builds(lambda u, c: QuotaEntity.of(user=u, client_id=c), name, name),
    )


keys: st.SearchStrategy[QuotaKey] = st.sampled_from([PRODUCER, CONSUMER, PRODUCER_BPS])
values = st.integers(1, 2**53).map(float)


def tables(name: st.SearchStrategy[EntityName]) -> st.SearchStrategy[QuotaTable]:
    rows = st.dictionaries(entities(name), st.dictionaries(keys, values, min_size=1), max_size=8)
    return rows.map(QuotaTable.of)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_desanitize_undoes_sanitize(name: str) -> None:
    assert desanitize(sanitize(name)) == name


@given(entities(names | st.just(DEFAULT)))
def test_an_entity_reads_back_from_path_and_print(entity: QuotaEntity) -> None:
    assert entity_from_path(entity.path) == entity
    assert parse_entity(str(entity)) == entity


@given(tables(names | st.just(DEFAULT)))
def test_a_table_reads_back_from_its_file(table: QuotaTable) -> None:
    assert parse_quotas(dump_quotas(table)).table == table


@given(tables(few_names), st.sampled_from("abz"), st.sampled_from("abz"), keys)
def test_the_first_matching_level_applies_and_the_rest_is_overridden(
    table: QuotaTable, user: str, client_id: str, key: QuotaKey
) -> None:
    found = level_matches(table.for_key(key), user, client_id)
    got = resolve(table, user, client_id, key)
    assert (got.source, got.value) == ((found[0][1], found[0][2]) if found else (None, None))
    assert [(o.source, o.value) for o in got.overridden] == [(e, v) for _, e, v in found[1:]]


@given(tables(few_names), entities(few_names), values, keys)
def test_a_less_specific_quota_never_changes_what_applies(
    table: QuotaTable, extra: QuotaEntity, value: float, key: QuotaKey
) -> None:
    before = resolve(table, "a", "b", key)
    numbers = {e: level.number for level, e, _ in level_matches({extra: value}, "a", "b")}
    found = level_matches(table.for_key(key), "a", "b")
    if found and numbers.get(extra, 9) > found[0][0].number:
        after, _ = table.apply([QuotaAlteration(extra, (Op(key, value),))])
        again = resolve(after, "a", "b", key)
        assert (again.value, again.source, again.tags) == (
            before.value,
            before.source,
            before.tags,
        )


@given(tables(few_names), tables(few_names))
def test_a_delta_leads_there_and_a_plan_too(one: QuotaTable, two: QuotaTable) -> None:
    assert one.apply(alterations_of(table_delta(one, two).changes))[0] == two
    file = parse_quotas(dump_quotas(two))
    plan = diff(one, file, prune=True)
    after, _ = one.apply(plan.alterations())
    assert after == two
    assert diff(after, file, prune=True).is_empty
