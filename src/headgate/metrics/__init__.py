"""
The metrics of a gateway: Kafka's own quota metrics under one naming rule, and a few of Headgate's.

- ``table``: every metric.
- ``meters``: counts what isn't in a sensor.
- ``chosen``: which quota-ids have series of their own.
- ``samples``: reads meters and sensors into plain samples, which travel between processes.
- ``expose``: prints samples for Prometheus.
- ``monitoring``: dashboards and alerts over them.
"""

from __future__ import annotations

from headgate.metrics.meters import ListenerMeters, Meters
from headgate.metrics.samples import BrokerView, Sample
from headgate.metrics.table import BY_NAME, METRICS, Metric, prometheus_name

__all__ = [
    "BY_NAME",
    "METRICS",
    "BrokerView",
    "ListenerMeters",
    "Meters",
    "Metric",
    "Sample",
    "prometheus_name",
]
