"""
Quotas in lists of other tools: rpk, kafka-helmsman, Ansible, Julie, Kafbat.

Source: rpk's quotas.go, describe.go and import.go; kafka-helmsman's ConfiguredQuota and
AdminClientQuotaService; ansible-kafka-admin's kafka_quotas and kafka_lib_quotas; JulieOps' Quota
and QuotasClientBindingsBuilder; Kafbat's ClientQuotaRecord.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from headgate.quota.entity import Default, QuotaEntity
from headgate.quota.formats.nodes import (
    ForeignRows,
    QuotaDocument,
    QuotaNode,
    field,
    has_template,
    is_template,
    items_of,
    names_of,
    on_line,
    pairs_of,
    text,
)
from headgate.quota.formats.values import RATES, ExportedTable, Limits, decimal, held
from headgate.quota.key import CONNECTION, CONSUMER, MUTATION, PRODUCER, REQUEST
from headgate.quota.table import QuotaTable

_INT_MAX: Final = 2.0**31 - 1
DEFAULT_NAME: Final = "<default>"
"""How these tools write the default entity; none can name an entity that is really called so."""


def _entity(names: dict[str, yaml.Node | None]) -> dict[str, yaml.Node | None]:
    """Return the parts that are there; ``<default>`` is the default entity."""
    return {
        kind: None if text(name) == DEFAULT_NAME else name
        for kind, name in names.items()
        if name is not None
    }


def _named(entity: QuotaEntity) -> dict[str, str]:
    return {kind: DEFAULT_NAME if isinstance(name, Default) else name for kind, name in entity}


def _literal(entity: QuotaEntity) -> str:
    """Say why an entity can't be written; "" where it can."""
    literal = any(name == DEFAULT_NAME for _, name in entity)
    return f"its name would be the default entity: it is called {DEFAULT_NAME}" if literal else ""


# --- rpk cluster quotas describe --format yaml


_RPK_NAMES: Final = {**RATES, "controller_mutation_rate": MUTATION}
_RPK_TEXT: Final = re.compile(r"(?:user|ip|client-id(?:-prefix)?)=.*\n\t\w+=").match
_PREFIXES: Final = "Kafka has no prefixes; take the entry out, and give each client-id a quota"


def is_rpk(given: QuotaDocument) -> bool:
    """Tell whether a file is what rpk describes."""
    if _RPK_TEXT(given.text.lstrip()):
        return True
    quotas = items_of(field(given.root, "quotas"))
    return bool(quotas) and isinstance(field(quotas[0], "entity"), yaml.SequenceNode)


def read_rpk(given: QuotaDocument, rows: ForeignRows) -> None:
    """Read what ``rpk cluster quotas describe`` prints as YAML or JSON."""
    if _RPK_TEXT(given.text.lstrip()):
        told = "rpk's text doesn't tell a name from the next one; give `--format yaml`"
        rows.wrong(on_line(1), told)
        return
    for quota in items_of(field(given.root, "quotas")):
        entity: dict[str, yaml.Node | None] = {}
        if not isinstance(field(quota, "entity"), yaml.SequenceNode):
            rows.wrong(quota, "rpk: an entity is a list of {type: TYPE, name: NAME}")
            continue
        for part in items_of(field(quota, "entity")):
            kind, name = text(part, "type"), field(part, "name")
            if kind not in ("user", "client-id", "ip"):
                told = f"rpk: {kind} {text(name)}"
                way = _PREFIXES if kind == "client-id-prefix" else "Kafka has no such entity"
                rows.wrong(part, f"{told}: {way}")
            elif not isinstance(name, yaml.ScalarNode) or kind in entity:
                rows.wrong(part, f"rpk: an entity names its {kind} once")
            else:
                entity |= _entity({kind: name})
        if not entity:
            continue
        values = []
        if not isinstance(field(quota, "values"), yaml.SequenceNode):
            rows.wrong(quota, "rpk: values are a list of {key: KEY, value: NUMBER}")
        for pair in items_of(field(quota, "values")):
            # rpk 24 calls the value "values", its list of fields "value".
            value = field(pair, "value") or field(pair, "values")
            key = text(pair, "key")
            if key is None or value is None:
                rows.wrong(pair, "rpk: a value is of the form {key: KEY, value: NUMBER}")
            else:
                values.append(QuotaNode(pair, key, value))
        rows.add(quota, entity, values)


def write_rpk(table: QuotaTable) -> ExportedTable:
    """Write quotas as ``rpk cluster quotas import`` reads them."""
    shapes = ("user", "client-id", "user+client-id")
    found, left_out = held(table, Limits("Redpanda", _RPK_NAMES, shapes, why_not=_literal))
    items = [
        {
            "entity": [{"name": name, "type": kind} for kind, name in _named(entity).items()],
            "values": [{"key": key, "values": decimal(value)} for key, value in quotas.items()],
        }
        for entity, quotas in found
    ]
    return ExportedTable({"quotas": items}, len(items), left_out, items)


_REDPANDAS: Final = (
    "kafka_client_group_byte_rate_quota",
    "kafka_client_group_fetch_byte_rate_quota",
    "target_quota_byte_rate",
    "target_fetch_quota_byte_rate",
)


def is_redpanda(given: QuotaDocument) -> bool:
    """Tell whether a file is an export of Redpanda's cluster properties."""
    return not names_of(given.root).isdisjoint(_REDPANDAS)


def read_redpanda(given: QuotaDocument, rows: ForeignRows) -> None:
    """Refuse Redpanda's groups of clients, with the way."""
    for key, _ in pairs_of(given.root):
        if key.value in _REDPANDAS:
            told = f"Redpanda's cluster property {key.value} limits groups of clients by prefix"
            way = "`rpk cluster quotas describe --format yaml` prints quotas of single names"
            rows.wrong(key, f"{told}, which Kafka doesn't have; {way}")


# --- kafka-helmsman


_HELMSMAN_NAMES: Final = {
    "producer-byte-rate": PRODUCER,
    "consumer-byte-rate": CONSUMER,
    "request-percentage": REQUEST,
}


def _helmsmans(root: yaml.Node | None) -> yaml.Node | None:
    """Return the list of kafka-helmsman's quotas in a file."""
    quotas = root if isinstance(root, yaml.SequenceNode) else field(root, "quotas")
    listed = items_of(quotas)
    return quotas if listed and names_of(listed[0]) & {"principal", "client"} else None


def is_helmsman(given: QuotaDocument) -> bool:
    """Tell whether a file holds quotas of kafka-helmsman's enforcer."""
    quotas = _helmsmans(given.root)
    keys = set().union(*(names_of(quota) for quota in items_of(quotas)))
    return quotas is not None and not keys & {"entity", "ingress", "egress", *RATES}


def read_helmsman(given: QuotaDocument, rows: ForeignRows) -> None:
    """Read quotas of kafka-helmsman's enforcer."""
    for key, value in pairs_of(given.root):
        if key.value in ("defaults", "quotasFile") and value.value:
            told = f"kafka-helmsman: {key.value} isn't read"
            rows.wrong(key, f"{told}; write the values into each quota of this file")
    for quota in items_of(_helmsmans(given.root)):
        clusters = field(quota, "clusters")
        if clusters is not None:
            told = "kafka-helmsman: a quota's values by cluster aren't read"
            rows.wrong(clusters, f"{told}; give a file of one cluster, without `clusters`")
        named = {"user": field(quota, "principal"), "client-id": field(quota, "client")}
        entity = _entity(named)
        if not entity:
            rows.wrong(quota, "kafka-helmsman: a quota needs principal, client, or both")
            continue
        besides = ("principal", "client", "clusters")
        values = rows.values(quota, "kafka-helmsman's", _HELMSMAN_NAMES, besides)
        rows.add(quota, entity, values)


def write_helmsman(table: QuotaTable) -> ExportedTable:
    """Write quotas as kafka-helmsman's enforcer reads them, whole numbers of Java's int."""
    whole = tuple(_HELMSMAN_NAMES.values())
    limits = Limits("kafka-helmsman", _HELMSMAN_NAMES, why_not=_literal, whole=whole, most=_INT_MAX)
    found, left_out = held(table, limits)
    words = {"user": "principal", "client-id": "client"}
    items = [
        {**{words[kind]: name for kind, name in _named(entity).items()}, **quotas}
        for entity, quotas in found
    ]
    return ExportedTable({"quotas": items}, len(items), left_out, items)


# --- Ansible


_BLOCKS: Final = ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always")
_IS_CONDITION: Final = re.compile(r"when|loop|until|with_\w+").fullmatch
_INCLUDES: Final = re.compile(
    r"(?:\w+\.\w+\.)?(?:include|(?:include|import)_(?:tasks|role|playbook))"
).fullmatch
_IS_MODULE: Final = re.compile(r"(?:\w+\.\w+\.)?kafka_quotas").fullmatch


def _tasks(nodes: Iterator[yaml.Node], conditions: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield every task of plays, tasks and blocks, with what it depends on."""
    for task in nodes:
        found = (str(key.value) for key, _ in pairs_of(task))
        depends = (*conditions, *filter(_IS_CONDITION, found))
        yield task, depends
        for name in _BLOCKS:
            yield from _tasks(iter(items_of(field(task, name))), depends)


def is_ansible(given: QuotaDocument) -> bool:
    """Tell whether a playbook or a list of tasks has a task of the module kafka_quotas."""
    return any(
        _IS_MODULE(name)
        for task, _ in _tasks(iter(items_of(given.root)))
        for name in names_of(task)
    )


def read_ansible(given: QuotaDocument, rows: ForeignRows) -> None:
    """Read the tasks of the module kafka_quotas of ansible-kafka-admin."""
    for task, conditions in _tasks(iter(items_of(given.root))):
        for key, value in pairs_of(task):
            is_action = key.value in ("action", "local_action")
            if (
                _INCLUDES(str(key.value))
                or (is_action and not _is_other(value))
                or (key.value == "roles" and items_of(value))
            ):
                rows.unread(key, f"Ansible: {key.value} may hold quotas, and isn't read")
            elif _IS_MODULE(str(key.value)) and conditions:
                told = f"Ansible: kafka_quotas with {conditions[0]}: what it sets isn't known"
                rows.wrong(key, f"{told}; take the condition out")
            elif _IS_MODULE(str(key.value)):
                _entries(key, value, rows)


def _is_other(action: yaml.Node) -> bool:
    """Tell whether an action names a module that isn't kafka_quotas."""
    named = text(action, "module") or (action.value if isinstance(action, yaml.ScalarNode) else "")
    return bool(named) and not _IS_MODULE(str(named).split()[0])


def _entries(at: yaml.Node, module: yaml.Node, rows: ForeignRows) -> None:
    entries = field(module, "entries")
    if not isinstance(entries, yaml.SequenceNode):
        told = "Ansible: kafka_quotas needs entries: [...]"
        template = f"{told}; a variable or template must be filled in first"
        rows.wrong(at, template if isinstance(entries, yaml.ScalarNode) else told)
        return
    for entry in entries.value:
        rows.known(entry, "an entry of kafka_quotas", ("entity", "quotas"))
        rows.known(field(entry, "entity"), "an entity of kafka_quotas", ("user", "client"))
        if field(entry, "quotas") is None:
            rows.wrong(entry, "Ansible: an entry of kafka_quotas needs quotas: {...}")
        user, client = field(entry, "entity", "user"), field(entry, "entity", "client")
        entity = _entity({"user": user, "client-id": client})
        values = rows.values(field(entry, "quotas"), "those of kafka_quotas", RATES)
        if is_template(*entity.values(), *(value.value for value in values)):
            rows.wrong(entry, "Ansible: a template must be filled in first")
        elif not entity:
            rows.wrong(entry, "Ansible: an entity of kafka_quotas needs user, client, or both")
        else:
            rows.add(entry, entity, values)


def write_ansible(table: QuotaTable) -> ExportedTable:
    """Write quotas as a list with one task of the module kafka_quotas."""
    limits = Limits("Ansible", RATES, why_not=_why_no_task, whole=(PRODUCER, CONSUMER))
    found, left_out = held(table, limits)
    words = {"user": "user", "client-id": "client"}
    entries = [
        {
            "entity": {words[kind]: name for kind, name in _named(entity).items()},
            "quotas": quotas,
        }
        for entity, quotas in found
    ]
    task = {"name": "Kafka's quotas", "kafka_quotas": {"entries": entries}}
    return ExportedTable([task], len(entries), left_out, entries)


def _why_no_task(entity: QuotaEntity) -> str:
    if any(has_template(name) for _, name in entity if isinstance(name, str)):
        return "Ansible would take its name for a template"
    return _literal(entity)


# --- Julie


_JULIES: Final = (("platform", "kafka", "quotas"), ("kafka", "quotas"))


def _julies(root: yaml.Node | None) -> yaml.Node | None:
    return next(filter(None, (field(root, *path) for path in _JULIES)), None)


def is_julie(given: QuotaDocument) -> bool:
    """Tell whether a file is a topology of JulieOps that holds quotas."""
    return isinstance(_julies(given.root), yaml.SequenceNode)


def read_julie(given: QuotaDocument, rows: ForeignRows) -> None:
    """Read the quotas of a topology of JulieOps, which are of users."""
    if all(field(given.root, *path) is not None for path in _JULIES):
        at = given.root or on_line(1)
        rows.wrong(at, "Julie: quotas below platform.kafka and below kafka; give them in one place")
    for quota in items_of(_julies(given.root)):
        values = rows.values(quota, "Julie's", RATES, ("principal",))
        principal = field(quota, "principal")
        if principal is None:
            rows.wrong(quota, "Julie: a quota needs its principal")
        else:
            # Julie takes an empty principal for the default user, and others as they are.
            rows.add(quota, {"user": principal if text(principal) else None}, values)


def write_julie(table: QuotaTable) -> ExportedTable:
    """Write quotas as the part of a topology of JulieOps that holds them."""
    found, left_out = held(table, Limits("Julie", RATES, ("user",)))
    items: list[dict[str, Any]] = [
        {"principal": "" if isinstance(entity.user, Default) else entity.user, **quotas}
        for entity, quotas in found
    ]
    return ExportedTable({"platform": {"kafka": {"quotas": items}}}, len(items), left_out, items)


_GITOPS: Final = frozenset(
    {"settings", "topics", "services", "users", "customServiceAcls", "customUserAcls", "schemas"}
)


def is_gitops(given: QuotaDocument) -> bool:
    """Tell whether a file is a state file of KafkaGitOps."""
    names = names_of(given.root)
    return bool(names & {"topics", "services", "customServiceAcls"}) and names <= _GITOPS


def read_gitops(given: QuotaDocument, rows: ForeignRows) -> None:
    """Refuse a state file of KafkaGitOps, with the way."""
    at = given.root or on_line(1)
    rows.wrong(at, f"KafkaGitOps holds no quotas; {_EXPORT} reads those of its cluster")


# --- Kafbat


_EXPORT: Final = "`headgate export --bootstrap-server HOST:PORT`"
_RECORD: Final = ("user", "clientId", "ip", "quotas")
_RECORDED: Final = {**RATES, MUTATION.name: MUTATION, CONNECTION.name: CONNECTION}


def is_kafbat(given: QuotaDocument) -> bool:
    """Tell whether a file is an answer of Kafbat's API."""
    records = items_of(given.root)
    return bool(records) and {"quotas"} < names_of(records[0]) <= set(_RECORD)


def read_kafbat(given: QuotaDocument, rows: ForeignRows) -> None:
    """Read the records of Kafbat's ``clientquotas``, as far as they say whose they are."""
    for record in items_of(given.root):
        rows.known(record, "a record of Kafbat's API", _RECORD)
        user, client = field(record, "user"), field(record, "clientId")
        ip = field(record, "ip")
        if ip is None and (user is None or client is None):
            rows.wrong(
                record,
                "Kafbat's API writes null for the default entity and for none, so this may be "
                f"either's quota; {_EXPORT} reads the cluster itself",
            )
            continue
        named = {"user": user, "client-id": client, "ip": ip}
        values = rows.values(field(record, "quotas"), "Kafbat's", _RECORDED)
        rows.add(record, {kind: name for kind, name in named.items() if name is not None}, values)
