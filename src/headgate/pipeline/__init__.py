"""
Turn request logs and usage journals into answers, on Spark.

``import headgate.pipeline as hp`` gives the functions of ``library``, and loads them when one is
first asked for.

Layers, the lowest first: a module imports only from lines above its own.

- ``spark_versions``: what a version of Spark lacks, and which PySpark is used.
- ``table``: what a table is: a name, a grain, columns.
- ``bill_tables``: the tables of a shared bill.
- ``schema``: the tables that commands write.
- ``quotas``: who shares which quota, and its limit, at a moment.
- ``emitted``: tables of what workers hand over to Spark, and how their rows become Arrow batches.
- ``logs``: from a line of a request log to what was charged.
- ``sources``: the files and topics that lines and events are read from.
- ``tables``: how tables are written, all of a run's or none.
- ``workers``: what runs in Spark's Python workers: rows of requests, or their sums by second.
- ``frames``: Spark frames of what the workers read.
- ``replaying``: Kafka's decisions on past charges, under one plan of quotas or several.
- ``answers``: usage, effective quotas, what-if, recommendations, chargeback, storms.
- ``splits``: cluster-wide quotas split over brokers, as a stream.
- ``report``: one page that shows the tables.
- ``run``: a command's run: progress, tables, figures of the closing table.
- ``library``: the answers as functions on DataFrames; the data source of requests.
- ``growing``: the same answers of an input that grows.
- ``session``: Spark's start, and what makes it quicker.
- ``sail``: the start of Sail, which runs the same queries without a JVM.
- ``bundled``: a small log and quotas that come with the package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.pipeline.library.answers import (
        chargeback,
        demand,
        effective,
        focus,
        recommend,
        replay,
        storms,
        usage,
        what_if,
    )
    from headgate.pipeline.library.reading import (
        activity,
        bad_lines,
        by_second,
        read_table,
        requests,
    )
    from headgate.pipeline.library.request_log import HeadgateJournal, KafkaRequestLog
    from headgate.pipeline.library.writing import paths, write

__all__ = [
    "HeadgateJournal",
    "KafkaRequestLog",
    "activity",
    "bad_lines",
    "by_second",
    "chargeback",
    "demand",
    "effective",
    "focus",
    "paths",
    "read_table",
    "recommend",
    "replay",
    "requests",
    "storms",
    "usage",
    "what_if",
    "write",
]

_MODULES: Final = {
    "HeadgateJournal": "request_log",
    "KafkaRequestLog": "request_log",
    "activity": "reading",
    "bad_lines": "reading",
    "by_second": "reading",
    "paths": "writing",
    "read_table": "reading",
    "requests": "reading",
    "write": "writing",
}
"""Modules of the functions that aren't in ``answers``."""


def __getattr__(name: str) -> Any:
    """Load a function of the library when it is first asked for: commands need none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headgate.pipeline import spark_versions

    spark_versions.check(f"headgate.pipeline.{name}", sources=_MODULES.get(name) == "request_log")
    module = f"{__name__}.library.{_MODULES.get(name, 'answers')}"
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    """Name the library's functions beside what is loaded."""
    return sorted({*globals(), *__all__})
