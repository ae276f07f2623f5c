"""
KIP-546's admin client in Python: describe, describe effective, alter.

::

    from headgate.admin import AdminClient, AlterQuotasEntry, Op, QuotaEntity, QuotaKey

    with AdminClient("localhost:9092") as admin:
        key = QuotaKey(QuotaKey.Type.PRODUCER_BYTE_RATE, QuotaKey.Units.BROKER_BPS)
        entry = AlterQuotasEntry(QuotaEntity({"user": "alice"}), [Op(key, 1_048_576)])
        admin.alter_quotas([entry]).all().result()

It works against a Headgate gateway, a real Kafka 2.6 or later, or a Headgate store
(``AdminClient(store="sqlite:quotas.db")``). ``AsyncAdminClient`` is its twin for asyncio.

In the order a call meets them:

- ``client``: the client with ``concurrent.futures``.
- ``async_client``: the client for asyncio, on which the other runs.
- ``operations``: the operations that both have.
- ``given``: dicts and text that callers may give instead of entities and keys.
- ``api``: options, results and the values in them.
- ``open_target``: a target that is opened at its first call; commands and the console use it too.
- ``opening``: what a target's address is; opens a store, or servers by the APIs they have.
- ``client_settings``: which client settings there are.
- ``target``: what a store and a cluster promise; checks a change, and makes it.
- ``store_target``: a store, opened in this process.
- ``cluster_target``: what both kinds of servers have in common.
- ``released``: Kafka's own APIs, of brokers and of a gateway's data listeners.
- ``draft``: KIP-546's own APIs, of a gateway's admin listener.
- ``listing``: every quota with its use and its last change, to look one up.
- ``undoing``: the plan that takes changes back.
- ``live``: asks gateways what goes on now.
"""

from typing import TYPE_CHECKING, Any

from headgate.admin.api import (
    QUOTA_ENTITY_NAME_DEFAULT,
    AlterQuotasEntry,
    AlterQuotasOptions,
    AlterQuotasResult,
    AsyncAlterQuotasResult,
    AsyncDescribeEffectiveQuotasResult,
    AsyncDescribeQuotasResult,
    DescribeEffectiveQuotasOptions,
    DescribeEffectiveQuotasResult,
    DescribeQuotasOptions,
    DescribeQuotasResult,
    Entry,
    Value,
)
from headgate.quota.alteration import Op
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.filter import FilterComponent, MatchType, QuotaFilter
from headgate.quota.key import QuotaKey

if TYPE_CHECKING:
    from headgate.admin.async_client import AsyncAdminClient
    from headgate.admin.client import AdminClient

__all__ = [
    "DEFAULT",
    "QUOTA_ENTITY_NAME_DEFAULT",
    "AdminClient",
    "AlterQuotasEntry",
    "AlterQuotasOptions",
    "AlterQuotasResult",
    "AsyncAdminClient",
    "AsyncAlterQuotasResult",
    "AsyncDescribeEffectiveQuotasResult",
    "AsyncDescribeQuotasResult",
    "DescribeEffectiveQuotasOptions",
    "DescribeEffectiveQuotasResult",
    "DescribeQuotasOptions",
    "DescribeQuotasResult",
    "Entry",
    "FilterComponent",
    "MatchType",
    "Op",
    "QuotaEntity",
    "QuotaFilter",
    "QuotaKey",
    "Value",
]


def __getattr__(name: str) -> Any:
    """Import a client when it is asked for: asyncio and TLS take longer than a command's --help."""
    if name not in ("AdminClient", "AsyncAdminClient"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headgate.admin import async_client, client

    return getattr(client if name == "AdminClient" else async_client, name)
