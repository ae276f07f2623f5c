"""
kafka-quotas: KIP-546's tool. Lists quotas, describes what applies to a client and why, alters.

Source: KIP-546 "kafka-quotas.sh/QuotasCommand".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headgate import __version__
from headgate.admin.target import EntityQuery, left_out, with_way_out
from headgate.cli import exit_codes
from headgate.cli.connecting import STORE, connect
from headgate.cli.contract import BadUsage, run
from headgate.cli.joptsimple import Option, OptionError, OptionSet, parse, usage, words_of
from headgate.cli.output import printable, say
from headgate.cli.quotas.flags import moment, split_list
from headgate.cli.quotas.quota_output import (
    conditions,
    described,
    effective_lines,
    entity_json,
    json_number,
    list_order,
    say_notes,
    value_text,
)
from headgate.cli.results import Altered, DescribedAll, Listed, ListedEntity, Result
from headgate.errors import ApiError, InvalidQuota
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import (
    DEFAULT,
    EntityName,
    QuotaEntity,
    canonical_entity_type,
    parse_entity,
)
from headgate.quota.filter import QuotaFilter
from headgate.quota.human import read_value
from headgate.quota.key import QuotaKey, is_exact
from headgate.quota.lookalikes import name_notes
from headgate.quota.plan import nothing_removed

if TYPE_CHECKING:
    from headgate.admin.api import Entities
    from headgate.admin.open_target import OpenTarget

TOOL: Final = "kafka-quotas"

OPTIONS: Final = (
    Option(
        "bootstrap-server",
        "The server to connect to: a gateway's port (data or admin), or a Kafka.",
        "String: server to connect to",
    ),
    STORE,
    Option("command-config", "Property file for the Admin client.", "String: file"),
    Option(
        "list",
        "Lists the entities that match the given specification, and prints out their "
        "configuration values. A type that is left out matches any name, or none.",
    ),
    Option("describe", "Describes the effective quota values for an entity."),
    Option("alter", "Alters the configuration for the given specification."),
    Option(
        "names",
        "Comma-separated list of type=name pairs, e.g. user=some-user,client-id=some-client-id. "
        "Only the first = of a pair splits; a comma in a name is written \\,. An entity as --list "
        "prints it, '{user=CN%3Da}', is taken as well.",
        "String: type=name,...",
    ),
    Option(
        "defaults",
        "Comma-separated list of entity types with the default name, e.g. user,client-id.",
        "String: type,...",
    ),
    Option(
        "prefix",
        "With --list: comma-separated type=prefix pairs, e.g. user=test-. Never matches a default.",
        "String: type=prefix,...",
    ),
    Option(
        "include-overrides",
        "With --describe: whether to include overridden config entries, marked *.",
    ),
    Option(
        "add",
        "With --alter: comma-separated list of entries to add or update, name:unit=value. A unit "
        "left out means the one Kafka enforces. A value may be 10MB/s (SI) or 10MiB/s (IEC).",
        "String: name:unit=value,...",
    ),
    Option(
        "delete",
        "With --alter: comma-separated list of entries to remove, name:unit.",
        "String: name:unit,...",
    ),
    Option(
        "validate-only",
        "With --alter: validates the alteration but doesn't perform it.",
    ),
    Option(
        "until",
        "With --alter, Headgate's own: when the former values return (or none), such as "
        "2026-11-22T10:00:00Z, or epoch milliseconds. Needs a store that keeps ends.",
        "String: time",
    ),
    Option("json", "Prints JSON instead, with names as they are."),
    Option("help", "Print usage information."),
    Option("version", "Display the version of Headgate."),
)
# Which action a flag belongs to.
_EXCLUSIVE: Final[Mapping[str, str]] = {
    "prefix": "list",
    "include-overrides": "describe",
    "add": "alter",
    "delete": "alter",
    "validate-only": "alter",
    "until": "alter",
}


def main(argv: Sequence[str]) -> int:
    """
    Run kafka-quotas.

    Args:
        argv: the words after the program's name.

    Returns:
        0 when done, 1 when refused or failed, 2 when the command line makes no sense.
    """
    words = words_of(argv)
    for flag, text in (("help", _HELP), ("version", __version__)):
        if f"--{flag}" in words or f"-{flag}" in words:
            say(text)
            return exit_codes.DONE
    return run(TOOL, words, lambda: _act(words))


_HELP: Final = f"""Lists, describes and alters quotas (KIP-546).
{usage(OPTIONS)}
example:
  kafka-quotas --bootstrap-server kafka-1:9092 --describe --names user=alice,client-id=etl"""


def _act(words: Sequence[str]) -> Result:
    try:
        options = parse(OPTIONS, words)
        return _ACTIONS[check(options)](options)
    except (BadUsage, OptionError) as exc:
        raise BadUsage(f"{exc}\n`kafka-quotas --help` lists the flags") from exc


def check(options: OptionSet) -> str:
    """
    Return the action asked for.

    Raises:
        BadUsage: none or several, flags of another one, nothing to connect to.
    """
    actions = [name for name in _ACTIONS if options.has(name)]
    if len(actions) != 1:
        told = ", ".join(f"--{name}" for name in actions) or "none"
        raise BadUsage(
            f"Command must include exactly one action: --list, --describe, --alter; got {told}"
        )
    [action] = actions
    for flag, owner in _EXCLUSIVE.items():
        if options.has(flag) and action != owner:
            raise BadUsage(f"--{flag} goes with --{owner}, not with --{action}; use --{owner}")
    if options.words:
        raise BadUsage(f"{options.words[0]!r} belongs to no flag")
    if options.has("bootstrap-server") == options.has("store"):
        raise BadUsage("exactly one of --bootstrap-server and --store is needed")
    if action == "alter" and not (options.has("add") or options.has("delete")):
        raise BadUsage("--alter needs --add or --delete")
    return action


# --- reading flags


def _parts(options: OptionSet, flag: str, *, but_braces: bool = False) -> list[str]:
    """Return the parts of a flag's lists, all its occurrences together."""
    texts = options.values(flag)
    return [
        part
        for text in texts
        if not (but_braces and text.startswith("{"))
        for part in split_list(text)
    ]


def read_pairs(options: OptionSet, flag: str) -> list[tuple[str, str]]:
    """
    Return the type=name pairs of a flag, all its occurrences together.

    Raises:
        BadUsage: a pair without ``=`` or a part of it empty.
    """
    pairs = []
    for part in _parts(options, flag, but_braces=flag == "names"):
        entity_type, equals, name = part.partition("=")
        if not equals or not entity_type.strip():
            raise BadUsage(f"--{flag}: {part!r} isn't of the form type=name")
        # Described, an empty client-id is that of a client that sends none.
        if not name and not options.has("describe"):
            raise BadUsage(
                f"--{flag}: {entity_type} has no name; the default is --defaults={entity_type}"
            )
        pairs.append((canonical_entity_type(entity_type.strip()), name))
    return pairs


def read_entries(options: OptionSet) -> dict[str, EntityName]:
    """
    Return the entity that --names and --defaults give; --names takes what --list prints, too.

    Raises:
        BadUsage: a type is named twice.
    """
    entries: dict[str, EntityName] = {}
    named: list[tuple[str, EntityName]] = [*read_pairs(options, "names")]
    for text in options.values("names"):
        if text.startswith("{"):  # as --list prints it, with encoded names
            try:
                named += parse_entity(text)
            except InvalidQuota as exc:
                raise BadUsage(f"--names: {exc}") from exc
    named += [(canonical_entity_type(p.strip()), DEFAULT) for p in _parts(options, "defaults")]
    for entity_type, name in named:
        if entity_type in entries:
            raise BadUsage(f"entity type {entity_type} is given twice")
        entries[entity_type] = name
    return entries


def read_entity(options: OptionSet, action: str) -> QuotaEntity:
    """Return the entity; there must be one."""
    entries = read_entries(options)
    if not entries:
        raise BadUsage(f"--{action} needs an entity: --names=type=name, --defaults=type, or both")
    return QuotaEntity(entries)


def read_ops(options: OptionSet) -> tuple[Op, ...]:
    """
    Return what --add and --delete ask for.

    Raises:
        BadUsage: an entry isn't of its form, or a key is given twice.
    """
    from headgate.java_text import to_double

    found: list[Op] = []
    for part in _parts(options, "add"):
        name, equals, value = part.partition("=")
        if not equals:
            raise BadUsage(f"--add: {part!r} isn't of the form name:unit=value")
        key = QuotaKey.parse(name.strip())
        if value.strip().isdecimal() and not is_exact(int(value)):
            raise BadUsage(f"--add: {key}: quotas are doubles, and none holds {value} as it is")
        try:
            found.append(Op(key, to_double(value)))
        except ValueError:
            try:
                found.append(Op(key, read_value(value, key)))
            except ValueError as exc:
                raise BadUsage(f"--add: {exc}") from None
    for part in _parts(options, "delete"):
        if "=" in part:
            raise BadUsage(f"--delete: {part!r} isn't of the form name:unit")
        found.append(Op(QuotaKey.parse(part.strip()), None))
    seen: set[QuotaKey] = set()
    for op in found:
        if op.key in seen:
            raise BadUsage(f"{op.key} is given twice")
        seen.add(op.key)
    return tuple(found)


# --- actions


def list_quotas(options: OptionSet) -> Listed:
    """Print the quotas of every entity that matches."""
    named = read_entries(options)
    say_notes(TOOL, name_notes([QuotaEntity(named)]))
    filters = [
        QuotaFilter(entity_type, QuotaFilter.Rule.EXACT, name)
        for entity_type, name in named.items()
    ]
    filters += [
        QuotaFilter(entity_type, QuotaFilter.Rule.PREFIX, prefix)
        for entity_type, prefix in read_pairs(options, "prefix")
    ]
    with connect(options, TOOL) as place:
        found = _find(place, filters)
    rows = [
        (entity, sorted(found[entity].items(), key=lambda item: str(item[0])))
        for entity in list_order(found)
    ]
    blocks = [
        "\n".join(
            [str(entity), *(printable(f"{key}={value_text(value)}") for key, value in quotas)]
        )
        for entity, quotas in rows
    ]
    if blocks:
        say("\n\n".join(blocks))
    return Listed(
        [
            ListedEntity(entity_json(entity), {str(key): json_number(v) for key, v in quotas})
            for entity, quotas in rows
        ]
    )


def describe(options: OptionSet) -> DescribedAll:
    """Print what applies to an entity, and with --include-overrides what that hides."""
    entity = read_entity(options, "describe")
    say_notes(TOOL, name_notes([entity]))
    overrides = options.has("include-overrides")
    with connect(options, TOOL) as place:
        found = place.run(lambda target: target.effective([entity], not overrides))
        values = found.get(entity, left_out(entity))
        if isinstance(values, ApiError):
            raise values
        asked_for = [] if options.has("json") else conditions(place, values)
    for line in effective_lines(values):
        say(line)
    if not options.has("json"):
        notes = sorted({value.note for value in values.values() if value.note})
        say_notes(TOOL, [*notes, *asked_for])
    return DescribedAll([described(key, values[key]) for key in sorted(values, key=str)])


def alter(options: OptionSet) -> Altered:
    """Change one entity; prints nothing on success."""
    entity = read_entity(options, "alter")
    ops = read_ops(options)
    validate_only = options.has("validate-only")
    until = options.value("until")
    until_ms = None if until is None else moment(until, "--until")
    say_notes(TOOL, name_notes([entity]))
    with connect(options, TOOL) as place:
        say_notes(TOOL, _without_value(place, entity, [op.key for op in ops if op.value is None]))
        try:
            place.alter(
                QuotaAlteration(entity, ops), validate_only=validate_only, until_ms=until_ms
            )
        except ApiError as exc:
            raise with_way_out(exc, [op.key for op in ops]) from exc
    values = {str(op.key): json_number(op.value) for op in ops}
    return Altered(entity_json(entity), values, validate_only)


def _without_value(place: OpenTarget, entity: QuotaEntity, keys: Sequence[QuotaKey]) -> list[str]:
    """Say which keys that are to be removed have no value."""
    if not keys:
        return []
    filters = [QuotaFilter(kind, QuotaFilter.Rule.EXACT, name) for kind, name in entity]
    try:
        found = _find(place, filters)
    except ApiError as exc:
        return [f"whether there is a value to remove isn't known: {exc}"]
    present = found.get(entity, {})
    return [nothing_removed(entity, key) for key in keys if key not in present]


def _find(place: OpenTarget, filters: Sequence[QuotaFilter]) -> Entities:
    components = tuple(each.component() for each in filters)
    return place.run(lambda target: target.describe(EntityQuery(components, draft=True)))


_ACTIONS: Final[Mapping[str, Callable[[OptionSet], Result]]] = {
    "list": list_quotas,
    "describe": describe,
    "alter": alter,
}
