"""
Read `headgate.properties`: return each setting's value, or report every mistake with its line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from headgate.config import store_kinds
from headgate.config.kinds import LONG_MAX, PRINCIPALS, UsageTarget
from headgate.config.listeners import WILDCARDS, Endpoint, HostPort, Listener
from headgate.config.ports import PortPlan, overlaps
from headgate.config.properties import Property, parse_properties
from headgate.config.setting import Setting
from headgate.errors import ConfigError
from headgate.words import users_listed

_PREFIX = "listener.name."
QUEUED_BYTES = 134_217_728
"""Default of ``queued.max.request.bytes``: the default longest frame, and a quarter more."""
_CREDENTIALS = (
    "headgate.upstream.admin.",
    "headgate.upstream.shared.",
    "headgate.store.kafka.",
)
_BEGINNINGS: Final = """
alter. authorizer. auto. background. broker. client. compression. config. controlled.
controller.listener. controller.quorum. create. default. delegation. delete. early. fetch.
follower. group. initial. inter.broker.protocol kafka.metrics. leader. log. log4j. message.
metadata. metric. metrics. min.insync. node.id num. offset. offsets. password. process.roles
producer.purgatory. queued. remote. replica. replication. request.timeout. reserved. rlmm. rsm.
security.inter.broker.protocol share. socket.connection. telemetry. transaction. transactional.
unclean. unstable. zookeeper. plain. scram-sha- oauthbearer. gssapi. sasl.jaas. sasl.kerberos.
sasl.login. sasl.mechanism. sasl.oauthbearer. sasl.server. ssl.allow. ssl.engine. ssl.keymanager.
ssl.protocol ssl.provider ssl.secure. ssl.trustmanager.
"""
_BROKER_ONLY: Final = tuple(_BEGINNINGS.split())
"""
How the names of those Kafka settings begin that mean nothing to a gateway.

A copied server.properties gets a warning for each, not an error.
"""


class Loaded(NamedTuple):
    """
    What a file says.

    Args:
        values: of every setting, by name; defaults filled in.
        by_listener: what the file gives for one listener, by its lower-case name.
        made: the fields of `Settings` beyond the table.
    """

    values: Mapping[str, Any]
    by_listener: Mapping[str, Mapping[str, Any]]
    made: Mapping[str, Any]


def read_file(path: str | Path, table: Sequence[Setting]) -> Loaded:
    """
    Read a settings file.

    Args:
        path: the file, UTF-8.
        table: all settings.

    Raises:
        ConfigError: the file can't be read, or every mistake in it, in the file's order, each with
            its line.
    """
    file = Path(path)
    try:
        # Differs: Kafka reads properties as Latin-1; Headgate reads UTF-8.
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as exc:
        line = exc.object[: exc.start].count(b"\n") + 1
        raise ConfigError(
            f"{file}:{line}: not UTF-8; save the file as UTF-8 or write \\uXXXX"
        ) from exc
    except OSError as exc:
        reason = (exc.strerror or str(exc)).lower()
        raise ConfigError(
            f"{file}: can't be read ({reason}); --config names a file of properties"
        ) from exc
    found, bad = parse_properties(text)
    return _Reading(table, found, str(file), bad).loaded()


def read_properties(properties: Mapping[str, str], table: Sequence[Setting]) -> Loaded:
    """Read names and texts as if they stood in a file; see `read_file`."""
    found = [Property(key, value) for key, value in properties.items()]
    return _Reading(table, found, "", []).loaded()


class _Reading:
    """One reading of one file: collects values and problems."""

    def __init__(
        self,
        table: Sequence[Setting],
        properties: Iterable[Property],
        file: str,
        problems: list[tuple[int, str]],
    ) -> None:
        self.table = {setting.name: setting for setting in table}
        self.file = file
        self.problems = problems
        self.warnings: list[tuple[int, str]] = []
        self.lines: dict[str, int] = {}
        self.values: dict[str, Any] = {}
        self.prefixed: dict[str, dict[str, Any]] = {}
        for item in properties:
            self._take(item)

    def loaded(self) -> Loaded:
        """Return what was read; raises ConfigError with all problems."""
        values = {s.name: self.values.get(s.name, s.default) for s in self.table.values()}
        self._finish(values)
        listeners = self._listeners(values)
        ports = self._ports(values, listeners)
        admin = values["headgate.admin.listener"]
        self._check_prefixes([*listeners, *([admin.name] if admin else [])])
        self._check_meaning(values, listeners)
        if self.problems:
            raise ConfigError([self._place(line, text) for line, text in sorted(self.problems)])
        made = {
            "listener_list": tuple(listeners.values()),
            "ports": ports,
            "warnings": tuple(self._place(line, text) for line, text in sorted(self.warnings)),
            "given": frozenset(self.lines),
        }
        return Loaded(values, self.prefixed, made)

    # -- reading one line ------------------------------------------------------------------------

    def _take(self, item: Property) -> None:
        if item.key.lower().startswith(_PREFIX):
            listener, dot, name = item.key[len(_PREFIX) :].partition(".")
            key = f"{_PREFIX}{listener.lower()}.{name}"
            if not dot or not listener or not name:
                self._problem(item.line, f"{item.key}: write listener.name.<listener>.<setting>")
                return
        else:
            listener, name, key = "", item.key, item.key
        setting = self.table.get(name)
        if setting is None:
            self._unknown(item, name, listener)
            return
        if listener and not setting.per_listener:
            self._problem(
                item.line, f"{key}: {name} is one for all listeners; write it without a prefix"
            )
            return
        if key in self.lines:
            # Differs: Kafka silently keeps the last of two lines for one key; Headgate refuses.
            self._problem(item.line, f"{key} is given twice (first on line {self.lines[key]})")
            return
        self.lines[key] = item.line
        text = item.value.strip()
        try:
            value = setting.kind.parse(text)
        except ValueError as exc:
            self._problem(item.line, f"{key}: {exc}")
            return
        if setting.kind is PRINCIPALS:
            self._note_commas(item.line, key, value)
        (self.prefixed.setdefault(listener.lower(), {}) if listener else self.values)[name] = value

    def _note_commas(self, line: int, key: str, principals: Iterable[str]) -> None:
        """Warn of what reads as several principals and is one: only semicolons divide them."""
        for name in sorted(principals):
            users = users_listed(name)
            if len(users) > 1:
                written = ";".join(f"User:{user}" for user in users)
                text = f"{key}: User:{name} is one principal, as in Kafka; for several write"
                self.warnings.append((line, f"{text} {written}"))

    def _unknown(self, item: Property, name: str, listener: str) -> None:
        names = [s.name for s in self.table.values() if s.per_listener or not listener]
        near = difflib.get_close_matches(name, names, 1, 0.8)
        if not near and name.startswith(_BROKER_ONLY):
            self.warnings.append(
                (item.line, f"{item.key} is a broker's setting and has no effect in a gateway")
            )
            return
        near = near or difflib.get_close_matches(name, names, 1, 0.6)
        hint = f"; did you mean {near[0]}?" if near else ""
        self._problem(item.line, f"unknown setting {item.key}{hint}")

    def _problem(self, line: int, text: str) -> None:
        self.problems.append((line, text))

    def _refuse(self, text: str, *names: str) -> None:
        """Note a mistake, with the line of the first of these settings that is in the file."""
        self._problem(self._line(*names), text)

    def _wrong(self, name: str, text: str) -> None:
        """Note a mistake of one setting, which the text begins with."""
        self._refuse(f"{name}: {text}", name)

    def _warn(self, text: str, *names: str) -> None:
        self.warnings.append((self._line(*names), text))

    def _place(self, line: int, text: str) -> str:
        if not self.file:
            return text
        return f"{self.file}:{line}: {text}" if line else f"{self.file}: {text}"

    def _line(self, *names: str) -> int:
        """The line of the first of these settings that the file gives; 0 if it gives none."""
        return next((self.lines[name] for name in names if name in self.lines), 0)

    # -- defaults that depend on others ----------------------------------------------------------

    def _finish(self, values: dict[str, Any]) -> None:
        data = Path(values["headgate.data.dir"])
        defaults = {
            "headgate.embedded.dir": str(data / "kafka"),
            "headgate.store": f"sqlite:{data / 'quotas.db'}",
            "headgate.store.snapshot": str(data / "snapshot.json"),
            "headgate.usage": UsageTarget("files", str(data / "usage")),
            "producer.id.quota.cache.window.seconds": values["producer.id.quota.window.num"]
            * values["producer.id.quota.window.size.seconds"],
            "headgate.enforce": "missing" if _store_is_upstream(values) else "all",
        }
        for name, default in defaults.items():
            if values[name] is None:
                values[name] = default
        largest = values["socket.request.max.bytes"]
        queued = values["queued.max.request.bytes"]
        if queued is None or queued < 0:
            values["queued.max.request.bytes"] = max(QUEUED_BYTES, largest)
        elif queued < largest:
            self._refuse(
                f"queued.max.request.bytes ({queued}) must be larger or equal to "
                f"socket.request.max.bytes ({largest})",
                "queued.max.request.bytes",
            )
        for name in ("quota.producer.default", "quota.consumer.default"):
            if values[name] != LONG_MAX:
                self._warn(f"{name} is deprecated, use clients/<default>", name)

    def _listeners(self, values: dict[str, Any]) -> dict[str, Listener]:
        protocols = values["listener.security.protocol.map"]
        told = {e.name: e.address for e in values["advertised.listeners"] or ()}
        found: dict[str, Listener] = {}
        for endpoint in values["listeners"]:
            if endpoint.name not in protocols:
                self._no_protocol("listeners", endpoint)
                continue
            address = told.pop(endpoint.name, None)
            if address is None:
                # Differs: Kafka advertises the machine's own name; Headgate localhost, and warns.
                address = endpoint.address
                if address.host in WILDCARDS:
                    address = HostPort("localhost", address.port)
                    if endpoint.address.port:
                        told_as = f"advertised.listeners={endpoint.name}://<host>:{address.port}"
                        self._warn(
                            f"listener {endpoint.name} listens on every interface and tells "
                            f"clients localhost; set {told_as}",
                            "listeners",
                        )
            elif address.host in WILDCARDS:
                self._wrong(
                    "advertised.listeners",
                    f"{endpoint.name} names no host that clients could reach",
                )
            found[endpoint.name] = Listener(
                endpoint.name, protocols[endpoint.name], endpoint.address, address
            )
        for name in told:
            self._wrong("advertised.listeners", f"{name} isn't among listeners")
        inter = values["inter.broker.listener.name"]
        if inter is not None and inter.upper() not in {e.name for e in values["listeners"]}:
            self._wrong("inter.broker.listener.name", f"{inter} isn't among listeners")
        return found

    def _no_protocol(self, name: str, endpoint: Endpoint) -> None:
        self._wrong(
            name,
            f"no protocol is known for {endpoint.name}; add {endpoint.name}:PLAINTEXT "
            "(or SSL, SASL_PLAINTEXT, SASL_SSL) to listener.security.protocol.map",
        )

    def _ports(self, values: dict[str, Any], listeners: dict[str, Listener]) -> PortPlan:
        listed = {name: ports for name in listeners if (ports := self._listed(name))}
        low, high = values["headgate.broker.id.min"], values["headgate.broker.id.max"]
        if values["headgate.upstream"] is None:
            low = 1 if low is None else low
            high = low + values["headgate.embedded.brokers"] - 1 if high is None else high
        elif len(listed) == len(listeners) and listeners:
            ids = [broker for ports in listed.values() for broker in ports]
            low = min(ids) if low is None else low
            high = max(ids) if high is None else high
        else:
            for name, value in (("headgate.broker.id.min", low), ("headgate.broker.id.max", high)):
                if value is None:
                    servers = ",".join(map(str, values["headgate.upstream"]))
                    self._refuse(
                        f"{name} is required with headgate.upstream={servers}; "
                        "or list the ports in headgate.broker.ports",
                        "headgate.upstream",
                    )
        values["headgate.broker.id.min"] = low = 1 if low is None else low
        values["headgate.broker.id.max"] = high = low if high is None else high
        if high < low:
            self._refuse(
                f"headgate.broker.id.max ({high}) is below headgate.broker.id.min ({low})",
                "headgate.broker.id.max",
                "headgate.broker.id.min",
            )
            return PortPlan(low, low, listeners, listed)
        if high - low >= 10_000 and len(listed) < len(listeners):
            self._wrong(
                "headgate.broker.id.max",
                f"{high - low + 1} brokers need more ports than there are;"
                " list them in headgate.broker.ports",
            )
            return PortPlan(low, low, listeners, listed)
        plan = PortPlan(low, high, listeners, listed)
        for problem in overlaps(self._uses(values, plan)):
            self._refuse(problem, "listeners", "headgate.broker.id.max")
        return plan

    def _listed(self, listener: str) -> dict[int, int]:
        own = self.prefixed.get(listener.lower(), {}).get("headgate.broker.ports")
        ports: dict[int, int] = own or self.values.get("headgate.broker.ports") or {}
        return ports

    def _uses(self, values: dict[str, Any], plan: PortPlan) -> Iterator[tuple[str, HostPort]]:
        for name in plan.listeners:
            for broker in plan.broker_ids(name):
                address = plan.bind(name, broker)
                if address is not None:
                    yield f"listener {name} for broker {broker}", address
        for endpoint in values["headgate.bootstrap.listener"]:
            yield f"headgate.bootstrap.listener {endpoint.name}", endpoint.address
        if values["headgate.admin.listener"]:
            yield "headgate.admin.listener", values["headgate.admin.listener"].address
        for name in ("headgate.http.listener", "headgate.console.listener"):
            if values[name]:
                yield name, values[name]

    # -- what only makes sense together ----------------------------------------------------------

    def _check_prefixes(self, listeners: Iterable[str]) -> None:
        known = {name.lower() for name in listeners}
        for prefix, settings in self.prefixed.items():
            if prefix in known:
                continue
            near = difflib.get_close_matches(prefix, sorted(known), 1, 0.6)
            hint = f"; did you mean {near[0]}?" if near else ""
            for name in settings:
                key = f"{_PREFIX}{prefix}.{name}"
                self._problem(
                    self.lines[key], f"{key}: no listener is named {prefix.upper()}{hint}"
                )

    def _check_meaning(self, values: dict[str, Any], listeners: Mapping[str, Listener]) -> None:
        for endpoint in values["headgate.bootstrap.listener"]:
            if endpoint.name not in listeners:
                self._wrong(
                    "headgate.bootstrap.listener",
                    f"{endpoint.name} isn't among listeners; "
                    "it takes the settings of the listener it is named after",
                )
        admin = values["headgate.admin.listener"]
        if admin and admin.name in {endpoint.name for endpoint in values["listeners"]}:
            self._wrong(
                "headgate.admin.listener",
                f"{admin.name} is among listeners too, and each needs a "
                "name of its own; call it ADMIN, say, and add ADMIN:PLAINTEXT (or SSL, "
                "SASL_PLAINTEXT, SASL_SSL) to listener.security.protocol.map",
            )
        elif admin and admin.name not in values["listener.security.protocol.map"]:
            self._no_protocol("headgate.admin.listener", admin)
        for listener in listeners.values():
            own = {**values, **self.prefixed.get(listener.name.lower(), {})}
            if listener.protocol.tls and not (
                own["ssl.keystore.location"] or own["ssl.keystore.certificate.chain"]
            ):
                self._refuse(
                    f"listener {listener.name} speaks {listener.protocol} and has no certificate; "
                    "set ssl.keystore.location",
                    "listeners",
                )
            self._check_own_protocol(values, own, listener)
        if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
            self._refuse(
                "max.connections.per.ip=0 refuses every client: "
                "0 is allowed only with max.connections.per.ip.overrides",
                "max.connections.per.ip",
            )
        for prefix in _CREDENTIALS:
            self._check_credentials(prefix, values)
        if values["headgate.splits"] == "stream" and values["headgate.upstream"] is None:
            self._refuse(
                "headgate.splits=stream needs a fleet's own cluster; embedded is local",
                "headgate.splits",
            )
        usage = values["headgate.usage"]
        if usage is not None and usage.kind == "kafka" and values["headgate.upstream"] is None:
            self._refuse(
                f"headgate.usage={usage} needs a cluster of its own; with embedded give files:DIR",
                "headgate.usage",
            )

    def _check_own_protocol(
        self, values: dict[str, Any], own: dict[str, Any], listener: Listener
    ) -> None:
        """Warn of two protocols for the same servers: a port has only one."""
        name = "headgate.upstream.admin.security.protocol"
        clients = own["headgate.upstream.security.protocol"] or listener.protocol
        elsewhere = f"{_PREFIX}{listener.name.lower()}.headgate.upstream" in self.lines
        if name not in self.lines or elsewhere or values[name] is clients:
            return
        self._warn(
            f"{name} is {values[name]}, but clients of listener {listener.name} go on to the same "
            f"servers in {clients}; set headgate.upstream.security.protocol too, or give the "
            "listener a headgate.upstream of its own",
            name,
        )

    def _check_credentials(self, prefix: str, values: dict[str, Any]) -> None:
        if values[f"{prefix}security.protocol"].sasl:
            for name in ("sasl.username", "sasl.password"):
                if values[prefix + name] is None:
                    self._refuse(
                        f"{prefix}security.protocol={values[f'{prefix}security.protocol']} "
                        f"needs {prefix}{name}",
                        f"{prefix}security.protocol",
                    )


def _store_is_upstream(values: dict[str, Any]) -> bool:
    store, upstream = values["headgate.store"], values["headgate.upstream"]
    kind = store_kinds.kind_of(store or "")
    if kind is None or not kind.is_cluster or not upstream:
        return False
    hosts = store_kinds.addresses(store.partition(":")[2])
    return bool({str(host) for host in hosts} & {str(host) for host in upstream})
