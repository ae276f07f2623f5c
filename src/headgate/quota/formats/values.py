"""
What another tool's file can hold of a table: which entities, which keys, which numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, REQUEST, QuotaKey
from headgate.quota.table import QuotaTable

RATES: Final = {
    "producer_byte_rate": PRODUCER,
    "consumer_byte_rate": CONSUMER,
    "request_percentage": REQUEST,
}
"""The keys that every tool has, by Kafka's names."""
CLIENTS: Final = ("user", "client-id", "user+client-id")
"""Shapes of the entities that every quota but an address's has."""


class ExportedTable(NamedTuple):
    """
    A table in another tool's format.

    Args:
        body: a document for YAML or JSON, or a text.
        number: how many entities it holds.
        left_out: a line for each quota that it can't hold.
        items: what the document lists; None of a text.
    """

    body: Any
    number: int
    left_out: tuple[str, ...]
    items: list[dict[str, Any]] | None = None


class Limits(NamedTuple):
    """
    What a tool's file can hold.

    Args:
        tool: its name, for messages.
        names: the keys by the tool's names.
        shapes: of entities.
        why_not: says why it can't hold an entity of these shapes; "" where it can.
        whole: keys that are whole numbers there.
        most: the largest number.
    """

    tool: str
    names: Mapping[str, QuotaKey]
    shapes: Collection[str] = CLIENTS
    why_not: Callable[[QuotaEntity], str] = lambda _: ""
    whole: Collection[QuotaKey] = ()
    most: float = math.inf


def held(
    table: QuotaTable, limits: Limits
) -> tuple[list[tuple[QuotaEntity, dict[str, float]]], tuple[str, ...]]:
    """
    Return the entities with the quotas that a tool's file holds, and a line for each other.

    Infinity is in no other tool's file.
    """
    rows, left_out = [], []
    for entity in sorted(table.entities):
        why_not = limits.why_not(entity)
        if entity.shape not in limits.shapes:
            why_not = f"{limits.tool} has no quotas of {entity.shape}"
        if why_not:
            left_out.append(f"{entity}: {why_not}")
            continue
        names = {key: name for name, key in limits.names.items()}
        quotas: dict[str, float] = {}
        for key, value in sorted(table.entities[entity].items()):
            whole = key in limits.whole
            if key not in names:
                left_out.append(f"{entity} {key}: {limits.tool} has no such quota")
            elif math.isinf(value) or value > limits.most or (whole and not value.is_integer()):
                most = "" if math.isinf(limits.most) else f" up to {limits.most:.0f}"
                kind = "whole numbers" if whole else "finite numbers"
                left_out.append(f"{entity} {key}: {value}; {limits.tool} takes {kind}{most}")
            else:
                quotas[names[key]] = whole_or_not(value)
        if quotas:
            rows.append((entity, quotas))
    return rows, tuple(left_out)


def whole_or_not(value: float) -> float:
    """Return a whole number as int."""
    return int(value) if value.is_integer() else value


def decimal(value: float) -> str:
    """Return a finite number in digits, without an exponent; it reads back the same."""
    return format(Decimal(repr(value)) if isinstance(value, float) else Decimal(value), "f")
