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
"""

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
from headgate.admin.async_client import AsyncAdminClient
from headgate.admin.client import AdminClient
from headgate.quota.alteration import Op
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.filter import FilterComponent, MatchType, QuotaFilter
from headgate.quota.key import QuotaKey

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
