"""
Fork Spark's Python workers in local mode, after importing once the modules that all of them need.

Spark runs it in place of ``pyspark.daemon`` (``spark.python.daemon.module``). Importing PySpark's
worker, Arrow and pandas and loading the kernels takes half a second of CPU; workers get it by fork.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path
from typing import Final

PRELOADS: Final = "HEADGATE_WORKERS_PRELOAD"
"""Names, in the workers' environment, a module whose ``preload`` loads what they need besides."""


def prefer_installed(path: list[str]) -> None:
    """
    Move PySpark's zip, and py4j's, behind the folder in which the same PySpark is installed.

    Spark puts its zips first for machines that have nothing else. Modules out of a zip are compiled
    by every process that imports them; the driver uses the installed ones anyway.

    Args:
        path: as ``sys.path``; changed.
    """
    for entry in list(path):
        folder = Path(entry).parent
        is_zip = entry.endswith(".zip") and folder.parts[-3:] == ("pyspark", "python", "lib")
        if is_zip and str(folder.parents[2]) in path:
            path.remove(entry)
            path.append(entry)


def reads(argv: list[str]) -> bool:
    """
    Say whether workers are to read anything: Spark has a daemon for each kind of worker.

    Those that plan a data source need little, and each lives for one call or one query.

    Args:
        argv: as ``sys.argv``; Spark gives the workers' module.
    """
    return argv[1:] in ([], ["pyspark.worker"])


def preload() -> None:
    """Load what workers need, so that forks share it."""
    import pyarrow as pa
    import pyspark.worker  # noqa: F401 - for its imports

    import headgate.pipeline.workers.emit  # noqa: F401 - for its imports
    from headgate.pipeline.workers import log_reader

    pa.array([0])  # imports pandas
    log_reader.preload()
    more = os.environ.get(PRELOADS)
    if more:
        importlib.import_module(more).preload()
    gc.freeze()  # workers collect after each task; what's here stays


if __name__ == "__main__":
    gc.disable()  # nothing of what's imported is ever garbage
    prefer_installed(sys.path)
    from pyspark.daemon import manager

    if reads(sys.argv):
        preload()
    gc.enable()
    manager()
