"""
A table of settings as a dataclass: each field has a row, or is a part with rows of its own.

A row says what the file's reader, the did-you-mean and the reference page need to know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from headgate.config.kinds import ValueKind

_ROW, _PART = "row", "part"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """
    One row of the table.

    Args:
        name: as written in the file.
        kind: how its text is read.
        default: the parsed value when the line is absent; None is "not set".
        doc: what it does, for the reference; one or two sentences.
        source: ``Kafka`` (its name and meaning are Kafka's), a KIP, or ``Headgate``.
        per_listener: may be written ``listener.name.<name>.<setting>``.
        shown: the default in words, where the value alone would mislead.
        path: the attribute names that lead to it in `Settings`.
    """

    name: str
    kind: ValueKind
    default: Any
    doc: str
    source: str = "Headgate"
    per_listener: bool = False
    shown: str = ""
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SettingGroup:
    """
    A field that is itself a dataclass of settings.

    Args:
        kind: its class.
        prefix: what the names of its rows begin with.
        whose: the text that replaces ``{whose}`` in the rows' docs.
        source: the source of the rows that name none.
        per_listener: whether the rows may be set for a single listener.
        without: fields that have no row here, and keep their class's default.
    """

    kind: type[Any]
    prefix: str
    whose: str
    source: str
    per_listener: bool
    without: tuple[str, ...]


def row(
    name: str,
    kind: ValueKind,
    default: Any,
    doc: str,
    source: str = "Headgate",
    per_listener: bool = False,
    *,
    shown: str = "",
    otherwise: Any = MISSING,
) -> Any:
    """Return the field of one setting; ``otherwise`` is its value in parts that leave it out."""
    setting = Setting(name, kind, default, doc, source, per_listener, shown)
    return field(default=otherwise, metadata={_ROW: setting})


def part(
    kind: type[Any],
    prefix: str = "",
    whose: str = "",
    source: str = "Headgate, after Kafka",
    *,
    per_listener: bool = False,
    without: tuple[str, ...] = (),
) -> Any:
    """Return the field of a part; see `SettingGroup`."""
    return field(metadata={_PART: SettingGroup(kind, prefix, whose, source, per_listener, without)})


def rows_of(kind: type[Any]) -> Iterator[Setting]:
    """Yield the settings that a dataclass and its parts hold, in the order of their fields."""
    for one in fields(kind):
        if _ROW in one.metadata:
            yield dataclasses.replace(one.metadata[_ROW], path=(one.name,))
        elif _PART in one.metadata:
            yield from _rows_of_part(one.name, one.metadata[_PART])


def _rows_of_part(name: str, part: SettingGroup) -> Iterator[Setting]:
    for setting in rows_of(part.kind):
        if setting.path[0] not in part.without:
            own = setting.source not in ("Headgate", "Headgate, after Kafka")
            yield dataclasses.replace(
                setting,
                name=part.prefix + setting.name,
                doc=setting.doc.replace("{whose}", part.whose),
                source=setting.source if own else part.source,
                per_listener=part.per_listener,
                path=(name, *setting.path),
            )


def filled(kind: type[T], values: Mapping[str, Any], prefix: str = "", **made: Any) -> T:
    """
    Build a dataclass of settings.

    Args:
        kind: the class.
        values: all values, by name.
        prefix: what the names of its rows begin with.
        made: fields that have no row.
    """
    for one in fields(kind):  # type: ignore[arg-type] # every kind is a dataclass
        if (inner := one.metadata.get(_PART)) is not None:
            made[one.name] = filled(inner.kind, values, prefix + inner.prefix)
        elif _ROW in one.metadata and (name := prefix + one.metadata[_ROW].name) in values:
            made[one.name] = values[name]
    return kind(**made)
