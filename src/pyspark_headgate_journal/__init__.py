"""
Register Headgate's data source of journals with PySpark, which looks for packages of such names.

Where Headgate is installed, ``spark.read.format("headgate-journal")`` needs no registration.
PySpark takes one source of each package; ``pyspark_headgate`` has the other.
"""

from contextlib import suppress

# Without the extra `pipeline` there is nothing to register, and PySpark's search must go on.
with suppress(ImportError):
    from headgate.pipeline.library.request_log import HeadgateJournal as DefaultSource

__all__ = ["DefaultSource"]
