"""
kafka-configs --zookeeper: KIP-55's own rules, on the znodes that ZooKeeper-mode brokers read.

Differences from ``--bootstrap-server``: in ``--alter`` a name left out means the default, and lines
read as the ZooKeeper tool always wrote them.

Source: KIP-55 "Tools"; KIP-936 "Tools"; ConfigCommand.describeConfigWithZk in 3.9.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headgate.cli.connecting import load_properties
from headgate.cli.kafka_configs.describe import dynamic
from headgate.cli.kafka_configs.options import (
    BROKERS,
    CLIENTS,
    SCRAM_NAMES,
    WIRE_TYPES,
    ConfigsOptions,
    IllegalArgument,
)
from headgate.cli.kafka_configs.values import (
    configs_to_add,
    configs_to_delete,
    scram_credential,
)
from headgate.cli.output import printable, say
from headgate.errors import ApiError, KafkaError
from headgate.java_text import properties_order, to_double
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, Default, QuotaEntity
from headgate.quota.key import KEYS, QuotaKey, keys_for
from headgate.store.zookeeper.layout import encode_value

if TYPE_CHECKING:
    from headgate.admin.open_target import OpenTarget
    from headgate.store import QuotaStore

WARNING: Final = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.",
    "Use --bootstrap-server instead to specify a broker to connect to.",
)
TOOL: Final = "kafka-configs"
_WORDS: Final[Mapping[str, str]] = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}


def run(options: ConfigsOptions) -> None:
    """
    Do what the command line asks.

    Raises:
        IllegalArgument: a refusal whose text is all that is printed.
        HeadgateError: the ensemble can't be reached, or refused.
    """
    from headgate.admin.open_target import OpenTarget
    from headgate.admin.opening import Address, store_settings
    from headgate.store import open_store

    for line in WARNING:
        say(line)
    file = options.value("zk-tls-config-file")
    config = load_properties(file) if file is not None else {}
    url = f"zookeeper://{options.value('zookeeper')}"
    with (
        open_store(url, store_settings(config), create=options.has("alter")) as store,
        OpenTarget(Address(store=store, tool=TOOL)) as place,
    ):
        if options.entity_types[0] == BROKERS:
            _brokers(place, options)
        elif options.has("alter"):
            _alter(place, store, options)
        else:
            _describe(place, store, options)


def pair(options: ConfigsOptions) -> list[tuple[str, str | None]]:
    """
    Pair each ``--entity-name`` with the ``--entity-type`` that it belongs to, by their order.

    Returns:
        Wire type and name, user first; "" is the default, None a name that wasn't given.
    """
    types, names = options.entity_types, options.entity_names
    padded: list[str | None] = [*names, *[None] * len(types)]
    paired = [(WIRE_TYPES[kind], name) for kind, name in zip(types, padded, strict=False)]
    # Differs: with --zookeeper the only name of two types belongs to the one it stands with; the
    # tool of 3.9 gives it to the user.
    return paired[::-1] if len(paired) == 2 and types[0] == CLIENTS else paired


def _alter(place: OpenTarget, store: QuotaStore, options: ConfigsOptions) -> None:
    entity = QuotaEntity({kind: name or DEFAULT for kind, name in pair(options)})
    add = configs_to_add(options, kafka3=True)
    delete = configs_to_delete(options)
    known = {key.name for key in keys_for(entity.shape)}
    takes_scram = entity.shape == "user" and not entity.has_default
    unknown = [
        key
        for key in (*add, *delete)
        if QuotaKey.parse(key).name not in known and not (takes_scram and key in SCRAM_NAMES)
    ]
    if unknown:
        raise IllegalArgument(
            f"requirement failed: Unknown Dynamic Configuration: Set({', '.join(unknown)})."
        )
    credentials: dict[str, str | None] = {
        key: _credential(key, text) for key, text in add.items() if key in SCRAM_NAMES
    }
    present = {key.name for key in _all(place).get(entity, {})}
    if takes_scram:
        present |= set(_credentials(store).get(str(entity.user), {}))
    missing = [key for key in delete if QuotaKey.parse(key).name not in present]
    if missing:
        raise IllegalArgument(f"Invalid config(s): {','.join(missing)}")
    credentials.update((key, None) for key in delete if key in SCRAM_NAMES)
    ops = [Op(QuotaKey.parse(k), _value(k, text)) for k, text in add.items() if k in known]
    ops += [Op(QuotaKey.parse(key), None) for key in delete if key not in SCRAM_NAMES]
    if ops:
        place.alter(QuotaAlteration(entity, tuple(ops)))
    if credentials:
        from headgate.admin.store_target import principal
        from headgate.store.zookeeper.scram import alter_credentials
        from headgate.store.zookeeper.store import ZooKeeperStore

        assert isinstance(store, ZooKeeperStore)
        alter_credentials(store, str(entity.user), credentials, who=principal(), tool=TOOL)
    say(printable(f"Completed updating config for entity: {entity_text(entity)}."))


def _credential(mechanism: str, text: str) -> str:
    """Return what a znode keeps of ``iterations=8192,password=secret``."""
    from headgate.wire.scram import credential_text

    iterations, password = scram_credential(mechanism, text, kafka3=True)
    return credential_text(mechanism, password, secrets.token_bytes(24), iterations)


def _credentials(store: QuotaStore) -> dict[str, dict[str, str]]:
    from headgate.store.zookeeper.scram import read_credentials
    from headgate.store.zookeeper.store import ZooKeeperStore

    return read_credentials(store) if isinstance(store, ZooKeeperStore) else {}


def _value(key: str, text: str) -> float:
    try:
        return to_double(text)
    except ValueError:
        kind = KEYS[QuotaKey.parse(key)].value_type
        raise ApiError(
            KafkaError.INVALID_CONFIG,
            f"Invalid value {text} for configuration {key}: Not a number of type {kind}",
        ) from None


def _describe(place: OpenTarget, store: QuotaStore, options: ConfigsOptions) -> None:
    wanted = pair(options)
    found = {
        entity: {key.name: encode_value(key, value) for key, value in values.items()}
        for entity, values in _all(place).items()
    }
    if [kind for kind, _ in wanted] == ["user"]:
        # They stand in the same znodes, and the tool has always printed them.
        for user, credentials in _credentials(store).items():
            found.setdefault(QuotaEntity.of(user=user), {}).update(credentials)
    if all(name is not None for _, name in wanted):
        entity = QuotaEntity({kind: name or DEFAULT for kind, name in wanted})
        # One that was named is printed even if it has nothing.
        found = {entity: found.get(entity, {})}
    for entity in sorted(found):
        if _asked_for(entity, wanted):
            values = found[entity]
            pairs = ",".join(f"{name}={values[name]}" for name in properties_order(values))
            say(printable(f"Configs for {entity_text(entity)} are {pairs}"))


def _asked_for(entity: QuotaEntity, wanted: Sequence[tuple[str, str | None]]) -> bool:
    if len(entity) != len(wanted):
        return False
    for kind, name in wanted:
        own = entity.get(kind)
        if own is None or (name is not None and own != (name or DEFAULT)):
            return False
    return True


def _all(place: OpenTarget) -> Mapping[QuotaEntity, Mapping[QuotaKey, float]]:
    return place.table().entities


def entity_text(entity: QuotaEntity) -> str:
    """Return ``user-principal 'u', default client-id``."""
    return ", ".join(
        f"default {_WORDS[kind]}" if isinstance(name, Default) else f"{_WORDS[kind]} '{name}'"
        for kind, name in entity
    )


def _brokers(place: OpenTarget, options: ConfigsOptions) -> None:
    name = (options.entity_names or [""])[0]
    text = f"brokers '{name}'" if name else "default brokers"
    if options.has("alter"):
        add = configs_to_add(options, kafka3=True)
        delete = configs_to_delete(options)
        present = {entry.name for entry in dynamic(place, BROKERS, name)}
        missing = [key for key in delete if key not in present]
        if missing:
            raise IllegalArgument(f"Invalid config(s): {','.join(missing)}")
        changes = {**add, **dict.fromkeys(delete)}
        place.run(lambda target: target.alter_configs(BROKERS, name, changes))
        say(f"Completed updating config for entity: {text}.")
        return
    names = options.entity_names[:1] or [*place.run(lambda target: target.names(BROKERS)), ""]
    for broker in names:
        own = {entry.name: entry.value for entry in dynamic(place, BROKERS, broker)}
        pairs = ",".join(f"{key}={own[key]}" for key in properties_order(own))
        text = f"brokers '{broker}'" if broker else "default brokers"
        say(printable(f"Configs for {text} are {pairs}"))
