"""
The quotas file: YAML or JSON, read with every mistake at once, written so that it reads back.

::

    quotas:
      - entity: {user: alice, client-id: etl}   # a null name is the default entity
        producer_byte_rate: 1048576             # a null value removes the key
        consumer_byte_rate:bps: 5MB/s           # a key may carry a unit, and so may a value
    static_defaults: {producer_byte_rate: 1000} # KIP-55's static default, for the pipeline
    history:                                    # from `headgate history`, for the pipeline
      - {t_ms: 1795261549304, entity: {user: alice}, key: producer_byte_rate, value: 1000}

Also read: Kafka's words ``client`` for ``client-id``, and values under ``config``; files of other
tools (``formats.known``).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from headgate.errors import MALFORMED, InvalidQuota
from headgate.quota.alteration import Op, entity_error, value_error
from headgate.quota.entity import DEFAULT, Default, EntityName, QuotaEntity
from headgate.quota.formats.known import Format, recognise
from headgate.quota.formats.nodes import ForeignRows, QuotaDocument, merges, on_line
from headgate.quota.human import has_unit, read_value
from headgate.quota.key import KEYS, QuotaKey, format_value, is_exact
from headgate.quota.table import QuotaTable
from headgate.steps import finish, sorting

_SIMPLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,999}").fullmatch
_WORDS: Final = frozenset({"yes", "no", "true", "false", "on", "off", "null"})
"""What YAML takes for something else than text."""


class QuotaEvent(NamedTuple):
    """One change in time: at ``t_ms`` (epoch ms) the key of the entity became ``value``."""

    t_ms: int
    entity: QuotaEntity
    key: QuotaKey
    value: float | None


class QuotasFile(NamedTuple):
    """
    What a quotas file says.

    Args:
        table: the quotas it sets.
        removals: entity and op for every key it sets to null.
        history: changes in time, oldest first.
        note: the file's ``note``, which Headgate keeps and doesn't interpret.
        said: sentences about what was left out though it is no mistake, each with its line.
        unread: of these, the sentences about what may hold quotas.
        format: the name of the format; "" of a quotas file.
    """

    table: QuotaTable
    removals: tuple[tuple[QuotaEntity, Op], ...]
    history: tuple[QuotaEvent, ...]
    note: Any = None
    said: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    format: str = ""


def read_quotas_file(path: str | Path, *, cluster: str | None = None, of: str = "") -> QuotasFile:
    """
    Read a quotas file, or a file of another tool.

    Args:
        path: the file.
        cluster: the Strimzi cluster whose resources are read; None: the file has only one.
        of: the name of the format that it must have; "": any that is recognised.

    Raises:
        InvalidQuota: the file can't be read, or holds mistakes: all of them, each with its line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidQuota(f"can't read the quotas file {path}: {exc}") from exc
    return parse_quotas(text, str(path), cluster=cluster, of=of)


def parse_quotas(
    text: str, source: str = "quotas", *, cluster: str | None = None, of: str = ""
) -> QuotasFile:
    """
    Read the text of a quotas file (YAML; JSON is YAML), or of another tool's file.

    Args:
        text: the file's text.
        source: the file's name, as error messages give it.
        cluster: the Strimzi cluster whose resources are read; None: the file has only one.
        of: the name of the format that it must have; "": any that is recognised.

    Raises:
        InvalidQuota: one line per mistake, ``source:line: what``.
    """
    found, given = recognise(text, source, of)
    if cluster is not None and (found is None or found.name not in ("strimzi", "jikkou")):
        what = "a quotas file" if found is None else found.of
        raise InvalidQuota(
            f"{source}: --strimzi chooses among resources of Strimzi, and this is {what}"
        )
    reader = _Reader(source)
    if found is not None:
        return _foreign(found, given, reader, cluster)
    for more in given.documents[1:]:
        reader.wrong(more, "a second document; a quotas file is one")
    return reader.read(given.root)


def _foreign(
    found: Format, given: QuotaDocument, reader: _Reader, cluster: str | None
) -> QuotasFile:
    """Read a file of another tool."""
    unread: list[str] = []

    def leave(node: yaml.Node, what: str) -> None:
        reader.say(node, what)
        unread.extend(reader.said[-1:])

    rows = ForeignRows(cluster, reader.wrong, reader.say, leave)
    found.read(given, rows)
    for key in merges(given.documents):
        reader.wrong(key, "a merge key (<<) isn't read; write what it merges")
    for more in () if found.is_stream else given.documents[1:]:
        reader.wrong(more, f"a second document; {found.name} has one in a file")
    file = reader.read(rows.root(given.root or on_line(1)))
    return file._replace(unread=tuple(unread), format=found.name)


_MOST_PROBLEMS = 1_000
"""Mistakes that are collected at most: with aliases, a short file may have billions."""
_MOST_FIELDS = 50
"""Fields of an entry of the history that are read at most, for the same reason."""


def digest_of(table: QuotaTable) -> str:
    """Return what tells one state of the quotas from another."""
    return hashlib.sha256(dump_quotas(table).encode()).hexdigest()


def dump_quotas(table: QuotaTable, note: object = None) -> str:
    """Return a table as a quotas file; reading it back gives an equal table, and the note."""
    document: dict[str, Any] = {} if note is None else {"note": note}
    document["quotas"] = []
    if table.static_defaults:
        document["static_defaults"] = {
            key.name: _plain(value) for key, value in sorted(table.static_defaults.items())
        }
    before, quotas, after = ("\n" + _dump(document)).partition("\nquotas: []\n")
    # In runs, since sorting all at once would hold the interpreter for long.
    entities = finish(sorting(table.entities, lambda entity: entity.sort_key))
    if entities:
        quotas = "\nquotas:\n" + "".join(_row(e, table.entities[e]) for e in entities)
    return (before + quotas + after).removeprefix("\n")


def _row(entity: QuotaEntity, values: Mapping[QuotaKey, float]) -> str:
    """Return an entity's quotas as ``yaml.dump`` writes them, but five times faster."""
    names = {t: None if isinstance(n, Default) else n for t, n in entity}
    amounts = {key.name: _plain(value) for key, value in sorted(values.items())}
    if all(_is_simple(name) for name in names.values()) and all(
        isinstance(amount, int) for amount in amounts.values()
    ):
        whose = ", ".join(f"{t}: {'null' if name is None else name}" for t, name in names.items())
        limits = "".join(f"  {key}: {amount}\n" for key, amount in amounts.items())
        return f"- entity: {{{whose}}}\n{limits}"
    return _dump([{"entity": names, **amounts}])


def _is_simple(name: str | None) -> bool:
    """Whether YAML writes a name as it is."""
    return name is None or bool(_SIMPLE(name) and name.lower() not in _WORDS)


def _dump(document: Any) -> str:
    text: str = yaml.dump(
        document,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=4096,
    )
    return text


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes names with unprintable characters escaped, so that they read back the same."""


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


def _plain(value: float) -> int | float:
    return int(value) if format_value(value).lstrip("-").isdigit() else value


class _Reader:
    """Walks YAML nodes, which know their lines, and collects mistakes."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[str] = []
        self.values: dict[QuotaEntity, dict[QuotaKey, float]] = {}
        self.removals: list[tuple[QuotaEntity, Op]] = []
        self.history: list[QuotaEvent] = []
        self.static_defaults: dict[QuotaKey, float] = {}
        # The lines of each entity's keys; an entity may be in the file several times.
        self.lines: dict[QuotaEntity, dict[QuotaKey, int]] = {}
        self.note: Any = None
        self.said: list[str] = []

    def read(self, root: yaml.Node | None) -> QuotasFile:
        if root is None:
            self.problems.append(f"{self.source}: empty; expected 'quotas: [...]'")
        elif not isinstance(root, yaml.MappingNode):
            self.wrong(root, "expected a mapping with 'quotas: [...]'")
        else:
            self.document(root)
        if self.problems:
            raise InvalidQuota("\n".join(self.problems))
        return QuotasFile(
            QuotaTable(self.values, static_defaults=self.static_defaults),
            tuple(self.removals),
            tuple(sorted(self.history, key=lambda event: event.t_ms)),
            self.note,
            tuple(self.said),
        )

    def document(self, root: yaml.MappingNode) -> None:
        names = []
        for name, key_node, node in self.fields(root):
            names.append(name)
            if name == "quotas":
                for item in self.items(node, "quotas"):
                    self.quota(item)
            elif name == "static_defaults":
                self.static(node)
            elif name == "history":
                for item in self.items(node, "history"):
                    self.event(item)
            elif name == "note":
                self.keep(node)
            elif name not in _NOTES:
                self.wrong(
                    key_node,
                    f"unknown section {name!r}; the sections are quotas, static_defaults, history",
                )
        if not {"quotas", "history"} & set(names):
            self.wrong(root, "no 'quotas: [...]' section")

    def quota(self, node: yaml.Node) -> None:
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, "a quota is a mapping with 'entity: {...}' and keys")
            return
        fields = list(self.fields(node))
        pairs = [(k, v) for name, k, v in fields if name != "entity"]
        entity_nodes = [v for name, _, v in fields if name == "entity"]
        if len(entity_nodes) != 1:
            self.wrong(node, "a quota needs one 'entity: {user: NAME, ...}'")
            return
        entity = self.entity(entity_nodes[0])
        if entity is None:
            return
        lines = self.lines.setdefault(entity, {})
        flat: list[tuple[yaml.Node, yaml.Node]] = []
        for key_node, value_node in pairs:
            if key_node.value == "config" and isinstance(value_node, yaml.MappingNode):
                flat.extend((k, v) for _, k, v in self.fields(value_node))
            else:
                flat.append((key_node, value_node))
        for key_node, value_node in flat:
            parsed = self.key_value(entity, key_node, value_node, lines)
            if parsed is None:
                continue
            key, value = parsed
            if value is None:
                self.removals.append((entity, Op(key, None)))
            else:
                self.values.setdefault(entity, {})[key] = value

    def entity(self, node: yaml.Node) -> QuotaEntity | None:
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, "an entity is a mapping such as {user: alice, client-id: etl}")
            return None
        entries: dict[str, EntityName] = {}
        for name, key_node, name_node in self.fields(node):
            entity_type = "client-id" if name == "client" else name
            if entity_type in entries:
                self.wrong(key_node, f"entity type {entity_type} stands twice")
                return None
            if name_node.tag == "tag:yaml.org,2002:null":
                entries[entity_type] = DEFAULT
            elif isinstance(name_node, yaml.ScalarNode):
                entries[entity_type] = name_node.value
            else:
                self.wrong(name_node, f"the name of {entity_type} must be text, or null (default)")
                return None
        entity = QuotaEntity(entries)
        # The server resolves host names; here any non-empty name is accepted.
        error = entity_error(entity, resolvable=lambda _: True)
        if error is not None:
            self.wrong(node, str(error))
            return None
        return entity

    def key_value(
        self,
        entity: QuotaEntity,
        key_node: yaml.Node,
        value_node: yaml.Node,
        lines: dict[QuotaKey, int],
    ) -> tuple[QuotaKey, float | None] | None:
        key = QuotaKey.parse(str(key_node.value))
        if not key.is_known:
            known = ", ".join(k.name for k in KEYS)
            self.wrong(key_node, f"unknown key {key_node.value!r}; the keys are {known}")
            return None
        if key in lines:
            already = f"it is on line {lines[key]} already"
            self.wrong(key_node, f"{key} stands twice for {entity}; {already}")
            return None
        lines[key] = key_node.start_mark.line + 1
        if value_node.tag == "tag:yaml.org,2002:null":
            return key, None
        value = self.value(value_node, key)
        if value is None:
            return None
        error = value_error(entity, key, value)
        if error is not None:
            self.wrong(value_node, f"{error} (entity {entity})")
            return None
        return key, value

    def value(self, node: yaml.Node, key: QuotaKey) -> float | None:
        """Return a value, which may have a unit: ``10MB/s``."""
        if not isinstance(node, yaml.ScalarNode) or not has_unit(node.value):
            return self.number(node, key.name)
        try:
            return read_value(node.value, key)
        except ValueError as exc:
            self.wrong(node, str(exc))
            return None

    def number(self, node: yaml.Node, name: str) -> float | None:
        try:
            text = node.value.lower() if isinstance(node, yaml.ScalarNode) else "nan"
            # YAML writes infinity, which Kafka takes as a request percentage, with a dot.
            value = float(text.replace(".inf", "inf"))
            if text.isdecimal() and not is_exact(int(text)):
                self.wrong(node, f"{name}: quotas are doubles, and none holds {text} as it is")
                return None
        except ValueError:
            value = math.nan
        if math.isnan(value):
            self.wrong(node, f"the value of {name} must be a number, or null to remove it")
            return None
        return value

    def static(self, node: yaml.Node) -> None:
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, "static_defaults is a mapping of key to value")
            return
        lines: dict[QuotaKey, int] = {}
        for _, key_node, value_node in self.fields(node):
            parsed = self.key_value(_ANY_CLIENT, key_node, value_node, lines)
            if parsed is not None and parsed[1] is not None:
                self.static_defaults[parsed[0]] = parsed[1]

    def event(self, node: yaml.Node) -> None:
        named = self.fields(node, _MOST_FIELDS) if isinstance(node, yaml.MappingNode) else ()
        fields = {name: v for name, _, v in named}
        missing = [name for name in ("t_ms", "entity", "key", "value") if name not in fields]
        if missing:
            self.wrong(node, f"a history entry lacks {', '.join(missing)}")
            return
        entity = self.entity(fields["entity"])
        t_ms = self.number(fields["t_ms"], "t_ms")
        if t_ms is not None and math.isinf(t_ms):
            self.wrong(fields["t_ms"], "t_ms must be a moment, epoch ms")
            return
        if entity is None or t_ms is None:
            return
        parsed = self.key_value(entity, fields["key"], fields["value"], {})
        if parsed is not None:
            self.history.append(QuotaEvent(int(t_ms), entity, *parsed))

    def keep(self, node: yaml.Node) -> None:
        try:
            self.note = yaml.constructor.SafeConstructor().construct_document(node)
        except (yaml.YAMLError, *MALFORMED) as exc:  # as of a date that no calendar has
            self.wrong(node, f"the note can't be read: {' '.join(str(exc).split())}")

    def fields(
        self, node: yaml.MappingNode, most: int | None = None
    ) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Yield (name, its node, the value's) of a mapping, whose names are texts."""
        for key_node, value_node in node.value[:most]:
            if isinstance(key_node, yaml.ScalarNode):
                yield key_node.value, key_node, value_node
            else:
                self.wrong(key_node, "a name must be text, not a list or a mapping")

    def items(self, node: yaml.Node, name: str) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        self.wrong(node, f"{name} must be a list")
        return []

    def say(self, node: yaml.Node, what: str) -> None:
        if len(self.said) < _MOST_PROBLEMS:
            self.said.append(f"{self.source}:{node.start_mark.line + 1}: {what}")

    def wrong(self, node: yaml.Node, what: str) -> None:
        self.problems.append(f"{self.source}:{node.start_mark.line + 1}: {what}")
        if len(self.problems) >= _MOST_PROBLEMS:
            raise InvalidQuota("\n".join([*self.problems, f"{self.source}: and perhaps more"]))


_ANY_CLIENT = QuotaEntity.of(client_id=DEFAULT)
# Tools and people keep these beside the quotas; Headgate ignores them.
_NOTES = frozenset({"note", "quota_window_num", "quota_window_size_seconds", "$schema", "version"})
