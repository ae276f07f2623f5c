"""
kafka-configs: its flags, how entity types and names pair, and the checks before anything is done.

The order of the checks and their texts are ConfigCommand's; scripts compare them.

Source: ConfigCommand.ConfigCommandOptions in Apache Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headgate.cli.connecting import STORE
from headgate.cli.joptsimple import Option, OptionSet, parse

TOPICS: Final = "topics"
CLIENTS: Final = "clients"
USERS: Final = "users"
BROKERS: Final = "brokers"
IPS: Final = "ips"
LOGGERS: Final = "broker-loggers"
METRICS: Final = "client-metrics"
GROUPS: Final = "groups"

WIRE_TYPES: Final[Mapping[str, str]] = {USERS: "user", CLIENTS: "client-id", IPS: "ip"}
"""Types of quota entities, as Kafka's protocol calls them."""
# The order in which 4.3.1's text lists them.
ALL_TYPES: Final = (TOPICS, CLIENTS, USERS, BROKERS, IPS, METRICS, GROUPS, LOGGERS)
# Differs: with --zookeeper KIP-55's rules hold, so clients and ips may be named beside the users
# and brokers that Kafka 3.9 allows.
ZOOKEEPER_TYPES: Final = (USERS, CLIENTS, IPS, BROKERS)
DEFAULTABLE: Final = frozenset({USERS, CLIENTS, BROKERS, IPS})

HELP: Final = (
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, "
    "ip, client-metrics or group"
)

QUOTA_NAMES: Final = (
    "consumer_byte_rate",
    "controller_mutation_rate",
    "producer_byte_rate",
    "request_percentage",
)
"""Kafka's quota keys of users and clients."""
IP_QUOTA_NAMES: Final = ("connection_creation_rate",)
SCRAM_NAMES: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
BROKER_NAMES: Final = (
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
)

_ADD_HELP: Final = (
    "Key Value pairs of configs to add. Square brackets can be used to group values which contain "
    "commas: 'k1=v1,k2=[v1,v2,v2],k3=v3'. The following is a list of valid configurations:\n"
    + "\n".join(
        f"For entity-type '{kind}':\n" + "\n".join(f"    {name}" for name in names)
        for kind, names in (
            (BROKERS, (*BROKER_NAMES, "(each also under listener.name.<listener>.)")),
            (USERS, (*SCRAM_NAMES, *QUOTA_NAMES, "producer_ids_rate")),
            (CLIENTS, QUOTA_NAMES),
            (IPS, IP_QUOTA_NAMES),
        )
    )
    + "\nEntity types 'users' and 'clients' may be specified together to update config for "
    "clients of a specific user."
)

OPTIONS: Final = (
    Option("help", "Print usage information."),
    Option("version", "Display Kafka version."),
    Option(
        "zookeeper",
        "The ZooKeeper ensemble that holds the quotas, host:port,host:port/chroot. KIP-55's own "
        "rules hold: leaving out --entity-name in --alter means the default.",
        "String: urls",
    ),
    Option("bootstrap-server", "The Kafka servers to connect to.", "String: server to connect to"),
    Option(
        "bootstrap-controller",
        "The Kafka controllers to connect to.",
        "String: controller to connect to",
    ),
    STORE,
    Option(
        "command-config",
        "Property file containing configs to be passed to Admin Client.",
        "String: command config property file",
    ),
    Option("alter", "Alter the configuration for the entity."),
    Option("describe", "List configs for the given entity."),
    Option("all", "List all configs for the given entity, including static configs if available."),
    Option(
        "entity-type",
        "Type of entity (topics/clients/users/brokers/broker-loggers/ips/client-metrics/groups)",
        "String",
    ),
    Option(
        "entity-name",
        "Name of entity (topic name/client id/user principal name/broker id/ip/client "
        "metrics/group id)",
        "String",
    ),
    Option(
        "entity-default",
        "Default entity name for clients/users/brokers/ips (applies to corresponding entity type)",
    ),
    Option("add-config", _ADD_HELP, "String"),
    Option(
        "add-config-file",
        "Path to a properties file with configs to add. See add-config for a list of valid "
        "configurations.",
        "String",
    ),
    Option("delete-config", "config keys to remove 'k1,k2'", "String", ","),
    Option(
        "until",
        "Headgate's own, with --store: when the former values of quotas return (or none), such as "
        "2026-11-22T10:00:00Z, or epoch milliseconds.",
        "String: time",
    ),
    Option("topic", "The topic's name.", "String"),
    Option("client", "The client's ID.", "String"),
    Option("client-defaults", "The config defaults for all clients."),
    Option("user", "The user's principal name.", "String"),
    Option("user-defaults", "The config defaults for all users."),
    Option("broker", "The broker's ID.", "String"),
    Option("broker-defaults", "The config defaults for all brokers."),
    Option("broker-logger", "The broker's ID for its logger config.", "String"),
    Option("ip-defaults", "The config defaults for all IPs."),
    Option("ip", "The IP address.", "String"),
    Option("group", "The group's ID.", "String"),
    Option("client-metrics", "The client metrics config resource name.", "String"),
    Option(
        "zk-tls-config-file",
        "Identifies the file where ZooKeeper client TLS connectivity properties are defined.",
        "String: ZooKeeper TLS configuration",
    ),
)

# In the fixed order in which the tool lists them, whatever the command line's order.
_NAME_FLAGS: Final = (
    ("topic", TOPICS),
    ("client", CLIENTS),
    ("user", USERS),
    ("broker", BROKERS),
    ("broker-logger", LOGGERS),
    ("ip", IPS),
    ("client-metrics", METRICS),
    ("group", GROUPS),
)
_DEFAULT_FLAGS: Final = tuple(
    (f"{flag}-defaults", kind) for flag, kind in _NAME_FLAGS if kind in DEFAULTABLE
)
_NAMING: Final = ("entity-name", "entity-default")


class IllegalArgument(ValueError):
    """A refusal whose text is all that is printed: Kafka's, and below it ours where it helps."""


class RefusedOptions(ValueError):
    """A refusal after which the tool prints its usage."""


class ConfigsOptions(OptionSet):
    """
    A parsed command line of kafka-configs.

    Args:
        argv: the words.

    Raises:
        OptionError: an option is unknown or lacks its argument.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        parsed = parse(OPTIONS, argv)
        super().__init__(parsed.detected, parsed.words)

    @property
    def zookeeper(self) -> bool:
        """Whether KIP-55's rules hold."""
        return self.has("zookeeper")

    @property
    def entity_types(self) -> list[str]:
        """
        Types by --entity-type in order, then by short flags in their fixed order.

        The first name belongs to the first of them.
        """
        types = self.values("entity-type")
        # Kafka's tool gives it to the first type. Here it could be written to a wrong principal.
        if self.zookeeper and self._name_stands == 2:
            types.reverse()
        return types + [kind for flag, kind in (*_NAME_FLAGS, *_DEFAULT_FLAGS) if self.has(flag)]

    @property
    def _name_stands(self) -> int | None:
        """Where the only name of two types stands: before both 0, between 1, behind 2."""
        flags = ("entity-type", *_NAMING)
        words = [d.name for d in self.detected if d.name in flags]
        if len(words) != 3 or words.count("entity-type") != 2:
            return None
        return next(at for at, word in enumerate(words) if word in _NAMING)

    @property
    def entity_names(self) -> list[str]:
        """Names in the order of the command line, "" for a default; then those of short flags."""
        names = [d.value or "" for d in self.detected if d.name in _NAMING]
        names += [self.value(flag) or "" for flag, _ in _NAME_FLAGS if self.has(flag)]
        return names + ["" for flag, _ in _DEFAULT_FLAGS if self.has(flag)]

    @property
    def notes(self) -> list[str]:
        """How a name was read that may belong to either of two types."""
        if self.zookeeper or self._name_stands != 2:
            return []
        return [f"the name is taken for the first type, {self.entity_types[0]}, as by Kafka's tool"]

    def check(self, resolvable: Callable[[str], bool]) -> None:
        """
        Refuse what makes no sense, in ConfigCommand's order.

        Args:
            resolvable: whether a name is an address or a host that resolves.

        Raises:
            BadUsage: the text, to be followed by the usage.
            IllegalArgument: the text alone.
        """
        self._check_action()
        types = self.entity_types
        self._check_types(types)
        self._check_style()
        self._check_connection()
        named = any(self.entity_names)
        if named and (BROKERS in types or LOGGERS in types):
            flags = ("entity-name", "broker", "broker-logger")
            self._check_names(flags, is_java_int, "integer broker id")
        if named and IPS in types:
            self._check_names(("entity-name", "ip"), resolvable, "IP or resolvable host")
        if self.has("describe"):
            self._check_describe(types, named)
        if self.has("alter"):
            self._check_alter(types, named)

    def _check_action(self) -> None:
        if self.has("alter") == self.has("describe"):
            raise RefusedOptions("Command must include exactly one action: --describe, --alter")
        if self.has("describe"):
            for flag in ("add-config", "delete-config"):
                if self.has(flag):
                    raise RefusedOptions(
                        f'Option "[describe]" can\'t be used with option "[{flag}]"'
                    )

    def _check_names(
        self, flags: Sequence[str], is_valid: Callable[[str], bool], what: str
    ) -> None:
        for flag in flags:
            name = self.value(flag)
            if name and not is_valid(name):  # Java resolves "" to the loopback address.
                raise IllegalArgument(
                    f"The entity name for {self.entity_types[0]} must be a valid {what}, but it "
                    f"is: {name}"
                )

    def _check_types(self, types: Sequence[str]) -> None:
        repeated = [t for i, t in enumerate(types) if t in types[:i]]
        if repeated:
            raise IllegalArgument(f"Duplicate entity type(s) specified: {','.join(repeated)}")
        allowed, connection = (
            (ZOOKEEPER_TYPES, "--zookeeper")
            if self.zookeeper
            else (ALL_TYPES, "--bootstrap-server or --bootstrap-controller")
        )
        for kind in types:
            if kind not in allowed:
                raise IllegalArgument(
                    f"Invalid entity type {kind}, the entity type must be one of "
                    f"{', '.join(allowed)} with a {connection} argument"
                )
        if not types:
            raise IllegalArgument("At least one entity type must be specified")
        if len(types) > 1 and set(types) != {USERS, CLIENTS}:
            raise IllegalArgument(
                "Only 'users' and 'clients' entity types may be specified together"
            )

    def _check_style(self) -> None:
        long_style = any(map(self.has, ("entity-name", "entity-type", "entity-default")))
        short_style = any(self.has(flag) for flag, _ in (*_NAME_FLAGS, *_DEFAULT_FLAGS))
        if long_style and short_style:
            raise IllegalArgument(
                "--entity-{type,name,default} should not be used in conjunction with specific "
                "entity flags"
            )

    def _check_connection(self) -> None:
        ways = ("bootstrap-server", "bootstrap-controller", "zookeeper", "store")
        given = [f"--{way}" for way in ways if self.has(way)]
        if not given:
            raise IllegalArgument(
                "Either --bootstrap-server or --bootstrap-controller must be specified."
            )
        if len(given) > 1:
            raise IllegalArgument(
                f"Only one of {', '.join(given[:-1])} or {given[-1]} can be specified"
            )
        if self.has("all") and self.zookeeper:
            raise IllegalArgument("--bootstrap-server must be specified for --all")
        if self.has("until") and not (self.has("alter") and self.has("store")):
            raise IllegalArgument(
                "--until goes with --alter and --store: Kafka has no place for a quota's end"
            )
        if self.has("zk-tls-config-file") and not self.zookeeper:
            raise IllegalArgument(
                "Only the --zookeeper option can be used with the --zk-tls-config-file option."
            )

    def _check_describe(self, types: Sequence[str], named: bool) -> None:
        if not DEFAULTABLE.intersection(types) and self.has("entity-default"):
            raise IllegalArgument(
                f"--entity-default must not be specified with --describe of {','.join(types)}"
            )
        if LOGGERS in types and not named:
            raise IllegalArgument(
                f"An entity name must be specified with --describe of {','.join(types)}"
            )

    def _check_alter(self, types: Sequence[str], named: bool) -> None:
        # Differs: with --zookeeper a name left out means the default, as KIP-55 has it.
        if DEFAULTABLE.intersection(types):
            if not self.entity_names and not self.zookeeper:
                raise IllegalArgument(
                    "An entity-name or default entity must be specified with --alter of users, "
                    "clients, brokers or ips",
                    "For the default, add --entity-default; only with --zookeeper may it be "
                    "left out.",
                )
        elif not named:
            raise IllegalArgument(
                f"An entity name must be specified with --alter of {','.join(types)}"
            )
        if named and self.zookeeper and self._name_stands == 1:
            raise IllegalArgument(
                "The name between --entity-type users and --entity-type clients may belong to "
                "either: name both, the default by --entity-default"
            )
        add, add_file = self.has("add-config"), self.has("add-config-file")
        if add and add_file:
            raise IllegalArgument("Only one of --add-config or --add-config-file must be specified")
        if not add and not add_file and not self.has("delete-config"):
            raise IllegalArgument(
                "At least one of --add-config, --add-config-file, or --delete-config must be "
                "specified with --alter"
            )


_JAVA_INT = re.compile(r"[+-]?\d+")


def is_java_int(text: str) -> bool:
    """Whether ``Integer.parseInt`` takes the text."""
    return _JAVA_INT.fullmatch(text) is not None and -(2**31) <= int(text) < 2**31
