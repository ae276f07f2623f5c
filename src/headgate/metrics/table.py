"""
Every metric, as data: its name, Kafka's name beside it, labels, unit, meaning.

One rule names those that Kafka has: ``kafka_<domain>_<group>_<metric>``, ``-`` becomes ``_``, lower
case; ``kafka.server:type=Produce … byte-rate`` is ``kafka_server_produce_byte_rate``.
A label that doesn't apply is left out. Metrics whose names begin with ``headgate_`` don't exist in
Kafka.
"""

# ruff: noqa: E501 - a table's rows read best whole
from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
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


@cache
def prometheus_name(domain: str, group: str, metric: str) -> str:
    """
    Return the name of a Kafka metric in Prometheus.

    Args:
        domain: JMX domain, such as ``kafka.server``.
        group: Kafka's metric group (the MBean's type), such as ``Produce``.
        metric: Kafka's metric name, such as ``byte-rate``.
    """
    return re.sub(r"[^a-z0-9]+", "_", f"{domain}_{group}_{metric}".lower()).strip("_")


def _kafka(
    group: str, metric: str, tags: tuple[str, ...], unit: str, doc: str, source: str
) -> Metric:
    """Return the row of a gauge of Kafka's broker, by its metric group and name."""
    shown = "".join(f",{tag.replace('_', '-')}=…" for tag in tags)
    name = prometheus_name("kafka.server", group, metric)
    return Metric(
        name, GAUGE, tags, unit, doc, f"kafka.server:type={group}{shown} {metric}", source
    )


_PAIR: Final = ("user", "client_id")
_QUOTA: Final = ("quota_type", "unit", "user", "client_id", "ip")
_THROTTLED: Final = (
    "Mean throttle time of throttled requests over the last minute; absent while there is none."
)
_MUTED: Final = "Channels muted now by this quota type."
_UTILIZATION: Final = "Rate divided by the quota, in percent: 100 is the quota, more is possible. `NaN` where there is no quota."
_VALUE: Final = "The quota in force for a quota-id. Absent where there is none."
_BESIDE: Final = (_PAIR, "%", _UTILIZATION, "KIP-1373, proposed (apache/kafka#23331)")


# fmt: off
_KAFKA: Final = (
    _kafka("Produce", "byte-rate", _PAIR, "bytes/s", "Produce rate of a quota-id over the quota window.", "KIP-13, KIP-55"),
    _kafka("Produce", "quota-utilization", *_BESIDE),
    _kafka("Produce", "quota-value", _PAIR, "bytes/s", _VALUE, "KIP-786, proposed"),
    _kafka("Produce", "throttle-time", _PAIR, "ms", _THROTTLED, "KIP-13, KIP-55"),
    _kafka("Produce", "queue-size", (), "channels", _MUTED, "Kafka"),
    _kafka("Fetch", "byte-rate", _PAIR, "bytes/s", "Fetch rate of a quota-id over the quota window.", "KIP-13, KIP-55"),
    _kafka("Fetch", "quota-utilization", *_BESIDE),
    _kafka("Fetch", "quota-value", _PAIR, "bytes/s", _VALUE, "KIP-786, proposed"),
    _kafka("Fetch", "throttle-time", _PAIR, "ms", _THROTTLED, "KIP-13, KIP-55"),
    _kafka("Fetch", "queue-size", (), "channels", _MUTED, "Kafka"),
    _kafka("Request", "request-time", _PAIR, "% of a thread", "Gateway thread time of a quota-id over the quota window.", "KIP-124"),
    _kafka("Request", "quota-utilization", *_BESIDE),
    _kafka("Request", "quota-value", _PAIR, "% of a thread", _VALUE, "KIP-786, proposed"),
    _kafka("Request", "throttle-time", _PAIR, "ms", _THROTTLED, "KIP-124"),
    _kafka("Request", "queue-size", (), "channels", _MUTED, "Kafka"),
    _kafka("Request", "exempt-request-time", (), "% of a thread", "Thread time of requests exempt from quotas.", "KIP-124"),
    _kafka("ControllerMutation", "mutation-rate", _PAIR, "partitions/s", "Partitions a quota-id created or deleted.", "KIP-599"),
    _kafka("ControllerMutation", "tokens", _PAIR, "partitions", "Tokens left in a quota-id's bucket; below 0 it is throttled.", "KIP-599"),
    _kafka("ControllerMutation", "throttle-time", _PAIR, "ms", _THROTTLED, "KIP-599"),
    _kafka("ControllerMutation", "queue-size", (), "channels", _MUTED, "Kafka"),
    _kafka("ProducerIds", "rate", ("user",), "ids/s", "New producer ids of a user.", "KIP-936"),
    _kafka("ProducerIds", "tokens", ("user",), "ids", "Tokens left in a user's bucket; below 0 it is throttled.", "KIP-936"),
    _kafka("ProducerIds", "throttle-time", ("user",), "ms", _THROTTLED, "KIP-936"),
    _kafka("ProducerIds", "queue-size", (), "channels", _MUTED, "Headgate, after Kafka"),
    _kafka("socket-server-metrics", "broker-connection-accept-rate", (), "connections/s", "Connections accepted for this broker.", "KIP-612 as released"),
    Metric("kafka_server_socket_server_metrics_connection_accept_rate", GAUGE, ("listener", "ip"), "connections/s", "Connections accepted, by listener, or by ip where an ip quota applies.", "kafka.server:type=socket-server-metrics,listener=… (or ip=…) connection-accept-rate", "KIP-612 as released"),
    _kafka("socket-server-metrics", "connection-accept-throttle-time", ("listener",), "ms", "Mean delay of accepting by the broker's or the listener's rate.", "KIP-612 as released"),
    _kafka("socket-server-metrics", "ip-connection-accept-throttle-time", ("listener",), "ms", "Mean delay by an ip's rate.", "KIP-612 as released"),
    Metric("kafka_network_acceptor_acceptorblockedpercent", GAUGE, ("listener", "rate"), "1", "Share of time, of 1, in which accepting was blocked, by rate or for want of a free slot: `one_minute`, `five_minute` and `fifteen_minute` averages and the `mean` since the start, as Kafka's OneMinuteRate, FiveMinuteRate, FifteenMinuteRate and MeanRate. A wait counts when it is over.", "kafka.network:type=Acceptor,name=AcceptorBlockedPercent,listener=…", "KIP-402, KIP-612"),
)
"""What Kafka has too."""

_OWN: Final = (
    Metric("headgate_quota_value", GAUGE, _QUOTA, "the quota's own", "The limit in force for a quota-id. Absent where there is none."),
    Metric("headgate_quota_utilisation", GAUGE, _QUOTA, "1", "Measured rate divided by the limit (by this broker's part of a cluster-wide one): 1 is the quota. Alert on this before throttling starts."),
    Metric("headgate_quota_split", GAUGE, _QUOTA, "bytes/s", "This broker's part, now, of a cluster-wide (`bps`) quota, or what a quota-id's `shares` come to while the capacity is contested."),
    Metric("headgate_quota_tokens", GAUGE, _QUOTA, "the quota's own", "Credit in a quota-id's bucket, where there is one (smooth pacing, `bps`, `shares`); below 0 its clients wait."),
    Metric("headgate_throttled_total", COUNTER, ("quota_type", "user", "client_id", "others"), "requests", "Requests told a throttle time. `others` is `true` for the sum of all quota-ids without series of their own."),
    Metric("headgate_throttle_ms_total", COUNTER, ("quota_type", "user", "client_id", "others"), "ms", "Throttle time told, summed; `others` likewise."),
    Metric("headgate_quota_ids", GAUGE, ("quota_type", "series"), "quota-ids", "Quota-ids that are measured, or addresses with `connection_creation_rate`: `own` have series of their own, `others` are too many (`headgate.metrics.quota.ids`)."),
    Metric("headgate_quota_principals_crowded", GAUGE, (), "principals", "Principals that use more client-ids than are charged separately (`headgate.quota.client.ids`); the others of each are charged as one, `(others of PRINCIPAL)`."),
    Metric("headgate_others_rate", GAUGE, ("quota_type", "unit"), "the quota's own", "Rate of all quota-ids, or addresses, together that have no series of their own, at most ten seconds old."),
    Metric("headgate_connections", GAUGE, ("listener",), "connections", "Client connections open now."),
    Metric("headgate_connections_muted", GAUGE, ("listener",), "connections", "Of these, muted now."),
    Metric("headgate_connections_accepted_total", COUNTER, ("listener",), "connections", "Client connections accepted."),
    Metric("headgate_connections_closed_total", COUNTER, ("listener", "reason"), "connections", "Connections closed, by reason."),
    Metric("headgate_bytes_total", COUNTER, ("listener", "direction"), "bytes", "Bytes relayed; `in` from clients, `out` to clients."),
    Metric("headgate_requests_total", COUNTER, ("listener",), "requests", "Requests relayed or answered."),
    Metric("headgate_upstream_failures_total", COUNTER, ("reason",), "connections", "Connections to the broker that failed or broke."),
    Metric("headgate_queued_bytes", GAUGE, (), "bytes", "Bytes held in memory for all connections of a process, at one of its brokers; at most `queued.max.request.bytes`, and 16 KiB for each connection."),
    Metric("headgate_usage_events_total", COUNTER, (), "events", "Usage events written to the journal."),
    Metric("headgate_usage_dropped_total", COUNTER, (), "events", "Usage events given up because the journal couldn't be written."),
    Metric("headgate_usage_files_damaged_total", COUNTER, (), "files", "Closed files of the journal that couldn't be read whole and were set aside, their names ending in `.bad`."),
    Metric("headgate_usage_files_removed_total", COUNTER, (), "files", "Oldest files of the journal that were removed, damaged ones too, because all together were larger than `headgate.usage.retention.bytes`."),
    Metric("headgate_fetches_held_total", COUNTER, (), "fetches", "Fetches, or their answers, that waited for their quota-id's turn; see `headgate.fetch`."),
    Metric("headgate_fetch_held_seconds_total", COUNTER, (), "s", "How long they waited, all together. It is no throttle time: clients don't see it."),
    Metric("headgate_mutations_guessed_total", COUNTER, (), "topics", "Topics charged one controller mutation because nobody could tell how many partitions they have or get."),
    Metric("headgate_loop_longest_ms", GAUGE, (), "ms of CPU", "Longest piece of work on the gateway's event loop in the last one to two minutes, without reads of less than 4 KiB: clients wait so long for it. At one broker of a process, 0 at the others."),
    Metric("headgate_loop_slow_total", COUNTER, (), "pieces", "Pieces of such work that took more than 10 ms of CPU."),
    Metric("headgate_broker_up", GAUGE, (), "1", "1 while the broker answers the gateway's own question, asked every 10 s; 0 while it doesn't."),
    Metric("headgate_store_up", GAUGE, (), "1", "1 while the quota store answers; 0 while the last known quotas are in force without it."),
    Metric("headgate_store_version", GAUGE, (), "version", "Version of the quota table in force."),
    Metric("headgate_split_expired", GAUGE, (), "1", "1 while cluster-wide splits are out of date and quota / brokers is in force."),
    Metric("headgate_worker_up", GAUGE, (), "1", "1 while the broker's worker process answers its supervisor (`--process-per-broker` only)."),
    Metric("headgate_worker_restarts_total", COUNTER, ("reason",), "processes", "Worker processes that were started again: they `ended`, or `hung` and were killed."),
    Metric("headgate_worker_kills_total", COUNTER, ("reason",), "processes", "Worker processes that their supervisor killed: they `hung`, or were `exiting` and didn't end in time."),
    Metric("headgate_info", GAUGE, ("version", "commit", "enforce", "fetch", "pacing", "worker"), "1", "Always 1; says what this worker runs."),
)
"""What Kafka has no name for."""
# fmt: on

METRICS: Final[tuple[Metric, ...]] = _KAFKA + _OWN
BY_NAME: Final[dict[str, Metric]] = {metric.name: metric for metric in METRICS}
