"""Two independent codecs, kio and kafka-python, as judges of ours."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import io
import random
import types
import typing
import uuid
import warnings
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from headgate.wire.header import build_request, build_response

QUICK = settings(max_examples=40, deadline=None)
FEW = settings(max_examples=8, deadline=None)  # where every API and version is gone through


@functools.cache
def kio_versions(key: int) -> tuple[int, ...]:
    kinds = schema_name_map[api_key_map[key]]
    return tuple(v for v, found in sorted(kinds.items()) if EntityType.response in found)


def kio_schema(key: int, version: int, response: bool) -> type:
    return (load_response_schema if response else load_request_schema)(key, version)


def kio_values(key: int, version: int, response: bool) -> st.SearchStrategy[Any]:
    """Any message that kio can write; drawn as a seed, so that big messages stay cheap."""
    seeds = st.integers(min_value=0, max_value=2**32)
    return seeds.map(lambda seed: random_kio(key, version, response, seed))


def random_kio(key: int, version: int, response: bool, seed: int) -> Any:
    return _random(kio_schema(key, version, response), random.Random(seed))


_hints = functools.cache(typing.get_type_hints)
_TEXT = "abcXYZ019-_.äß漢🙂 ="


def _random(kind: Any, rng: random.Random) -> Any:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        options = [x for x in typing.get_args(kind) if x is not type(None)]
        return None if rng.random() < 0.3 else _random(options[0], rng)
    if origin is tuple:
        return tuple(
            _random(typing.get_args(kind)[0], rng) for _ in range(rng.choice((0, 1, 1, 2)))
        )
    if hasattr(kind, "__dataclass_fields__"):
        hints = _hints(kind)
        values = {}
        for field in dataclasses.fields(kind):
            optional = "tag" in field.metadata and field.default is not dataclasses.MISSING
            if optional and rng.random() < 0.5:
                continue
            if field.name == "port":
                values["port"] = hints["port"](rng.randint(1, 65535))
                continue
            values[field.name] = _random(hints[field.name], rng)
        return kind(**values)
    if kind.__name__ == "ErrorCode":
        return rng.choice(list(kind))
    if issubclass(kind, bool):
        return rng.random() < 0.5
    if hasattr(kind, "__low__"):
        low, high = kind.__low__, kind.__high__
        return kind(rng.choice((low, high, max(low, 0), rng.randint(low, high), max(low, 5))))
    if issubclass(kind, datetime.timedelta):
        ceiling = 2**31 - 1 if "32" in kind.__name__ else 10**12
        return datetime.timedelta(milliseconds=rng.choice((0, 1, rng.randint(0, ceiling))))
    if issubclass(kind, datetime.datetime):
        return datetime.datetime.fromtimestamp(rng.randint(0, 2**31), datetime.UTC)
    if issubclass(kind, uuid.UUID):
        return uuid.UUID(int=rng.getrandbits(128) | 1)
    if issubclass(kind, float):
        return rng.choice((0.0, 1.5, -1e300, rng.random()))
    if issubclass(kind, bytes):
        return rng.randbytes(rng.choice((0, 1, 126, 127, 128, 300)))
    if issubclass(kind, str):
        return "".join(rng.choices(_TEXT, k=rng.choice((0, 1, 5, 63, 130))))
    raise TypeError(f"no random {kind}")


def kio_encode(value: Any) -> bytes:
    with io.BytesIO() as out:
        entity_writer(type(value))(out, value)
        return out.getvalue()


def kio_decode(key: int, version: int, response: bool, body: bytes) -> Any:
    value, size = entity_reader(kio_schema(key, version, response))(body, 0)
    assert size == len(body), "kio left bytes over"
    return value


def kio_response(value: Any, correlation_id: int = 7) -> bytes:
    kind = type(value)
    return build_response(
        int(kind.__api_key__), int(kind.__version__), correlation_id, kio_encode(value)
    )


def kio_request(value: Any, correlation_id: int = 7, client_id: str | None = "c") -> bytes:
    kind = type(value)
    return build_request(
        int(kind.__api_key__), int(kind.__version__), correlation_id, client_id, kio_encode(value)
    )


_KAFKA_PYTHON = ("producer", "consumer", "metadata", "admin", "sasl")


@functools.cache
def kafka_python_class(name: str) -> type:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it reads its schemas by a deprecated function
        for module in _KAFKA_PYTHON:
            found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
            if found is not None:
                return found
    raise LookupError(name)


def kafka_python_decode(name: str, version: int, body: bytes) -> Any:
    """Read a body by kafka-python; the class is named as in Kafka (``MetadataResponse``)."""
    return kafka_python_class(name).decode(body, version=version)


def kafka_python_encode(value: Any, version: int) -> bytes:
    value._header = None  # encode looks for one, decode without a header leaves none
    return bytes(value.encode(version=version))
