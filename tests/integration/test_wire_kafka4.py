"""Our bytes before a real broker: every call we can write, every answer we can read."""

import asyncio
import math
import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.client.log_dirs import log_dirs
from headgate.embedded import EmbeddedKafka
from headgate.gateway.session.rewrite import rewriting
from headgate.steps import finish
from headgate.usage.format import Event, Origin
from headgate.usage.reader import Gap, find_gaps
from headgate.usage.topic import LastRun, TopicWriter, last_run
from headgate.wire import apis
from headgate.wire.fields import write_nullable_string
from headgate.wire.header import build_request, correlation_id, is_flexible
from headgate.wire.messages import (
    REQUESTS,
    api_versions,
    configs,
    decode_response,
    mutation,
    quotas,
)
from headgate.wire.messages.log_dirs import DescribableTopic, DescribeLogDirsRequest
from headgate.wire.throttle import read_throttle, throttle_offset
from kit.journals import read_topic
from kit.logins import build_authenticate, build_handshake

from .gateway_kit import send, wait_for
from .gateway_kit import topic as make_topic

pytestmark = pytest.mark.kafka4


class Connection:
    """A blocking connection that speaks frames."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._stream = self._socket.makefile("rb")
        self._count = 0

    def ask(self, key: int, version: int, body: bytes) -> bytes:
        self._count += 1
        self._socket.sendall(build_request(key, version, self._count, "headgate-test", body))
        frame = self._read(4, key, version)
        frame += self._read(struct.unpack(">i", frame)[0], key, version)
        assert correlation_id(frame) == self._count
        return frame

    def _read(self, size: int, key: int, version: int) -> bytes:
        data = self._stream.read(size)
        assert len(data) == size, f"API {key} version {version}: the broker hung up"
        return data

    def call(self, key: int, version: int, message: Any) -> Any:
        body = REQUESTS[key].encode(message, version, is_flexible(key, version))
        frame = self.ask(key, version, body)
        assert read_throttle(frame, throttle_offset(key, version, frame)) >= 0
        return decode_response(key, version, frame)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


@pytest.fixture
def broker(kafka4: EmbeddedKafka) -> Iterator[Connection]:
    connection = Connection(kafka4.bootstrap("PLAINTEXT"))
    yield connection
    connection.close()


@pytest.mark.parametrize("version", range(5))
def test_what_a_broker_offers_is_in_the_table(broker: Connection, version: int) -> None:
    body = b"" if version < 3 else write_nullable_string("a", True) * 2 + b"\0"
    frame = broker.ask(apis.API_VERSIONS, version, body)
    answer = api_versions.parse_response(frame, version)
    assert answer.error == 0
    for key, (oldest, newest) in answer.ranges.items():
        api = apis.API[key]
        assert api.min_version <= oldest
        assert newest <= api.max_version, f"{api.name} {newest} isn't in the table"
        assert api.proxied, f"{api.name} is offered to clients"
    narrowed = api_versions.parse_response(api_versions.narrow_response(frame, version), version)
    assert narrowed.ranges[apis.DESCRIBE_QUORUM] == (0, 2)
    assert set(narrowed.ranges) == set(answer.ranges)


@pytest.mark.mount
def test_brokers_say_what_their_disks_hold(
    kafka4: EmbeddedKafka, unique: Callable[[str], str]
) -> None:
    """The oracle: the sizes of the segments in the brokers' own folders."""
    bootstrap = kafka4.bootstrap("PLAINTEXT")
    name = make_topic(bootstrap, unique("disks"), partitions=3)
    send(bootstrap, name, 20, 1_000)
    found = [r for r in asyncio.run(log_dirs(bootstrap, {})) if r.topic == name]
    held = {}
    for replica in found:
        folder = Path(replica.log_dir) / f"{name}-{replica.partition}"
        held[replica.partition] = sum(file.stat().st_size for file in folder.glob("*.log"))
    assert {r.partition: r.bytes for r in found} == held
    assert len(found) == 3
    assert sum(held.values()) > 20_000
    assert {r.is_future for r in found} == {False}
    assert {r.broker_id for r in found} <= {1, 2}


@pytest.mark.mount
@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_of_log_dirs_is_read(
    kafka4: EmbeddedKafka, broker: Connection, unique: Callable[[str], str], version: int
) -> None:
    make_topic(kafka4.bootstrap("PLAINTEXT"), unique("dirs"), partitions=2)  # one on each broker
    answer = broker.call(apis.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest())
    assert answer.error_code == 0
    (result,) = answer.results
    assert (result.error_code, result.usable_bytes > 0) == (0, version >= 4)
    topic = result.topics[0]
    asked = DescribeLogDirsRequest((DescribableTopic(topic.name, (0,)),))
    (again,) = broker.call(apis.DESCRIBE_LOG_DIRS, version, asked).results
    assert {t.name for t in again.topics} <= {topic.name}


def test_a_version_the_broker_does_not_know_is_answered_in_version_0(broker: Connection) -> None:
    body = write_nullable_string("a", True) * 2 + b"\0"
    answer = api_versions.parse_response(broker.ask(apis.API_VERSIONS, 99, body), 99)
    assert (answer.error, answer.version) == (35, 0)


BOOK = {1: ("gate.example", 19001), 2: ("gate.example", 19002)}


def _no_upstream(kafka: EmbeddedKafka, frame: bytes, book: dict[int, tuple[str, int]]) -> None:
    for address in kafka.bootstrap("PLAINTEXT").split(","):
        host, _, port = address.rpartition(":")
        raw = host.encode()
        for length in (struct.pack(">h", len(raw)), bytes([len(raw) + 1])):
            assert length + raw + struct.pack(">i", int(port)) not in frame
    for host, _ in book.values():
        assert host.encode() in frame


@pytest.mark.parametrize("version", range(14))
def test_metadata_shows_the_gateway_only(
    broker: Connection, kafka4: EmbeddedKafka, version: int
) -> None:
    flexible = version >= 9
    body = b"\x01" if flexible else struct.pack(">i", 0)  # no topics
    if version >= 4:
        body += b"\0"
    if 8 <= version <= 10:
        body += b"\0"
    if version >= 8:
        body += b"\0"
    if flexible:
        body += b"\0"
    frame = broker.ask(apis.METADATA, version, body)
    shown = finish(rewriting(apis.METADATA, version, frame, BOOK))
    _no_upstream(kafka4, bytes(shown.frame), BOOK)
    assert shown.hidden == ()
    assert sorted(finish(rewriting(apis.METADATA, version, frame, {})).hidden) == [1, 2]


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_shows_the_gateway_only(
    broker: Connection, kafka4: EmbeddedKafka, version: int
) -> None:
    body = b"\0" + (b"\x01" if version >= 1 else b"") + (b"\0" if version >= 2 else b"") + b"\0"
    frame = broker.ask(apis.DESCRIBE_CLUSTER, version, body)
    shown = finish(rewriting(apis.DESCRIBE_CLUSTER, version, frame, BOOK))
    _no_upstream(kafka4, bytes(shown.frame), BOOK)


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_shows_the_gateway_only(
    broker: Connection, kafka4: EmbeddedKafka, version: int
) -> None:
    flexible = version >= 3
    name = write_nullable_string("wire-test", flexible)
    body = name if version < 4 else b""
    if version >= 1:
        body += b"\0"
    if version >= 4:
        body += b"\x02" + name
    if flexible:
        body += b"\0"
    for _ in range(60):
        frame = broker.ask(apis.FIND_COORDINATOR, version, body)
        without = finish(rewriting(apis.FIND_COORDINATOR, version, frame, {}))
        if without.hidden:  # there is a coordinator: the book's absence hid it
            break
        time.sleep(0.5)
    assert len(without.hidden) == 1
    _no_upstream(kafka4, bytes(without.frame), {})
    shown = finish(rewriting(apis.FIND_COORDINATOR, version, frame, BOOK))
    _no_upstream(kafka4, bytes(shown.frame), {1: BOOK[1]})


@pytest.mark.parametrize("version", [0, 1])
def test_client_quotas_of_a_real_broker(broker: Connection, version: int) -> None:
    user = f"wire-{version}-{uuid.uuid4().hex[:8]}"
    entity = (quotas.EntityPart("user", user), quotas.EntityPart("client-id", None))
    ops = (
        quotas.AlterOp("producer_byte_rate", 1234.0, False),
        quotas.AlterOp("request_percentage", 12.75, False),
    )
    request = quotas.AlterClientQuotasRequest((quotas.AlterEntry(entity, ops),), False)
    [altered] = broker.call(49, version, request).entries
    assert (altered.error_code, set(altered.entity)) == (0, set(entity))
    wanted = quotas.DescribeClientQuotasRequest(
        (quotas.Component("user", quotas.MATCH_EXACT, user),), False
    )
    # The broker may be a while behind its controller.
    wait_for(lambda: broker.call(48, version, wanted).entries, "the broker to hear of the quota")
    [entry] = broker.call(48, version, wanted).entries
    assert set(entry.entity) == set(entity)
    assert {v.key: v.value for v in entry.values} == {
        "producer_byte_rate": 1234.0,
        "request_percentage": 12.75,
    }
    bad = quotas.AlterOp("producer_byte_rate", math.inf, False)
    request = quotas.AlterClientQuotasRequest((quotas.AlterEntry(entity, (bad,)),), True)
    [refused] = broker.call(49, version, request).entries
    assert refused.error_code != 0
    remove = tuple(quotas.AlterOp(op.key, 0.0, True) for op in ops)
    request = quotas.AlterClientQuotasRequest((quotas.AlterEntry(entity, remove),), False)
    assert broker.call(49, version, request).entries[0].error_code == 0


def test_topics_come_and_go(broker: Connection) -> None:
    name = f"wire-{uuid.uuid4().hex[:8]}"
    created = broker.call(
        19, 7, mutation.CreateTopicsRequest((mutation.CreatableTopic(name, 2, 1),), 10_000)
    ).topics[0]
    assert (created.error_code, created.num_partitions) == (0, 2)
    grown = broker.call(
        37, 3, mutation.CreatePartitionsRequest((mutation.GrowingTopic(name, 5),), 10_000)
    ).topics[0]
    assert grown.error_code == 0
    request = mutation.DeleteTopicsRequest((mutation.DeletableTopic(None, created.topic_id),))
    deleted = broker.call(20, 6, request).topics[0]
    assert (deleted.error_code, deleted.name) == (0, name)


@pytest.mark.parametrize("version", range(1, 5))
def test_broker_configs(broker: Connection, version: int) -> None:
    request = configs.DescribeConfigsRequest(
        (configs.DescribeResource(configs.BROKER, "1", ("max.connections",)),), True, True
    )
    [result] = broker.call(32, version, request).results
    assert result.error_code == 0
    [config] = result.configs
    assert config.name == "max.connections"
    assert config.value == str(2**31 - 1)
    assert config.config_source == configs.ConfigSource.DEFAULT_CONFIG
    assert (config.documentation is not None) == (version >= 3)


@pytest.mark.parametrize("version", [0, 1])
def test_broker_configs_altered_bit_by_bit(broker: Connection, version: int) -> None:
    change = configs.AlterConfig("max.connection.creation.rate", "7000", configs.OP_SET)
    request = configs.AlterConfigsRequest(
        (configs.AlterResource(configs.BROKER, "1", (change,)),), validate_only=True
    )
    [result] = broker.call(44, version, request).responses
    assert (result.error_code, result.resource_name) == (0, "1")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_by_our_own_tokens(kafka4: EmbeddedKafka, version: int) -> None:
    for password, expected in (("alice-secret", 0), ("wrong", 58)):
        connection = Connection(kafka4.bootstrap("SASL_PLAINTEXT"))
        frame = connection.ask(17, 1, build_handshake("PLAIN"))
        offered = decode_response(17, 1, frame)
        assert offered.error_code == 0
        assert "PLAIN" in offered.mechanisms
        token = b"\0alice\0" + password.encode()
        frame = connection.ask(36, version, build_authenticate(token, version))
        answer = decode_response(36, version, frame)
        assert (answer.error_code, answer.auth_bytes) == (expected, b"")
        connection.close()


def test_the_journal_in_a_topic_is_the_journal_in_files(kafka4: EmbeddedKafka) -> None:
    config = {"bootstrap.servers": kafka4.bootstrap("PLAINTEXT")}
    topic = make_topic(config["bootstrap.servers"], f"journal-{uuid.uuid4().hex[:8]}", 3)
    origin = Origin("record", "producer_byte_rate", 1, quota_user="alice")
    assert last_run(topic, "w-1", config) is None
    for worker in ("w-1", "w-2"):
        writer = TopicWriter(topic, worker, config)
        for n in range(5000):
            writer.append(Event(origin, float(n), 1.0))
        writer.close()
    assert last_run(topic, "w-1", config) == LastRun(5000, True)
    killed = TopicWriter(topic, "w-1", config)  # goes on counting, and is never closed
    killed.append(Event(origin, 5000.0, 1.0))
    assert killed.flush()
    assert last_run(topic, "w-1", config) == LastRun(5001, False)
    after = TopicWriter(topic, "w-1", config)
    after.append(Event(origin, 5001.0, 1.0))
    after.close()
    batches = list(read_topic(topic, config))
    for worker, numbers in (("w-1", [*range(1, 5002), 5003]), ("w-2", list(range(1, 5001)))):
        mine = [b for b in batches if b.column("worker_id")[0].as_py() == worker]
        assert [n for b in mine for n in b.column("seq").to_pylist()] == numbers
    assert list(find_gaps(batches)) == [Gap("w-1", 5002, 5002)]
