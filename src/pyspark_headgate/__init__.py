"""
Register Headgate's data source with PySpark, which looks for packages of such names.

Where Headgate is installed, ``spark.read.format("kafka-request-log")`` needs no registration.
"""

from headgate.pipeline.library.request_log import KafkaRequestLog

DefaultSource = KafkaRequestLog
"""What PySpark looks for."""
__all__ = ["DefaultSource"]
