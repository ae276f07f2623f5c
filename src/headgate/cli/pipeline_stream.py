"""
`headgate usage --incremental` and `--follow`: the same sums from a growing directory or a topic.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from headgate.cli.pipeline_options import Opened, read_quotas, start
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def usage_stream(arguments: argparse.Namespace) -> None:
    """Run ``usage`` on a growing input; see the command's flags."""
    from headgate.cli.pipeline_usage import finish_usage
    from headgate.pipeline import schema, streaming, usage
    from headgate.pipeline.stamps import zone_of

    if bool(arguments.topic) == bool(arguments.requests):
        raise ConfigError("give either one --requests DIRECTORY or a --topic to follow")
    if len(arguments.requests) > 1 or any(not Path(p).is_dir() for p in arguments.requests):
        raise ConfigError("--incremental and --follow take one directory of rolled files")
    try:
        zone_of(arguments.time_zone)
    except ValueError as exc:
        raise ConfigError(f"--time-zone: {exc}") from exc
    quotas = read_quotas(arguments)
    source = _source(arguments)
    console = Console(stderr=True)
    what = arguments.topic or arguments.requests[0]
    console.print(
        f"usage: following {what}; time zone of logs that print none: {arguments.time_zone}",
        highlight=False,
    )
    run = start("usage", arguments, console, {})
    on = Opened(run, [], quotas, arguments)
    out = run.path("").rstrip("/")

    def tables() -> None:
        activity = streaming.read_parts(run.spark, out, "activity")
        run.write(activity.transform(usage.usage(quotas)), schema.USAGE, words="adding up")
        bad = streaming.read_parts(run.spark, out, "bad_lines")
        run.write(bad, schema.BAD_LINES)
        run.figures = []
        run.figure("bad_lines", run.read(schema.BAD_LINES).count(), unit="lines")
        run.figure("time_zone", text=arguments.time_zone, note="assumed where a log prints none")
        finish_usage(on)

    query = streaming.write_parts(
        source(run.spark), out, once=not arguments.follow, trigger_s=arguments.every
    )
    stop = threading.Event()
    if arguments.follow and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        last = -1
        while query.isActive and not stop.is_set():
            query.awaitTermination(1)
            progress = query.lastProgress
            if arguments.follow and progress and progress["batchId"] != last:
                last = progress["batchId"]
                console.print(f"round {last}: {progress['numInputRows']} new", highlight=False)
    except KeyboardInterrupt:
        pass
    finally:
        query.stop()
    failure = query.exception()
    if failure is not None:
        raise ConfigError(f"the stream ended: {failure}")
    tables()


def _source(arguments: argparse.Namespace) -> Callable[[SparkSession], DataFrame]:
    """Return what makes the stream of EMITTED_ACTIVITY."""
    from headgate.pipeline import streaming
    from headgate.pipeline.worker import EMITTED_ACTIVITY

    if arguments.topic:
        config = kafka_config(arguments.kafka_config)

        def of_topic(spark: SparkSession) -> DataFrame:
            from headgate.pipeline.topic import ActivityOfMessages, follow_topic

            task = ActivityOfMessages(arguments.time_zone, arguments.broker_id)
            messages = follow_topic(spark, arguments.topic, config)
            return messages.mapInArrow(task, EMITTED_ACTIVITY.struct)

        return of_topic
    task = streaming.ActivityOfFiles(
        arguments.time_zone, arguments.broker_id, arguments.broker_id_pattern
    )
    directory = str(Path(arguments.requests[0]).absolute())
    return lambda spark: streaming.follow_directory(
        spark, directory, files_per_batch=arguments.files_per_round
    ).transform(streaming.activity_of_files(task))


def kafka_config(settings: list[str]) -> dict[str, Any]:
    """
    Return confluent-kafka's settings from NAME=VALUE flags.

    Raises:
        ConfigError: if one isn't that, or ``bootstrap.servers`` is missing.
    """
    config: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--kafka-config {setting}: write NAME=VALUE")
        config[name] = value
    if "bootstrap.servers" not in config:
        raise ConfigError("--topic needs --kafka-config bootstrap.servers=HOST:PORT")
    return config
