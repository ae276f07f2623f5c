"""The kinds of value a setting can have: each parses a text, or says what is wrong with it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headgate.config.listeners import Endpoint, HostPort, SecurityProtocol
from headgate.config.store_kinds import checked, forms
from headgate.errors import BAD_PATTERN

INT_MAX = 2**31 - 1
MOST_ADDRESSES = 1_000
"""Addresses in ``max.connections.per.ip.overrides``: a change of them is one step of the loop."""
LONG_MAX = 2**63 - 1
"""Kafka's "no limit": Integer.MAX_VALUE and Long.MAX_VALUE."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """
    How one kind of value is read.

    Args:
        name: Kafka's word for it (int, long, double, string, list, boolean, password).
        parse: reads trimmed text; raises ValueError with the reason.
        valid: what is allowed, for the reference.
    """

    name: str
    parse: Callable[[str], Any]
    valid: str = ""


@dataclass(frozen=True, slots=True)
class Password:
    """A secret: never printed."""

    value: str

    def __repr__(self) -> str:
        return "[hidden]"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class UsageTarget:
    """Where usage events go: ``files`` and a folder, ``kafka`` and a topic, or ``none``."""

    kind: str
    place: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}" if self.place else self.kind


def _whole(name: str, low: int, high: int) -> ValueKind:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d+", text):
            raise ValueError(f"{text!r} isn't a whole number")
        number = int(text)
        if number < low:
            raise ValueError(f"{number} is below {low}, the least allowed")
        if number > high:
            raise ValueError(f"{number} is above {high}, the most allowed")
        return number

    valid = f"≥ {low}" if high in (INT_MAX, LONG_MAX) else f"{low} … {high}"
    return ValueKind(name, parse, valid)


def integer(low: int = 0, high: int = INT_MAX) -> ValueKind:
    """A 32-bit whole number in a range."""
    return _whole("int", low, high)


def long(low: int = 0) -> ValueKind:
    """A 64-bit whole number, at least ``low``."""
    return _whole("long", low, LONG_MAX)


def double(low: float, *, above: bool = False) -> ValueKind:
    """A finite number, at least ``low`` (or above it)."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise ValueError(f"{text!r} isn't a number") from None
        if not math.isfinite(number):
            raise ValueError(f"{text!r} isn't a finite number")
        if number < low or (above and number == low):
            raise ValueError(f"{text} must be {'above' if above else 'at least'} {low:g}")
        return number

    return ValueKind("double", parse, f"{'>' if above else '≥'} {low:g}")


def one_of(*names: str, fold: Callable[[str], str] = str) -> ValueKind:
    """One word of a few."""

    def parse(text: str) -> str:
        if fold(text) not in names:
            raise ValueError(f"{text!r} isn't one of {', '.join(names)}")
        return fold(text)

    return ValueKind("string", parse, ", ".join(names))


def items(text: str, separator: str = ",") -> list[str]:
    """Split a list as Kafka does: trimmed, empty ones left out."""
    return [part.strip() for part in text.split(separator) if part.strip()]


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty; leave the line out instead")
    return text


def _words(text: str) -> tuple[str, ...]:
    return tuple(items(text))


def _endpoints(text: str) -> tuple[Endpoint, ...]:
    found = tuple(Endpoint.parse(part) for part in items(text))
    if not found:
        raise ValueError("it lists no listener")
    _no_twins((endpoint.name for endpoint in found), "listener")
    return found


def _no_twins(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name} is listed twice")
        seen.add(name)


_PROTOCOLS = one_of(*SecurityProtocol, fold=str.upper)


def _protocol(text: str) -> SecurityProtocol:
    return SecurityProtocol(_PROTOCOLS.parse(text))


def _pairs(text: str, what: str) -> list[tuple[str, str]]:
    pairs = []
    for part in items(text):
        left, colon, right = part.rpartition(":")
        if not colon or not left.strip() or not right.strip():
            raise ValueError(f"{part!r} isn't {what}")
        pairs.append((left.strip(), right.strip()))
    _no_twins((left for left, _ in pairs), what.partition(":")[0])
    return pairs


def _protocol_map(text: str) -> dict[str, SecurityProtocol]:
    pairs = _pairs(text, "NAME:PROTOCOL")
    _no_twins((name.upper() for name, _ in pairs), "listener")
    return {name.upper(): _protocol(value) for name, value in pairs}


_NAME = r"(?:<default>|[A-Za-z0-9._*~%-]+)"
_ENTITY = re.compile(rf"users/{_NAME}(?:/clients/{_NAME})?|clients/{_NAME}")


def _counts(text: str) -> dict[str, int]:
    # Differs: more than 1,000 addresses of max.connections.per.ip.overrides are refused.
    if (addresses := text.count(",") + 1) > MOST_ADDRESSES:
        raise ValueError(f"{addresses} addresses; {MOST_ADDRESSES} are possible at most")
    count = integer(0).parse
    return {host: count(value) for host, value in _pairs(text, "host:count")}


def _bursts(text: str) -> dict[str, float]:
    seconds = double(0, above=True).parse
    found = {}
    for path, value in _pairs(text, "entity:seconds"):
        if not _ENTITY.fullmatch(path):
            raise ValueError(
                f"{path!r} names no entity; write users/NAME, clients/NAME or "
                "users/NAME/clients/NAME, names percent-encoded, <default> for the default"
            )
        found[path] = seconds(value)
    return found


def _broker_ports(text: str) -> dict[int, int]:
    broker, port = integer(0).parse, integer(1, 65535).parse
    return {broker(left): port(right) for left, right in _pairs(text, "broker-id:port")}


def _principals(text: str) -> frozenset[str]:
    names = set()
    for part in items(text, ";"):
        kind, colon, name = part.partition(":")
        if not colon or not name:
            raise ValueError(f"{part!r} isn't Type:name; write User:{part}")
        if kind != "User":
            raise ValueError(f"{part!r}: only principals of type User are known")
        names.add(name)
    return frozenset(names)


def _upstream(text: str) -> tuple[HostPort, ...] | None:
    if text == "embedded":
        return None
    found = tuple(HostPort.parse(part) for part in items(text))
    if not found:
        raise ValueError("it names no broker; write host:port,… or embedded")
    for address in found:
        if not address.host or not address.port:
            raise ValueError(f"{address} needs both a host and a port")
    return found


def _store(text: str) -> str:
    checked(text)
    return text


def _usage(text: str) -> UsageTarget:
    kind, _, place = text.partition(":")
    if text == "none":
        return UsageTarget("none", "")
    if kind not in ("files", "kafka") or not place:
        raise ValueError(f"{text!r} isn't files:DIR, kafka:TOPIC or none")
    if kind == "kafka" and not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", place):
        raise ValueError(f"{place!r} can't be a topic's name")
    return UsageTarget(kind, place)


def _python_class(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text):
        hint = "; Java classes can't run here" if re.fullmatch(r"[\w.$]+", text) else ""
        raise ValueError(f"{text!r} isn't module:Class{hint}")
    return text


def _mapping_rules(text: str) -> tuple[str, ...]:
    # A comma may stand inside a rule's pattern: split only where a new rule begins.
    # Source: SslPrincipalMapper.RULE_PARSER.
    rules = tuple(
        part.strip() for part in re.split(r",\s*(?=DEFAULT|RULE:)", text.strip()) if part.strip()
    )
    for rule in rules:
        if rule == "DEFAULT":
            continue
        match = re.fullmatch(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", rule)
        if match is None:
            raise ValueError(f"{rule!r} isn't DEFAULT or RULE:pattern/replacement/[LU]")
        try:
            re.compile(match[1])
        except BAD_PATTERN as exc:
            raise ValueError(f"{rule!r}: the pattern can't be read: {exc}") from None
    return rules


BOOLEAN = ValueKind("boolean", _boolean, "true, false")
TEXT = ValueKind("string", _text)
PATH = ValueKind("string", _text, "a path")
PASSWORD = ValueKind("password", Password)
WORDS = ValueKind("list", _words, "a,b,…")
ENDPOINTS = ValueKind("list", _endpoints, "NAME://host:port,…")
ENDPOINT = ValueKind("string", Endpoint.parse, "NAME://host:port")
ADDRESS = ValueKind("string", HostPort.parse, "host:port")
PROTOCOL = ValueKind("string", _protocol, _PROTOCOLS.valid)
PROTOCOL_MAP = ValueKind("list", _protocol_map, "NAME:PROTOCOL,…")
BURSTS = ValueKind("list", _bursts, "users/NAME:seconds,…")
COUNTS = ValueKind("list", _counts, "host:count,…")
BROKER_PORTS = ValueKind("list", _broker_ports, "broker-id:port,…")
PRINCIPALS = ValueKind("list", _principals, "User:name;User:name;…")
UPSTREAM = ValueKind("list", _upstream, "embedded, or host:port,…")
STORE = ValueKind("string", _store, forms())
USAGE = ValueKind("string", _usage, "files:DIR, kafka:TOPIC, none")
CLASS = ValueKind("class", _python_class, "module:Class")
RULES = ValueKind("list", _mapping_rules, "DEFAULT, RULE:pattern/replacement/[LU],…")
