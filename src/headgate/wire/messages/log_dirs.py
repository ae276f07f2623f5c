"""
What a broker's disks hold: DescribeLogDirs 35.

Source: Apache Kafka's ``DescribeLogDirsRequest.json``, ``DescribeLogDirsResponse.json``; KIP-113,
KIP-827, KIP-1066.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.wire.apis import DESCRIBE_LOG_DIRS
from headgate.wire.schema import Int16, Int32, Int64, Struct, message, struct, versions


@message()
class DescribableTopic:
    """A topic, and which of its partitions are asked for."""

    topic: str
    partitions: tuple[Int32, ...]


@message()
class DescribeLogDirsRequest:
    """Which topics are wanted; None: all."""

    topics: tuple[DescribableTopic, ...] | None = None


@message()
class LogDirPartition:
    """A replica of a partition, bytes; ``is_future_key``: it is moving here from another folder."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64 = 0
    is_future_key: bool = False


@message()
class LogDirTopic:
    """The replicas of a topic in a folder."""

    name: str
    partitions: tuple[LogDirPartition, ...]


@message()
class LogDirResult:
    """
    One folder of the broker.

    Sizes are -1 where they aren't known. A cordoned folder gets no new replicas.
    """

    error_code: Int16
    log_dir: str
    topics: tuple[LogDirTopic, ...]
    total_bytes: Int64 = versions(-1, since=4)
    usable_bytes: Int64 = versions(-1, since=4)
    is_cordoned: bool = versions(False, since=5)


@message("throttle_time_ms", "error_code")
class DescribeLogDirsResponse:
    """The folders of the broker that was asked."""

    results: tuple[LogDirResult, ...]
    throttle_time_ms: Int32 = 0
    error_code: Int16 = versions(0, since=3)


REQUESTS: Final[dict[int, Struct[Any]]] = {DESCRIBE_LOG_DIRS: struct(DescribeLogDirsRequest)}
RESPONSES: Final[dict[int, Struct[Any]]] = {DESCRIBE_LOG_DIRS: struct(DescribeLogDirsResponse)}
