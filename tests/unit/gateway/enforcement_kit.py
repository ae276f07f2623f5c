"""An enforcement with quotas, and what it writes down, without a gateway around it."""

from __future__ import annotations

from typing import Any

from headgate.config import Settings
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.journal import Journal
from headgate.gateway.charging.plans import build_plans
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.table import QuotaTable

T0 = 1_700_000_000_000
BASE = {
    "headgate.upstream": "127.0.0.1:9092",
    "headgate.broker.id.min": "1",
    "headgate.broker.id.max": "1",
}


class Kept(Journal):
    """Keeps what is written, by kind."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def quota(self, broker_id: int, key: Any, entity: Any, value: Any, t_ms: int) -> None:
        self.rows.append(("quota", broker_id, key, entity, value, t_ms))

    def expire(self, broker_id: int, key: Any, tags: Any, t_ms: int) -> None:
        self.rows.append(("expire", broker_id, key, tags, t_ms))

    def bound(self, broker_id: int, key: Any, tags: Any, value: float, t_ms: int) -> None:
        self.rows.append(("bound", broker_id, key, tags, value, t_ms))

    def record(self, client: Any, context: Any, plan: Any, *row: Any) -> None:
        self.rows.append(("record", *row))

    def note(  # type: ignore[override]
        self, kind: str, client: Any, context: Any, plan: Any, *row: Any, **more: Any
    ) -> None:
        if kind in ("unrecord", "told"):
            self.rows.append((kind, *row, *more.values()))


class Client:
    """A connection as charging sees it."""

    def __init__(self) -> None:
        self.spent_ns = self.began_ns = self.asked_ms = self.repays = 0
        self.told: Any = None
        self.hold = self.produce_hold = None
        self.debts: list[str] = []
        self.owes_until_ms = 0

    def note_debt(self, key: Any, lane: Any) -> None:
        self.debts.append(key.quota_type)
        self.owes_until_ms = lane.end_ms


def made(
    quotas: dict[QuotaEntity, dict[QuotaKey, float]] | None = None, **properties: str
) -> tuple[Enforcement, Kept]:
    named = {f"headgate.{key.replace('_', '.')}": value for key, value in properties.items()}
    kept = Kept()
    rules = Enforcement(Settings.from_properties({**BASE, **named}), 1, lambda: T0, kept)
    if quotas:
        rules.load(QuotaTable.of(quotas), T0)
        kept.rows.clear()
    return rules, kept


def plan_of(key: int, version: int) -> Any:
    return build_plans()[key << 16 | version]
