"""
What forks Spark's Python workers in local mode: imports once what each of them needs.

Spark runs it in place of ``pyspark.daemon`` (``spark.python.daemon.module``). Importing Arrow,
pandas and Numba and loading the kernels takes a second of CPU; workers get it by fork.
"""

from __future__ import annotations

import gc


def preload() -> None:
    """Load what workers need, so that forks share it."""
    import pyarrow as pa

    from headgate.pipeline import reading, worker  # noqa: F401 - for its imports

    pa.array([0])  # imports pandas
    reading.preload()
    gc.collect()
    gc.freeze()  # workers collect after each task; what's here stays


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    manager()
