"""
Quotas in Jikkou's KafkaClientQuota resources.

Source: Jikkou's KafkaClientQuotaType, KafkaClientQuotaEntity, KafkaClientQuotaConfigs.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.formats.nodes import ForeignRows, field, has_template, is_template, text
from headgate.quota.formats.values import ExportedTable, Limits, held
from headgate.quota.key import CONSUMER, PRODUCER, REQUEST
from headgate.quota.table import QuotaTable

GROUP: Final = "kafka.jikkou.io"
NAMES: Final = {
    "producerByteRate": PRODUCER,
    "consumerByteRate": CONSUMER,
    "requestPercentage": REQUEST,
}
_NAMED: Final = {"user": "user", "client-id": "clientId"}
TYPES: Final[dict[str, dict[str, bool]]] = {
    "USERS_DEFAULT": {"user": False},
    "USER": {"user": True},
    "USER_CLIENT": {"user": True, "client-id": True},
    "USER_ALL_CLIENTS": {"user": True, "client-id": False},
    "CLIENTS_DEFAULT": {"client-id": False},
    "CLIENT": {"client-id": True},
}
"""The types: which parts an entity has, and whether each is named or the default."""
_FIELDS: Final = ("apiVersion", "kind", "metadata", "template", "spec")
_MARKS: Final = {"jikkou.io/delete": "deletes it", "jikkou.io/ignore": "ignores it"}


def is_wanted(resource: yaml.Node, rows: ForeignRows) -> bool:
    """Whether Jikkou would set it."""
    for mark, does in _MARKS.items():
        if (text(resource, "metadata", "annotations", mark) or "").lower() == "true":
            tell = rows.unread if "ignore" in mark else rows.say
            tell(resource, f"left out: a KafkaClientQuota with {mark}, since Jikkou {does}")
            return False
    return True


def read_quota(resource: yaml.Node, rows: ForeignRows) -> None:
    """Read one KafkaClientQuota."""
    rows.known(resource, "a KafkaClientQuota", _FIELDS, "; quotas are in spec.configs")
    spec = field(resource, "spec")
    rows.known(spec, "the spec of a KafkaClientQuota", ("type", "entity", "configs"))
    kind = text(spec, "type")
    if kind not in TYPES:
        rows.wrong(resource, f"Jikkou has no quota type {kind!r}; they are {', '.join(TYPES)}")
        return
    entity: dict[str, yaml.Node | None] = {}
    for part, is_named in TYPES[kind].items():
        name = field(spec, "entity", _NAMED[part])
        if is_named and not isinstance(name, yaml.ScalarNode):
            rows.wrong(resource, f"Jikkou: a quota of type {kind} needs entity.{_NAMED[part]}")
            return
        entity[part] = name if is_named else None
    for part, named in _NAMED.items():
        extra = field(spec, "entity", named)
        if extra is not None and not TYPES[kind].get(part, False):
            rows.wrong(extra, f"Jikkou passes over entity.{named} in a quota of type {kind}")
    rows.known(field(spec, "entity"), "the entity of a KafkaClientQuota", ("user", "clientId"))
    values = rows.values(field(spec, "configs"), "a KafkaClientQuota's", NAMES)
    if is_template(*entity.values(), *(value.value for value in values)):
        rows.wrong(
            resource, "Jikkou: a template isn't filled in; `jikkou validate` prints it whole"
        )
        return
    rows.add(resource, entity, values)


def write(table: QuotaTable) -> ExportedTable:
    """Write quotas as KafkaClientQuota resources, in a list as ``kubectl get`` prints."""
    rows, left_out = held(table, Limits("Jikkou", NAMES, why_not=_why_not))
    items = [_resource(number, entity, quotas) for number, (entity, quotas) in enumerate(rows, 1)]
    document = {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "KafkaClientQuotaList",
        "items": items,
    }
    return ExportedTable(document, len(items), left_out, items)


def _type_of(entity: QuotaEntity) -> str | None:
    parts = {kind: name is not DEFAULT for kind, name in entity}
    return next((kind for kind, has in TYPES.items() if has == parts), None)


def _why_not(entity: QuotaEntity) -> str:
    if any(has_template(name) for _, name in entity if isinstance(name, str)):
        return "Jikkou would take its name for a template"
    return "" if _type_of(entity) else "Jikkou has no type of quotas for it"


def _resource(number: int, entity: QuotaEntity, quotas: dict[str, float]) -> dict[str, Any]:
    named = {_NAMED[kind]: name for kind, name in entity if name is not DEFAULT}
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "KafkaClientQuota",
        "metadata": {"name": f"quota-{number}"},
        "spec": {"type": _type_of(entity), "entity": named, "configs": quotas},
    }
