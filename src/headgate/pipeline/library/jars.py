"""
Say what a session lacks if it doesn't know a table format, and how to add it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headgate.errors import ConfigError
from headgate.pipeline.spark_versions import installed, way_to_delta

# Spark's name for a format that it doesn't know.
_UNKNOWN: Final = "DATA_SOURCE_NOT_FOUND"
# What a session must be told besides.
SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@contextmanager
def explained(format: str) -> Iterator[None]:
    """
    Say what a session lacks, if a block fails because the session doesn't know a format.

    Raises:
        ConfigError: the session doesn't know the format; the message says how to add it.
    """
    try:
        yield
    except Exception as exc:  # one of PySpark's, or of py4j's where PySpark has none for it
        if format != "delta" or _UNKNOWN not in str(exc):
            raise
        way_out = way_to_delta(installed() or "", "--packages {}", "--jars PATH,PATH")
        needed = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
        raise ConfigError(
            f"format='delta': this session has no Delta. {way_out}; start it with {needed} too"
        ) from exc
