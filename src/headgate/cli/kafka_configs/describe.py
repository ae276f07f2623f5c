"""
kafka-configs --describe: the lines it prints, and the questions that --alter asks first.

Source: ConfigCommand.describeConfig in Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headgate.admin.target import EntityQuery
from headgate.cli.kafka_configs.errors import java_exception
from headgate.cli.kafka_configs.options import (
    BROKERS,
    CLIENTS,
    GROUPS,
    LOGGERS,
    METRICS,
    TOPICS,
    USERS,
    WIRE_TYPES,
    ConfigsOptions,
    IllegalArgument,
    is_java_int,
)
from headgate.cli.output import complain, printable, say
from headgate.cli.quotas.quota_output import conditions
from headgate.errors import ApiError, KafkaError
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.filter import FilterComponent, MatchType
from headgate.quota.key import QuotaKey

if TYPE_CHECKING:
    from headgate.admin.api import ConfigEntry, Entities
    from headgate.admin.open_target import OpenTarget


def describe(place: OpenTarget, options: ConfigsOptions) -> None:
    """Print the configs of the entities asked for."""
    types, names = options.entity_types, options.entity_names
    kind = types[0]
    if kind in WIRE_TYPES:
        quotas = find(place, components_of(types, names))
        for line in quota_lines(quotas):
            say(line)
        for note in conditions(place, (key for values in quotas.values() for key in values)):
            complain(f"note: {note}")
        if kind == USERS and CLIENTS not in types and "" not in names:
            _describe_scram(place, names)
        return
    found = names[:1] or _names(place, kind) + ([""] if kind in (BROKERS, LOGGERS) else [])
    everything = options.has("all")
    for name in found:
        if not everything:
            check_resource_name(kind, name)
            if name and not _exists(place, options, kind, name):
                text = f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config."
                say(printable(text))
                return
        which = "All" if everything else "Dynamic"
        if name:
            say(printable(f"{which} configs for {kind[:-1]} {name} are:"))
        else:
            say(f"Default configs for {kind} in the cluster are:")
        if everything:
            check_resource_name(kind, name)
            entries = _settings(place, kind, name)
        else:
            entries = dynamic(place, kind, name)
        for entry in entries:
            synonyms = ", ".join(
                f"{s.source}:{s.name}={'null' if s.value is None else s.value}"
                for s in entry.synonyms
            )
            value = "null" if entry.value is None else entry.value
            sensitive = "true" if entry.sensitive else "false"
            say(printable(f"  {entry.name}={value} sensitive={sensitive} synonyms={{{synonyms}}}"))


def _exists(place: OpenTarget, options: ConfigsOptions, kind: str, name: str) -> bool:
    """Whether a cluster has the resource; a store can't tell which brokers there are."""
    if options.has("store"):
        return True
    try:
        return name in _names(place, kind)
    except ApiError as exc:
        if exc.code != KafkaError.UNSUPPORTED_VERSION:
            raise
    return bool(dynamic(place, kind, name))  # a broker that doesn't list its resources


def quota_lines(found: Mapping[QuotaEntity, Mapping[QuotaKey, float]]) -> list[str]:
    """
    Return what describe prints, a line per entity.

    Kafka's order is its hash maps'; here entities are in print order and keys by name.
    """
    from headgate.quota.formats.kafka_text import describe_line

    return [printable(describe_line(entity, found[entity])) for entity in sorted(found)]


def _describe_scram(place: OpenTarget, users: Sequence[str]) -> None:
    for user, found in place.run(lambda target: target.describe_scram(users)).items():
        whose = f"SCRAM credential configs for user-principal '{user}'"
        if isinstance(found, ApiError):
            why = f"ExecutionException: {java_exception(found)}"
            say(printable(f"Error retrieving {whose}: {why}"))
        else:
            text = ", ".join(f"{mechanism}=iterations={n}" for mechanism, n in found)
            say(printable(f"{whose} are {text}"))


_DYNAMIC_SOURCES: Final[Mapping[str, str]] = {
    TOPICS: "DYNAMIC_TOPIC_CONFIG",
    BROKERS: "DYNAMIC_BROKER_CONFIG",
    METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    GROUPS: "DYNAMIC_GROUP_CONFIG",
}


def dynamic(place: OpenTarget, kind: str, name: str) -> list[ConfigEntry]:
    """Return the settings that were set for just this resource."""
    source = _DYNAMIC_SOURCES.get(kind)
    if kind == BROKERS and not name:
        source = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    entries = _settings(place, kind, name)
    return [entry for entry in entries if source is None or entry.source == source]


_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_TOPIC: Final = 249


def check_resource_name(kind: str, name: str) -> None:
    """Refuse a broker that is no id, and a topic whose name can't be (Topic.validate)."""
    if kind == TOPICS and name:
        if name in (".", ".."):
            raise IllegalArgument(f"Topic name is invalid: '{name}' is not allowed")
        if len(name) > _LONGEST_TOPIC:
            raise IllegalArgument(
                f"Topic name is invalid: the length of '{name}' is longer than the max allowed "
                f"length {_LONGEST_TOPIC}"
            )
        if not _TOPIC.fullmatch(name):
            raise IllegalArgument(
                f"Topic name is invalid: '{name}' contains one or more characters other than "
                "ASCII alphanumerics, '.', '_' and '-'"
            )
    if kind in (BROKERS, LOGGERS) and name and not is_java_int(name):
        raise IllegalArgument(
            f"The entity name for {kind} must be a valid integer broker id, found: {name}"
        )


def components_of(types: Sequence[str], names: Sequence[str]) -> list[FilterComponent]:
    """
    Return the strict filter that describe uses: a missing name means any, default included.

    Raises:
        IllegalArgument: more names than types.
    """
    components = []
    for position, kind in enumerate(types):
        wire = WIRE_TYPES[kind]
        if position >= len(names):
            components.append(FilterComponent(wire, MatchType.ANY))
        else:
            components.append(FilterComponent.of_name(wire, names[position] or DEFAULT))
    if len(names) > len(types):
        raise IllegalArgument("More entity names specified than entity types")
    return components


def find(place: OpenTarget, components: Sequence[FilterComponent]) -> Entities:
    """Ask for what matches strictly."""
    query = EntityQuery(tuple(components), strict=True)
    return place.run(lambda target: target.describe(query))


def _names(place: OpenTarget, kind: str) -> list[str]:
    return place.run(lambda target: target.names(kind))


def _settings(place: OpenTarget, kind: str, name: str) -> list[ConfigEntry]:
    return place.run(lambda target: target.describe_configs(kind, name))
