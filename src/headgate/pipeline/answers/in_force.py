"""
Tell the quotas in force from those that were in force for a part of the time only.

A journal's charges bear the quota-id and limit of their moment, and a history of quotas has a table
for each moment. A proposal is about the quotas in force: the last table; for a journal without any
quotas given, what each client was last charged to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headgate.pipeline.answers.usage import resolve
from headgate.pipeline.quotas import KEY_OF_TYPE, Quotas
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.precedence import Resolver
from headgate.quota.table import QuotaTable
from headgate.throttle.java import UNLIMITED

_OWN: Final = ("quota_id", "quota_user", "quota_client_id", "quota")
_WHO: Final = ("quota_type", "principal", "client_id")
Key = tuple[str, str, str]
"""Quota type, user tag and client tag of a quota-id."""


@dataclass
class Changes:
    """
    What was in force for a part of the time, and isn't now.

    Attributes:
        limits: by quota-id in force, the other limits that its clients had; None: no limit.
        gone: quota-ids of the data that nobody is charged to now.
    """

    limits: dict[Key, set[float | None]] = field(default_factory=dict)
    gone: set[Key] = field(default_factory=set)


def without_own(activity: DataFrame) -> DataFrame:
    """Return ACTIVITY without journals' own quotas, so that those given are looked up."""
    nothing = {n: F.lit(None).cast(activity.schema[n].dataType) for n in _OWN}
    return activity.withColumns(nothing)


def in_force(quotas: Quotas, activity: DataFrame, types: Sequence[str]) -> Quotas:
    """
    Return one table: the last of those given or, where none holds a quota, a journal's last ones.

    Args:
        quotas: those given.
        activity: ACTIVITY.
        types: quota types that matter.
    """
    table = quotas.tables[-1]
    if len(quotas.tables) > 1 or table.entities or table.static_defaults:
        return Quotas.of(table, quotas.name)
    own = F.struct(*_OWN[1:], "second_ms")
    charged = activity.where(F.col("is_charged") & F.col("quota_type").isin(*types))
    last = charged.groupBy(*_WHO).agg(F.max_by(own, "second_ms").alias("own"))
    found: dict[tuple[str, QuotaEntity], tuple[int, float]] = {}
    for row in last.where("own.quota is not null").collect():
        own_ = row["own"]
        user, client = own_["quota_user"] or None, own_["quota_client_id"] or None
        if (user or client) and own_["quota"] < UNLIMITED:
            at = row["quota_type"], QuotaEntity.of(user=user, client_id=client)
            found[at] = max(found.get(at, (0, 0.0)), (own_["second_ms"], own_["quota"]))
    made = [
        QuotaAlteration(entity, (Op(KEY_OF_TYPE[quota_type], value),))
        for (quota_type, entity), (_, value) in found.items()
    ]
    return Quotas.of(QuotaTable().apply(made)[0], quotas.name)


def changes(quotas: Quotas, current: Quotas, activity: DataFrame, types: Sequence[str]) -> Changes:
    """
    Say which clients had another limit for a part of the time.

    Args:
        quotas: those given, with their history.
        current: those in force.
        activity: ACTIVITY, with what journals say about their quotas.
        types: quota types that matter.
    """
    found = Changes()
    charged = activity.where(F.col("is_charged") & F.col("quota_type").isin(*types))
    if len(quotas.tables) == 1 and not charged.where("quota_id is not null").limit(1).count():
        return found
    had = charged.transform(resolve(quotas)).select(*_WHO, *_OWN[1:]).distinct().collect()
    resolver = Resolver(current.tables[-1])
    there: set[Key] = set()
    for row in had:
        now = resolver(
            row["principal"] or "", row["client_id"] or "", KEY_OF_TYPE[row["quota_type"]]
        )
        mine = (row["quota_type"], *now.tags)
        there.add(mine)
        limit, limit_now = _finite(row["quota"]), _finite(now.value)
        if limit != limit_now:
            found.limits.setdefault(mine, set()).add(limit)
            found.gone.add((row["quota_type"], row["quota_user"], row["quota_client_id"]))
    found.gone -= there
    return found


def _finite(limit: float | None) -> float | None:
    return None if limit is None or limit >= UNLIMITED else limit
