"""
Quota keys: a quota type with a unit, which entities may carry them, which values they take.

``KEYS`` is the table. Its sources: KIP-546 "Units", KIP-612, KIP-936, and ``QuotaConfig.java`` for
types and ranges.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple


class QuotaType(StrEnum):
    """What is limited."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    PRODUCER_IDS_RATE = "producer_ids_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


class QuotaUnit(StrEnum):
    """What the number counts. ``RATE_BPS`` is KIP-546's name for ``bps``."""

    BPS = "bps"
    RATE_BPS = "bps"
    BROKER_BPS = "broker_bps"
    SHARES = "shares"
    PERCENT = "percent"
    PER_S = "per_s"


_ENFORCED_UNITS: Final[dict[str, str]] = {
    # Kafka's own unit-less byte rates are per broker, because that is what Kafka enforces.
    QuotaType.PRODUCER_BYTE_RATE: QuotaUnit.BROKER_BPS,
    QuotaType.CONSUMER_BYTE_RATE: QuotaUnit.BROKER_BPS,
    QuotaType.REQUEST_PERCENTAGE: QuotaUnit.PERCENT,
    QuotaType.CONTROLLER_MUTATION_RATE: QuotaUnit.PER_S,
    QuotaType.PRODUCER_IDS_RATE: QuotaUnit.PER_S,
    QuotaType.CONNECTION_CREATION_RATE: QuotaUnit.PER_S,
}


class _QuotaKey(NamedTuple):
    type: str
    units: str


class QuotaKey(_QuotaKey):
    """
    A quota type and its unit.

    Unknown types and units can be held, so that the admin client can pass them on and a removal
    (which Kafka never validates) can name them; ``is_known`` tells them apart.

    Source: KIP-546 "Public Interfaces" and "Units".
    """

    __slots__ = ()
    # Nested as KIP-546 names them.
    Type = QuotaType
    Units = QuotaUnit

    @classmethod
    def parse(cls, text: str) -> QuotaKey:
        """
        Read ``producer_byte_rate`` or ``producer_byte_rate:bps``.

        Args:
            text: a unit left out means the one Kafka enforces; an unknown type without a unit
                keeps the unit "". Java's spellings (``RATE_BPS``) mean the same.
        """
        quota_type, colon, units = text.partition(":")
        quota_type = canonical_type(quota_type)
        if not colon:
            return cls(quota_type, _ENFORCED_UNITS.get(quota_type, ""))
        return cls(quota_type, canonical_units(units))

    @property
    def name(self) -> str:
        """The released spelling: without a unit where it is the one Kafka enforces."""
        if not self.units or _ENFORCED_UNITS.get(self.type) == self.units:
            return str(self.type)
        return f"{self.type}:{self.units}"

    @property
    def is_known(self) -> bool:
        """Whether Headgate knows the type with this unit."""
        return self in KEYS

    @property
    def known_to_kafka(self) -> bool:
        """Whether a real Kafka can store it."""
        spec = KEYS.get(self)
        return spec is not None and spec.in_kafka

    @property
    def is_divided(self) -> bool:
        """Whether a value is for all brokers or clients together, and each broker has a part."""
        return self.units in (QuotaUnit.BPS, QuotaUnit.SHARES)

    def __str__(self) -> str:
        return f"{self.type}:{self.units}" if self.units else str(self.type)


def canonical_type(text: str) -> str:
    """Return the wire spelling of a quota type (``PRODUCER_BYTE_RATE`` means the same)."""
    lower = text.lower()
    return lower if text.isupper() and lower in _ENFORCED_UNITS else text


def canonical_units(text: str) -> str:
    """Return the wire spelling of a unit (``RATE_BPS``, ``BROKER_BPS`` mean the same)."""
    return QuotaUnit[text].value if text in QuotaUnit.__members__ else text


def kips_key(quota_type: str, units: str) -> QuotaKey:
    """
    Return a key as KIP-546 spells it.

    ``RATE_BPS`` is the only unit that the draft defines, so it stands for the own unit of a type
    that isn't of bytes: ``(REQUEST_PERCENTAGE, RATE_BPS)`` is ``request_percentage:percent``.
    """
    key = QuotaKey(canonical_type(quota_type), canonical_units(units))
    own = _ENFORCED_UNITS.get(key.type, QuotaUnit.BROKER_BPS)
    if key.units == QuotaUnit.RATE_BPS and own != QuotaUnit.BROKER_BPS:
        return QuotaKey(key.type, own)
    return key


def is_exact(value: float) -> bool:
    """Whether a double holds a number; 2^63 - 1 stands for Kafka's "no limit", 2^63."""
    try:
        return value == 2**63 - 1 or math.isnan(value) or float(value) == value
    except OverflowError:
        return False


class KeySpec(NamedTuple):
    """One row of :data:`KEYS`: value type, entity shapes, whether Kafka has it, source."""

    value_type: str
    shapes: frozenset[str]
    in_kafka: bool
    unlimited: float
    source: str


_CLIENT = frozenset({"user", "client-id", "user+client-id"})
_LONG_MAX = 9223372036854775807.0
_INT_MAX = 2147483647.0

PRODUCER: Final = QuotaKey(QuotaType.PRODUCER_BYTE_RATE, QuotaUnit.BROKER_BPS)
CONSUMER: Final = QuotaKey(QuotaType.CONSUMER_BYTE_RATE, QuotaUnit.BROKER_BPS)
PRODUCER_BPS: Final = QuotaKey(QuotaType.PRODUCER_BYTE_RATE, QuotaUnit.BPS)
CONSUMER_BPS: Final = QuotaKey(QuotaType.CONSUMER_BYTE_RATE, QuotaUnit.BPS)
PRODUCER_SHARES: Final = QuotaKey(QuotaType.PRODUCER_BYTE_RATE, QuotaUnit.SHARES)
CONSUMER_SHARES: Final = QuotaKey(QuotaType.CONSUMER_BYTE_RATE, QuotaUnit.SHARES)
REQUEST: Final = QuotaKey(QuotaType.REQUEST_PERCENTAGE, QuotaUnit.PERCENT)
MUTATION: Final = QuotaKey(QuotaType.CONTROLLER_MUTATION_RATE, QuotaUnit.PER_S)
PRODUCER_IDS: Final = QuotaKey(QuotaType.PRODUCER_IDS_RATE, QuotaUnit.PER_S)
CONNECTION: Final = QuotaKey(QuotaType.CONNECTION_CREATION_RATE, QuotaUnit.PER_S)

KEYS: Final[dict[QuotaKey, KeySpec]] = {
    PRODUCER: KeySpec("LONG", _CLIENT, True, _LONG_MAX, "KIP-55; QuotaConfig"),
    CONSUMER: KeySpec("LONG", _CLIENT, True, _LONG_MAX, "KIP-55; QuotaConfig"),
    REQUEST: KeySpec("DOUBLE", _CLIENT, True, _INT_MAX, "KIP-124; QuotaConfig"),
    MUTATION: KeySpec("DOUBLE", _CLIENT, True, _INT_MAX, "KIP-599; QuotaConfig"),
    CONNECTION: KeySpec("INT", frozenset({"ip"}), True, _INT_MAX, "KIP-612; QuotaConfig"),
    PRODUCER_BPS: KeySpec("LONG", _CLIENT, False, _LONG_MAX, "KIP-546 Units"),
    CONSUMER_BPS: KeySpec("LONG", _CLIENT, False, _LONG_MAX, "KIP-546 Units"),
    PRODUCER_SHARES: KeySpec("LONG", _CLIENT, False, _LONG_MAX, "KIP-546 Units"),
    CONSUMER_SHARES: KeySpec("LONG", _CLIENT, False, _LONG_MAX, "KIP-546 Units"),
    PRODUCER_IDS: KeySpec("DOUBLE", frozenset({"user"}), False, _LONG_MAX, "KIP-936"),
}
QUOTA_DEFAULTS: Final[Mapping[str, QuotaKey]] = {
    "quota.producer.default": PRODUCER,
    "quota.consumer.default": CONSUMER,
}
"""KIP-55's static defaults, by the names of Kafka's settings."""


def keys_for(shape: str) -> tuple[QuotaKey, ...]:
    """Return the keys an entity of this shape (``user``, ``user+client-id``, …) may carry."""
    return tuple(key for key, spec in KEYS.items() if shape in spec.shapes)


def format_value(value: float) -> str:
    """Return a value as people write it: whole numbers without ``.0``, others shortest."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e18 else repr(value)
