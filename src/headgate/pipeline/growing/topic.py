"""
Follow a topic of log lines or journals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.pipeline.emitted import EMITTED_ACTIVITY, EMITTED_REQUESTS
from headgate.pipeline.growing.parts import INPUTS, Parts
from headgate.pipeline.workers.emit import (
    STARTS,
    ActivityOfMessages,
    LineOptions,
    RequestsOfMessages,
    Start,
    starts_of_messages,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Topic:
    """
    A topic as a source of rounds (``follow.Source``).

    Args:
        name: of the topic.
        config: confluent-kafka's settings, with ``bootstrap.servers``.
        lines: how log lines are read.
    """

    keeps: tuple[str, ...] = (INPUTS,)
    has_limit = False

    def __init__(self, name: str, config: dict[str, str], lines: LineOptions) -> None:
        self.name = name
        self.lines = lines
        self._config = config
        self._starts: list[Start] | None = None

    def stream(self, spark: SparkSession, parts: Parts) -> DataFrame:
        """Return what is new of the topic, batch by batch: messages."""
        from headgate.pipeline.sources.topic import follow_topic  # Spark 3.5 can't import it

        return follow_topic(spark, self.name, self._config)

    def write(self, batch: DataFrame, number: int, parts: Parts) -> None:
        """Read a batch's messages, and write its parts; remember the starts of workers in them."""
        if parts.emits == "requests":
            if self._starts is None:  # what was read before, but for a batch that was killed
                rows = parts.read(INPUTS, number - 1).collect()
                self._starts = [Start(*row) for row in rows]
            starts = batch.mapInArrow(starts_of_messages, STARTS.struct)
            self._starts += [Start(*row) for row in starts.collect()]
            task = RequestsOfMessages(self.lines, tuple(self._starts))
            parts.write(batch.mapInArrow(task, EMITTED_REQUESTS.struct), number, starts)
            return
        sums = ActivityOfMessages(self.lines, parts.emits == "connections")
        parts.write(batch.mapInArrow(sums, EMITTED_ACTIVITY.struct), number)
