"""
`headgate splits`: cluster-wide quotas split over brokers, to the topic that gateways follow.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headgate.cli.contract import BadUsage
from headgate.cli.pipeline.command import stop_on_sigterm
from headgate.cli.pipeline.opening import read_quotas, start
from headgate.cli.pipeline.print import progress_console
from headgate.cli.pipeline.stream import kafka_config
from headgate.cli.quotas.quota_target import open_quota_store
from headgate.cli.results import Splits
from headgate.errors import ConfigError
from headgate.pipeline import spark_versions
from headgate.pipeline.splits import cluster_splits, split_stream, split_topic
from headgate.quota.table import QuotaTable


def run_splits(arguments: argparse.Namespace) -> Splits:
    """Run `headgate splits` until it's told to stop."""
    version = spark_versions.installed() or ""
    spark_versions.refuse("headgate splits", version, spark_versions.DATA_SOURCE)
    needing = "--topic" if arguments.topic else "--splits-topic"
    config = kafka_config(arguments.kafka_config, needing)
    if arguments.period_ms < 500 or arguments.lag_ms < 0:
        raise BadUsage("--period-ms is at least 500, --lag-ms at least 0")
    try:
        brokers = tuple(int(b) for b in (arguments.brokers or "").split(",") if b)
    except ValueError as exc:
        raise BadUsage(f"--brokers {arguments.brokers}: write ids such as 1,2,3") from exc
    for directory in arguments.journals or ():
        if not Path(directory).is_dir():
            raise ConfigError(f"--journals {directory} is no directory")
    with contextlib.ExitStack() as stack:
        return _run(arguments, config, brokers, _quotas(arguments, stack))


def _quotas(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> Callable[[], QuotaTable]:
    """Return a function that reads the present quotas. A mistake shows now, before Spark starts."""
    if arguments.store:
        # Opened once: to open a cluster's store takes a while.
        store = open_quota_store(arguments.store, arguments.command_config)
        stack.callback(store.close)
        return store.snapshot
    read_quotas(arguments)
    return lambda: read_quotas(arguments).tables[-1]


def _run(
    arguments: argparse.Namespace,
    config: dict[str, str],
    brokers: tuple[int, ...],
    quotas: Callable[[], QuotaTable],
) -> Splits:
    console = progress_console(arguments)
    known = split_topic.brokers_of(config, arguments.topic)
    brokers = brokers or known
    console.print(
        f"splits: {arguments.topic or ', '.join(arguments.journals)} -> "
        f"{arguments.splits_topic}, brokers "
        f"{', '.join(map(str, brokers))}, every {arguments.period_ms} ms"
    )
    run = start("splits", arguments, console, {})
    split_stream.warm_up(run.spark)
    writer = split_topic.SplitWriter(arguments.splits_topic, config)
    console.print(f"splits: epoch {writer.epoch}")
    given = {
        "producer_byte_rate:shares": arguments.capacity_producer,
        "consumer_byte_rate:shares": arguments.capacity_consumer,
    }
    capacity = {name: value for name, value in given.items() if value}
    rounds = cluster_splits.Rounds(arguments.period_ms, brokers, arguments.lag_ms, capacity)
    done: list[str] = []

    def say(text: str) -> None:
        done.append(text)
        console.print(text, markup=False, soft_wrap=True)

    write = split_stream.write_rounds(rounds, writer, quotas, say)
    stopping = stop_on_sigterm()
    split_stream.run(
        lambda: _messages(run.spark, arguments, config),
        write,
        arguments.period_ms,
        lambda: stopping.is_set() or bool(arguments.rounds and len(done) >= arguments.rounds),
        say,
    )
    return Splits(arguments.splits_topic, list(brokers), len(done))


def _messages(
    spark: SparkSession, arguments: argparse.Namespace, config: dict[str, str]
) -> DataFrame:
    # Spark 3.5 can't import them.
    from headgate.pipeline.sources.journal_tail import follow_journals
    from headgate.pipeline.sources.topic import follow_topic

    if arguments.journals:
        return follow_journals(spark, arguments.journals)
    return follow_topic(spark, arguments.topic, config, begin="latest", ticks=True)
