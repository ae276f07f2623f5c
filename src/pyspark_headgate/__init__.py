"""
Register Headgate's data source with PySpark, which looks for packages of such names.

Where Headgate is installed, ``spark.read.format("kafka-request-log")`` needs no registration.
"""

from contextlib import suppress

# Without the extra `pipeline` there is nothing to register, and PySpark's search must go on.
with suppress(ImportError):
    from headgate.pipeline.library.request_log import KafkaRequestLog as DefaultSource

__all__ = ["DefaultSource"]
