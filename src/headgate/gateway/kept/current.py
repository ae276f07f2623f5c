"""
What is in force in a gateway now, and the store it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.quota.table import QuotaTable
    from headgate.store.watched import QuotaStore


@dataclass(slots=True)
class Current:
    """
    What is in force now.

    Args:
        settings: of the file; a reload puts others in their place.
        table: the quotas that every broker's rules follow.
        store: where quotas live; None: there is none, or the guard lets none in yet.
        coming: the quotas that the store sent last, which are being put in force; else ``table``.
        broker_configs: settings of brokers by id as text; "" is the default of all.
    """

    settings: Settings
    table: QuotaTable
    store: QuotaStore | None
    coming: QuotaTable = field(init=False)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.coming = self.table
