"""Laws of other tools' formats: what is written reads back the same, and what isn't is named."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from headgate.errors import InvalidQuota
from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity
from headgate.quota.file import parse_quotas
from headgate.quota.formats import hcl
from headgate.quota.formats.known import BY_NAME, FORMATS, WRITTEN
from headgate.quota.key import (
    CONNECTION,
    CONSUMER,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    REQUEST,
    QuotaKey,
)
from headgate.quota.table import QuotaTable

ODD = [
    "<default>",
    "a'b",
    "it's, client-id 'x",
    "{{ x }}",
    "${x}",
    "a\\b",
    "{# x",
    "$${x}",
    "%{ if }",
    "a|b",
    "a:b",
    "null",
    "~",
    "1e3",
    " a ",
    "a are b=1",
    "#x",
    "=",
    "entity-default",
    "[a]",
    "- a",
    "CN=a,OU=b",
    "\u2028",
    "\x85",
    "\x7f",
    "\ud7ff",
    "\U0001f600",
]
names: st.SearchStrategy[EntityName] = st.one_of(
    st.sampled_from(ODD),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
    st.just(DEFAULT),
)
clients = st.one_of(
    st.builds(lambda u: QuotaEntity.of(user=u), names),
    st.builds(lambda c: QuotaEntity.of(client_id=c), names),
    st.builds(lambda u, c: QuotaEntity.of(user=u, client_id=c), names, names),
)
addresses = st.builds(
    lambda ip: QuotaEntity.of(ip=ip), st.sampled_from(["10.0.0.1", "::1", DEFAULT])
)
rates = st.one_of(st.integers(1, 2**53).map(float), st.sampled_from([2.0**31, 2.0**63, 1e15]))
shares = st.floats(0.001, 1e9) | st.just(float("inf"))
values: dict[QuotaKey, st.SearchStrategy[float]] = {
    PRODUCER: rates,
    CONSUMER: rates,
    PRODUCER_BPS: rates,
    REQUEST: shares,
    MUTATION: shares,
}
own = st.lists(st.sampled_from(list(values)), min_size=1, unique=True).flatmap(
    lambda keys: st.fixed_dictionaries({key: values[key] for key in keys})
)
connections = st.fixed_dictionaries({CONNECTION: st.integers(1, 2**31 - 1).map(float)})
tables = st.builds(
    lambda some, more: QuotaTable.of({**some, **more}),
    st.dictionaries(clients, own, max_size=5),
    st.dictionaries(addresses, connections, max_size=2),
)


@pytest.mark.parametrize("name", sorted(WRITTEN))
@given(table=tables, as_json=st.booleans())
def test_what_is_written_reads_back_and_what_is_not_is_named(
    name: str, table: QuotaTable, as_json: bool
) -> None:
    written = BY_NAME[name].write(table)
    if isinstance(written.body, str):
        text = written.body
    else:
        text = json.dumps(written.body) if as_json else yaml.safe_dump(written.body)
    back = QuotaTable()
    if written.number:
        file = parse_quotas(text, of=name)
        assert not file.unread
        back = file.table
    assert len(back) == written.number
    missing = 0
    for entity, quotas in table.entities.items():
        for key, value in quotas.items():
            found = back.get(entity, key)
            assert found in (None, value)
            if found is None:
                missing += 1
                assert any(line.startswith(str(entity)) for line in written.left_out)
    assert sum(map(len, table.entities.values())) - missing == sum(map(len, back.entities.values()))
    assert (missing == 0) == (not written.left_out)


@given(names.filter(lambda name: isinstance(name, str) and not hcl.is_ambiguous(name)))
def test_a_text_of_terraform_reads_back(text: str) -> None:
    node = dict(hcl.parse(f"name = {hcl.quoted(text)}\n").value)
    [(key, value)] = node.items()
    assert (key.value, value.value, hcl.is_expression(value)) == ("name", text, False)


PIECES = [
    "resource ",
    '"kafka_quota" ',
    '"x" ',
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "=",
    ",",
    "\n",
    '"',
    "${",
    "%{",
    "\\",
    "a",
    "1",
    "*",
    "<<E\n",
    "E\n",
    "# c\n",
    "/*",
    "*/",
    "null",
    "config",
    "entity_name",
    "principals",
    ": ",
    "- ",
    "quotas:",
    "Quota configs for user-principal 'a'",
    " are ",
    "{user=a}\n",
    "apiVersion: x\n",
    "'",
    "entity",
    "kafka_quotas:",
    "é",
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    try:
        file = parse_quotas(text)
    except InvalidQuota as refused:
        assert all(line.startswith("quotas") for line in str(refused).splitlines())
    else:
        assert file.format in ("", *(row.name for row in FORMATS))
