"""
`--incremental` and `--follow`: a command's tables from a growing directory or a topic.

Usage, storms, chargeback and effective keep sums by second of what was read. Replay, what-if and
recommend keep the requests: a sensor must see all charges in their order, so a round replays what
has been read so far, and is the same as one run over all of it.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

from headgate.cli.pipeline.options import Opened, read_quotas, start
from headgate.cli.pipeline.places import unwritable
from headgate.errors import ConfigError, HeadgateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headgate.pipeline.growing.parts import Parts, Source


class Answer(Protocol):
    """What a command makes of what was read, round by round."""

    @property
    def command(self) -> str:
        """Its name."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables written."""

    @property
    def tell(self) -> Callable[[Opened], None]:
        """What prints the closing table."""

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the parts it needs."""

    def make(self, on: Opened, parts: Parts, upto: int) -> None:
        """Write the tables of all parts up to a batch."""


@dataclass(frozen=True)
class Sums:
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

    def make(self, on: Opened, parts: Parts, upto: int) -> None:
        """Write the tables of all parts up to a batch."""
        self.write(on, parts.read("activity", upto), parts.read("connections", upto))


@dataclass(frozen=True)
class Replays:
    """
    What a command makes of the requests themselves.

    Args:
        command: its name.
        write: writes the tables of a run's inputs; gives the frame that it persisted, which has
            bad lines and counts too.
        tell: prints the closing table.
        tables: names of the tables written.
        activity: whether it looks at sums by second too: it is given them, persisted, and gives
            these back.
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

    def make(self, on: Opened, parts: Parts, upto: int) -> None:
        """Write the tables of all parts up to a batch."""
        activity = parts.read("activity", upto).persist() if self.activity else None
        self.write(replace(on, pieces=parts.pieces(upto)), activity).unpersist()


def add_growing(made: argparse.ArgumentParser) -> None:
    """Add the flags of commands that can follow a growing input."""
    group = made.add_argument_group("growing input (exactly once; state lies in DIR/_stream)")
    group.add_argument(
        "--incremental",
        action="store_true",
        help="read only what is new since the last run: lines (also of a log that is being "
        "written and renamed), journals' closed files, messages",
    )
    group.add_argument(
        "--follow",
        action="store_true",
        help="go on for ever; the tables are made anew at every round, and swapped in at once",
    )
    group.add_argument("--every", type=float, default=10.0, metavar="S", help="seconds of a round")
    group.add_argument("--topic", metavar="NAME", help="follow a topic of log lines or journals")
    group.add_argument(
        "--kafka-config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="confluent-kafka's settings for --topic, such as bootstrap.servers=HOST:PORT",
    )
    group.add_argument("--files-per-round", type=int, default=64, metavar="N")


def run_sums(arguments: argparse.Namespace, sums: Sums) -> None:
    """Run a command on the inputs that are there, or on a growing one, as its flags say."""
    if arguments.incremental or arguments.follow:
        _follow(arguments, sums)
        return
    if not arguments.requests:
        raise ConfigError("give --requests PATH; a --topic needs --incremental or --follow")
    from headgate.cli.pipeline.options import opened
    from headgate.cli.pipeline.reading import (
        activity_of,
        read_activity,
        refuse_nothing,
        write_bad_lines,
    )
    from headgate.pipeline import frames

    with opened(arguments, sums.command) as on:
        with on.run.replacing():
            emitted = read_activity(on, connections=sums.connections).persist()
            sums.write(on, activity_of(emitted), frames.connections(emitted))
            write_bad_lines(on, emitted)
            refuse_nothing(on)
        sums.tell(on)


def run_replays(arguments: argparse.Namespace, replays: Replays) -> None:
    """Run a command that replays, on the inputs that are there, or on a growing one."""
    if arguments.incremental or arguments.follow:
        _follow(arguments, replays)
        return
    if not arguments.requests:
        raise ConfigError("give --requests PATH; a --topic needs --incremental or --follow")
    from headgate.cli.pipeline.options import opened
    from headgate.cli.pipeline.reading import (
        activity_of,
        read_activity,
        refuse_nothing,
        write_bad_lines,
    )

    with opened(arguments, replays.command) as on:
        with on.run.replacing():
            if replays.activity:
                emitted = read_activity(on).persist()
                replays.write(on, activity_of(emitted))
            else:
                emitted = replays.write(on, None)
            write_bad_lines(on, emitted)
            refuse_nothing(on)
        replays.tell(on)


class _Tables:
    """
    Makes the tables of all parts so far, and swaps them in.

    Args:
        on: the run.
        answer: the command.
        parts: what the stream has written.
    """

    def __init__(self, on: Opened, answer: Answer, parts: Parts) -> None:
        self._on = on
        self._answer = answer
        self._parts = parts
        self._busy = threading.Lock()
        self._made = False

    def make(self, upto: int) -> None:
        """Make them of the parts up to a batch; all of them, or (told to stop) none."""
        run = self._on.run
        with self._busy:
            before, run.figures = run.figures, []
            try:
                self._make(upto)
            except BaseException:
                run.figures = before
                raise
            self._made = True

    def tell(self, upto: int) -> None:
        """Print the closing table, of what was made last or else of the parts up to a batch."""
        with self._busy:  # a round that was told to stop may still be on its way out
            made = self._made
        if not made:
            self.make(upto)
        self._answer.tell(self._on)

    def _make(self, upto: int) -> None:
        from headgate.pipeline import schema
        from headgate.pipeline.tables.publish import can_swap, swap_in

        on, run, parts = self._on, self._on.run, self._parts
        swaps = can_swap(run.out) and run.format == "parquet"
        aside = f"{parts.root}/tables/{time.time_ns():020d}"
        run.aside = aside if swaps else None
        try:
            self._answer.make(on, parts, upto)
            run.write(parts.read("bad_lines", upto), schema.BAD_LINES)
            bad = run.read(schema.BAD_LINES).count()
        finally:
            run.aside = None
        if swaps:
            swap_in(run.out, aside, (*self._answer.tables, schema.BAD_LINES.name))
        zone = on.arguments.time_zone
        run.figure("bad_lines", bad, unit="lines", note="kept in table bad_lines")
        run.figure("time_zone", text=zone, note="assumed where a log prints none")
        run.write_summary()


def _follow(arguments: argparse.Namespace, answer: Answer) -> None:
    from headgate.pipeline.growing.parts import Following, Parts
    from headgate.pipeline.logs.time_stamps import zone_of

    if bool(arguments.topic) == bool(arguments.requests):
        raise ConfigError("give either --requests PATH… or a --topic to follow")
    try:
        zone_of(arguments.time_zone)
    except ValueError as exc:
        raise ConfigError(f"--time-zone: {exc}") from exc
    quotas = read_quotas(arguments)
    source = _source(arguments)
    if arguments.topic:
        from headgate.pipeline.sources.topic import check_topic

        check_topic(arguments.topic, kafka_config(arguments.kafka_config))
    in_the_way = unwritable(arguments.out)
    if in_the_way:
        raise ConfigError("\n".join(in_the_way))
    console = Console(stderr=True)
    what = arguments.topic or ", ".join(arguments.requests)
    console.print(
        f"{answer.command}: following {what}; time zone of logs that print none: "
        f"{arguments.time_zone}",
        highlight=False,
    )
    run = start(answer.command, arguments, console, {})
    run.console = Console(quiet=True)  # a line per round is enough
    root = run.path(f"_stream/{answer.command}")
    parts = Parts(run.spark, root, answer.kept)
    tables = _Tables(Opened(run, [], quotas, arguments), answer, parts)

    def after(number: int) -> None:
        if arguments.follow:
            began = time.monotonic()
            tables.make(number)
            took = time.monotonic() - began
            console.print(f"round {number}: tables are made, in {took:.1f} s", highlight=False)

    once = not arguments.follow
    query = source.start(Following(run.spark, parts, after, once, arguments.every))
    stop = threading.Event()
    if arguments.follow and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        while query.isActive and not stop.is_set():
            query.awaitTermination(1)
    except KeyboardInterrupt:
        pass
    finally:
        query.stop()
    failure = query.exception()
    if isinstance(failure, HeadgateError):
        raise failure
    if failure is not None:
        raise ConfigError(f"the stream ended: {failure}")
    run.console = console
    tables.tell(parts.last())


def _source(arguments: argparse.Namespace) -> Source:
    """Return where rounds come from."""
    from headgate.pipeline.growing.directories import Directory

    if arguments.topic:
        from headgate.pipeline.growing.topic import Topic
        from headgate.pipeline.workers.messages import LineOptions

        return Topic(
            arguments.topic,
            kafka_config(arguments.kafka_config),
            LineOptions(arguments.time_zone, arguments.broker_id, arguments.default_partitions),
        )
    return Directory(
        arguments.requests,
        files_per_round=arguments.files_per_round,
        time_zone=arguments.time_zone,
        broker_id=arguments.broker_id,
        broker_id_pattern=arguments.broker_id_pattern,
        default_partitions=arguments.default_partitions,
    )


def kafka_config(settings: list[str]) -> dict[str, str]:
    """
    Return confluent-kafka's settings from NAME=VALUE flags.

    Raises:
        ConfigError: if one isn't that, or ``bootstrap.servers`` is missing.
    """
    config: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--kafka-config {setting}: write NAME=VALUE")
        config[name] = value
    if "bootstrap.servers" not in config:
        raise ConfigError("--topic needs --kafka-config bootstrap.servers=HOST:PORT")
    return config
