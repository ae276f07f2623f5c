"""
Quotas as Kafka's own tools print them.

``kafka-configs --describe`` prints a line per entity, in one form before 2.6 and in another since;
KIP-546's ``kafka-quotas --list`` a block per entity.

Source: ConfigCommand.describeConfig and describeQuotaConfigs in Apache Kafka; KIP-546 "Output".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import yaml

from headgate.errors import InvalidQuota
from headgate.java_text import java_double
from headgate.quota.entity import Default, QuotaEntity, parse_entity
from headgate.quota.formats.nodes import ForeignRows, QuotaDocument, QuotaNode, on_line
from headgate.quota.formats.values import ExportedTable
from headgate.quota.key import QuotaKey, format_value
from headgate.quota.table import QuotaTable

_HEAD: Final = 65_536
"""Characters of a text in which its first quota must stand."""
_LINE: Final = re.compile(r"(?:Quota configs|Configs) for (.*) are(?: (.*))?")
_STARTS: Final = re.compile(
    r"^(?:Quota configs|Configs|SCRAM credential configs) for "
    r"(?:(?:the )?default |)(?:user-principal|client-id|ip)\b",
    re.MULTILINE,
)
_PART: Final = (
    r"(?:(?:the )?default (user-principal|client-id|ip)|(user-principal|client-id|ip) '([^']*)')"
)
_WHOSE: Final = re.compile(rf"{_PART}(?:, {_PART})?").fullmatch
_SCRAM_LINE: Final = re.compile(r"(?:Error retrieving )?SCRAM credential configs for ").match
_SCRAM: Final = re.compile(r"(?:SCRAM-SHA-\d+|salt|stored_key|server_key|iterations)=").match
_QUOTA: Final = re.compile(r"(?:_rate|request_percentage)(?::\w+)?\s*=").search
_WORDS: Final = {"user": "user-principal"}
_TYPES: Final = {"user-principal": "user", "client-id": "client-id", "ip": "ip"}
_WAY: Final = "`headgate export --bootstrap-server` reads the cluster itself"

# --- kafka-configs --describe


def is_describe(given: QuotaDocument) -> bool:
    """Tell whether a text is what kafka-configs prints about quotas."""
    return _STARTS.search(given.text, 0, _HEAD) is not None


def read_describe(given: QuotaDocument, rows: ForeignRows) -> None:
    """Read the lines of kafka-configs --describe, of Kafka 1.x to 4.x."""
    scram: list[int] = []
    others: list[int] = []
    for number, line in enumerate(given.text.split("\n"), 1):
        line = line.strip()
        if _SCRAM_LINE(line):
            scram.append(number)
        elif _LINE.fullmatch(line) and _STARTS.match(line):
            _describe_line(line, number, rows)
        elif _STARTS.match(line) or _QUOTA(line):
            rows.wrong(on_line(number), f"kafka-configs: a line that can't be read; {_WAY}")
        elif line:
            others.append(number)
    if scram:
        lines = "line" if len(scram) == 1 else "lines"
        rows.say(on_line(scram[0]), f"not quotas: {len(scram)} {lines} of SCRAM credentials")
    if others:
        lines = "line" if len(others) == 1 else "lines"
        rows.say(on_line(others[0]), f"not quotas: {len(others)} other {lines}")


def _describe_line(line: str, number: int, rows: ForeignRows) -> None:
    at = on_line(number)
    found = _LINE.fullmatch(line)
    whose = _WHOSE(found[1]) if found else None
    if found is None or whose is None:
        told = "can't tell where a name ends that has ' in it" if "'" in line else "no entity"
        rows.wrong(at, f"kafka-configs: {told}; {_WAY}")
        return
    entity: dict[str, yaml.Node | None] = {}
    for default, named, name in (whose.groups()[:3], whose.groups()[3:]):
        if default:
            entity[_TYPES[default]] = None
        elif named:
            entity[_TYPES[named]] = on_line(number, name)
    values = []
    for pair in re.split(r",\s*", found[2] or ""):
        key, equals, value = pair.partition("=")
        # Before 2.7 a user's credentials stand beside the quotas.
        if not pair or _SCRAM(pair):
            continue
        if not equals:
            rows.wrong(at, f"kafka-configs: {pair!r} isn't of the form key=value")
            return
        values.append(QuotaNode(at, key, on_line(number, value)))
    rows.add(at, entity, values)


def describe_line(entity: QuotaEntity, values: Mapping[QuotaKey, float]) -> str:
    """
    Return one entity's line as kafka-configs prints it since 3.x, keys by name.

    Kafka's order is its hash map's.
    """
    parts = [
        f"{word} '{name}'" if isinstance(name, str) else f"the default {word}"
        for entity_type, name in entity
        for word in [_WORDS.get(entity_type, entity_type)]
    ]
    by_name = sorted((key.name, value) for key, value in values.items())
    text = ", ".join(f"{name}={java_double(value)}" for name, value in by_name)
    return f"Quota configs for {', '.join(parts)} are {text}"


def write_describe(table: QuotaTable) -> ExportedTable:
    """Write quotas as kafka-configs --describe prints them."""
    lines, left_out = [], []
    for entity in sorted(table.entities):
        names = [name for _, name in entity if not isinstance(name, Default)]
        if any("'" in name or not name.isprintable() or not name for name in names):
            left_out.append(
                f"{entity}: a name that kafka-configs prints so that nobody can read it"
            )
        else:
            lines.append(describe_line(entity, table.entities[entity]))
    return ExportedTable("\n".join(lines), len(lines), tuple(left_out))


# --- kafka-quotas --list


_BLOCK: Final = re.compile(r"\s*\{([^{}\n:]+)\}[ \t]*\r?\n[ \t]*[\w:]+=").match
_DESCRIBED: Final = re.compile(r"\s*\*?\w+:\w+=\S+ (?:\{[^{}\n]*\}|\S+)[ \t]*(?:\r?\n|$)").match


def is_list(given: QuotaDocument) -> bool:
    """Tell whether a text is what kafka-quotas prints."""
    head = given.text[:_HEAD]
    block = _BLOCK(head)
    return (block is not None and "=" in block[1]) or _DESCRIBED(head) is not None


def read_list(given: QuotaDocument, rows: ForeignRows) -> None:
    """Read the blocks of kafka-quotas --list."""
    if _DESCRIBED(given.text):
        told = "kafka-quotas --describe prints what applies to a client; --list prints the quotas"
        rows.wrong(on_line(1), told)
        return
    entity: dict[str, yaml.Node | None] | None = None
    values: list[QuotaNode] = []
    at = on_line(1)
    for number, line in enumerate([*given.text.split("\n"), ""], 1):
        line = line.strip()
        if line.startswith("{") or not line:
            if entity is not None:
                rows.add(at, entity, values)
            entity, values, at = None, [], on_line(number)
        if line.startswith("{"):
            try:
                parsed = parse_entity(line)
            except InvalidQuota as error:
                rows.wrong(at, str(error))
                continue
            entity = {
                kind: None if isinstance(name, Default) else on_line(number, name)
                for kind, name in parsed
            }
        elif line:
            key, equals, value = line.partition("=")
            where = on_line(number)
            if entity is None or not equals:
                rows.wrong(
                    where, f"kafka-quotas: {line!r} isn't of the form key=value of an entity"
                )
            else:
                values.append(QuotaNode(where, key, on_line(number, value)))


def write_list(table: QuotaTable) -> ExportedTable:
    """Write quotas as kafka-quotas --list prints them."""
    blocks = [
        "\n".join([str(entity), *(f"{key}={_number(v)}" for key, v in sorted(quotas.items()))])
        for entity, quotas in sorted(table.entities.items())
    ]
    return ExportedTable("\n\n".join(blocks), len(blocks), ())


def _number(value: float) -> str:
    return "Infinity" if value == float("inf") else format_value(value)
