"""
Print samples for Prometheus, in steps: family by family, a line for each sample.

prometheus-client prints a whole scrape at once, which takes a tenth of a second for ten thousand
series. So the lines are made here, and a test reads them with its parser.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Final

from prometheus_client.utils import floatToGoString

from headgate.metrics.samples import Sample
from headgate.metrics.table import METRICS

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Drawn = Mapping[str, bytes]
"""Lines by family."""


def draw(samples: Iterable[Sample | None]) -> Generator[None, None, dict[str, bytes]]:
    """Return the lines of samples by family; yields after each sample, and where there is none."""
    families: dict[str, list[str]] = {}
    for sample in samples:
        if sample is not None:
            families.setdefault(sample.name, []).append(_line(sample))
        yield
    # A lone surrogate can't be written; names come from UTF-8, so it is another program's mistake.
    return {name: "".join(lines).encode("utf-8", "replace") for name, lines in families.items()}


def page(parts: Iterable[Drawn]) -> bytes:
    """Return the text of a scrape (content type `CONTENT_TYPE`): families in the table's order."""
    drawn = list(parts)
    text: list[bytes] = []
    for metric in METRICS:
        lines = [part[metric.name] for part in drawn if metric.name in part]
        if lines:
            head = f"# HELP {metric.name} {metric.doc}\n# TYPE {metric.name} {metric.kind}\n"
            text += (head.encode(), *lines)
    return b"".join(text)


def _line(sample: Sample) -> str:
    labels = ",".join([f'{name}="{value.translate(_ESCAPED)}"' for name, value in sample.labels])
    value = floatToGoString(sample.value)  # type: ignore[no-untyped-call]
    return f"{sample.name}{{{labels}}} {value}\n"
