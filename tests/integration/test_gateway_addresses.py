"""No way past the gateway: every answer that names a broker, in every version, by raw sockets."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import socket
import struct
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from headgate.embedded import EmbeddedKafka
from headgate.gateway import GatewayThread
from headgate.wire import apis
from headgate.wire.fields import write_nullable_string
from headgate.wire.header import correlation_id
from kit.wire_oracles import kio_decode, kio_request, kio_schema, kio_versions

from .gateway_kit import make_gateway, topic, wait_for

__all__ = ["make_gateway"]
pytestmark = pytest.mark.kafka4
Address = tuple[str, int]

# One record's batch; who isn't the leader looks no further than its length and magic.
BATCH = (
    struct.pack(">qiibIhiqqqhii", 0, 57, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1) + b"\x0e" + bytes(7)
)


def made(kind: type, **given: Any) -> Any:
    """Make a message of which only some fields matter: others are empty, false or 0."""
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if isinstance(hint, types.UnionType):  # with None
            hint = typing.get_args(hint)[0]
        if field.name in given:
            value = given[field.name]
            if isinstance(value, list):
                inner = typing.get_args(hint)[0]
                values[field.name] = tuple(
                    made(inner, **{**given, **item}) if isinstance(item, dict) else item
                    for item in value
                )
            elif value is None or isinstance(value, bytes | tuple | uuid.UUID):
                values[field.name] = value
            else:
                values[field.name] = value if isinstance(value, str) else hint(value)
        elif field.default is not dataclasses.MISSING:
            continue
        elif typing.get_origin(hint) is tuple:
            values[field.name] = ()
        elif issubclass(hint, datetime.timedelta):
            values[field.name] = hint.parse(datetime.timedelta())
        else:
            values[field.name] = hint() if hint in (str, bool, bytes) else hint(0)
    return kind(**values)


class Peer:
    """A connection that speaks frames."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._sock = socket.create_connection(address, 60)
        self._stream = self._sock.makefile("rb")
        self._count = 0

    def ask(self, request: Any) -> bytes:
        self._count += 1
        self._sock.sendall(kio_request(request, self._count, "addresses"))
        head = self._stream.read(4)
        frame: bytes = head + self._stream.read(struct.unpack(">i", head)[0])
        assert correlation_id(frame) == self._count
        return frame

    def close(self) -> None:
        self._stream.close()
        self._sock.close()


def names(frame: bytes, addresses: set[Address]) -> set[Address]:
    """Return which of the addresses an answer has, old strings or compact ones."""
    return {
        (host, port)
        for host, port in addresses
        for flexible in (False, True)
        if write_nullable_string(host, flexible) + struct.pack(">i", port) in frame
        or write_nullable_string(host, flexible) + struct.pack(">H", port) in frame
    }


def address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


def questions(name: str, topic_id: uuid.UUID, group: str) -> list[Any]:
    """
    Return every version of every request that a broker answers with brokers' names.

    But DescribeQuorum, below, and ShareAcknowledge, which does so only while a leader moves
    (``unit/gateway/test_session_addresses.py``).
    """
    part = {"index": 0, "partition": 0, "partition_index": 0, "partition_max_bytes": 1_000}
    at = {"topic": name, "name": name, "topic_id": topic_id}
    always = [
        made(kio_schema(key, v, False), **given)
        for key, given in (
            (apis.METADATA, {"topics": []}),
            (apis.FIND_COORDINATOR, {"key": group, "coordinator_keys": [group]}),
            (apis.DESCRIBE_CLUSTER, {}),
        )
        for v in kio_versions(key)
    ]
    produces = [
        made(kio_schema(apis.PRODUCE, v, False), acks=1,
             topic_data=[{**at, "partition_data": [{**part, "records": BATCH}]}])
        for v in range(10, 14)
    ]  # fmt: skip
    fetches = [
        made(kio_schema(apis.FETCH, v, False), max_bytes=1_000,
             topics=[{**at, "partitions": [part]}])
        for v in range(16, 19)
    ]  # fmt: skip
    shares = []
    for v in kio_versions(apis.SHARE_FETCH):
        member = {"group_id": group, "member_id": str(uuid.uuid4()), "max_bytes": 1_000}
        member |= {"max_records": 1, "batch_size": 1}
        shares.append(
            made(kio_schema(apis.SHARE_FETCH, v, False), **member, share_session_epoch=0,
                 topics=[{**at, "partitions": [part]}])
        )  # fmt: skip
    return [*always, *produces, *fetches, *shares]


def test_no_answer_of_any_version_names_a_brokers_own_address(
    make_gateway: Callable[..., GatewayThread],
    unique: Callable[[str], str],
    kafka4: EmbeddedKafka,
) -> None:
    gateway = make_gateway()
    name = topic(gateway.bootstrap("PLAINTEXT"), unique("addresses"), 1)
    ours = gateway.gateway.addresses("PLAINTEXT")
    upstream = {n: at["PLAINTEXT"] for n, at in kafka4.broker_addresses.items()}
    with contextlib.closing(Peer(ours[1])) as peer:
        asked = made(
            kio_schema(apis.METADATA, 12, False), topics=[{"name": name, "topic_id": None}]
        )
        body = peer.ask(asked)[9:]
    described = kio_decode(apis.METADATA, 12, True, body).topics[0]
    other = 3 - int(described.partitions[0].leader_id)  # of brokers 1 and 2
    theirs, seen = set(upstream.values()), set()
    with (
        contextlib.closing(Peer(upstream[other])) as direct,
        contextlib.closing(Peer(ours[other])) as through,
    ):
        group = unique("group")
        for same, again in zip(
            questions(name, described.topic_id, group),
            questions(name, described.topic_id, group),
            strict=True,
        ):
            kind = type(same)
            what = apis.api_name(kind.__api_key__), kind.__version__
            # A group's coordinator is made when it is first asked for: that may take a while.
            wait_for(lambda r=same: names(direct.ask(r), theirs), f"{what} to name a broker")
            answer = through.ask(again)
            assert names(answer, theirs) == set(), what
            assert names(answer, set(ours.values())), what
            seen.add(what)
    assert len(seen) == 14 + 7 + 3 + 4 + 3 + 2


def test_describe_quorum_names_controllers_without_their_addresses(
    make_gateway: Callable[..., GatewayThread], kafka4: EmbeddedKafka
) -> None:
    gateway = make_gateway()
    request = made(
        kio_schema(apis.DESCRIBE_QUORUM, 2, False),
        topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
    )
    found = []
    for where in (address(kafka4.bootstrap("PLAINTEXT").split(",")[0]),
                  gateway.gateway.addresses("PLAINTEXT")[1]):  # fmt: skip
        with contextlib.closing(Peer(where)) as peer:
            found.append(kio_decode(apis.DESCRIBE_QUORUM, 2, True, peer.ask(request)[9:]))
    direct, through = found
    assert [len(node.listeners) for node in direct.nodes] == [1] * len(direct.nodes)
    assert [node.node_id for node in through.nodes] == [node.node_id for node in direct.nodes]
    assert [node.listeners for node in through.nodes] == [()] * len(direct.nodes)
