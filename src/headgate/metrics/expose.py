"""Print samples for Prometheus, by prometheus-client; one family per metric of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from headgate.metrics.samples import Sample
from headgate.metrics.table import BY_NAME, COUNTER, METRICS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class SampleCollector(Collector):
    """
    A collector over whatever the workers say now; series vanish with their sensors.

    Args:
        samples: called at each scrape; the samples of all workers of this gateway.
    """

    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        """Yield one family per metric that has samples, in the table's order."""
        by_name: dict[str, list[Sample]] = {}
        for sample in self._samples():
            by_name.setdefault(sample.name, []).append(sample)
        for metric in METRICS:
            found = by_name.get(metric.name)
            if not found:
                continue
            bare = metric.name.removesuffix("_total") if metric.kind == COUNTER else metric.name
            family = Family(bare, BY_NAME[metric.name].doc, metric.kind)
            for sample in found:
                family.add_sample(metric.name, dict(sample.labels), sample.value)
            yield family

    def describe(self) -> Iterator[Family]:
        """Say nothing beforehand: families appear with their series."""
        return iter(())


def expose(samples: Iterable[Sample]) -> bytes:
    """Return the text of a scrape (content type `CONTENT_TYPE`)."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SampleCollector(lambda: samples))
    return generate_latest(registry)
