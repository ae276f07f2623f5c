"""
Follow a topic of log lines or journals, batch by batch, and keep what was read exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headgate.pipeline.emitted import EMITTED_ACTIVITY, EMITTED_REQUESTS
from headgate.pipeline.growing.parts import Following
from headgate.pipeline.growing.rounds import INPUTS, Input, Query
from headgate.pipeline.workers.messages import (
    STARTS,
    ActivityOfMessages,
    LineOptions,
    RequestsOfMessages,
    Start,
    starts_of_messages,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Topic:
    """
    A topic as a source of rounds (``parts.Source``).

    Args:
        name: of the topic.
        config: confluent-kafka's settings, with ``bootstrap.servers``.
        lines: how log lines are read.
    """

    def __init__(self, name: str, config: dict[str, str], lines: LineOptions) -> None:
        self.name = name
        self.lines = lines
        self.starts: list[Start] = []
        self._config = config

    def start(self, to: Following) -> Query:
        """Start reading what is new of the topic, batch by batch."""
        from headgate.pipeline.sources.topic import follow_topic  # Spark 3.5 can't import it

        begun: list[int] = []

        def write(batch: DataFrame, number: int) -> None:
            if not begun:  # what an earlier process read; the batch it was killed in doesn't count
                rows = to.parts.read(INPUTS.name, number - 1).collect()
                self.remember(Input(*row) for row in rows)
            begun.append(number)
            to.parts.write(_RoundOfMessages(batch, self), number)
            to.after(number)

        stream = follow_topic(to.spark, self.name, self._config)
        writer = stream.writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", to.parts.checkpoint)
        if to.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{to.every_s} seconds").start()

    def remember(self, inputs: Iterable[Input]) -> None:
        """Remember when journals' workers started."""
        for row in inputs:
            if row.broker_id is not None and row.seq is not None and row.t_ms is not None:
                self.starts.append(Start(row.worker_id, row.broker_id, row.seq, row.t_ms))


class _RoundOfMessages:
    def __init__(self, batch: DataFrame, topic: Topic) -> None:
        self._batch = batch
        self._topic = topic
        self._inputs: list[Input] = []

    def activity(self, *, connections: bool) -> DataFrame:
        """Return EMITTED_ACTIVITY, in rows."""
        task = ActivityOfMessages(self._topic.lines, connections)
        return self._batch.mapInArrow(task, EMITTED_ACTIVITY.struct)

    def requests(self) -> DataFrame:
        """Return EMITTED_REQUESTS; first remember the starts of workers in these messages."""
        found = self._batch.mapInArrow(starts_of_messages, STARTS.struct).collect()
        self._inputs = [Input(self._topic.name, r[0], 0, r[1], r[2], r[3]) for r in found]
        self._topic.remember(self._inputs)
        task = RequestsOfMessages(self._topic.lines, tuple(self._topic.starts))
        return self._batch.mapInArrow(task, EMITTED_REQUESTS.struct)

    def inputs(self) -> Sequence[Input]:
        """Return the starts of workers in these messages, once its requests are asked for."""
        return self._inputs
