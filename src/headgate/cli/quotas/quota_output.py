"""
What kafka-quotas and quotas-as-code print: entities, values, effective quotas, as text and results.

Source: KIP-546 "Output".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headgate.admin.api import Entry, Value, Values
from headgate.cli.output import complain, printable
from headgate.cli.results import Described, Effective, Entity
from headgate.errors import HeadgateError
from headgate.java_text import Number, finite
from headgate.live.effective import no_capacity
from headgate.quota.entity import Default, QuotaEntity
from headgate.quota.key import QuotaKey, QuotaUnit
from headgate.quota.precedence import PRECEDENCE


def list_order(entities: Mapping[QuotaEntity, object]) -> list[QuotaEntity]:
    """
    Return entities in the order of KIP-546's transcript.

    Most specific level first; on a level, names from the last to the first.
    """
    by_name = sorted(entities, key=lambda entity: entity.sort_key, reverse=True)
    return sorted(by_name, key=_level)


def _level(entity: QuotaEntity) -> int:
    kinds = tuple(
        "" if name is None else "default" if isinstance(name, Default) else "name"
        for name in (entity.user, entity.client_id)
    )
    for level in PRECEDENCE:
        if (level.user, level.client) == kinds and len(entity) == sum(map(bool, kinds)):
            return level.number
    return len(PRECEDENCE) + 1 + entity.has_default


def effective_lines(values: Values) -> list[str]:
    """Return ``key:unit=value {entity}`` for each key, what it overrides below it with ``*``."""
    lines = []
    for key in sorted(values, key=str):
        value = values[key]
        lines.append(_entry_line("", key, value.entry))
        lines += [_entry_line("*", key, entry) for entry in value.overridden_entries or ()]
    return lines


def _entry_line(mark: str, key: QuotaKey, entry: Entry) -> str:
    return printable(f"{mark}{key}={value_text(entry.value)} {entry.source}")


def value_text(value: float) -> str:
    """Return a value as people write it: whole numbers without ``.0``."""
    plain = number(value)
    return "Infinity" if plain == float("inf") else str(plain)


def number(value: float | None) -> int | float | None:
    """Return a whole number as int; Kafka's "unlimited" as 2^63 - 1, which it stands for."""
    if value is None or not value.is_integer():
        return value
    return 2**63 - 1 if value == 2.0**63 else int(value)


def conditions(place: OpenTarget, keys: Iterable[QuotaKey]) -> list[str]:
    """Return notes about keys that are enforced only under a condition, unless it is met."""
    shares = sorted({key for key in keys if key.units == QuotaUnit.SHARES}, key=str)
    if not shares:
        return []
    try:
        idle = place.picture(most=1).without_capacity
    except HeadgateError:  # a store, a broker, or a gateway that doesn't tell everybody
        return [
            f"{key} is enforced only where headgate.capacity.{key.type} is set, by a gateway"
            for key in shares
        ]
    return [no_capacity(key) for key in shares if key.name in idle]


if TYPE_CHECKING:
    from headgate.admin.open_target import OpenTarget

_MOST_NOTES: Final = 50


def say_notes(tool: str, notes: Sequence[str]) -> None:
    """Print notes to stderr, below a program's name; many are cut short."""
    for note in notes[:_MOST_NOTES]:
        complain(printable(f"{tool}: note: {note}"))
    if len(notes) > _MOST_NOTES:
        complain(f"{tool}: note: and {len(notes) - _MOST_NOTES} more notes")


def json_number(value: float | None) -> Number:
    """Return a value as JSON can hold it, whole numbers without ``.0``."""
    return finite(number(value))


def entity_json(entity: QuotaEntity) -> Entity:
    """Return an entity with raw names; null is the default."""
    return {kind: None if isinstance(name, Default) else name for kind, name in entity}


def effective_json(value: float | None, source: object) -> Effective:
    """Return a value and where it comes from: an entity, a setting, or None."""
    if isinstance(source, QuotaEntity):
        return Effective(json_number(value), entity_json(source))
    return Effective(json_number(value), None if source is None else str(source))


def described(key: QuotaKey, value: Value) -> Described:
    """Return an effective quota for programs."""
    found = effective_json(value.entry.value, value.entry.source)
    row = Described(str(key), found.value, found.source or "")
    if value.overridden_entries is not None:
        row.overridden = [effective_json(e.value, e.source) for e in value.overridden_entries]
    if value.note:
        row.note = value.note
    return row
