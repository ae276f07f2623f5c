from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import InvalidQuota
from headgate.quota import file as quotas_file
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.file import dump_quotas, parse_quotas, read_quotas_file
from headgate.quota.key import CONSUMER, CONSUMER_BPS, KEYS, PRODUCER, REQUEST
from headgate.quota.table import QuotaTable

TEXT = """
quotas:
  - entity: {user: alice, client-id: etl}
    producer_byte_rate: 1048576
    consumer_byte_rate:bps: 5242880
  - entity: {user: null}
    request_percentage: 12.75
  - entity: {client-id: old}
    producer_byte_rate: null
static_defaults: {consumer_byte_rate: 1000}
"""


def test_a_file_reads_as_it_is_written() -> None:
    file = parse_quotas(TEXT)
    assert file.table == QuotaTable.of(
        {
            QuotaEntity.of(user="alice", client_id="etl"): {
                PRODUCER: 1048576.0,
                CONSUMER_BPS: 5242880.0,
            },
            QuotaEntity.of(user=DEFAULT): {REQUEST: 12.75},
        },
        static_defaults={CONSUMER: 1000.0},
    )
    assert [(e, op.key) for e, op in file.removals] == [(QuotaEntity.of(client_id="old"), PRODUCER)]


def test_json_and_the_samples_own_form_read_too(tmp_path: Path) -> None:
    path = tmp_path / "quotas.json"
    row = {"entity": {"user": "bob", "client": None}, "config": {"producer_byte_rate": 6.0}}
    path.write_text(json.dumps({"note": "x", "quota_window_num": 11, "quotas": [row]}))
    assert (
        read_quotas_file(path).table.get(QuotaEntity.of(user="bob", client_id=DEFAULT), PRODUCER)
        == 6.0
    )


def test_every_mistake_is_reported_at_once_with_its_line() -> None:
    text = (
        "quotas:\n"
        " - entity: {user: a}\n"
        "   foo: 1\n"
        "   producer_byte_rate: -1\n"
        "   consumer_byte_rate: lots\n"
        " - entity: {ip: x, user: b}\n"
        " - 3\n"
        " - {entity: {user: a}, producer_byte_rate: 2}\n"
        " - producer_byte_rate: 1\n"
        " - entity: {topic: t}\n"
        "bar: 1\n"
    )
    with pytest.raises(InvalidQuota) as caught:
        parse_quotas(text, "q.yaml")
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines] == ["3", "4", "5", "6", "7", "8", "9", "10", "11"]
    assert lines[0].startswith("q.yaml:3: unknown key 'foo'; the keys are producer_byte_rate,")
    assert "stands twice for {user=a}; it is on line 4 already" in lines[5]
    assert "Unhandled client quota entity type: topic" in lines[7]


def test_an_entity_in_several_places_is_one_with_all_its_keys() -> None:
    text = """
quotas:
  - {entity: {user: alice}, producer_byte_rate: 1}
  - {entity: {user: bob}, producer_byte_rate: 2}
  - {entity: {user: alice}, consumer_byte_rate: 3, request_percentage: null}
"""
    file = parse_quotas(text)
    alice = QuotaEntity.of(user="alice")
    assert file.table.get(alice, PRODUCER) == 1
    assert file.table.get(alice, CONSUMER) == 3
    assert [(e, op.key) for e, op in file.removals] == [(alice, REQUEST)]
    again = text + "  - {entity: {user: alice}, request_percentage: 5}\n"
    with pytest.raises(InvalidQuota, match=r":6: .*percent stands twice .* on line 5"):
        parse_quotas(again, "q.yaml")


@pytest.mark.parametrize("text", ["", "[]", "quotas: 3", "a: b", "quotas: [", "\t"])
def test_what_is_no_quotas_file_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuota, match=r"q\.yaml"):
        parse_quotas(text, "q.yaml")


def test_a_file_that_is_not_there_names_itself(tmp_path: Path) -> None:
    with pytest.raises(InvalidQuota, match=r"none\.yaml"):
        read_quotas_file(tmp_path / "none.yaml")


def test_4_20_defaults_and_odd_names_round_trip() -> None:
    table = QuotaTable.of(
        {
            QuotaEntity.of(user=DEFAULT, client_id="c"): {PRODUCER: 1.0},
            QuotaEntity.of(user="<default>"): {PRODUCER: 2.0},
            QuotaEntity.of(user="CN=a b,O=*"): {PRODUCER: 3.0},
            QuotaEntity.of(user="null"): {PRODUCER: 4.0},
            QuotaEntity.of(user="1e3", client_id="~"): {REQUEST: 0.001},
            QuotaEntity.of(client_id="a\n: #"): {CONSUMER: 9223372036854775807.0},
        },
        static_defaults={PRODUCER: 5.0},
    )
    assert parse_quotas(dump_quotas(table)).table == table


def test_history_reads_oldest_first() -> None:
    text = (
        "history:\n"
        " - {t_ms: 20, entity: {user: a}, key: producer_byte_rate, value: null}\n"
        " - {t_ms: 10, entity: {user: a}, key: producer_byte_rate, value: 5}\n"
    )
    assert [(e.t_ms, e.value) for e in parse_quotas(text).history] == [(10, 5.0), (20, None)]
    with pytest.raises(InvalidQuota, match="lacks t_ms, entity"):
        parse_quotas("history: [{key: producer_byte_rate, value: 1}]")


NAMES = [
    "app-1", "a.b_c", "a-", "A.", "yes", "No", "NULL", "null", "~", "on", "oFF", "y", "1e5", "0x1f",
    "12:30", "=", "<<", ".inf", "-", "-a", "a:b", "a: b", "a #b", "a\n", "é", "2001-01-01", "e1",
    "x" * 999, "x" * 1_001, "x" * 5_000,
]  # fmt: skip


def test_rows_are_written_as_yaml_writes_them_and_ordinary_ones_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = [{key: 5.0} for key in KEYS] + [{PRODUCER: value} for value in (0.5, 1e16, 1e300)]
    entities = {
        QuotaEntity.of(user=user, client_id=client_id): values[number % len(values)]
        for number, (user, client_id) in enumerate(product([*NAMES, DEFAULT, None], NAMES))
    }
    notes = (None, {"store": "a", "brokers": {"1": {"a": "b"}}}, {"text": "a\nquotas: []\nb"})
    ordinary = QuotaTable({QuotaEntity.of(user=f"u{n}"): {PRODUCER: 7.0} for n in range(300)})
    asked = []

    def counted(document: Any) -> str:
        asked.append(document)
        return dump(document)

    dump = quotas_file._dump
    monkeypatch.setattr(quotas_file, "_dump", counted)
    written = dump_quotas(ordinary)
    assert len(asked) == 1
    tables = [QuotaTable(entities), QuotaTable({}, 0, {PRODUCER: 5.0}), QuotaTable()]
    ours = [dump_quotas(table, note) for table in tables for note in notes]
    monkeypatch.setattr(quotas_file, "_is_simple", lambda _: False)
    assert written == dump_quotas(ordinary)
    assert ours == [dump_quotas(table, note) for table in tables for note in notes]


_ROW = "entity: {user: alice}, config: {producer_byte_rate: 1}"


@pytest.mark.parametrize(
    "text",
    [
        "note: " + "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        "quotas: " + "{a: " * 100_000,
    ],
)
def test_a_file_nested_too_deep_is_refused_and_ends_no_process(text: str) -> None:
    with pytest.raises(InvalidQuota, match="nested more than"):
        parse_quotas(text)


def test_aliases_make_no_more_mistakes_of_a_short_file_than_people_read() -> None:
    row = f"{{{_ROW}, {', '.join(f'k{n}: 1' for n in range(1_000))}}}"
    text = f"note: &a {row}\nquotas: [{', '.join(['*a'] * 1_000)}]"
    with pytest.raises(InvalidQuota) as error:
        parse_quotas(text)
    assert len(str(error.value).splitlines()) == 1_001
