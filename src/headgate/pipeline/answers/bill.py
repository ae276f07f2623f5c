"""
Read a bill, and the file that says who owns which principals and topics.

A bill is YAML or JSON::

    amount: 1250.40
    currency: EUR
    start: 2026-11-01               # UTC; the end isn't part of it
    end: 2026-12-01
    account: {id: "4711", name: Streaming}
    provider: Example Cloud         # publisher and issuer: the same, unless given
    weights: {bytes_in: 3, bytes_out: 1, storage: 2}

So is an owners file. The first owner that names a principal or topic, or has a pattern (``*``,
``?``) for it, owns it; names go before patterns::

    owners:
      payments:
        principals: [alice, "pay-*"]
        topics: ["payments.*"]
        labels: {cost-center: "4711"}
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from headgate.errors import ConfigError
from headgate.yaml_reading import read_yaml_file


class Weight(NamedTuple):
    """What a bill can be shared by: of a principal or topic; its unit, counts per unit, a name."""

    of: str
    unit: str
    per_unit: int
    words: str


WEIGHTS: Final = {
    "bytes_in": Weight("principal", "GB", 10**9, "bytes produced"),
    "bytes_out": Weight("principal", "GB", 10**9, "bytes fetched"),
    "requests": Weight("principal", "Requests", 1, "requests"),
    "handler_time": Weight("principal", "Seconds", 10**9, "handler thread time"),
    "connections": Weight("principal", "Connections", 1, "new connections"),
    "storage": Weight("topic", "GB", 10**9, "bytes on disk"),
    "partitions": Weight("topic", "Partitions", 1, "replicas of partitions"),
}
"""Units are those of FOCUS 1.2, "Unit Format"."""
_TEXTS: Final = ("currency", "provider", "publisher", "issuer", "service", "invoice")
_NEEDED: Final = ("amount", "currency", "start", "end", "account", "provider", "weights")


@dataclass(frozen=True)
class Bill:
    """
    One bill.

    Args:
        amount: in ``currency``; less than 0 is money back.
        currency: ISO 4217.
        start, end: its period, UTC; the end isn't part of it.
        account, account_name: billing account, and its name if it has one.
        provider, publisher, issuer: whose service it is, who made it, who sent the bill.
        weights: of what it is shared by, each 0 or more.
        decimals: digits after the point that can be paid.
        service: what is billed.
        invoice: the bill's number, if it has one.
    """

    amount: Decimal
    currency: str
    start: datetime
    end: datetime
    account: str
    account_name: str | None
    provider: str
    publisher: str
    issuer: str
    weights: Mapping[str, Decimal]
    decimals: int = 2
    service: str = "Apache Kafka"
    invoice: str | None = None

    def by(self, of: str) -> list[str]:
        """Return the weights above 0 that are about ``principal`` or ``topic``."""
        return [name for name in WEIGHTS if self.weights.get(name) and WEIGHTS[name].of == of]


class Owner(NamedTuple):
    """An owner, and its labels as FOCUS has tags: a JSON object, or None."""

    name: str
    tags: str | None


@dataclass(frozen=True)
class Owners:
    """
    Who owns what.

    Args:
        owners: names and labels.
        names: by ``principal`` or ``topic``, then by name: the owner's index in ``owners``.
        patterns: by ``principal`` or ``topic``: (pattern, owner's index), in the file's order.
    """

    owners: Sequence[Owner] = ()
    names: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    patterns: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)

    def of(self, kind: str, name: str) -> Owner | None:
        """Return who owns a ``principal`` or ``topic``; None: nobody."""
        found = self.names.get(kind, {}).get(name)
        if found is None:
            patterns = self.patterns.get(kind, ())
            found = next((at for text, at in patterns if fnmatchcase(name, text)), None)
        return None if found is None else self.owners[found]


def load_bill(path: str) -> Bill:
    """
    Read a bill.

    Raises:
        ConfigError: with every mistake at once.
    """
    return _load(path, "--bill", _bill)


def load_owners(path: str) -> Owners:
    """
    Read an owners file.

    Raises:
        ConfigError: with every mistake at once.
    """
    return _load(path, "--owners", _owners)


def _load(path: str, flag: str, read: Callable[[Any, list[str]], Any]) -> Any:
    wrong: list[str] = []
    found = read(read_yaml_file(path, flag=flag), wrong)
    if wrong:
        raise ConfigError([f"{flag} {path}: {each}" for each in wrong])
    return found


def _mapping(data: Any, what: str, known: Sequence[str], wrong: list[str]) -> dict[str, Any]:
    """Return a mapping; names outside of ``known`` are mistakes (``known`` empty: none is)."""
    if not isinstance(data, dict):
        wrong.append(f"{what} must be names with values")
        return {}
    if known:
        wrong += [f"{what} has no {name!r}; known: {', '.join(known)}" for name in data
                  if name not in known]  # fmt: skip
    return {str(name): value for name, value in data.items()}


def _bill(data: Any, wrong: list[str]) -> Bill | None:
    known = (*_NEEDED, "decimals", *_TEXTS[2:])
    given = _mapping(data, "a bill", known, wrong)
    wrong += [f"{name} is missing" for name in _NEEDED if name not in given]
    for name in _TEXTS:
        if name in given and (not isinstance(given[name], str) or not given[name].strip()):
            wrong.append(f"{name} must be a text")
    account = _mapping(given.get("account", {}), "account", ("id", "name"), wrong)
    if not account.get("id") or not all(isinstance(text, str) for text in account.values()):
        wrong.append("account needs an id, and may have a name")
    weights = _mapping(given.get("weights", {}), "weights", tuple(WEIGHTS), wrong)
    shares = {name: _number(f"weights: {name}", value, wrong) for name, value in weights.items()}
    if any(share < 0 for share in shares.values()) or not any(shares.values()):
        wrong.append("weights must be 0 or more, and one above 0")
    decimals = _number("decimals", given.get("decimals", "2"), wrong)
    if decimals not in range(5):
        wrong.append("decimals must be 0 to 4")
    amount = _number("amount", given.get("amount", "0"), wrong)
    if not wrong and amount != round(amount, int(decimals)):
        wrong.append(f"amount {amount} has more than {decimals} digits after the point")
    start, end = (_moment(name, given.get(name, ""), wrong) for name in ("start", "end"))
    if start >= end:
        wrong.append("its end must be after its start")
    if not re.fullmatch("[A-Z]{3}", str(given.get("currency", ""))):
        wrong.append("currency must be three capital letters (ISO 4217), such as EUR")
    if wrong:
        return None
    optional = {name: given[name] for name in ("service", "invoice") if name in given}
    return Bill(
        amount, given["currency"], start, end, account["id"], account.get("name") or None,
        given["provider"], given.get("publisher", given["provider"]),
        given.get("issuer", given["provider"]), shares, int(decimals), **optional,
    )  # fmt: skip


def _number(what: str, text: Any, wrong: list[str]) -> Decimal:
    """Return a number within bounds in which sums stay exact."""
    try:
        number = Decimal(text)
        if number.is_finite() and abs(number) < 10**18 and round(number, 6) == number:
            return number
    except (InvalidOperation, TypeError, ValueError):
        pass
    wrong.append(f"{what} is {text!r}; give a number, at most 18 digits and 6 after the point")
    return Decimal(0)


def _moment(what: str, text: Any, wrong: list[str]) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        wrong.append(f"{what} is {text!r}; give a date, or a time such as 2026-11-01T00:00:00Z")
        return datetime(1970, 1, 1, tzinfo=UTC)


def _owners(data: Any, wrong: list[str]) -> Owners:
    top = _mapping(data, "an owners file", ("owners",), wrong)
    owners: list[Owner] = []
    names: dict[str, dict[str, int]] = {"principal": {}, "topic": {}}
    patterns: dict[str, list[tuple[str, int]]] = {"principal": [], "topic": []}
    for name, each in _mapping(top.get("owners", {}), "owners", (), wrong).items():
        given = _mapping(each, name, ("principals", "topics", "labels"), wrong)
        labels = _mapping(given.get("labels") or {}, f"labels of {name}", (), wrong)
        if not all(isinstance(value, str) for value in labels.values()):
            wrong.append(f"labels of {name} must be texts")
        if not name.strip():
            wrong.append("an owner needs a name")
        tags = json.dumps(labels, ensure_ascii=False) if labels and not wrong else None
        for kind in names:
            texts = given.get(f"{kind}s") or []
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                wrong.append(f"{kind}s of {name} must be a list of names")
                continue
            for text in texts:
                if re.search(r"[*?\[]", text):
                    patterns[kind].append((text, len(owners)))
                elif names[kind].setdefault(text, len(owners)) != len(owners):
                    other = owners[names[kind][text]].name
                    wrong.append(f"{kind} {text} belongs to {other} and to {name}")
        owners.append(Owner(name, tags))
    return Owners(owners, names, patterns)
