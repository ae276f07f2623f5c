"""
Alterations of quotas, validated with Kafka's own order of checks and texts.

Source: ClientQuotaControlManager.alterClientQuotas in Apache Kafka.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from headgate.errors import ApiError, invalid_request
from headgate.quota.entity import KNOWN_TYPES, Default, QuotaEntity
from headgate.quota.key import KEYS, QuotaKey, QuotaUnit, is_exact


class Op(NamedTuple):
    """
    One key of an alteration.

    Args:
        key: quota type and unit.
        value: the new value; None clears it.
    """

    key: QuotaKey
    value: float | None


class QuotaAlteration(NamedTuple):
    """
    The change of one entity.

    Args:
        entity: the entity the quotas are written for.
        ops: what to set or clear.
    """

    entity: QuotaEntity
    ops: tuple[Op, ...]

    @classmethod
    def of(cls, entity: QuotaEntity, ops: Iterable[Op]) -> QuotaAlteration:
        """Build from any iterable of ops."""
        return cls(entity, tuple(ops))


class AlterResult(NamedTuple):
    """
    The result of one entity's alteration.

    Args:
        entity: as asked.
        error: None when it was (or, validate-only, would be) applied.
    """

    entity: QuotaEntity
    error: ApiError | None


class Validated(NamedTuple):
    """The results in the order asked, and the alterations that are to be applied."""

    results: list[AlterResult]
    accepted: list[QuotaAlteration]


def is_ip_literal(name: str) -> bool:
    """Whether Java's InetAddress takes the text without asking a name server."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return _is_loose_ipv4(name)
    return True


def _is_loose_ipv4(name: str) -> bool:
    """Whether it is a shortened IPv4 form that Java reads: ``2130706433``, ``1.2`` (1.0.0.2)."""
    parts = name.split(".")
    if not 1 <= len(parts) <= 4 or not all(p.isascii() and p.isdigit() for p in parts):
        return False
    limits = [255] * (len(parts) - 1) + [256 ** (5 - len(parts)) - 1]
    return all(int(p) <= limit for p, limit in zip(parts, limits, strict=True))


def validate(
    alterations: Sequence[QuotaAlteration],
    *,
    resolvable: Callable[[str], bool] = is_ip_literal,
) -> Validated:
    """
    Check alterations as Kafka's controller does, all of a request together.

    Where an entity occurs twice, its first alteration is applied and the second is an error. An
    alteration that names a key twice is an error as a whole. Kafka does both.

    Args:
        alterations: one per entity.
        resolvable: whether the host name of an ip entity resolves. By default only address
            literals do. A caller that may ask a name server passes its own function.

    Returns:
        One result per alteration, and those to apply (in order).

    Source: ClientQuotaControlManager; KIP-546 "Units" and KIP-936 for the keys that Kafka lacks.
    """
    results: list[AlterResult] = []
    accepted: list[QuotaAlteration] = []
    seen: set[QuotaEntity] = set()
    for alteration in alterations:
        entity = alteration.entity
        repeated = len({op.key for op in alteration.ops}) != len(alteration.ops)
        if entity in seen or repeated:
            error: ApiError | None = invalid_request(
                f"Ignoring duplicate entity {entity.java_text}"
            )
        else:
            error = entity_error(entity, resolvable) or ops_error(entity, alteration.ops)
            if error is None:
                accepted.append(alteration)
        seen.add(entity)
        results.append(AlterResult(entity, error))
    return Validated(results, accepted)


def entity_error(
    entity: QuotaEntity, resolvable: Callable[[str], bool] = is_ip_literal
) -> ApiError | None:
    """
    Return what is wrong with an entity that is to carry quotas, or None.

    Source: ClientQuotaControlManager.validateEntity.
    """
    if not len(entity):
        return invalid_request("Invalid empty client quota entity")
    for entity_type, name in entity:
        if entity_type not in KNOWN_TYPES:
            return _unknown_type(entity_type)
        if name == "":
            return invalid_request(f"Empty {entity_type} not supported")
    ip = entity.ip
    if ip is not None:
        if len(entity) > 1:
            return invalid_request(
                "Invalid quota entity combination, IP entity shouldnot be combined with User or "
                "ClientId"
            )
        if not isinstance(ip, Default) and not resolvable(ip):
            return invalid_request(f"{ip} is not a valid IP or resolvable host.")
    return None


def request_error(entity: QuotaEntity) -> ApiError | None:
    """
    Return what is wrong with an entity that is asked about, or None.

    Unlike an entity that is to carry quotas, it may have an empty name (a client that sends no
    client-id) and an address that doesn't resolve.
    """
    named = {kind: name if isinstance(name, Default) else name or "x" for kind, name in entity}
    return entity_error(QuotaEntity(named), lambda _: True)


def ops_error(entity: QuotaEntity, ops: Iterable[Op]) -> ApiError | None:
    """Return the first mistake among the ops of one entity, or None. Removals are always valid."""
    for op in ops:
        error = None if op.value is None else value_error(entity, op.key, op.value)
        if error is not None:
            return error
    return None


def value_error(entity: QuotaEntity, key: QuotaKey, value: float) -> ApiError | None:
    """
    Return what is wrong with a value of a key on an entity, or None.

    Source: ClientQuotaControlManager.validateQuotaKeyValue.
    """
    spec = KEYS.get(key)
    if spec is None or entity.shape not in spec.shapes:
        return invalid_request(f"Invalid configuration key {key.name}{_units_of(key)}")
    # Differs: NaN, which Kafka stores (4.3.1) or turns into 0 (3.9.2), is refused.
    if math.isnan(value) or value <= 0.0:
        return invalid_request(f"Quota {key.name} must be greater than 0")
    if not is_exact(value):
        return invalid_request(
            f"Proposed value {value} for {key.name} can't be kept as it is: quotas are doubles, "
            f"and the nearest is {float(value):.0f}."
        )
    if spec.value_type == "DOUBLE":
        return None
    largest = 2147483647.0 if spec.value_type == "INT" else 9223372036854775807.0
    if value > largest:
        article = "an INT" if spec.value_type == "INT" else "a LONG"
        return invalid_request(f"Proposed value for {key.name} is too large for {article}.")
    if abs(math.fmod(value, 1.0)) > 1e-6:
        return invalid_request(f"{key.name} cannot be a fractional value.")
    return None


def _units_of(key: QuotaKey) -> str:
    """Say which units a type has, where a key has another one that exists."""
    units = [known.units for known in KEYS if known.type == key.type]
    if not units or key.units in units or key.units not in set(QuotaUnit):
        return ""
    return f": {key.type} isn't counted in {key.units}, but in {' or '.join(units)}"


def check_types(entity_types: Iterable[str]) -> None:
    """
    Refuse entity types other than user, client-id and ip, as Kafka does (KIP-546).

    Raises:
        ApiError: INVALID_REQUEST, with the type's name.
    """
    for entity_type in entity_types:
        if entity_type not in KNOWN_TYPES:
            raise _unknown_type(entity_type)


def _unknown_type(entity_type: str) -> ApiError:
    return invalid_request(f"Unhandled client quota entity type: {entity_type}")
