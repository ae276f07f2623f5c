"""
The kinds of stores: one table, from which settings, commands, messages and the opening of a store
take what they know of them. A new kind is a package of its own below ``store``, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from headgate.config.listeners import HostPort


class StoreKind(NamedTuple):
    """
    A kind of store.

    Args:
        place: how what follows the scheme and its colon is written, for help and messages.
        opener: module and function, ``MODULE:FUNCTION``, called with the place, the settings (None:
            plaintext) and whether to make a store that is missing. It is imported when a store of
            this kind is opened, so that its libraries are needed by nobody else.
        check: raises ValueError, with the reason, for what can't be a place.
        credentials: the settings that have them; "" where none are needed.
        is_file: the place is a file's path.
        is_cluster: the place names brokers of the cluster that obeys the quotas.
        is_kafka_3: it has what brokers in ZooKeeper mode read, by their rules.
    """

    place: str
    opener: str
    check: Callable[[str], object]
    credentials: str = ""
    is_file: bool = False
    is_cluster: bool = False
    is_kafka_3: bool = False


def check_name(place: str) -> None:
    """Refuse a place that is empty, or a root only."""
    if not place.strip("/"):
        raise ValueError("it names nothing")


def addresses(place: str) -> list[HostPort]:
    """
    Return the addresses of ``//HOST:PORT,HOST:PORT/…``.

    Raises:
        ValueError: they aren't addresses.
    """
    if not place.startswith("//"):
        raise ValueError("two slashes go before its address")
    hosts = place[2:].partition("/")[0]
    parts = [part for part in hosts.split(",") if part.strip()]
    return [HostPort.parse(part) for part in parts or [""]]


def _check_brokers(place: str) -> None:
    addresses(place)
    path = place[2:].partition("/")[2]
    if path:
        raise ValueError(f"a Kafka cluster has no path, so /{path} can't follow its addresses")


KINDS: Final[dict[str, StoreKind]] = {
    "sqlite": StoreKind("PATH", "headgate.store.sqlite.store:open_home", check_name, is_file=True),
    "zookeeper": StoreKind(
        "//HOST:PORT/CHROOT",
        "headgate.store.zookeeper.store:open_home",
        addresses,
        credentials="headgate.store.zookeeper.sasl.username and .password",
        is_kafka_3=True,
    ),
    "kafka": StoreKind(
        "//HOST:PORT",
        "headgate.store.kafka.store:open_home",
        _check_brokers,
        credentials="headgate.store.kafka.sasl.*",
        is_cluster=True,
    ),
}
"""By the scheme of their URLs."""


def forms(last: str = ", ") -> str:
    """Return how the URLs of all kinds are written; ``last`` goes before the last one."""
    *most, end = (f"{scheme}:{kind.place}" for scheme, kind in KINDS.items())
    return f"{', '.join(most)}{last}{end}"


def kind_of(url: str) -> StoreKind | None:
    """Return the kind of a store by its URL; None: it names none."""
    return KINDS.get(url.partition(":")[0])


def checked(url: str) -> tuple[StoreKind, str]:
    """
    Return the kind of a store, and the place that its URL names.

    Raises:
        ValueError: it names no store; the text holds no password.
    """
    kind, place = kind_of(url), url.partition(":")[2]
    if "@" in place and not (kind is not None and kind.is_file):
        known = (each.credentials for each in KINDS.values() if each.credentials)
        raise ValueError(
            f"{hidden(url)} holds credentials, which don't belong there; use {', or '.join(known)}"
        )
    if kind is None or not place:
        raise ValueError(f"{url!r} names no store; use {forms(' or ')}")
    try:
        kind.check(place)
    except ValueError as exc:
        raise ValueError(f"{url!r} names no store: {exc}; use {forms(' or ')}") from None
    return kind, place


def hidden(url: str) -> str:
    """Return a store's URL without the part before an ``@``: it may be a password."""
    scheme, colon, rest = url.partition(":")
    slashes = "//" if rest.startswith("//") else ""
    return f"{scheme}{colon}{slashes}***@{rest.rpartition('@')[2]}"


def is_missing(url: str) -> bool:
    """Whether a URL names a file that isn't there."""
    kind, place = kind_of(url), url.partition(":")[2]
    return kind is not None and kind.is_file and bool(place.strip("/")) and not Path(place).exists()
