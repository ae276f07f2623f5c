"""
Headgate: quotas for Apache Kafka. Manage, enforce, account.

The rooms, from the bottom up (imports point down only):

``errors``, ``config``, ``quota`` (what a quota is, which one applies), ``wire`` (bytes to
messages), ``throttle`` (how long to wait), ``kernel`` (the same over whole arrays), ``store``
(where quotas live), ``usage`` (the gateway's journal), ``embedded`` (a real Kafka on loopback),
``metrics``, ``admin`` (a Python Admin client), ``gateway`` (stands before brokers), ``pipeline``
(PySpark over request logs), ``cli``.
"""

__version__ = "0.1.0"
