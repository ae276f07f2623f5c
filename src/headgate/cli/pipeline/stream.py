"""
`--incremental` and `--follow`: a command's tables from a growing directory or a topic.

Usage, storms, chargeback and effective keep sums by second of what was read. Replay, what-if and
recommend keep the requests: a sensor must see all charges in their order, so a round replays what
has been read so far, and is the same as one run over all of it.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from rich.console import Console

from headgate.cli.contract import BadUsage
from headgate.cli.output import printable
from headgate.cli.pipeline.command import stop_on_sigterm
from headgate.cli.pipeline.opening import (
    Opened,
    check_time_zone,
    named_values,
    notes_of,
    opened,
    read_quotas,
    refuse_engine,
    start,
)
from headgate.cli.pipeline.places import unwritable
from headgate.cli.pipeline.print import progress_console
from headgate.cli.pipeline.reading import (
    keep_notes,
    print_bad_lines,
    print_notes,
    refuse_nothing,
    write_bad_lines,
)
from headgate.cli.results import Figure, Tables
from headgate.errors import ConfigError
from headgate.java_text import finite
from headgate.pipeline import frames, spark_versions
from headgate.pipeline.emitted import CONNECTIONS, EMITTED_ACTIVITY
from headgate.pipeline.growing.follow import GrowingTables, Source, follow
from headgate.pipeline.growing.parts import Parts
from headgate.pipeline.logs.principals import Principals
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.sources.quality import Note
from headgate.pipeline.spark_versions import BOUNDED_STREAM, DATA_SOURCE
from headgate.pipeline.tables.runs import refuse_earlier, refuse_other_layout
from headgate.pipeline.workers.emit import LineOptions


@dataclass(frozen=True)
class SecondSums:
    """
    What a command makes of sums by second.

    Args:
        command: its name.
        write: writes the tables of activity and first sights of connections, and the summary.
        tell: prints the closing table.
        tables: names of the tables written.
        connections: whether it looks at connections.
    """

    command: str
    write: Callable[[Opened, DataFrame, DataFrame], None]
    tell: Callable[[Opened], None]
    tables: tuple[str, ...]
    connections: bool = False

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the parts it needs."""
        return ("activity", "connections") if self.connections else ("activity",)

    def make(self, on: Opened) -> DataFrame:
        """Write the tables of a run's inputs; give a frame with their bad lines and counts."""
        options = replace(on.read_options, connections=self.connections)
        read = frames.emit_activity(on.spark, options)
        emitted = on.run.keep(read, EMITTED_ACTIVITY, words="reading")
        connections = frames.only(emitted, "connection", CONNECTIONS)
        self.write(on, frames.sums_of(emitted), connections)
        return emitted

    def make_of(self, on: Opened, parts: Parts, upto: int) -> None:
        """Write the tables of all parts up to a batch."""
        self.write(on, parts.read("activity", upto), parts.read("connections", upto))


@dataclass(frozen=True)
class Replays:
    """
    What a command makes of the requests themselves.

    Args:
        command: its name.
        write: writes the tables of a run's inputs; gives the frame that it kept, which has bad
            lines and counts too.
        tell: prints the closing table.
        tables: names of the tables written.
        activity: whether ``write`` takes sums by second too, which are kept already; then what it
            gives isn't looked at.
    """

    command: str
    write: Callable[[Opened, DataFrame | None], DataFrame]
    tell: Callable[[Opened], None]
    tables: tuple[str, ...]
    activity: bool = False

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the parts it needs."""
        return ("activity", "requests") if self.activity else ("requests",)

    def make(self, on: Opened) -> DataFrame:
        """Write the tables of a run's inputs."""
        if not self.activity:
            return self.write(on, None)
        read = frames.emit_activity(on.spark, on.read_options)
        emitted = on.run.keep(read, EMITTED_ACTIVITY, words="reading")
        self.write(on, frames.sums_of(emitted))
        return emitted

    def make_of(self, on: Opened, parts: Parts, upto: int) -> None:
        """Write the tables of all parts up to a batch."""
        here = replace(on, pieces=parts.pieces(upto))
        self.write(here, parts.read("activity", upto) if self.activity else None)


Answer = SecondSums | Replays


def run_answer(arguments: argparse.Namespace, answer: Answer) -> Tables:
    """Run a command once, or on a growing input, as its flags say."""
    if arguments.follow and arguments.json:
        raise BadUsage("--json prints one object at the end, and --follow has none")
    _refuse_modes(arguments)
    if arguments.incremental or arguments.follow:
        return _told(_follow(arguments, answer), answer)
    if not arguments.requests:
        raise BadUsage("give --requests PATH; a --topic needs --incremental or --follow")
    with opened(arguments, answer.command) as on:
        if arguments.mode != "overwrite" and arguments.format == "parquet":
            refuse_other_layout(on.run.folder, answer.tables, by_day=on.run.by_day)
        keep_notes(on)
        with on.run.replacing():
            write_bad_lines(on, answer.make(on))
            refuse_nothing(on)
        return _told(on, answer)


def _refuse_modes(arguments: argparse.Namespace) -> None:
    """
    Refuse what can't be done with older tables or with a growing input.

    Raises:
        BadUsage: says what can.
    """
    if arguments.mode == "merge" and not arguments.partition_by:
        raise BadUsage("--mode merge replaces days: add --partition-by day")
    if not (arguments.incremental or arguments.follow):
        return
    if arguments.mode != "overwrite" or arguments.partition_by:
        raise BadUsage("--incremental and --follow make the whole tables again: leave out --mode")
    if arguments.copies == "count":
        raise BadUsage(
            "--incremental and --follow know a log by its first request, under any name, and read "
            "it once: leave out --copies count"
        )
    if getattr(arguments, "by_topic", False):
        raise BadUsage("--by-topic reads whole logs: leave out --incremental and --follow")


def _told(on: Opened, answer: Answer) -> Tables:
    """
    Print the closing table and which lines couldn't be read; return the tables.

    With ``--json`` nothing is printed: it costs Spark jobs.
    """
    if not on.arguments.json:
        answer.tell(on)
        print_notes(on)
        print_bad_lines(on)
    last = {f.name: f for f in on.run.figures}.values()
    figures = [Figure(f.name, finite(f.value), f.text, f.unit, f.note) for f in last]
    names = (*answer.tables, "bad_lines", "summary")
    return Tables(answer.command, {name: on.run.path(name) for name in names}, figures)


def _follow(arguments: argparse.Namespace, answer: Answer) -> Opened:
    if bool(arguments.topic) == bool(arguments.requests):
        raise BadUsage("give either --requests PATH… or a --topic to follow")
    check_time_zone(arguments.time_zone)
    unable = refuse_engine(arguments)
    if unable:
        raise BadUsage("\n".join(unable))
    spark = named_values("--spark-conf", arguments.spark_conf)
    quotas = read_quotas(arguments)
    source = _source(arguments)
    if arguments.topic:
        from headgate.pipeline.sources.topic import check_topic

        check_topic(arguments.topic, kafka_config(arguments.kafka_config))
    in_the_way = unwritable(arguments.out, arguments.format, growing=True)
    if in_the_way:
        raise ConfigError("\n".join(in_the_way))
    console = progress_console(arguments)
    what = arguments.topic or ", ".join(arguments.requests)
    console.print(
        f"{answer.command}: following {what}; time zone of logs that print none: "
        f"{arguments.time_zone}"
    )
    known = _notes_now(arguments)
    for note in known:
        console.print(f"  {printable(note.text)}", markup=False)
    run = start(answer.command, arguments, console, spark)
    refuse_earlier(run.folder, lake=run.format != "parquet")  # before anything is read
    run.console = Console(quiet=True)  # a line per round is enough
    kept = (*answer.kept, *(source.keeps if "requests" in answer.kept else ()))
    parts = Parts(run.spark, f"{run.for_spark(run.root)}/_stream/{answer.command}", kept)
    on = Opened(run, [], quotas, arguments, notes=known)

    def write(upto: int) -> None:
        keep_notes(on)
        answer.make_of(on, parts, upto)

    def say(words: str) -> None:
        console.print(words)

    tables = GrowingTables(run, parts, write, arguments.time_zone)
    stop = stop_on_sigterm() if arguments.follow else threading.Event()
    follow(source, tables, stop, say, once=not arguments.follow, every_s=arguments.every)
    run.console = console
    tables.make_last()
    return on


def _notes_now(arguments: argparse.Namespace) -> list[Note]:
    """Return what is to be known about the logs that are there at the start."""
    Principals(arguments.principal_pattern)
    try:
        files = [file for file in find_files(arguments.requests) if file[1]]
        return notes_of(pieces_of(files, copies="once"), arguments)
    except (ConfigError, OSError):  # the rounds say what is wrong with them
        return []


def _source(arguments: argparse.Namespace) -> Source:
    """Return the source of rounds: a topic or directories; only here are data sources needed."""
    version = spark_versions.installed() or ""
    if arguments.topic:
        spark_versions.refuse("--topic", version, DATA_SOURCE)
        from headgate.pipeline.growing.topic import Topic

        return Topic(
            arguments.topic,
            kafka_config(arguments.kafka_config),
            LineOptions(
                arguments.time_zone,
                arguments.broker_id,
                arguments.default_partitions,
                arguments.principal_pattern,
            ),
        )
    flag = "--follow" if arguments.follow else "--incremental"
    spark_versions.refuse(flag, version, BOUNDED_STREAM)
    from headgate.pipeline.growing.files import Directory

    return Directory(
        arguments.requests,
        files_per_round=arguments.files_per_round,
        time_zone=arguments.time_zone,
        broker_id=arguments.broker_id,
        broker_id_pattern=arguments.broker_id_pattern,
        default_partitions=arguments.default_partitions,
        principal_pattern=arguments.principal_pattern,
    )


def kafka_config(settings: list[str], needing: str = "--topic") -> dict[str, str]:
    """
    Return confluent-kafka's settings from NAME=VALUE flags.

    Args:
        settings: the flags.
        needing: the flag that can't do without them.

    Raises:
        BadUsage: if one isn't that, or ``bootstrap.servers`` is missing.
    """
    config = named_values("--kafka-config", settings)
    if "bootstrap.servers" not in config:
        raise BadUsage(f"{needing} needs --kafka-config bootstrap.servers=HOST:PORT")
    return config
