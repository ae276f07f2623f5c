"""
Every metric, as data: its name, Kafka's name beside it, labels, unit, meaning.

One rule names those that Kafka has: ``kafka_<domain>_<group>_<metric>``, ``-`` becomes ``_``, lower
case; ``kafka.server:type=Produce … byte-rate`` is ``kafka_server_produce_byte_rate`` (SEEDS 55-6).
A label that doesn't apply is left out. Names that begin with ``headgate_`` have no Kafka twin.
"""

# ruff: noqa: E501 - a table's rows read best whole
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

GAUGE: Final = "gauge"
COUNTER: Final = "counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """
    One metric.

    Args:
        name: as Prometheus shows it.
        kind: gauge or counter.
        labels: those it may carry beside ``broker``, in order.
        unit: what the number counts.
        doc: what it means, one or two sentences.
        kafka: Kafka's MBean and attribute; "" where Kafka has none.
        source: the KIP, or Headgate.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    unit: str
    doc: str
    kafka: str = ""
    source: str = "Headgate"


def prometheus_name(domain: str, group: str, metric: str) -> str:
    """
    Return the name of a Kafka metric in Prometheus.

    Args:
        domain: JMX domain, such as ``kafka.server``.
        group: Kafka's metric group (the MBean's type), such as ``Produce``.
        metric: Kafka's metric name, such as ``byte-rate``.
    """
    return re.sub(r"[^a-z0-9]+", "_", f"{domain}_{group}_{metric}".lower()).strip("_")


def _quota(group: str, metric: str, unit: str, doc: str, source: str,
           tags: tuple[str, ...] = ("user", "client_id")) -> Metric:  # fmt: skip
    shown = "".join(f",{tag.replace('_', '-')}=…" for tag in tags)
    return Metric(
        prometheus_name("kafka.server", group, metric), GAUGE, tags, unit, doc,
        f"kafka.server:type={group}{shown} {metric}", source,
    )  # fmt: skip


def _per_group() -> Iterator[Metric]:
    throttled = (
        "Mean throttle time of throttled requests over the last minute; absent while there is none."
    )
    waiting = "Channels muted now by this quota type."
    yield _quota(
        "Produce",
        "byte-rate",
        "bytes/s",
        "Produce rate of a quota-id over the quota window.",
        "KIP-13, KIP-55",
    )
    yield _quota("Produce", "throttle-time", "ms", throttled, "KIP-13, KIP-55")
    yield _quota("Produce", "queue-size", "channels", waiting, "Kafka", ())
    yield _quota(
        "Fetch",
        "byte-rate",
        "bytes/s",
        "Fetch rate of a quota-id over the quota window.",
        "KIP-13, KIP-55",
    )
    yield _quota("Fetch", "throttle-time", "ms", throttled, "KIP-13, KIP-55")
    yield _quota("Fetch", "queue-size", "channels", waiting, "Kafka", ())
    yield _quota(
        "Request",
        "request-time",
        "% of a thread",
        "Gateway thread time of a quota-id over the quota window.",
        "KIP-124",
    )
    yield _quota("Request", "throttle-time", "ms", throttled, "KIP-124")
    yield _quota("Request", "queue-size", "channels", waiting, "Kafka", ())
    yield _quota(
        "Request",
        "exempt-request-time",
        "% of a thread",
        "Thread time of requests exempt from quotas.",
        "KIP-124",
        (),
    )
    yield _quota(
        "ControllerMutation",
        "mutation-rate",
        "partitions/s",
        "Partitions a quota-id created or deleted.",
        "KIP-599",
    )
    yield _quota(
        "ControllerMutation",
        "tokens",
        "partitions",
        "Tokens left in a quota-id's bucket; below 0 it is throttled.",
        "KIP-599",
    )
    yield _quota("ControllerMutation", "throttle-time", "ms", throttled, "KIP-599")
    yield _quota("ControllerMutation", "queue-size", "channels", waiting, "Kafka", ())
    yield _quota(
        "ProducerIds", "rate", "ids/s", "New producer ids of a user.", "KIP-936", ("user",)
    )
    yield _quota(
        "ProducerIds",
        "tokens",
        "ids",
        "Tokens left in a user's bucket; below 0 it is throttled.",
        "KIP-936",
        ("user",),
    )
    yield _quota("ProducerIds", "throttle-time", "ms", throttled, "KIP-936", ("user",))
    yield _quota("ProducerIds", "queue-size", "channels", waiting, "Headgate, after Kafka", ())


def _connections() -> Iterator[Metric]:
    group = "socket-server-metrics"

    def row(metric: str, tag: str, unit: str, doc: str) -> Metric:
        shown = f",{tag}=…" if tag else ""
        return Metric(
            prometheus_name("kafka.server", group, metric), GAUGE, (tag,) if tag else (), unit, doc,
            f"kafka.server:type={group}{shown} {metric}", "KIP-612 as released",
        )  # fmt: skip

    yield row(
        "broker-connection-accept-rate",
        "",
        "connections/s",
        "Connections accepted for this broker.",
    )
    rate = row(
        "connection-accept-rate",
        "listener",
        "connections/s",
        "Connections accepted, by listener, or by ip where an ip quota applies.",
    )
    yield Metric(rate.name, GAUGE, ("listener", "ip"), rate.unit, rate.doc,
                 f"kafka.server:type={group},listener=… (or ip=…) connection-accept-rate", rate.source)  # fmt: skip
    yield row(
        "connection-accept-throttle-time",
        "listener",
        "ms",
        "Mean delay of accepting by the broker's or the listener's rate.",
    )
    yield row("ip-connection-accept-throttle-time", "listener", "ms", "Mean delay by an ip's rate.")
    yield Metric(
        prometheus_name("kafka.network", "Acceptor", "AcceptorBlockedPercent"), GAUGE, ("listener", "rate"), "1",
        "Share of time, of 1, in which accepting was blocked, by rate or for want of a free slot: `one_minute`, `five_minute` and `fifteen_minute` averages and the `mean` since the start, as Kafka's OneMinuteRate, FiveMinuteRate, FifteenMinuteRate and MeanRate. A wait counts when it is over.",
        "kafka.network:type=Acceptor,name=AcceptorBlockedPercent,listener=…", "KIP-402, KIP-612",
    )  # fmt: skip


def _own() -> Iterator[Metric]:
    quota = ("quota_type", "unit", "user", "client_id", "ip")
    yield Metric(
        "headgate_quota_value",
        GAUGE,
        quota,
        "the quota's own",
        "The limit in force for a quota-id. Absent where there is none.",
    )
    yield Metric(
        "headgate_quota_utilisation",
        GAUGE,
        quota,
        "1",
        "Measured rate divided by the limit (by this broker's part of a cluster-wide one): 1 is the quota. Alert on this before throttling starts.",
    )
    yield Metric(
        "headgate_quota_split",
        GAUGE,
        quota,
        "bytes/s",
        "This broker's part, now, of a cluster-wide (`bps`) quota, or what a quota-id's `shares` come to while the capacity is contested.",
    )
    yield Metric(
        "headgate_quota_tokens",
        GAUGE,
        quota,
        "the quota's own",
        "Credit in a quota-id's bucket, where there is one (smooth pacing, `bps`, `shares`); below 0 its clients wait.",
    )
    yield Metric(
        "headgate_throttled_total",
        COUNTER,
        ("quota_type", "user", "client_id", "others"),
        "requests",
        "Requests told a throttle time. `others` is `true` for the sum of all quota-ids without series of their own.",
    )
    yield Metric(
        "headgate_throttle_ms_total",
        COUNTER,
        ("quota_type", "user", "client_id", "others"),
        "ms",
        "Throttle time told, summed; `others` likewise.",
    )
    yield Metric(
        "headgate_quota_ids",
        GAUGE,
        ("quota_type", "series"),
        "quota-ids",
        "Quota-ids that are measured: `own` have series of their own, `others` are too many (`headgate.metrics.quota.ids`).",
    )
    yield Metric(
        "headgate_others_rate",
        GAUGE,
        ("quota_type", "unit"),
        "the quota's own",
        "Rate of all quota-ids together that have no series of their own, at most ten seconds old.",
    )
    yield Metric(
        "headgate_connections", GAUGE, ("listener",), "connections", "Client connections open now."
    )
    yield Metric(
        "headgate_connections_muted", GAUGE, ("listener",), "connections", "Of these, muted now."
    )
    yield Metric(
        "headgate_connections_accepted_total",
        COUNTER,
        ("listener",),
        "connections",
        "Client connections accepted.",
    )
    yield Metric(
        "headgate_connections_closed_total",
        COUNTER,
        ("listener", "reason"),
        "connections",
        "Connections closed, by reason.",
    )
    yield Metric(
        "headgate_bytes_total",
        COUNTER,
        ("listener", "direction"),
        "bytes",
        "Bytes relayed; `in` from clients, `out` to clients.",
    )
    yield Metric(
        "headgate_requests_total",
        COUNTER,
        ("listener",),
        "requests",
        "Requests relayed or answered.",
    )
    yield Metric(
        "headgate_upstream_failures_total",
        COUNTER,
        ("reason",),
        "connections",
        "Connections to the broker that failed or broke.",
    )
    yield Metric(
        "headgate_queued_bytes",
        GAUGE,
        (),
        "bytes",
        "Bytes held in memory for all connections of a process, at one of its brokers; at most `queued.max.request.bytes`, and 16 KiB for each connection.",
    )
    yield Metric(
        "headgate_usage_events_total", COUNTER, (), "events", "Usage events written to the journal."
    )
    yield Metric(
        "headgate_usage_dropped_total",
        COUNTER,
        (),
        "events",
        "Usage events given up because the journal couldn't be written.",
    )
    yield Metric(
        "headgate_usage_files_damaged_total",
        COUNTER,
        (),
        "files",
        "Closed files of the journal that couldn't be read whole and were set aside, their names ending in `.bad`.",
    )
    yield Metric(
        "headgate_usage_files_removed_total",
        COUNTER,
        (),
        "files",
        "Oldest files of the journal that were removed, damaged ones too, because all together were larger than `headgate.usage.retention.bytes`.",
    )
    yield Metric(
        "headgate_fetches_held_total",
        COUNTER,
        (),
        "fetches",
        "Fetches, or their answers, that waited for their quota-id's turn; see `headgate.fetch`.",
    )
    yield Metric(
        "headgate_fetch_held_seconds_total",
        COUNTER,
        (),
        "s",
        "How long they waited, all together. It is no throttle time: clients aren't told of it.",
    )
    yield Metric(
        "headgate_mutations_guessed_total",
        COUNTER,
        (),
        "topics",
        "Topics charged one controller mutation because nobody could tell how many partitions they have or get.",
    )
    yield Metric(
        "headgate_loop_longest_ms",
        GAUGE,
        (),
        "ms of CPU",
        "Longest piece of the gateway's own work on the event loop in the last one to two minutes, relaying apart: clients wait so long for it. At one broker of a process, 0 at the others.",
    )
    yield Metric(
        "headgate_loop_slow_total",
        COUNTER,
        (),
        "pieces",
        "Pieces of such work that took more than 10 ms of CPU.",
    )
    yield Metric(
        "headgate_store_up",
        GAUGE,
        (),
        "1",
        "1 while the quota store answers; 0 while the last known quotas are in force without it.",
    )
    yield Metric(
        "headgate_store_version", GAUGE, (), "version", "Version of the quota table in force."
    )
    yield Metric(
        "headgate_split_expired",
        GAUGE,
        (),
        "1",
        "1 while cluster-wide splits are out of date and quota / brokers is in force.",
    )
    yield Metric(
        "headgate_worker_up",
        GAUGE,
        (),
        "1",
        "1 while the broker's worker process answers its supervisor (`--process-per-broker` only).",
    )
    yield Metric(
        "headgate_worker_restarts_total",
        COUNTER,
        ("reason",),
        "processes",
        "Worker processes that were started again: they `ended` by themselves, or `hung` and were killed.",
    )
    yield Metric(
        "headgate_worker_kills_total",
        COUNTER,
        ("reason",),
        "processes",
        "Worker processes that their supervisor killed: they `hung`, or were `exiting` and didn't end in time.",
    )
    yield Metric(
        "headgate_info",
        GAUGE,
        ("version", "enforce", "fetch", "pacing", "worker"),
        "1",
        "Always 1; says what this worker runs.",
    )


METRICS: Final[tuple[Metric, ...]] = (*_per_group(), *_connections(), *_own())
BY_NAME: Final[dict[str, Metric]] = {metric.name: metric for metric in METRICS}
