"""
Ask every broker what its disks hold: a row per replica of a partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headgate.client.connection import api_error, raise_error
from headgate.client.nodes import Nodes, parse_bootstrap
from headgate.client.security import Security
from headgate.errors import StoreError
from headgate.wire import apis
from headgate.wire.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse


class Replica(NamedTuple):
    """A replica's size in bytes; ``is_future``: a copy that is being moved to another folder."""

    broker_id: int
    log_dir: str
    topic: str
    partition: int
    bytes: int
    is_future: bool


async def log_dirs(bootstrap: str, config: Mapping[str, str]) -> list[Replica]:
    """
    Return what the folders of all live brokers hold.

    Args:
        bootstrap: ``host:port,…``.
        config: Kafka's client settings.

    Raises:
        ConfigError: settings that make no sense.
        StoreError: a broker can't be reached, or a folder can't be read: what it holds is unknown.
        ApiError: credentials were refused, CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION.

    Source: KIP-113; DescribeLogDirsRequest in Apache Kafka.
    """
    nodes = Nodes(parse_bootstrap(bootstrap), Security.of(config))
    found: list[Replica] = []
    try:
        for broker_id, where in sorted((await nodes.brokers()).items()):
            connection = await nodes.at(broker_id, where)
            answer: DescribeLogDirsResponse = await connection.call(
                apis.DESCRIBE_LOG_DIRS, (1, 5), DescribeLogDirsRequest()
            )
            raise_error(answer.error_code, None)
            if not answer.results:  # how a broker before 3.2 refuses: KIP-784
                raise StoreError(f"broker {broker_id} names no log folder; DESCRIBE on the cluster "
                                 "is needed")  # fmt: skip
            for result in answer.results:
                error = api_error(result.error_code, None)
                if error is not None:
                    raise StoreError(f"broker {broker_id}, {result.log_dir}: {error.name}; what it "
                                     "holds is unknown")  # fmt: skip
                found += [
                    Replica(broker_id, result.log_dir, topic.name, partition.partition_index,
                            partition.partition_size, partition.is_future_key)
                    for topic in result.topics for partition in topic.partitions
                ]  # fmt: skip
    finally:
        await nodes.close()
    return found
