"""
Messages as data: a message is a dataclass whose annotations say how its fields are written.

For what is off the hot path. One description serves both directions and all versions, so encoder
and decoder can't drift apart::

    @message("throttle_time_ms")
    class ListGroupsResponse:
        error_code: Int16
        groups: tuple[ListedGroup, ...]
        throttle_time_ms: Int32 = versions(0, since=1)

    LIST_GROUPS_RESPONSE = struct(ListGroupsResponse)

A field that a version lacks keeps the dataclass's default when read and is left out when written.
Unlike kio's, the float64 here takes infinities and NaN: a quota may be infinite.
"""

from __future__ import annotations

import dataclasses
import struct as packing
import types
import typing
import uuid
from collections.abc import Callable, Sequence
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    dataclass_transform,
)

from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.steps import FEW, Work
from headgate.wire import fields as f
from headgate.wire.fields import Buffer

T = TypeVar("T")


class Type(Protocol):
    """How one kind of value is read and written; ``flexible`` is the version's encoding."""

    def read(self, buffer: Buffer, offset: int, version: int, flexible: bool) -> tuple[Any, int]:
        """Return the value and the next offset."""

    def write(self, value: Any, out: list[bytes], version: int, flexible: bool) -> None:
        """Append the value's bytes."""


class _Fixed(NamedTuple):
    reader: Callable[[Buffer, int], tuple[Any, int]]
    pack: Callable[[Any], bytes]

    def read(self, buffer: Buffer, offset: int, version: int, flexible: bool) -> tuple[Any, int]:
        return self.reader(buffer, offset)

    def write(self, value: Any, out: list[bytes], version: int, flexible: bool) -> None:
        out.append(self.pack(value))


class _Sized(NamedTuple):
    reader: Callable[[Buffer, int, bool], tuple[Any, int]]
    writer: Callable[[Any, bool], bytes]
    nullable: bool

    def read(self, buffer: Buffer, offset: int, version: int, flexible: bool) -> tuple[Any, int]:
        return self.reader(buffer, offset, flexible)

    def write(self, value: Any, out: list[bytes], version: int, flexible: bool) -> None:
        if value is None and not self.nullable:
            raise TypeError("null where the protocol has none")
        out.append(self.writer(value, flexible))


BOOL = _Fixed(f.read_bool, lambda value: b"\x01" if value else b"\x00")
INT8 = _Fixed(f.read_int8, f.INT8.pack)
INT16 = _Fixed(f.read_int16, f.INT16.pack)
INT32 = _Fixed(f.read_int32, f.INT32.pack)
INT64 = _Fixed(f.read_int64, f.INT64.pack)
FLOAT64 = _Fixed(f.read_float64, f.FLOAT64.pack)
UUID = _Fixed(f.read_uuid, lambda value: value.bytes)
STRING = _Sized(f.read_string, f.write_nullable_string, False)
NULLABLE_STRING = _Sized(f.read_nullable_string, f.write_nullable_string, True)
BYTES = _Sized(f.read_bytes, f.write_nullable_bytes, False)
NULLABLE_BYTES = _Sized(f.read_nullable_bytes, f.write_nullable_bytes, True)

Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]
"""Kafka's types of whole numbers, as annotations of fields: Python has one type for all."""
_BY_HINT: Final[dict[Any, Any]] = {
    bool: BOOL,
    float: FLOAT64,
    uuid.UUID: UUID,
    str: STRING,
    str | None: NULLABLE_STRING,
    bytes: BYTES,
    bytes | None: NULLABLE_BYTES,
}


class Array(NamedTuple):
    """An array of one type, read as a tuple; None when null."""

    element: Type
    nullable: bool = False

    def read(self, buffer: Buffer, offset: int, version: int, flexible: bool) -> tuple[Any, int]:
        """Return the elements and the next offset."""
        count, offset = self.begin(buffer, offset, flexible)
        if count < 0:
            return None, offset
        values = []
        read = self.element.read
        for _ in range(count):
            value, offset = read(buffer, offset, version, flexible)
            values.append(value)
        return tuple(values), offset

    def begin(self, buffer: Buffer, offset: int, flexible: bool) -> tuple[int, int]:
        """Return the number of elements, -1 for null, and the first one's offset."""
        count, offset = f.read_array_length(buffer, offset, flexible)
        if count < 0 and not self.nullable:
            raise RemoteProtocolError(f"null array at byte {offset} where one must stand")
        return count, offset

    def write(self, value: Any, out: list[bytes], version: int, flexible: bool) -> None:
        """Append the count and the elements."""
        if value is None:
            if not self.nullable:
                raise TypeError("null array where the protocol has none")
            out.append(f.write_array_length(-1, flexible))
            return
        out.append(f.write_array_length(len(value), flexible))
        for item in value:
            self.element.write(item, out, version, flexible)


class Field(NamedTuple):
    """
    One field of a struct.

    Attributes:
        name: the dataclass's attribute.
        type: how it is read and written.
        since, until: first and last version that has it.
        tag: its number where it is a tagged field (flexible versions only); None otherwise.
        default: for tagged fields, the value that isn't written.
    """

    name: str
    type: Type
    since: int = 0
    until: int = f.MAX_INT16
    tag: int | None = None
    default: Any = None


class Struct(Generic[T]):
    """
    A struct of one or many versions.

    Args:
        factory: the dataclass; called with keywords.
        fields: its fields in wire order.
    """

    __slots__ = ("factory", "fields", "tagged")

    def __init__(self, factory: Callable[..., T], *fields: Field) -> None:
        self.factory = factory
        self.fields: Sequence[Field] = tuple(x for x in fields if x.tag is None)
        self.tagged: dict[int, Field] = {x.tag: x for x in fields if x.tag is not None}

    def read(self, buffer: Buffer, offset: int, version: int, flexible: bool) -> tuple[T, int]:
        """Return the value and the next offset; unknown tags are dropped."""
        values: dict[str, Any] = {}
        for name, kind, since, until, _, _ in self.fields:
            if since <= version <= until:
                values[name], offset = kind.read(buffer, offset, version, flexible)
        if flexible:
            offset = self._read_tagged(values, buffer, offset, version)
        return self.factory(**values), offset

    def _read_tagged(
        self, values: dict[str, Any], buffer: Buffer, offset: int, version: int
    ) -> int:
        """Read the tagged fields that are known here; return the next offset."""
        tags, offset = f.read_tags(buffer, offset)
        for tag, raw in tags.items():
            field = self.tagged.get(tag)
            if field is not None and field.since <= version <= field.until:
                values[field.name], _ = field.type.read(raw, 0, version, True)
        return offset

    def write(self, value: T, out: list[bytes], version: int, flexible: bool) -> None:
        """Append the value's bytes."""
        for name, kind, since, until, _, _ in self.fields:
            if since <= version <= until:
                try:
                    kind.write(getattr(value, name), out, version, flexible)
                except (packing.error, TypeError, AttributeError) as exc:
                    raise LocalProtocolError(f"{name} can't be written: {exc}") from exc
        if flexible:
            tags: dict[int, bytes] = {}
            for tag, field in self.tagged.items():
                item = getattr(value, field.name)
                if field.since <= version <= field.until and item != field.default:
                    parts: list[bytes] = []
                    field.type.write(item, parts, version, flexible)
                    tags[tag] = b"".join(parts)
            out.append(f.write_tags(tags))

    def read_steps(
        self, buffer: Buffer, offset: int, version: int, flexible: bool
    ) -> Work[tuple[T, int]]:
        """Do as ``read``, element by element."""
        values: dict[str, Any] = {}
        for name, kind, since, until, _, _ in self.fields:
            if since <= version <= until:
                values[name], offset = yield from _read_steps(
                    kind, buffer, offset, version, flexible
                )
        if flexible:
            offset = self._read_tagged(values, buffer, offset, version)
        return self.factory(**values), offset

    def write_steps(self, value: T, out: list[bytes], version: int, flexible: bool) -> Work[None]:
        """Do as ``write``, element by element, for a struct without tagged fields of its own."""
        assert not self.tagged
        for name, kind, since, until, _, _ in self.fields:
            if since <= version <= until:
                yield from _write_steps(kind, getattr(value, name), out, version, flexible)
        if flexible:
            out.append(f.write_tags({}))

    def decode_steps(self, body: Buffer, version: int, flexible: bool, offset: int = 0) -> Work[T]:
        """Do as ``decode``, step by step."""
        value, end = yield from self.read_steps(body, offset, version, flexible)
        check_end(body, end)
        return value

    def encode_steps(self, value: T, version: int, flexible: bool) -> Work[bytes]:
        """Do as ``encode``, step by step."""
        out: list[bytes] = []
        whole = bytearray()
        for _ in self.write_steps(value, out, version, flexible):
            # A million small parts would take 20 ms to join, and as long to be freed.
            if len(out) >= FEW:
                whole += b"".join(out)
                out.clear()
            yield
        whole += b"".join(out)
        return bytes(whole)

    def decode(self, body: Buffer, version: int, flexible: bool, offset: int = 0) -> T:
        """
        Read a whole body.

        Args:
            body: a buffer that ends where the message ends.
            version: the API version.
            flexible: whether that version is flexible.
            offset: where the body begins.

        Raises:
            RemoteProtocolError: it doesn't parse, or something is left over.
        """
        value, end = self.read(body, offset, version, flexible)
        check_end(body, end)
        return value

    def encode(self, value: T, version: int, flexible: bool) -> bytes:
        """Return the body's bytes."""
        out: list[bytes] = []
        self.write(value, out, version, flexible)
        return b"".join(out)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def message(*first: str) -> Callable[[type[T]], type[T]]:
    """
    Make a class a message: a frozen dataclass.

    Args:
        first: fields that come first on the wire, whatever their place in the class.
    """

    def make(cls: type[T]) -> type[T]:
        made: Any = dataclasses.dataclass(frozen=True, slots=True)(cls)
        made.first_on_the_wire = first
        return made  # type: ignore[no-any-return]

    return make


def versions(default: T, *, since: int = 0, until: int = f.MAX_INT16, tag: int | None = None) -> T:
    """
    Return the default of a message's field that not every version has.

    Args:
        default: its value where it is left out.
        since: the first version that has it.
        until: the last version that has it.
        tag: its number where it is a tagged field.
    """
    held = {"since": since, "until": until, "tag": tag, "default": default}
    return dataclasses.field(default=default, metadata=held)


def struct(made: type[T], without: str = "") -> Struct[T]:
    """
    Return how a message is read and written.

    Args:
        made: the message.
        without: a field that an API leaves out, of this message or of those in it.
    """
    hints = typing.get_type_hints(made, include_extras=True)
    fields = {
        x.name: Field(x.name, _type_of(hints[x.name], without), **x.metadata)
        for x in dataclasses.fields(made)  # type: ignore[arg-type]
        if x.name != without
    }
    first = [name for name in made.first_on_the_wire if name != without]  # type: ignore[attr-defined]
    return Struct(made, *(fields.pop(name) for name in first), *fields.values())


def _type_of(hint: Any, without: str) -> Type:
    """Return how a field with this annotation is read and written."""
    known = _BY_HINT.get(hint)
    if known is not None:
        return known  # type: ignore[no-any-return]
    if typing.get_origin(hint) is Annotated:
        return typing.get_args(hint)[1]  # type: ignore[no-any-return]
    nullable = typing.get_origin(hint) is types.UnionType
    array = typing.get_args(hint)[0] if nullable else hint
    if typing.get_origin(array) is tuple:
        return Array(_type_of(typing.get_args(array)[0], without), nullable)
    return struct(hint, without)


def check_end(body: Buffer, end: int) -> None:
    """Raise RemoteProtocolError unless a message ends where its body does."""
    if end != len(body):
        raise RemoteProtocolError(f"{len(body) - end} bytes left over after the message")


def _read_steps(
    kind: Type, buffer: Buffer, offset: int, version: int, flexible: bool
) -> Work[tuple[Any, int]]:
    """Read a value of any type, step by step."""
    if isinstance(kind, Struct):
        return (yield from kind.read_steps(buffer, offset, version, flexible))
    if not isinstance(kind, Array):
        return kind.read(buffer, offset, version, flexible)
    count, offset = kind.begin(buffer, offset, flexible)
    if count < 0:
        return None, offset
    values = []
    for _ in range(count):
        value, offset = yield from _read_steps(kind.element, buffer, offset, version, flexible)
        values.append(value)
        yield
    return tuple(values), offset


def _write_steps(
    kind: Type, value: Any, out: list[bytes], version: int, flexible: bool
) -> Work[None]:
    """Write a value of any type, step by step."""
    if isinstance(kind, Array) and value is not None:
        out.append(f.write_array_length(len(value), flexible))
        for item in value:
            yield from _write_steps(kind.element, item, out, version, flexible)
            yield
    elif isinstance(kind, Struct) and not kind.tagged:
        yield from kind.write_steps(value, out, version, flexible)
    else:
        kind.write(value, out, version, flexible)
