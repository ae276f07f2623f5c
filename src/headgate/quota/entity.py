"""
Quota entities: the map of entity type to name that a quota is written for.

A request belongs to an entity with plain names; a quota is written for an entity (KIP-546: an
entity match) whose names may be ``DEFAULT``. One class serves both.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import ClassVar, Final

from headgate.errors import InvalidQuota
from headgate.java_text import java_bucket
from headgate.quota.sanitizer import desanitize, sanitize


class Default(enum.Enum):
    """The type of :data:`DEFAULT`, so that type checkers know the sentinel."""

    DEFAULT = "<default>"

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default.DEFAULT
"""The built-in default name. Null on the released wire, ``<default>`` in ZooKeeper and in print.
Never ``""`` and never the string ``"<default>"``, which is an ordinary name."""

EntityName = str | Default


class EntityType(StrEnum):
    """The entity types Kafka knows. Others are strings too (KIP-546 "Types Rationale")."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


KNOWN_TYPES: Final = frozenset(map(str, EntityType))
"""The types that Headgate's servers and stores accept; they refuse any other by its name."""

_JAVA_SPELLINGS = {"USER": "user", "CLIENT_ID": "client-id", "IP": "ip"}
_ORDER = {"user": 0, "client-id": 1, "ip": 2}
_PATH_WORDS = {"user": "users", "client-id": "clients", "ip": "ips"}


def canonical_entity_type(entity_type: str) -> str:
    """
    Return the wire spelling of an entity type.

    Args:
        entity_type: ``user`` or the Java enum's ``USER``; unknown types pass as they are.

    Source: KIP-546 "Types Rationale".
    """
    return _JAVA_SPELLINGS.get(entity_type, str(entity_type))


class QuotaEntity:
    """
    A map of entity type to name, immutable and hashable; order doesn't matter.

    Args:
        entries: entity type to name or :data:`DEFAULT`. Unknown types are allowed here: the
            admin client passes them on, servers and stores refuse them by name. The names of the
            Java enum, ``USER`` and ``CLIENT_ID``, mean the same.

    Source: KIP-546 "Public Interfaces"; org.apache.kafka.common.quota.ClientQuotaEntity.
    """

    __slots__ = ("_hash", "_items")
    Type: ClassVar = EntityType

    def __init__(self, entries: Mapping[str, EntityName]) -> None:
        self._keep({canonical_entity_type(t): name for t, name in entries.items()})
        if len(self._items) != len(entries):
            twice = ", ".join(map(str, entries))
            raise InvalidQuota(f"an entity type is given twice: {twice}")

    def _keep(self, entries: Mapping[str, EntityName]) -> None:
        items = [(str(t), name) for t, name in entries.items()]
        for entity_type, name in items:
            if not isinstance(name, (str, Default)):
                raise InvalidQuota(
                    f"the name of entity type {entity_type!r} must be text or DEFAULT, not {name!r}"
                )
        if len(items) > 1:
            items.sort(key=lambda item: (_ORDER.get(item[0], 9), item[0]))
        self._items: tuple[tuple[str, EntityName], ...] = tuple(items)
        self._hash = hash(self._items)

    @classmethod
    def verbatim(cls, entries: Mapping[str, EntityName]) -> QuotaEntity:
        """Build from types as the released wire spells them: ``USER`` is no type there."""
        made = cls.__new__(cls)
        made._keep(entries)
        return made

    @classmethod
    def of(
        cls,
        *,
        user: EntityName | None = None,
        client_id: EntityName | None = None,
        ip: EntityName | None = None,
    ) -> QuotaEntity:
        """Build an entity from the known types; None means the type isn't part of it."""
        named = {"user": user, "client-id": client_id, "ip": ip}
        return cls({entity_type: name for entity_type, name in named.items() if name is not None})

    @property
    def entries(self) -> dict[str, EntityName]:
        """Entity type to name: user first, then client-id, ip, and others by name."""
        return dict(self._items)

    def get(self, entity_type: str) -> EntityName | None:
        """Return the name of a type, or None where the type isn't part of the entity."""
        for own, name in self._items:
            if own == entity_type:
                return name
        return None

    @property
    def user(self) -> EntityName | None:
        """The user's name, DEFAULT, or None."""
        return self.get("user")

    @property
    def client_id(self) -> EntityName | None:
        """The client-id, DEFAULT, or None."""
        return self.get("client-id")

    @property
    def ip(self) -> EntityName | None:
        """The address or host name, DEFAULT, or None."""
        return self.get("ip")

    @property
    def types(self) -> tuple[str, ...]:
        """The entity types that are part of it, in print order."""
        return tuple(t for t, _ in self._items)

    @property
    def shape(self) -> str:
        """``user``, ``client-id``, ``user+client-id``, ``ip``: as :data:`KEYS` lists them."""
        return "+".join(self.types)

    @property
    def has_default(self) -> bool:
        """Whether any part is the default name."""
        return any(name is DEFAULT for _, name in self._items)

    @property
    def path(self) -> str:
        """
        The entity's path below ``/config``, sanitised: ``users/alice/clients/<default>``.

        Raises:
            InvalidQuota: the entity has no such path (empty, unknown types).

        Source: KIP-55 "Quota Persistence in Zookeeper".
        """
        if not self._items or any(t not in _PATH_WORDS for t in self.types):
            raise InvalidQuota(
                f"{self} has no configuration path; use user, client-id, both, or ip"
            )
        return "/".join(f"{_PATH_WORDS[t]}/{print_name(name)}" for t, name in self._items)

    def __iter__(self) -> Iterator[tuple[str, EntityName]]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuotaEntity) and self._items == other._items

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: QuotaEntity) -> bool:
        return self.sort_key < other.sort_key

    @property
    def sort_key(self) -> tuple[tuple[int, str, bool, str], ...]:
        """Order for print: by type, named before default, then by name."""
        return tuple(
            (_ORDER.get(t, 9), t, n is DEFAULT, "" if n is DEFAULT else str(n))
            for t, n in self._items
        )

    def __str__(self) -> str:
        inner = ", ".join(f"{sanitize(t)}={print_name(name)}" for t, name in self._items)
        return "{" + inner + "}"

    def __repr__(self) -> str:
        return f"QuotaEntity({dict(self._items)!r})"

    def __reduce__(self) -> tuple[type[QuotaEntity], tuple[dict[str, EntityName]]]:
        return (QuotaEntity, (dict(self._items),))

    @property
    def java_text(self) -> str:
        """What Kafka's own messages print, ``ClientQuotaEntity(entries={user=u})``, raw names."""
        # Java's HashMap, of 16 buckets, prints bucket by bucket.
        by_bucket = sorted(self._items, key=lambda item: java_bucket(item[0], 16))
        inner = ", ".join(f"{t}={'null' if n is DEFAULT else n}" for t, n in by_bucket)
        return f"ClientQuotaEntity(entries={{{inner}}})"


def print_name(name: EntityName) -> str:
    """Return a name as print and paths spell it: sanitised, or ``<default>``."""
    return "<default>" if isinstance(name, Default) else sanitize(name)


def parse_name(text: str) -> EntityName:
    """Read what :func:`print_name` wrote."""
    return DEFAULT if text == "<default>" else desanitize(text)


def entity_from_path(path: str) -> QuotaEntity:
    """
    Read a configuration path, ``users/alice/clients/<default>``.

    Args:
        path: sanitised names; a leading ``/config/`` or ``/`` is allowed.

    Raises:
        InvalidQuota: the path isn't that of a quota entity.

    Source: KIP-55 "Quota Persistence in Zookeeper", notification version 2.
    """
    words = path.removeprefix("/config/").strip("/").split("/")
    types = {word: t for t, word in _PATH_WORDS.items()}
    if len(words) % 2 == 0 and all(w in types for w in words[::2]) and all(words[1::2]):
        entries = {types[w]: parse_name(n) for w, n in zip(words[::2], words[1::2], strict=True)}
        if len(entries) * 2 == len(words) and (len(entries) == 1 or set(entries) == _PAIR):
            return QuotaEntity(entries)
    raise InvalidQuota(
        f"{path!r} isn't the path of a quota entity; expected users/NAME, clients/NAME, "
        "users/NAME/clients/NAME or ips/ADDRESS"
    )


_PAIR = {"user", "client-id"}


def parse_entity(text: str) -> QuotaEntity:
    """
    Read what ``str(entity)`` wrote: ``{user=alice, client-id=<default>}``.

    Raises:
        InvalidQuota: the text isn't of that form.
    """
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}")):
        raise InvalidQuota(f"{text!r} isn't an entity; expected {{user=NAME, client-id=NAME}}")
    entries: dict[str, EntityName] = {}
    for part in filter(None, (p.strip() for p in body[1:-1].split(","))):
        entity_type, equals, name = part.partition("=")
        if not equals:
            raise InvalidQuota(f"{part!r} in {text!r} isn't of the form type=name")
        if desanitize(entity_type) in entries:
            raise InvalidQuota(f"entity type {entity_type} stands twice in {text!r}")
        entries[desanitize(entity_type)] = parse_name(name)
    return QuotaEntity(entries)


def quota_id(user: str, client_id: str) -> str:
    """
    Return the quota-id of a tag pair: ``user1:``, ``user2:clientA``, ``:clientA``.

    Args:
        user: the raw user tag, "" where the user isn't part of it.
        client_id: the client-id tag, "" where it isn't part of it.

    Split it at the first colon to get the tags back: a sanitised user has none.

    Source: KIP-55 "Quota Identifier".
    """
    return f"{sanitize(user)}:{client_id}"
