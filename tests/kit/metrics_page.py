"""Write the metrics' reference page from the table: `python tests/kit/metrics_page.py FILE`."""

# ruff: noqa: E501 - the page wraps where its readers do

from __future__ import annotations

import sys
from pathlib import Path

from headgate.metrics.table import METRICS, Metric

_HEAD = """\
# Metrics

A gateway serves them at `http://<headgate.http.listener>/metrics` in Prometheus' text form. Every series has the label
`broker` (the id of the upstream broker), because in Kafka each broker measures for itself. Reading a metric never
changes a sensor (in Kafka a scrape empties old samples, and so changes later decisions).

**One rule names what Kafka has too**: `kafka_<domain>_<group>_<metric>`, lower case, `-` becomes `_`. A series carries
only the tags that apply: `user` alone where a user's quota applies, `client_id` alone where a client-id's does, both where
a pair's does. `user` is percent-encoded as Kafka does it, `client_id` is as the client sent it. Two attributes are only
proposed for Kafka: `quota-utilization` (KIP-1373, as apache/kafka#23331 spells it) and `quota-value` (KIP-786). Should Kafka
release them under other names, these change with it; `headgate_quota_utilisation` and `headgate_quota_value`, which know every
quota type, stay.

**How many series there are is bounded.** Clients choose their names, so there may be any number of quota-ids. The busiest
`headgate.metrics.quota.ids` of each quota type and broker have series of their own: those that were throttled first, then those
nearest to their quota, then those with most traffic. Half of the places are kept for quota-ids that a quota names, so that
invented names can't push tenants out, and a place is kept until its owner is clearly among the less busy. Of addresses the
busiest have series, as many again. The rest is one sum for each quota type: `headgate_others_rate`, and the counters with
`others="true"`. `headgate_quota_ids{series="others"}` says how many were left out. Summed over all series a counter never falls.
A name of more than 256 characters is shortened and its hash appended, so two never become one. A scrape is drawn in slices
of a millisecond, traffic in between.

[Dashboards and alerts](../howto/monitoring.md) over them come with the package.

This page is generated from `headgate.metrics.table` (`make docs`).
"""


def metrics_page() -> str:
    """Return the reference page as Markdown."""
    kafka = [metric for metric in METRICS if metric.kafka]
    own = [metric for metric in METRICS if not metric.kafka]
    parts = [
        _HEAD,
        "## Kafka's\n",
        "| metric | labels | unit | in Kafka | meaning |\n|---|---|---|---|---|",
        *(_row(metric, metric.kafka) for metric in kafka),
        "\n## Headgate's\n",
        "| metric | labels | unit | type | meaning |\n|---|---|---|---|---|",
        *(_row(metric, metric.kind) for metric in own),
    ]
    return "\n".join(parts) + "\n"


def _row(metric: Metric, fourth: str) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    shown = f"`{fourth}`" if metric.kafka else fourth
    source = f" *{metric.source}*" if metric.kafka else ""
    return f"| `{metric.name}` | {labels} | {metric.unit} | {shown} | {metric.doc}{source} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(metrics_page(), encoding="utf-8")
