"""
Quotas in Terraform's files, states and plans: resources of Mongey's provider and of Confluent's.

Source: Mongey/kafka's kafka_quota and kafka_quota_composite; Confluent's
confluent_kafka_client_quota; Terraform's "State Format", version 4, and "JSON Output Format".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import yaml

from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.formats import confluent, hcl
from headgate.quota.formats.nodes import (
    ForeignRows,
    QuotaDocument,
    each,
    field,
    items_of,
    names_of,
    on_line,
    pairs_of,
    text,
)
from headgate.quota.formats.values import RATES, ExportedTable, Limits, decimal, held
from headgate.quota.key import CONNECTION, MUTATION
from headgate.quota.table import QuotaTable

_HEAD: Final = 65_536
_BLOCKS: Final = (
    "resource|data|module|provider|variable|locals|terraform|output|moved|import|removed|check"
)
_LABEL: Final = r'(?:"[^"\n]*"|[\w-]+)'
_IS_HCL: Final = re.compile(
    rf"^(?:{_BLOCKS})(?:(?:[ \t]+{_LABEL}){{1,2}}[ \t]*\{{|[ \t]*\{{[ \t\r]*(?:#.*)?(?:\n|$))",
    re.MULTILINE,
)
_WAY: Final = "`terraform show -json | headgate import -` reads the state, where all is computed"
_TEMPLATE: Final = re.compile(r"[$%]\{").search
_REPEATED: Final = ("count", "for_each")
_META: Final = (
    "id",
    "provider",
    "lifecycle",
    "depends_on",
    "provisioner",
    "connection",
    "timeouts",
)
_NAMES: Final = {**RATES, MUTATION.name: MUTATION, CONNECTION.name: CONNECTION}


class _Resource(NamedTuple):
    """
    A resource.

    Args:
        type: its type.
        name: its name, for messages.
        of: its arguments.
        templates: whether a text with ``${`` in it is a template, as in Terraform's JSON.
        is_computed: whether all is computed, as in a state.
        provider: the provider's name in a state; None elsewhere.
    """

    type: str
    name: str
    of: yaml.Node
    templates: bool = False
    is_computed: bool = False
    provider: str | None = None


def is_terraform(given: QuotaDocument) -> bool:
    """Tell whether a file is Terraform's: its language, its JSON, a state or a plan."""
    if given.text.lstrip()[:1] not in ("{", "[") and _IS_HCL.search(given.text, 0, _HEAD):
        return True
    names = names_of(given.root)
    return "terraform_version" in names or "resource" in names


def read_terraform(given: QuotaDocument, rows: ForeignRows) -> None:
    """Read the quotas of a file, a state (``terraform state pull``) or ``terraform show -json``."""
    root, is_json = given.root, given.root is not None
    if root is None:
        try:
            root = hcl.parse(given.text)
        except hcl.NotHcl as error:
            rows.wrong(on_line(error.line), f"not Terraform's language: {error}")
            return
    quotas = 0
    clusters: dict[str, yaml.Node] = {}
    for resource in _resources(root, is_json, rows):
        if resource.type in ("kafka_quota", "kafka_quota_composite"):
            _mongeys(resource, rows)
        elif resource.type == "confluent_kafka_client_quota":
            _confluents(resource, rows)
        elif "quota" in resource.type and "kafka" in resource.type:
            rows.wrong(resource.of, f"Terraform: {resource.type} isn't read; {_OTHER}")
        else:
            continue
        quotas += 1
        clusters.setdefault(_cluster(resource), resource.of)
    if len(clusters) > 1:
        several = f"quotas of several clusters ({', '.join(sorted(clusters))})"
        rows.wrong(list(clusters.values())[1], f"Terraform: {several}; give those of one")
    if not quotas:
        rows.wrong(root, f"Terraform: no quota of Kafka is a resource here; {_WAY}")


def _cluster(resource: _Resource) -> str:
    """Return which cluster a resource is of, as far as it says so."""
    named = next(iter(each(filter(None, [field(resource.of, "kafka_cluster")]))), None)
    return text(named, "id") or text(resource.of, "provider") or resource.provider or "the default"


_OTHER: Final = "write its quotas as a quotas file, or export them from the cluster"


def _resources(root: yaml.Node, is_json: bool, rows: ForeignRows) -> Iterator[_Resource]:
    if "terraform_version" in names_of(root):
        _refuse_unknown(root, rows)
        yield from _of_state(root)
        for part in ("values", "planned_values"):
            module = field(root, part, "root_module")
            if module is not None:
                yield from _of_module(module)
                break
        return
    for name, _ in _labelled(field(root, "module")):
        told = f"Terraform: the module {name.value} may hold quotas, and isn't read"
        rows.unread(name, f"{told}; {_WAY}")
    for kind, named in _labelled(field(root, "resource")):
        for name, body in _labelled(named):
            for of in each([body]):
                yield _Resource(str(kind.value), str(name.value), of, is_json)


def _labelled(blocks: yaml.Node | None) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Yield a label and what it names, of one block or of a list of them."""
    for block in each(filter(None, [blocks])):
        yield from pairs_of(block)


def _of_state(root: yaml.Node) -> Iterator[_Resource]:
    for resource in items_of(field(root, "resources")):
        if text(resource, "mode") == "managed":
            for instance in items_of(field(resource, "instances")):
                of = field(instance, "attributes")
                if of is not None and field(instance, "deposed") is None:
                    kind, name = str(text(resource, "type")), str(text(resource, "name"))
                    provider = text(resource, "provider")
                    yield _Resource(kind, name, of, is_computed=True, provider=provider)


def _refuse_unknown(root: yaml.Node, rows: ForeignRows) -> None:
    """Refuse a plan's quotas of which a part is known only when it was applied."""
    for change in items_of(field(root, "resource_changes")):
        unknown = field(change, "change", "after_unknown")
        if "quota" in str(text(change, "type")) and any(_leaves(unknown)):
            told = f"Terraform: {text(change, 'address')} is known only when the plan was applied"
            rows.wrong(change, f"{told}; {_WAY}")


def _leaves(node: yaml.Node | None) -> Iterator[bool]:
    """Yield, of each part of a plan's ``after_unknown`` but an ``id``, whether it is unknown."""
    if isinstance(node, yaml.ScalarNode):
        yield node.value == "true"
    for inner in items_of(node):
        yield from _leaves(inner)
    for key, value in pairs_of(node):
        if key.value != "id":
            yield from _leaves(value)


def _of_module(module: yaml.Node) -> Iterator[_Resource]:
    """Yield the resources of a module and of those in it; YAML's reader bounds how deep."""
    for resource in items_of(field(module, "resources")):
        of = field(resource, "values")
        if of is not None and text(resource, "mode") == "managed":
            kind, name = text(resource, "type"), text(resource, "name")
            yield _Resource(str(kind), str(name), of, is_computed=True)
    for child in items_of(field(module, "child_modules")):
        yield from _of_module(child)


def _is_known(resource: _Resource, rows: ForeignRows) -> bool:
    """Refuse a resource that is made several times, or whose values must be computed."""
    for key, value in pairs_of(resource.of):
        if key.value in _META:
            continue
        if not resource.is_computed and key.value in (*_REPEATED, "dynamic"):
            told = f"Terraform: {resource.type}.{resource.name} has {key.value}"
            rows.wrong(key, f"{told}: what it makes isn't known; {_WAY}")
            return False
        found = next(_expressions(value, resource.templates), None)
        if found is not None:
            told = f"Terraform: {key.value} of {resource.type}.{resource.name} must be computed"
            rows.wrong(key, f"{told} ({found.value}); {_WAY}")
            return False
    return True


def _expressions(node: yaml.Node, templates: bool) -> Iterator[yaml.Node]:
    is_text = isinstance(node, yaml.ScalarNode)
    if hcl.is_expression(node) or (templates and is_text and _TEMPLATE(node.value)):
        yield node
    for inner in (*items_of(node), *(value for _, value in pairs_of(node))):
        yield from _expressions(inner, templates)


def _mongeys(resource: _Resource, rows: ForeignRows) -> None:
    if not _is_known(resource, rows):
        return
    of, whose = resource.of, f"{resource.type} {resource.name}"
    own = (
        ("entity",) if resource.type == "kafka_quota_composite" else ("entity_name", "entity_type")
    )
    rows.known(of, whose, (*own, "config", *_META))
    entity: dict[str, yaml.Node | None] = {}
    if resource.type == "kafka_quota":
        entity[str(text(of, "entity_type"))] = field(of, "entity_name")
    for part in each(filter(None, [field(of, "entity")])):
        if str(text(part, "type")) in entity:
            rows.wrong(part, f"Terraform: {whose} names its {text(part, 'type')} twice")
        name = field(part, "name")  # where it is left out or empty, the default entity
        entity[str(text(part, "type"))] = name if name is not None and name.value else None
    if not entity or (resource.type == "kafka_quota" and None in entity.values()):
        rows.wrong(of, f"Terraform: {whose} has no entity")
        return
    if field(of, "config") is None:
        rows.wrong(of, f"Terraform: {whose} needs config = {{...}}")
    values = rows.values(field(of, "config"), "Mongey's provider's", _NAMES)
    rows.add(of, entity, values)


def _confluents(resource: _Resource, rows: ForeignRows) -> None:
    needed_or_made = ("principals", "throughput", "dynamic", *_REPEATED)
    pairs = [pair for pair in pairs_of(resource.of) if pair[0].value in needed_or_made]
    of = yaml.MappingNode(resource.of.tag, pairs, resource.of.start_mark, resource.of.end_mark)
    if _is_known(resource._replace(of=of), rows):
        confluent.read_quota(of, of, field(of, "throughput") or of, rows)


# --- written


def write_terraform(table: QuotaTable) -> ExportedTable:
    """Write quotas as resources of Mongey's provider."""
    shapes = ("user", "client-id", "user+client-id", "ip")
    found, left_out = held(table, Limits("Mongey's provider", _NAMES, shapes, why_not=_why_not))
    blocks = [_block(number, entity, quotas) for number, (entity, quotas) in enumerate(found, 1)]
    return ExportedTable("\n".join(blocks).rstrip("\n"), len(found), left_out)


def _why_not(entity: QuotaEntity) -> str:
    names = [name for _, name in entity if isinstance(name, str)]
    if len(entity) == 1 and not names:
        return "Mongey's provider has no default entity but beside another"
    if len(entity) == 2 and any(
        set(name) & set("|:") or name == "entity-default" for name in names
    ):
        return "Mongey's provider takes no | or : in a name beside another"
    if any(map(hcl.is_ambiguous, names)):
        return "HCL doesn't say how a name with $${ or %%{ in it is written"
    return ""


def _block(number: int, entity: QuotaEntity, quotas: dict[str, float]) -> str:
    parts = []
    if len(entity) == 1:
        [(kind, name)] = entity
        parts = [f"  entity_name = {hcl.quoted(str(name))}", f"  entity_type = {hcl.quoted(kind)}"]
        resource = "kafka_quota"
    else:
        resource = "kafka_quota_composite"
        for kind, name in entity:
            lines = [f"    type = {hcl.quoted(kind)}"]
            if name is not DEFAULT:
                lines.append(f"    name = {hcl.quoted(str(name))}")
            parts.append("\n".join(["  entity {", *lines, "  }"]))
    config = [f"    {hcl.quoted(key)} = {decimal(value)}" for key, value in quotas.items()]
    parts.append("\n".join(["  config = {", *config, "  }"]))
    return "\n".join([f'resource "{resource}" "quota_{number}" {{', *parts, "}", ""])
