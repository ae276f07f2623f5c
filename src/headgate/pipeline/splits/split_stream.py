"""
The stream behind `headgate splits`: journals in, a round of splits out at every trigger.

Every trigger has a micro-batch, which is empty if there are no messages. So splits are renewed
while the stream runs, and expire when it ends. The stream keeps no state that a restart needs:
after one, every broker starts again with an equal part, and within three rounds its part follows
its demand.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.clock import now_ms
from headgate.errors import ConfigError, StoreError
from headgate.pipeline.splits.cluster_splits import PERIODS_VALID, SEEN, Rounds, SeenInMessages
from headgate.pipeline.splits.split_topic import SplitWriter
from headgate.quota.table import QuotaTable
from headgate.usage.files import encode
from headgate.usage.format import SCHEMA
from headgate.usage.splits import Heartbeat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

AGAIN_S = 2.0


def write_rounds(
    rounds: Rounds,
    writer: SplitWriter,
    table: Callable[[], QuotaTable],
    say: Callable[[str], None],
    clock_ms: Callable[[], int] = now_ms,
) -> Callable[[DataFrame, int], None]:
    """
    Return the function that each micro-batch of SEEN rows is given to.

    What it says about a round, as JSON: ``round``, ``seen`` rows, ``splits`` written; ``age_ms``,
    how long ago the newest half second seen began, null before the first; ``took_ms`` from the
    trigger's rows being asked for to the splits being there for gateways to read.

    Args:
        rounds: what demands are remembered in.
        writer: of the splits' topic.
        table: the quotas now; if they can't be read, those of the last round count.
        say: gets a line about each round.
        clock_ms: epoch ms.
    """
    tables = [QuotaTable()]

    def write(batch: DataFrame, number: int) -> None:
        began = clock_ms()
        seen = [row.asDict() for row in batch.collect()]
        try:
            tables[0] = table()
        except (OSError, StoreError, ConfigError) as exc:
            say(f"round {number}: the quotas can't be read, the last ones count: {exc}")
        now = clock_ms()
        splits = rounds.round(seen, tables[0], now, writer.epoch)
        valid = PERIODS_VALID * rounds.period_ms
        try:
            writer.write(splits, Heartbeat(writer.epoch, now, valid))
        except StoreError as exc:
            say(f"round {number}: not written, splits go on expiring: {exc}")
            return
        done = clock_ms()
        newest = rounds.newest_ms
        said = {"round": number, "seen": len(seen), "splits": len(splits)}
        age = {"age_ms": done - newest if newest else None, "took_ms": done - began}
        say(json.dumps(said | age))

    return write


def warm_up(spark: SparkSession) -> None:
    """Start a Python worker per core with what a round needs: the first is as quick as others."""
    cores = spark.sparkContext.defaultParallelism
    nothing = encode(pa.RecordBatch.from_pylist([], schema=SCHEMA))
    frame = spark.range(0, cores, 1, cores).selectExpr("id", f"X'{nothing.hex()}' as value")
    frame.mapInArrow(SeenInMessages(), SEEN.struct).collect()


def start(
    messages: DataFrame, write: Callable[[DataFrame, int], None], checkpoint: str, period_ms: int
) -> StreamingQuery:
    """
    Start the stream.

    Args:
        messages: a stream with a column ``value``, journal batches.
        write: what :func:`write_rounds` gave.
        checkpoint: a directory for Spark's bookkeeping; a new one each time.
        period_ms: of a round.
    """
    seen = messages.mapInArrow(SeenInMessages(), SEEN.struct)
    return (
        seen.writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{period_ms} milliseconds")
        .start()
    )


def run(
    messages: Callable[[], DataFrame],
    write: Callable[[DataFrame, int], None],
    period_ms: int,
    stop: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    """
    Run the stream until told to stop; begin again where it fails (a broker that went, say).

    Args:
        messages: makes the stream of messages.
        write: what :func:`write_rounds` gave.
        period_ms: of a round.
        stop: asked twice a second.
        say: gets a sentence about each failure.

    Raises:
        ConfigError: another writer has taken over, or the very first round failed.
    """
    rounds = [0]
    fatal: list[ConfigError] = []

    def guarded(batch: DataFrame, number: int) -> None:
        try:
            write(batch, number)
        except ConfigError as exc:
            fatal.append(exc)  # Spark would wrap it
            raise
        rounds[0] += 1

    while not stop():
        with tempfile.TemporaryDirectory(prefix="headgate-splits-") as checkpoint:
            query = start(messages(), guarded, checkpoint, period_ms)
            failure: Any = None
            try:
                while query.isActive and not stop():
                    query.awaitTermination(0.5)
            except KeyboardInterrupt:
                return
            except Exception as exc:  # awaitTermination raises what ended the query
                failure = exc
            finally:
                query.stop()
            failure = failure or query.exception()
        if fatal:
            raise fatal[0]
        if failure is None:
            continue
        if not rounds[0]:
            raise ConfigError(f"the stream ended: {failure}") from None
        say(f"the stream ended and begins again: {str(failure).splitlines()[0]}")
        time.sleep(AGAIN_S)
