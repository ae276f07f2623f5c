"""
Tell the quotas in force from those that were in force for a part of the time only.

A journal's charges bear the quota-id and limit of their moment, and a history of quotas has a table
for each moment. A proposal is about the quotas in force: the last table; for a journal without any
quotas given, what each client was last charged to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.pipeline.answers.advice import BYTES
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


class Client(NamedTuple):
    """
    What a client was charged to a quota type.

    Attributes:
        quota_type: the type.
        principal: of the client; None: unknown.
        client_id: of the client; None: unknown.
        used: bytes of byte rates, else amounts.
        requests: charged.
        has_own: a journal tells its quota-id.
        own: (user tag, client tag, limit, second) of what it was last charged to; all None but the
            second in a log.
    """

    quota_type: str
    principal: str | None
    client_id: str | None
    used: float | None
    requests: int
    has_own: bool
    own: tuple[str | None, str | None, float | None, int]

    @property
    def names(self) -> tuple[str, str]:
        """Principal and client-id, "" where unknown."""
        return self.principal or "", self.client_id or ""


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


def clients(activity: DataFrame) -> list[Client]:
    """
    Return who was charged, and what for: a row per quota type, principal and client-id.

    One query; what else is asked about clients is worked out of these rows by this process.

    Args:
        activity: ACTIVITY, with what journals say about their quotas.
    """
    charged = activity.where(F.col("is_charged") & F.col("quota_type").isin(*KEY_OF_TYPE))
    rows = charged.groupBy(*_WHO).agg(
        F.sum(used()),
        F.sum("requests"),
        F.max(F.col("quota_id").isNotNull()),
        F.max_by(F.struct(*_OWN[1:], "second_ms"), "second_ms"),
    )
    return [Client(*row) for row in rows.collect()]


def used() -> Column:
    """Return what counts as use: bytes of byte rates, else amounts."""
    return F.when(F.col("quota_type").isin(*BYTES), F.col("bytes")).otherwise(F.col("amount"))


def in_force(quotas: Quotas, charged: Iterable[Client]) -> Quotas:
    """
    Return one table: the last of those given or, where none holds a quota, a journal's last ones.

    Args:
        quotas: those given.
        charged: clients, of the quota types that matter.
    """
    table = quotas.tables[-1]
    if len(quotas.tables) > 1 or table.entities or table.static_defaults:
        return Quotas.of(table, quotas.name)
    found: dict[tuple[str, QuotaEntity], tuple[int, float]] = {}
    for each in charged:
        user, client, limit, second_ms = each.own
        if (user or client) and limit is not None and limit < UNLIMITED:
            at = each.quota_type, QuotaEntity.of(user=user or None, client_id=client or None)
            found[at] = max(found.get(at, (0, 0.0)), (second_ms, limit))
    made = [
        QuotaAlteration(entity, (Op(KEY_OF_TYPE[quota_type], value),))
        for (quota_type, entity), (_, value) in found.items()
    ]
    return Quotas.of(QuotaTable().apply(made)[0], quotas.name)


def changes(
    quotas: Quotas, current: Quotas, activity: DataFrame, charged: Sequence[Client]
) -> Changes:
    """
    Say which clients had another limit for a part of the time.

    Args:
        quotas: those given, with their history.
        current: those in force.
        activity: ACTIVITY, with what journals say about their quotas.
        charged: its clients, of the quota types that matter.
    """
    found = Changes()
    if len(quotas.tables) == 1 and not any(each.has_own for each in charged):
        return found
    types = {each.quota_type for each in charged}
    rows = activity.where(F.col("is_charged") & F.col("quota_type").isin(*types))
    had = rows.transform(resolve(quotas)).select(*_WHO, *_OWN[1:]).distinct().collect()
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
