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
    from headgate.quota.table import QuotaTable

_PATIENCE_S: Final = 5.0
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
        security, tls = await gateway.ways.own(name)
        timeout_ms = own.upstream_connect_timeout_ms
        try:
            cluster = await up.discover(
                own.upstream or (), security, tls, timeout_ms, gateway.ways.own_setting(name)
            )
        except up.UpstreamError as error:
            report.found.append(f"the upstream of listener {name} doesn't answer: {error}")
            continue
        brokers = len(cluster.brokers)
        report.seen.append(f"listener {name} ({brokers} broker{'s' if brokers > 1 else ''})")
        versions: dict[int, Mapping[int, tuple[int, int]]] = {}
        for broker, where in sorted(cluster.brokers.items()):
            await _look_at_port(gateway, name, broker, report)
            try:
                connection = await up.connect(where, security, tls, timeout_ms)
                try:
                    async with asyncio.timeout(timeout_ms / 1000):
                        asked_before = bool(versions)
                        versions[broker] = await up.api_versions(connection)
                        await _look_at_acls(connection, broker, report, topics=not asked_before)
                finally:
                    await connection.close()
            except (HeadgateError, OSError, EOFError, TimeoutError) as error:
                report.found.append(f"broker {broker} at {where} ({name}): {error}")
        _look_at_versions(name, versions, report)
        if not own_quotas and table is not None and settings.enforce == "all":
            own_quotas = True
            servers = ",".join(map(str, cluster.brokers.values()))
            await asyncio.to_thread(_look_at_quotas, servers, security, table, report)


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
            "they enforce themselves can't be read"
        )


def _look_at_quotas(
    servers: str, security: ClientSecurity, table: QuotaTable, report: Examined
) -> None:
    """Compare what brokers enforce with what the gateway does."""
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
        for value in entry.values:
            key = QuotaKey.parse(value.key)
            ours = table.get(entity, key)
            theirs = value_text(value.value)
            also = "it has none" if ours is None else f"it enforces {value_text(ours)} besides"
            report.found.append(
                f"{entity} {key}: the brokers enforce {theirs} behind the gateway, and {also}; "
                "clear it there, or set headgate.enforce=missing"
            )


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
