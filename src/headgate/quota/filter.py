"""
Filters over quota entities: the released exact / default / any, and KIP-546's EXACT / PREFIX.

Source: ClientQuotasImage.describe in Apache Kafka; KIP-546 "Public Interfaces".
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from headgate.errors import ApiError, KafkaError, invalid_request
from headgate.quota.entity import (
    DEFAULT,
    KNOWN_TYPES,
    Default,
    EntityName,
    QuotaEntity,
    canonical_entity_type,
)


class MatchType(StrEnum):
    """How a component matches a name. ``prefix`` is KIP-546's; it never matches a default."""

    EXACT = "exact"
    DEFAULT = "default"
    ANY = "any"
    PREFIX = "prefix"


class FilterComponent(NamedTuple):
    """
    One condition on one entity type; conditions of a filter are ANDed.

    Args:
        entity_type: ``user``, ``client-id``, ``ip``, or another.
        match_type: see :class:`MatchType`. A number is a code that no version of Kafka knows; it
            is kept so that the refusal can name it.
        match: the name or prefix; None for ``default`` and ``any``.
    """

    entity_type: str
    match_type: MatchType | int
    match: str | None = None

    @classmethod
    def of_name(cls, entity_type: str, name: EntityName) -> FilterComponent:
        """Build the component that selects exactly this name, or the default."""
        if isinstance(name, Default):
            return cls(entity_type, MatchType.DEFAULT)
        return cls(entity_type, MatchType.EXACT, name)

    def accepts(self, entity: QuotaEntity) -> bool:
        """Whether the entity has the type with a matching name."""
        name = entity.get(self.entity_type)
        if name is None:
            return False
        if self.match_type is MatchType.EXACT:
            return name == self.match
        if self.match_type is MatchType.DEFAULT:
            return name is DEFAULT
        if self.match_type is MatchType.PREFIX:
            return isinstance(name, str) and name.startswith(self.match or "")
        return True  # any name, and the default


class Rule(StrEnum):
    """KIP-546's filter rules."""

    EXACT = "EXACT"
    PREFIX = "PREFIX"


class _QuotaFilter(NamedTuple):
    entity_type: str
    rule: str
    match: EntityName


class QuotaFilter(_QuotaFilter):
    """
    KIP-546's filter: a rule on one entity type.

    Args:
        entity_type: :class:`QuotaEntity.Type` or another string.
        rule: EXACT or PREFIX.
        match: non-null text. EXACT with ``QUOTA_ENTITY_NAME_DEFAULT`` (or DEFAULT) selects the
            default; PREFIX never matches a default.
    """

    __slots__ = ()
    Rule = Rule

    def component(self) -> FilterComponent:
        """Return the same condition as a released-style component."""
        entity_type = canonical_entity_type(self.entity_type)
        if self.rule == Rule.PREFIX and isinstance(self.match, str):
            return FilterComponent(entity_type, MatchType.PREFIX, self.match)
        # KIP-546: QUOTA_ENTITY_NAME_DEFAULT is the empty text.
        return FilterComponent.of_name(entity_type, self.match or DEFAULT)


def matches(
    components: Sequence[FilterComponent], entity: QuotaEntity, strict: bool = False
) -> bool:
    """
    Whether an entity passes all components.

    Args:
        components: ANDed; none matches everything (nothing when strict).
        entity: the entity.
        strict: whether the entity must have no other types than the components name.
    """
    if strict and len(entity) != len(components):
        return False
    if strict and not components:
        return False
    return all(component.accepts(entity) for component in components)


def match_type_of(code: int) -> MatchType | int:
    """Return the match type of a released wire code (0 exact, 1 default, 2 any), else the code."""
    by_code = (MatchType.EXACT, MatchType.DEFAULT, MatchType.ANY)
    return by_code[code] if 0 <= code < len(by_code) else code


def validate_filter(components: Sequence[FilterComponent]) -> None:
    """
    Refuse a filter with Kafka's own texts.

    Raises:
        ApiError: INVALID_REQUEST or UNSUPPORTED_VERSION, as ClientQuotasImage.describe.
    """
    seen: set[str] = set()
    for entity_type, match_type, match in components:
        if entity_type == "":
            raise invalid_request("Invalid empty entity type.")
        if entity_type in seen:
            raise invalid_request(
                f"Entity type {entity_type} cannot appear more than once in the filter."
            )
        seen.add(entity_type)
        if entity_type not in KNOWN_TYPES:
            raise ApiError(KafkaError.UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}")
        if match_type in (MatchType.EXACT, MatchType.PREFIX):
            if match is None:
                raise invalid_request(
                    "Request specified MATCH_TYPE_EXACT, but set match string to null."
                )
        elif not isinstance(match_type, MatchType):
            raise invalid_request(f"Unknown match type {match_type}")
        elif match is not None:
            wanted = "DEFAULT" if match_type is MatchType.DEFAULT else "SPECIFIED"
            raise invalid_request(
                f"Request specified MATCH_TYPE_{wanted}, but also specified a match string."
            )
    if "ip" in seen and len(seen) > 1:
        raise invalid_request(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
