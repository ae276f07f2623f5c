"""
Headgate: quotas for Apache Kafka. Manage, enforce, account.

The packages, from the bottom up. A package imports only from those named before it:

``errors``, ``config``, ``quota`` (what a quota is, which one applies), ``wire`` (bytes to
messages), ``throttle`` (how long to wait), ``kernel`` (the same over whole arrays), ``store``
(where quotas live), ``usage`` (the gateway's journal), ``embedded`` (a real Kafka on loopback),
``metrics``, ``admin`` (a Python Admin client), ``gateway`` (a proxy in front of brokers),
``pipeline`` (PySpark over request logs), ``cli``.
"""

__version__ = "0.1.0"
