"""
What a quota is, and which one applies. Pure: no sockets, clocks or logging.

``entity`` and ``key`` name things, ``table`` holds them (immutable, versioned), ``alteration``
validates changes with Kafka's texts, ``filter`` selects entities, ``precedence`` says which quota
applies and what it overrides, ``plan`` compares two tables, ``file`` reads and writes the quotas
file.
"""

from headgate.quota.alteration import AlterResult, Op, QuotaAlteration, validate
from headgate.quota.entity import DEFAULT, EntityName, EntityType, QuotaEntity, quota_id
from headgate.quota.key import KEYS, QuotaKey, QuotaType, QuotaUnit
from headgate.quota.precedence import PRECEDENCE, EffectiveQuota, resolve
from headgate.quota.table import Change, QuotaTable, TableDelta, table_delta

__all__ = [
    "DEFAULT",
    "KEYS",
    "PRECEDENCE",
    "AlterResult",
    "Change",
    "EffectiveQuota",
    "EntityName",
    "EntityType",
    "Op",
    "QuotaAlteration",
    "QuotaEntity",
    "QuotaKey",
    "QuotaTable",
    "QuotaType",
    "QuotaUnit",
    "TableDelta",
    "quota_id",
    "resolve",
    "table_delta",
    "validate",
]
