"""
What a quota is, and which one applies. Pure: no sockets, clocks or logging.

- ``sanitizer``: names made safe for paths and metric tags, as Kafka does it.
- ``entity``: what a quota is set for: user, client-id, the pair, ip, and their defaults.
- ``key``: what a quota limits, in which unit, and which values it takes.
- ``human``: values as people write them.
- ``table``: all quotas at one moment, and what changed between two.
- ``alteration``: changes, validated in Kafka's order and with its texts.
- ``filter``: which entities a question is about.
- ``precedence``: which quota applies to a request, and what it overrides (KIP-55).
- ``plan``: what leads from one table to another.
- ``principal_rules``: rules that make a user's name of a longer one.
- ``lookalikes``: names that don't mean what they look like.
- ``formats``: quotas in files of other tools.
- ``file``: the quotas file, read and written.
"""

from headgate.quota.alteration import AlterResult, Op, QuotaAlteration, validate
from headgate.quota.entity import DEFAULT, EntityName, EntityType, QuotaEntity, quota_id
from headgate.quota.key import KEYS, QuotaKey, QuotaType, QuotaUnit
from headgate.quota.precedence import PRECEDENCE, EffectiveQuota, resolve
from headgate.quota.table import QuotaTable, TableChange, TableDelta, table_delta

__all__ = [
    "DEFAULT",
    "KEYS",
    "PRECEDENCE",
    "AlterResult",
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
    "TableChange",
    "TableDelta",
    "quota_id",
    "resolve",
    "table_delta",
    "validate",
]
