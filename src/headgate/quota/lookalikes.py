"""
Names that don't mean what they look like: ``default``, ``User:alice``, ``app-*``, `` alice``.

Kafka takes each of them as it is, so a quota for such a name limits nobody, and no tool says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from headgate.quota.entity import EntityType, QuotaEntity, print_name
from headgate.quota.sanitizer import desanitize
from headgate.words import users_listed

_WORDS: Final = frozenset({"default", "<default>", "null", "*"})
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_PRINCIPAL: Final = re.compile(r"(?:User|user):(.+)", re.DOTALL).fullmatch
_PATTERN: Final = re.compile(r"[\w.-]+\*").fullmatch


def name_notes(entities: Iterable[QuotaEntity]) -> list[str]:
    """Return a sentence for each name that doesn't mean what it looks like, as doctor finds."""
    return [
        f"{entity}: the {kind} is literally called {why}"
        for entity in entities
        for kind, name in entity
        if isinstance(name, str) and (why := _why(kind, name))
    ]


def _why(kind: str, name: str) -> str:
    """Return how a name reads, and what may have been meant; "" where it is an ordinary name."""
    if name.strip().lower() in _WORDS:
        return (
            f"{name}; the default entity is a null name in a quotas file, --defaults in "
            "kafka-quotas, --entity-default in kafka-configs"
        )
    if kind == EntityType.IP:
        return ""
    principal = _PRINCIPAL(name) if kind == EntityType.USER else None
    if kind == EntityType.USER and len(users_listed(name)) > 1:
        return f"{name}: a quota is for one user; write an entity for each"
    if principal is not None:
        return f"{name}; Kafka names users without their type: {principal[1]}"
    if name != name.strip():
        return f"{print_name(name)}, with blanks at its ends; clients without them aren't meant"
    if _PATTERN(name):
        return f"{name}; Kafka has no patterns, and other names that begin so aren't meant"
    meant = _decoded(name)
    if meant != name:
        return f"{name}; it isn't decoded: where {meant} is meant, write {meant}"
    return ""


def _decoded(name: str) -> str:
    if not _ESCAPE.search(name):
        return name
    try:
        return desanitize(name)
    except ValueError:
        return name
