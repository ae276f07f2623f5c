"""
kafka-configs: Kafka's tool for users, clients, ips and brokers, on any home of quotas.

Output and exit status are the real tool's.

Source: ConfigCommand in Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.admin.target import with_way_out
from headgate.cli import exit_codes
from headgate.cli.connecting import MalformedProperties, connect
from headgate.cli.joptsimple import OptionError, usage, words_of
from headgate.cli.kafka_configs.describe import (
    check_resource_name,
    components_of,
    describe,
    dynamic,
    find,
)
from headgate.cli.kafka_configs.errors import java_text
from headgate.cli.kafka_configs.options import (
    CLIENTS,
    HELP,
    IP_QUOTA_NAMES,
    IPS,
    LOGGERS,
    OPTIONS,
    QUOTA_NAMES,
    SCRAM_NAMES,
    USERS,
    WIRE_TYPES,
    ConfigsOptions,
    IllegalArgument,
    RefusedOptions,
)
from headgate.cli.kafka_configs.values import (
    configs_to_add,
    configs_to_delete,
    quota_value,
    scram_credential,
)
from headgate.cli.output import complain, printable, say
from headgate.cli.quotas.quota_output import say_notes
from headgate.config import store_kinds
from headgate.errors import ApiError, HeadgateError, InvalidQuota
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import QuotaKey, keys_for
from headgate.quota.lookalikes import name_notes

if TYPE_CHECKING:
    from headgate.admin.open_target import OpenTarget

TOOL: Final = "kafka-configs"
KAFKA_VERSION: Final = "4.3.1"
"""The Kafka whose tool this is, for --version."""


_TOLD_ALONE: Final = (IllegalArgument, InvalidQuota, MalformedProperties, OptionError)
"""What is printed without the line that names the arguments."""


def main(argv: Sequence[str]) -> int:
    """
    Run kafka-configs.

    Args:
        argv: the words after the program's name.

    Returns:
        0 when done, 1 when refused or failed.
    """
    words = words_of(argv)
    # Libraries' warnings would come before the tool's own first line.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        return _run(words)
    except RefusedOptions as exc:
        complain(printable(str(exc)))
        complain(usage(OPTIONS))
    except _TOLD_ALONE as exc:
        for line in exc.args:
            complain(printable(str(line)))
    except (HeadgateError, OSError) as exc:
        complain(printable(f"Error while executing config command with args '{' '.join(words)}'"))
        for line in java_text(exc).splitlines():
            complain(printable(line))
    return exit_codes.FAILED


def _run(words: Sequence[str]) -> int:
    options = ConfigsOptions(words)
    if not words or options.has("help"):
        raise RefusedOptions(HELP)
    if options.has("version"):
        say(KAFKA_VERSION)
        return exit_codes.DONE
    from headgate.store.base import resolvable

    options.check(resolvable)
    _do(options)
    pairs = zip(options.entity_types, options.entity_names, strict=False)
    named = {WIRE_TYPES[kind]: name or DEFAULT for kind, name in pairs if kind in WIRE_TYPES}
    say_notes(TOOL, [*options.notes, *name_notes([QuotaEntity(named)])])
    return exit_codes.DONE


def _do(options: ConfigsOptions) -> None:
    if options.zookeeper:
        from headgate.cli.kafka_configs.zookeeper import run

        run(options)
        return
    with connect(options, TOOL) as place:
        # ConfigCommand connects first and checks this then.
        if options.has("alter") and len(options.entity_types) != len(options.entity_names):
            raise IllegalArgument("An entity name must be specified for every entity type")
        if options.has("alter"):
            alter(place, options)
        else:
            describe(place, options)


# --- alter


class ConfigsAlteration(NamedTuple):
    """
    What --alter asks for: types and names of one entity, configs to set and to remove, until when.
    """

    types: Sequence[str]
    names: Sequence[str]
    add: Mapping[str, str]
    delete: Sequence[str]
    until_ms: int | None = None


def alter(place: OpenTarget, options: ConfigsOptions) -> None:
    """Set and remove configs of one entity."""
    home = store_kinds.kind_of(options.value("store") or "")
    add = configs_to_add(options, kafka3=home is not None and home.is_kafka_3)
    asked = ConfigsAlteration(
        options.entity_types, options.entity_names, add, configs_to_delete(options)
    )
    kind, name = asked.types[0], asked.names[0]
    until = options.value("until")
    if until is not None:
        from headgate.cli.quotas.flags import moment

        has_scram = any(key in SCRAM_NAMES for key in (*add, *asked.delete))
        if kind not in (USERS, CLIENTS, IPS) or has_scram:
            raise IllegalArgument("--until is for quotas of users, clients and ips")
        asked = asked._replace(until_ms=moment(until, "--until"))
    if kind in (USERS, CLIENTS):
        _alter_client(place, asked)
    elif kind == IPS:
        unknown = [key for key in (*add, *asked.delete) if key not in IP_QUOTA_NAMES]
        if unknown:
            raise IllegalArgument(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. "
                f"Unexpected config names: {','.join(unknown)}"
            )
        alter_quotas(place, asked)
    else:
        _alter_resource(place, asked)
    if name:
        say(printable(f"Completed updating config for {kind[:-1]} {name}."))
    else:
        say(f"Completed updating default config for {kind} in the cluster.")


def _alter_client(place: OpenTarget, asked: ConfigsAlteration) -> None:
    types, names, add, delete, _ = asked
    scram_add = {key: value for key, value in add.items() if key in SCRAM_NAMES}
    scram_delete = [key for key in delete if key in SCRAM_NAMES]
    is_quota = _quota_names(types)
    kind = CLIENTS if CLIENTS in types else USERS
    for done, keys, scram in (("added", add, scram_add), ("deleted", delete, scram_delete)):
        unknown = [key for key in keys if key not in SCRAM_NAMES and not is_quota(key)]
        unknown += scram if kind == CLIENTS else ()
        if unknown:
            raise IllegalArgument(_unexpected(kind, done, unknown))
    if not scram_add and not scram_delete:
        alter_quotas(place, asked)
        return
    if "" in names:
        raise IllegalArgument(
            "The use of --entity-default or --user-defaults is not allowed with User "
            "SCRAM Credentials using --bootstrap-server."
        )
    if any(map(is_quota, (*add, *delete))):
        raise IllegalArgument(
            "Cannot alter both quota and SCRAM credential configs simultaneously for "
            "'users' using --bootstrap-server."
        )
    _alter_scram(place, names[0], scram_add, scram_delete)


def _quota_names(types: Collection[str]) -> Callable[[str], bool]:
    """Return the test of which keys are quotas here: Kafka's, and those only Headgate has."""
    shape = "+".join(WIRE_TYPES[kind] for kind in (USERS, CLIENTS) if kind in types)
    known = {key.name for key in keys_for(shape)} | set(QUOTA_NAMES)

    def is_quota(name: str) -> bool:
        return name in known or (":" in name and QuotaKey.parse(name).name in known)

    return is_quota


def _unexpected(kind: str, done: str, names: Sequence[str]) -> str:
    what = "Only quota and SCRAM credential configs" if kind == USERS else "Only quota configs"
    # The collections as Scala prints them, which scripts have matched for years.
    collection = "Set" if done == "added" else "ArrayBuffer"
    return (
        f"{what} can be {done} for '{kind}' using --bootstrap-server. Unexpected config names: "
        f"{collection}({', '.join(names)})"
    )


def alter_quotas(place: OpenTarget, asked: ConfigsAlteration) -> None:
    """
    Set and remove quotas of one entity.

    Raises:
        IllegalArgument: a value is no number, or a key to be removed isn't set; nothing is sent.
        ApiError: the home refused it.
    """
    types, names, add, delete, _ = asked
    entity = entity_of(types, names)
    old = find(place, components_of(types, names)).get(entity, {})
    present = {key.name for key in old}
    missing = [key for key in delete if QuotaKey.parse(key).name not in present]
    if missing:
        raise IllegalArgument(f"Invalid config(s): {','.join(missing)}")
    ops = [Op(QuotaKey.parse(key), quota_value(key, text)) for key, text in add.items()]
    ops += [Op(QuotaKey.parse(key), None) for key in delete]
    try:
        place.alter(QuotaAlteration(entity, tuple(ops)), until_ms=asked.until_ms)
    except ApiError as exc:
        told = with_way_out(exc, [op.key for op in ops])
        if told is exc:
            raise
        # The text of Kafka's own tool about an unknown key, and then the way out.
        ours = [key for key in add if not QuotaKey.parse(key).known_to_kafka]
        raise IllegalArgument(_unexpected(types[0], "added", ours), str(told)) from exc


def entity_of(types: Sequence[str], names: Sequence[str]) -> QuotaEntity:
    """Pair types and names by position; "" is the default."""
    pairs = zip(types, names, strict=True)
    return QuotaEntity({WIRE_TYPES[kind]: name or DEFAULT for kind, name in pairs})


def _alter_scram(
    place: OpenTarget, user: str, add: Mapping[str, str], delete: Sequence[str]
) -> None:
    from headgate.admin.api import ScramUpsertion

    upsertions = []
    for mechanism, text in add.items():
        iterations, password = scram_credential(mechanism, text)
        upsertions.append(ScramUpsertion(mechanism, iterations, password.encode()))
    place.run(lambda target: target.alter_scram(user, upsertions, delete))


def _alter_resource(place: OpenTarget, asked: ConfigsAlteration) -> None:
    types, names, add, delete, _ = asked
    kind, name = types[0], names[0]
    check_resource_name(kind, name)
    # 4.3.1 looks for what is to be altered only where the resource is a broker's loggers.
    if kind == LOGGERS:
        old = {entry.name for entry in dynamic(place, kind, name)}
        strangers = [key for key in (*delete, *add) if key not in old]
        if strangers:
            raise IllegalArgument(f"Invalid broker logger(s): {','.join(strangers)}")
    changes = {**add, **dict.fromkeys(delete)}
    place.run(lambda target: target.alter_configs(kind, name, changes))
