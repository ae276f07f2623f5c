"""
The dashboards' panels, as data: what each asks Prometheus, and in which unit it shows the answer.

In a query, ``{@}`` stands for the labels that the dashboard's variables choose.
"""

# ruff: noqa: E501 - a table's rows read best whole
from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STAT: Final = "stat"
TABLE: Final = "table"
TIMES: Final = "timeseries"


@dataclass(frozen=True, slots=True)
class Panel:
    """
    One panel.

    Args:
        title: what it shows.
        unit: as Grafana names units, such as ``Bps``; ``none`` in a table that shows labels alone.
        queries: an expression and the name of its series, with labels in double braces.
        kind: a line over time, one number, or a table of the moment.
        doc: how to read it.
        steps: from which value on it is orange, and from which red.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = TIMES
    doc: str = ""
    steps: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Dashboard:
    """
    One dashboard.

    Args:
        name: of its file and its address.
        title: as Grafana shows it.
        variables: labels that may be chosen, each with the metric whose values are offered.
        panels: from left to right, then from top to bottom.
    """

    name: str
    title: str
    variables: tuple[tuple[str, str], ...]
    panels: tuple[Panel, ...]


_WHO: Final = "{{user}} {{client_id}}"
_TYPES: Final = (("Produce", "produce"), ("Fetch", "fetch"), ("Request", "request"))
_QUEUES: Final = (*_TYPES, ("Mutation", "controllermutation"), ("Producer ids", "producerids"))
_FLEET: Final = (("job", "headgate_info"), ("broker", "headgate_store_up"))


def _rate(metric: str, by: str) -> str:
    """Return a counter's rate per second, summed by labels."""
    return f"sum by ({by}) (rate({metric}{{@}}[$__rate_interval]))"


def _against(title: str, group: str, rate: str, unit: str) -> tuple[Panel, Panel]:
    """Return what a tenant used beside its quota, and how near it came."""
    name, who = f"kafka_server_{group}", f"{_WHO} at {{{{broker}}}}"
    used, quota = (f"{name}_{rate}{{@}}", who), (f"{name}_quota_value{{@}}", f"quota of {who}")
    doc = "100 % is the quota. Nothing is shown where there is none."
    share = ((f"{name}_quota_utilization{{@}}", who),)
    return (
        Panel(f"{title} against the quota", unit, (used, quota)),
        Panel(f"{title}: part of the quota used", "percent", share, doc=doc, steps=(80, 100)),
    )


# fmt: off
DASHBOARDS: Final = (
    Dashboard("headgate-now", "Headgate: now", _FLEET, (
        Panel("Brokers with a gateway", "none", (("count(max by (broker) (headgate_store_up{@}))", "brokers"),), STAT),
        Panel("Quota-ids throttled", "none", (("count(sum by (quota_type, user, client_id) (rate(headgate_throttle_ms_total{@}[$__rate_interval])) > 0) or vector(0)", "quota-ids"),), STAT, "Those without series of their own count as one for each quota type."),
        Panel("Connections muted", "none", (("sum(headgate_connections_muted{@})", "muted"),), STAT, "They wait out a throttle time."),
        Panel("Nearest to a quota", "percentunit", (("max(headgate_quota_utilisation{@})", "nearest"),), STAT, "100 % is the quota.", (0.8, 1)),
        Panel("Brokers without their quota store", "none", (("count(headgate_store_up{@} == 0) or vector(0)", "brokers"),), STAT, "The last known quotas are in force there.", (1, 1)),
        Panel("Quota-ids without series", "none", (('sum(headgate_quota_ids{@,series="others"})', "left out"),), STAT, "Too many have been seen; the least busy are shown as one sum (headgate.metrics.quota.ids)."),
        Panel("Throttled now, the hardest first", "s", (("topk(20, sum by (quota_type, user, client_id, others) (rate(headgate_throttle_ms_total{@}[$__rate_interval])) / 1000 > 0)", ""),), TABLE, "Seconds of throttle time told in a second: 1 is one connection that always waits."),
        Panel("Least headroom first", "percentunit", (("topk(20, max by (quota_type, unit, user, client_id, ip) (headgate_quota_utilisation{@}))", ""),), TABLE, "At the broker where it is nearest to the quota.", (0.8, 1)),
        Panel("Requests throttled", "reqps", ((_rate("headgate_throttled_total", "quota_type"), "{{quota_type}}"),)),
        Panel("Channels muted", "none", tuple((f"sum(kafka_server_{group}_queue_size{{@}})", title) for title, group in _QUEUES)),
        Panel("Traffic", "Bps", ((_rate("headgate_bytes_total", "direction"), "{{direction}}"),)),
        Panel("Requests", "reqps", ((_rate("headgate_requests_total", "broker"), "broker {{broker}}"),)),
    )),
    Dashboard("headgate-tenant", "Headgate: a tenant", (*_FLEET, ("user", "headgate_quota_value"), ("client_id", "headgate_quota_value")), (
        *_against("Produced", "produce", "byte_rate", "Bps"),
        *_against("Fetched", "fetch", "byte_rate", "Bps"),
        *_against("Thread time", "request", "request_time", "percent"),
        Panel("Throttle time told", "ms", tuple((f"kafka_server_{group}_throttle_time{{@}}", f"{title} {_WHO} at {{{{broker}}}}") for title, group in _TYPES), doc="Mean of the throttled requests of the last minute."),
        Panel("Requests throttled", "reqps", ((_rate("headgate_throttled_total", "quota_type, user, client_id"), "{{quota_type}} " + _WHO),)),
        Panel("Cluster-wide quotas: this broker's part", "Bps", (("headgate_quota_split{@}", "{{quota_type}} {{unit}} " + _WHO + " at {{broker}}"),)),
        Panel("Topics made and deleted, producer ids", "none", (("kafka_server_controllermutation_mutation_rate{@}", f"partitions a second {_WHO}"), ("kafka_server_controllermutation_tokens{@}", f"tokens for partitions {_WHO}"), ('kafka_server_producerids_rate{job=~"$job",broker=~"$broker",user=~"$user"}', "new producer ids a second {{user}}"), ('kafka_server_producerids_tokens{job=~"$job",broker=~"$broker",user=~"$user"}', "tokens for producer ids {{user}}")), doc="Below 0 tokens clients are throttled."),
        Panel("Quotas in force", "short", (('max by (quota_type, unit, user, client_id) (headgate_quota_value{@,ip=""})', ""),), TABLE),
    )),
    Dashboard("headgate-fleet", "Headgate: the fleet", _FLEET, (
        Panel("Gateways", "none", (("max by (job, instance, broker, version, commit, enforce, fetch, pacing, worker) (headgate_info{@})", ""),), TABLE),
        Panel("Version of the quota table in force", "none", (("headgate_store_version{@}", "broker {{broker}}"),), doc="Brokers that stay behind don't hear of changes."),
        Panel("Quota store answers, splits are out of date", "none", (("headgate_store_up{@}", "store answers broker {{broker}}"), ("headgate_split_expired{@}", "splits out of date at broker {{broker}}")), doc="1 is yes."),
        Panel("Worker processes", "none", (("headgate_worker_up{@}", "broker {{broker}} up"), ("increase(headgate_worker_restarts_total{@}[$__rate_interval])", "broker {{broker}} started again: {{reason}}"), ("increase(headgate_worker_kills_total{@}[$__rate_interval])", "broker {{broker}} killed: {{reason}}"))),
        Panel("Connections to brokers that failed", "ops", ((_rate("headgate_upstream_failures_total", "broker, reason"), "broker {{broker}}: {{reason}}"),)),
        Panel("Bytes held in memory", "bytes", (("sum by (instance) (headgate_queued_bytes{@})", "{{instance}}"),)),
        Panel("Longest piece of work on the event loop", "ms", (("max by (instance) (headgate_loop_longest_ms{@})", "{{instance}}"),), steps=(10, 100)),
        Panel("Pieces of work of more than 10 ms", "ops", ((_rate("headgate_loop_slow_total", "instance"), "{{instance}}"),)),
        Panel("Usage journal", "ops", ((_rate("headgate_usage_events_total", "instance"), "events of {{instance}}"), (_rate("headgate_usage_dropped_total", "instance"), "events given up by {{instance}}"))),
        Panel("Files of the journal lost", "none", (("sum by (instance) (increase(headgate_usage_files_damaged_total{@}[$__rate_interval]))", "damaged at {{instance}}"), ("sum by (instance) (increase(headgate_usage_files_removed_total{@}[$__rate_interval]))", "removed for want of room at {{instance}}"))),
        Panel("Fetches held for their turn", "s", (("sum by (broker) (rate(headgate_fetch_held_seconds_total{@}[$__rate_interval])) / sum by (broker) (rate(headgate_fetches_held_total{@}[$__rate_interval]))", "broker {{broker}}"),), doc="How long one waits, on average."),
        Panel("Topics charged by guess", "ops", ((_rate("headgate_mutations_guessed_total", "broker"), "broker {{broker}}"),)),
        Panel("Quota-ids, with series and without", "none", (("sum by (quota_type, series) (headgate_quota_ids{@})", "{{quota_type}} {{series}}"),)),
        Panel("Rate of those without series", "none", (("sum by (quota_type, unit) (headgate_others_rate{@})", "{{quota_type}} {{unit}}"),)),
        Panel("Exempt thread time", "percent", (("kafka_server_request_exempt_request_time{@}", "broker {{broker}}"),), doc="Of requests that no quota counts."),
        Panel("Credit of cluster-wide and smoothly paced quotas, least first", "none", (("bottomk(20, headgate_quota_tokens{@})", "{{quota_type}} {{unit}} " + _WHO + " at {{broker}}"),), doc="Below 0 clients wait."),
    )),
    Dashboard("headgate-connections", "Headgate: connections", _FLEET, (
        Panel("Connections open", "none", (("sum by (listener) (headgate_connections{@})", "{{listener}}"),)),
        Panel("Connections muted", "none", (("sum by (listener) (headgate_connections_muted{@})", "{{listener}}"),)),
        Panel("Connections accepted", "cps", ((_rate("headgate_connections_accepted_total", "listener"), "{{listener}}"), ("sum(kafka_server_socket_server_metrics_broker_connection_accept_rate{@})", "all, over the quota's window"))),
        Panel("Connections closed", "cps", ((_rate("headgate_connections_closed_total", "listener, reason"), "{{listener}}: {{reason}}"),)),
        Panel("Accepting delayed", "ms", (("max by (listener) (kafka_server_socket_server_metrics_connection_accept_throttle_time{@})", "{{listener}}, by its rate or the broker's"), ("max by (listener) (kafka_server_socket_server_metrics_ip_connection_accept_throttle_time{@})", "{{listener}}, by an address's rate"))),
        Panel("Time in which accepting was blocked", "percentunit", (('max by (listener) (kafka_network_acceptor_acceptorblockedpercent{@,rate="one_minute"})', "{{listener}}"),), steps=(0.2, 0.5)),
        Panel("Addresses with most new connections", "cps", (('topk(20, sum by (ip) (kafka_server_socket_server_metrics_connection_accept_rate{@,ip!=""}))', ""),), TABLE, "Where an ip quota applies."),
        Panel("Addresses nearest to their quota", "percentunit", (('topk(20, max by (ip) (headgate_quota_utilisation{@,quota_type="connection_creation_rate"}))', ""),), TABLE, steps=(0.8, 1)),
        Panel("Addresses without series", "none", (('sum(headgate_quota_ids{@,quota_type="connection_creation_rate",series="others"})', "left out"), ('sum(headgate_others_rate{@,quota_type="connection_creation_rate"})', "their connections a second"))),
        Panel("Traffic by listener", "Bps", ((_rate("headgate_bytes_total", "listener, direction"), "{{listener}} {{direction}}"),)),
        Panel("Requests by listener", "reqps", ((_rate("headgate_requests_total", "listener"), "{{listener}}"),)),
        Panel("Connections to brokers that failed", "cps", ((_rate("headgate_upstream_failures_total", "reason"), "{{reason}}"),)),
    )),
)
# fmt: on
