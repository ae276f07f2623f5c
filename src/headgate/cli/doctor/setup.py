"""
`headgate doctor --config`: a gateway's set-up, from where it runs.

It looks at certificates, connections to the brokers, their versions, the permissions of the
gateway's own user, the ports that clients are told, clocks, and quotas that brokers enforce as
well.
"""

from __future__ import annotations

import asyncio
import email.utils
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from headgate.cli.quotas.quota_output import value_text
from headgate.client.quota_messages import entity_of
from headgate.config.listeners import WILDCARDS, HostPort
from headgate.errors import ConfigError, HeadgateError
from headgate.gateway import Gateway
from headgate.gateway import upstream as up
from headgate.quota.key import QuotaKey
from headgate.wire import apis

if TYPE_CHECKING:
    from headgate.cli.results import Examined
    from headgate.client.connection import Connection
    from headgate.config.security import ClientSecurity
    from headgate.config.settings import Settings
    from headgate.quota.entity import QuotaEntity
    from headgate.quota.table import QuotaTable

_PATIENCE_S: Final = 5.0
_BY_ADDRESS: Final = ("max.connections.per.ip", "max.connections.per.ip.overrides")
_NO_LIMIT: Final = "2147483647"
_ALL_AT_ONCE: Final = "hits all clients of the gateway at once, since they come from its address"
_CLOCK_S: Final = 2.0
"""HTTP's dates have whole seconds; what is further apart moves quota windows visibly."""


def look(settings: Settings, table: QuotaTable | None, report: Examined) -> None:
    """
    Look at everything that settings name.

    Args:
        settings: of the gateway.
        table: the store's quotas; None where it couldn't be read.
        report: where findings are added.
    """
    gateway = Gateway(settings)
    try:
        gateway.check()
    except ConfigError as error:
        report.found += error.problems
        return
    if settings.embedded:
        report.seen.append("certificates (the upstream is embedded)")
    else:
        asyncio.run(_look_at_brokers(gateway, table, report))
    if settings.http_listener is not None:
        _look_at_http(settings.http_listener, report)


async def _look_at_brokers(gateway: Gateway, table: QuotaTable | None, report: Examined) -> None:
    settings = gateway.settings
    own_quotas = False
    for listener in settings.listener_list:
        name = listener.name
        own = settings.for_listener(name)
        security, tls = await gateway.security.own(name)
        timeout_ms = own.upstream_connect_timeout_ms
        try:
            cluster = await up.discover(
                own.upstream or (), security, tls, timeout_ms, gateway.security.own_setting(name)
            )
        except up.UpstreamError as error:
            report.found.append(f"the upstream of listener {name} doesn't answer: {error}")
            continue
        brokers = len(cluster.brokers)
        report.seen.append(f"listener {name} ({brokers} broker{'s' if brokers > 1 else ''})")
        versions: dict[int, Mapping[int, tuple[int, int]]] = {}
        limited: dict[int, dict[str, str]] = {}
        for broker, where in sorted(cluster.brokers.items()):
            await _look_at_port(gateway, name, broker, report)
            try:
                connection = await up.connect(where, security, tls, timeout_ms)
                try:
                    async with asyncio.timeout(timeout_ms / 1000):
                        asked_before = bool(versions)
                        versions[broker] = await up.api_versions(connection)
                        await _look_at_acls(connection, broker, report, topics=not asked_before)
                        limited[broker] = await _limits_by_address(connection, broker)
                finally:
                    await connection.close()
            except TimeoutError:
                report.found.append(
                    f"broker {broker} at {where} ({name}) takes connections and doesn't answer "
                    f"within {timeout_ms} ms"
                )
            except (HeadgateError, OSError, EOFError) as error:
                report.found.append(f"broker {broker} at {where} ({name}): {error}")
        _look_at_versions(name, versions, report)
        report.found += shared_limits(limited)
        if not own_quotas:
            own_quotas = True
            compared = table if settings.enforce == "all" else None
            servers = ",".join(map(str, cluster.brokers.values()))
            await asyncio.to_thread(_look_at_quotas, servers, security, compared, report)


async def _look_at_acls(
    connection: Connection, broker: int, report: Examined, *, topics: bool
) -> None:
    """Look whether the gateway's own user may see settings, and (``topics``) topics."""
    if await up.broker_config(connection, broker, "num.partitions") is None:
        report.found.append(
            f"broker {broker} doesn't tell the gateway's own user its settings: it needs "
            "DescribeConfigs on the cluster, for controller_mutation_rate to be charged "
            "for topics of num.partitions"
        )
    # No topic has this name. A broker that lets its user see all topics answers that it doesn't
    # exist.
    nobodys = f"headgate-doctor-{secrets.token_hex(8)}"
    counts: dict[up.TopicRef, int] = {}
    if topics:
        await up.topic_partitions(connection, [nobodys], counts)
    if topics and nobodys not in counts:
        report.found.append(
            f"broker {broker} doesn't show the gateway's own user every topic: it needs Describe "
            "on Topic '*', for controller_mutation_rate to be charged for all partitions of the "
            "topics that requests name"
        )


async def _look_at_port(gateway: Gateway, listener: str, broker: int, report: Examined) -> None:
    """Connect to the address that clients are told for a broker."""
    told = gateway.settings.ports.advertised(listener, broker)
    if told is None:
        report.found.append(
            f"broker {broker} has no port on listener {listener} and stays unexposed; widen "
            "headgate.broker.id.min and headgate.broker.id.max, or list it in headgate.broker.ports"
        )
        return
    if not told.port:
        report.unseen.append(f"listener {listener}: the system chooses its ports")
        return
    try:
        async with asyncio.timeout(_PATIENCE_S):
            _, writer = await asyncio.open_connection(told.host or "127.0.0.1", told.port)
        writer.close()
    except (OSError, TimeoutError) as error:
        report.found.append(
            f"{told}, which clients of {listener} are told for broker {broker}, doesn't accept: "
            f"{error or 'no answer'}; is the gateway running, and the address right?"
        )


def _look_at_versions(
    listener: str, versions: Mapping[int, Mapping[int, tuple[int, int]]], report: Examined
) -> None:
    different = {tuple(sorted(ranges.items())) for ranges in versions.values()}
    if len(different) > 1:
        report.found.append(f"brokers of listener {listener} run different versions of Kafka")
    old = [b for b, ranges in versions.items() if apis.DESCRIBE_CLIENT_QUOTAS not in ranges]
    if old:
        report.found.append(
            f"brokers {', '.join(map(str, sorted(old)))} are older than Kafka 2.6: quotas that "
            "they enforce themselves can't be read here; `kafka-configs --zookeeper HOST:PORT "
            "--describe --entity-type users` (clients) lists them"
        )


async def _limits_by_address(connection: Connection, broker: int) -> dict[str, str]:
    """Return the settings by which a broker limits the connections of one address."""
    found = {}
    for name in _BY_ADDRESS:
        value = await up.broker_config(connection, broker, name)
        if value not in (None, "", _NO_LIMIT):
            found[name] = str(value)
    return found


def shared_limits(limited: Mapping[int, Mapping[str, str]]) -> list[str]:
    """
    Return a sentence for each limit of connections by address.

    Args:
        limited: by broker: the settings that have such a limit.
    """
    brokers: dict[tuple[str, str], list[int]] = {}
    for broker, found in sorted(limited.items()):
        for setting in found.items():
            brokers.setdefault(setting, []).append(broker)
    return [
        f"{name}={value} of broker {', '.join(map(str, of))} {_ALL_AT_ONCE}; raise it for the "
        "gateway's address, in max.connections.per.ip.overrides"
        for (name, value), of in brokers.items()
    ]


def _look_at_quotas(
    servers: str, security: ClientSecurity, table: QuotaTable | None, report: Examined
) -> None:
    """
    Look for limits of brokers that hit the gateway's clients.

    Args:
        servers: the brokers.
        security: to log in there.
        table: what the gateway enforces; None: it leaves Kafka's own quotas to the brokers, or the
            table isn't known, so that only quotas of addresses matter.
        report: where findings are added.
    """
    from headgate.store.kafka.client import KafkaClient

    client = KafkaClient(servers, security)
    try:
        entries = client.describe()
    except HeadgateError as error:
        report.unseen.append(f"the brokers' own quotas: {error}")
        return
    finally:
        client.close()
    report.seen.append("the brokers' own quotas")
    for entry in entries:
        entity = entity_of(entry.entity)
        values = {QuotaKey.parse(value.key): value.value for value in entry.values}
        report.found += enforced_behind(entity, values, table)


def enforced_behind(
    entity: QuotaEntity, values: Mapping[QuotaKey, float], table: QuotaTable | None
) -> list[str]:
    """Return a sentence for each quota of the brokers that hits the gateway's clients."""
    found = []
    for key, value in values.items():
        theirs = value_text(value)
        if entity.ip is not None:
            found.append(
                f"{entity} {key}={theirs} of the brokers {_ALL_AT_ONCE}, if that is its address; "
                "clear it there, and set it in the gateway's store"
            )
        elif table is not None:
            ours = table.get(entity, key)
            also = "it has none" if ours is None else f"it enforces {value_text(ours)} besides"
            found.append(
                f"{entity} {key}: the brokers enforce {theirs} behind the gateway, and {also}; "
                "clear it there, or set headgate.enforce=missing"
            )
    return found


def _look_at_http(where: HostPort, report: Examined) -> None:
    """Ask a running gateway whether it is ready, and what time it is there."""
    host = "127.0.0.1" if where.host in WILDCARDS else where.host
    url = f"http://{HostPort(host, where.port)}/readyz"
    asked = time.time()
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            url, timeout=_PATIENCE_S
        ) as answer:
            date = answer.headers.get("date")
            notes = answer.read(2_000).decode("utf-8", "replace").splitlines()[1:]
            report.found += (f"the gateway is ready, but: {note}" for note in notes)
    except urllib.error.HTTPError as error:
        why = error.read(2_000).decode("utf-8", "replace").strip()
        report.found.append(f"the gateway isn't ready: {why}")
        date = error.headers.get("date")
    except OSError as error:
        report.found.append(f"{url} doesn't answer: {error}; is the gateway running?")
        return
    report.seen.append("readiness")
    if date is None:
        return
    apart_s = email.utils.parsedate_to_datetime(date).timestamp() - (asked + time.time()) / 2
    if abs(apart_s) > _CLOCK_S:
        report.found.append(
            f"the clock of the gateway is {abs(apart_s):.0f} s "
            f"{'ahead of' if apart_s > 0 else 'behind'} this machine's"
        )
