"""
Follow directories, patterns and files by the data source of request logs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from headgate.pipeline.emitted import EMITTED_ACTIVITY, EMITTED_REQUESTS
from headgate.pipeline.library.request_log import KafkaRequestLog, LogOptions
from headgate.pipeline.library.stream import RequestLogStream
from headgate.pipeline.sources.files import GrowingPaths
from headgate.pipeline.workers.emit import EmitActivity, EmitRequests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headgate.pipeline.growing.parts import Parts

# Files of one batch: bounds what a kill repeats, and a batch's memory.
FILES_PER_BATCH: Final = 64
_EMITS: Final = "emits"
_KINDS: Final = {
    "requests": EMITTED_REQUESTS,
    "activity": EMITTED_ACTIVITY,
    "connections": EMITTED_ACTIVITY,
}


class EmittedLog(KafkaRequestLog):
    """
    The same files, as workers hand them to a command: bad lines and counts have rows too.

    Option ``emits``: ``requests`` for EMITTED_REQUESTS, ``activity`` for EMITTED_ACTIVITY,
    ``connections`` for that with first sights of connections.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return "headgate-emitted"

    def schema(self) -> StructType:
        """Return the columns of the table that is emitted."""
        return _KINDS[self.options[_EMITS]].struct

    def streamReader(self, schema: StructType) -> RequestLogStream:
        """Return what reads files that grow."""
        options = self._options()
        emits = self.options[_EMITS]
        read = replace(options.read_options, connections=emits == "connections")
        task = EmitRequests(read) if emits == "requests" else EmitActivity(read)
        return RequestLogStream(replace(options.followed(self.name()), goes_on=True), task)

    def _options(self) -> LogOptions:
        return LogOptions.of(self.options, self.name(), (_EMITS,))


class Directory:
    """
    Growing directories and files as a source of rounds (``follow.Source``).

    Args:
        paths: directories, patterns, files.
        files_per_round: at most.
        time_zone: of logs that print none.
        broker_id: of all logs; None = unknown.
        broker_id_pattern: regex on a log's path whose first group is the broker's id.
        default_partitions: the cluster's ``num.partitions``.
        principal_pattern: where a user's name is in a principal.

    Raises:
        ConfigError: a path isn't there, or isn't local.
    """

    keeps: tuple[str, ...] = ()
    has_limit = True

    def __init__(
        self,
        paths: Sequence[str],
        *,
        files_per_round: int = FILES_PER_BATCH,
        time_zone: str = "UTC",
        broker_id: int | None = None,
        broker_id_pattern: str | None = None,
        default_partitions: int = 1,
        principal_pattern: str = "",
    ) -> None:
        given = {
            "paths": json.dumps(GrowingPaths(paths).given),
            "maxFilesPerTrigger": files_per_round,
            "timeZone": time_zone,
            "brokerId": broker_id,
            "brokerIdPattern": broker_id_pattern,
            "defaultPartitions": default_partitions,
            "principalPattern": principal_pattern,
        }
        self._options = {name: str(value) for name, value in given.items() if value is not None}

    def stream(self, spark: SparkSession, parts: Parts) -> DataFrame:
        """Return what is new of the files, batch by batch."""
        spark.dataSource.register(EmittedLog)
        reader = spark.readStream.format(EmittedLog.name())
        return reader.options(**self._options, **{_EMITS: parts.emits}).load()

    def write(self, batch: DataFrame, number: int, parts: Parts) -> None:
        """Write a batch's parts."""
        parts.write(batch, number)
