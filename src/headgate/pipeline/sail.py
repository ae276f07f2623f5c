"""
Run the pipeline without a JVM: Sail, a Spark Connect server in Rust, in this process.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from headgate.pipeline.session import PARALLELISM, context_of, open_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A server ends when nothing refers to it.
_servers: Final[list[Any]] = []


def is_sail(spark: SparkSession) -> bool:
    """Say whether a session's engine is Sail: a Connect server that names no master of Spark's."""
    return context_of(spark) is None and not spark.conf.get("spark.master", None)


def open_sail(config: dict[str, str]) -> SparkSession:
    """
    Start Sail in this process, and return a session of it.

    Functions that Spark runs in Python workers run in this process.

    Args:
        config: settings of the session, by name.
    """
    os.environ.setdefault("RUST_LOG", "error")
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _servers.append(server)
    host, port = server.listening_address
    return open_remote(f"sc://{host}:{port}", {PARALLELISM: str(os.cpu_count() or 1)} | config)
