"""Quotas files and spellings at their edges: JSON's escapes, odd names, words and sections."""

from __future__ import annotations

import json

import pytest

from headgate.errors import InvalidQuota
from headgate.quota.alteration import value_error
from headgate.quota.entity import QuotaEntity
from headgate.quota.file import dump_quotas, parse_quotas
from headgate.quota.human import read_value
from headgate.quota.key import (
    CONNECTION,
    CONSUMER_BPS,
    KEYS,
    PRODUCER,
    REQUEST,
    canonical_units,
    format_value,
)
from headgate.quota.precedence import PRECEDENCE, flags_of
from headgate.quota.sanitizer import desanitize
from headgate.quota.table import QuotaTable
from headgate.yaml_reading import as_yaml

ROW = '{"entity": {"user": NAME}, "producer_byte_rate": 1}'


def names_in(text: str) -> list[object]:
    return [entity.user for entity in parse_quotas(text).table.entities]


@pytest.mark.parametrize(
    "name",
    ["😀", "a😀b😀", "é", "a\nb", "a\\ud83d", 'say "x"', "tab\tname", "\x85", "\u2028", "\\", "/"],
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_names_in_json_are_those_that_json_says(name: str, ascii_only: bool) -> None:
    row = ROW.replace("NAME", json.dumps(name, ensure_ascii=ascii_only))
    assert names_in('{"quotas": [' + row + "]}") == [name]
    assert names_in('\n {"quotas":\t[\t' + row + "\t]\t}\n") == [name]


def test_what_is_not_json_is_read_as_it_is() -> None:
    for text in ("quotas: []\n", "{quotas: []}", '{"a": [}', "\t", "'\u0085'"):
        assert as_yaml(text) == text
    assert as_yaml('["\\u00e9\t"]') == '["\\u00e9\t"]'  # a tab within a text isn't JSON
    assert as_yaml('[1,\t"\u00e9"]') == '[1, "\\U000000e9"]'


@pytest.mark.parametrize(
    "name",
    ["off", "OFF", "yes", "No", "true", "null", "on", "é", "a b", " a", "a\x07", "\u0085", "1", "",
     "long" * 300, "long word " * 300, "-", "~", "x: y", "#"],
)  # fmt: skip
def test_every_name_is_read_back_and_stands_on_one_line(name: str) -> None:
    if not name:
        return
    table = QuotaTable.of({QuotaEntity.of(user=name): {PRODUCER: 1.0}})
    text = dump_quotas(table)
    assert parse_quotas(text).table == table
    assert text.count("\n") in (3, 4)  # quoted names have a line of their own
    if name == "é":
        assert name in text


def test_sections_are_kept_apart() -> None:
    read = parse_quotas("note: {a: [1, x]}\nversion: 3\nquotas: []\nhistory: []\n")
    assert read.note == {"a": [1, "x"]}
    assert parse_quotas("history: []\n").table == QuotaTable()
    assert parse_quotas("quotas: []\nstatic_defaults: {producer_byte_rate: null}").table == (
        QuotaTable()
    )
    assert dump_quotas(QuotaTable(), note="\nquotas: []\n").count("quotas: []") == 2
    event = "{t_ms: 1, entity: {user: a}, key: producer_byte_rate, value: 2}"
    assert len(parse_quotas(f"history: [{event}]").history) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("note: 1\n", "no 'quotas"),
        ("quotas: []\nelse: 1\n", "unknown section 'else'"),
        ("quotas:\n- entity: {user: a}\n  config: 5\n", "unknown key 'config'"),
        ("quotas: []\nstatic_defaults: 5\n", "static_defaults is a mapping"),
        ("quotas: []\nstatic_defaults: {x: 5}\n", "unknown key 'x'"),
        ("history: [5]\n", "a history entry lacks t_ms, entity, key, value"),
        ("history:\n- {t_ms: x, entity: {user: a}, key: producer_byte_rate, value: 1}\n", "t_ms"),
        ("history:\n- {t_ms: 1, entity: 5, key: producer_byte_rate, value: 1}\n", "an entity is"),
        ("quotas: [\n", "not YAML or JSON: "),
    ],
)
def test_what_is_wrong_in_a_section_is_told(text: str, told: str) -> None:
    with pytest.raises(InvalidQuota) as refused:
        parse_quotas(text, "f")
    (line,) = str(refused.value).splitlines()
    assert told in line
    assert line.startswith("f:")


def test_values_and_units_are_spelled_as_they_are_known() -> None:
    spelled = ("RATE_BPS", "BPS", "BROKER_BPS", "SHARES", "PERCENT", "PER_S", "other")
    assert [canonical_units(text) for text in spelled] == [
        "bps", "bps", "broker_bps", "shares", "percent", "per_s", "other",
    ]  # fmt: skip
    assert [format_value(value) for value in (1e17, 1e18, -1e18, 1.5, 0.0)] == [
        "100000000000000000", "1e+18", "-1e+18", "1.5", "0",
    ]  # fmt: skip
    assert read_value("0.1MB/s", PRODUCER) == 100_000.0
    assert read_value("0.0000004B/s", PRODUCER) == 4e-7
    assert read_value("0.5%", REQUEST) == 0.5
    assert value_error(QuotaEntity.of(user="a"), CONSUMER_BPS, 1.5) is not None
    assert {spec.value_type for spec in KEYS.values()} == {"LONG", "DOUBLE", "INT"}
    assert [level.number for level in PRECEDENCE] == list(range(1, 9))
    address = QuotaTable.of({QuotaEntity.of(ip="10.0.0.1"): {CONNECTION: 1.0}})
    assert flags_of(address, CONNECTION) == 0


@pytest.mark.parametrize("text", ["%", "%4", "%zz", "a%4x%41", "%41%", "%41%4g"])
def test_an_escape_that_is_none_is_refused_wherever_it_stands(text: str) -> None:
    with pytest.raises(InvalidQuota, match="isn't an encoded name"):
        desanitize(text)
