"""
The flags that all pipeline commands share, and the run they open.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypedDict

from rich.console import Console

from headgate.cli.contract import BadUsage
from headgate.cli.output import printable
from headgate.cli.pipeline.places import too_small, unwritable
from headgate.cli.pipeline.print import progress_console
from headgate.cli.quotas.quota_output import say_notes
from headgate.cli.quotas.quota_target import open_quota_store
from headgate.config import store_kinds
from headgate.embedded.java import spark_env
from headgate.errors import ConfigError, HeadgateError
from headgate.pipeline import session
from headgate.pipeline.logs.principals import Principals
from headgate.pipeline.logs.time_stamps import zone_of
from headgate.pipeline.quotas import Quotas, load
from headgate.pipeline.run import Run
from headgate.pipeline.sail import open_sail
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import FilePiece, pieces_of
from headgate.pipeline.sources.quality import Note, look
from headgate.pipeline.spark_versions import installed, refuse_format, way_to
from headgate.pipeline.tables.folders import local_path
from headgate.pipeline.tables.lake import CLASSES, SETTINGS, is_name
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.quota.table import QuotaTable

# Printed where no request is found.
HINT: Final = (
    "is it the file of kafka.request.logger, and is that logger at DEBUG? "
    "docs/howto/request-logs.md says how. --allow-empty makes empty tables"
)
# Notes about inputs that are printed at the start, at most.
MOST_NOTES: Final = 5


class Windows(TypedDict):
    """How many samples a quota's window has, and how long one is."""

    num_samples: int
    window_ms: int


@dataclass
class Opened:
    """A run under way: Spark is up, inputs are listed."""

    run: Run
    pieces: list[FilePiece]
    quotas: Quotas
    arguments: argparse.Namespace
    notes: Sequence[Note] = ()
    """What is to be known about the logs."""

    @property
    def read_options(self) -> ReadOptions:
        """The options with which workers read."""
        return ReadOptions(
            tuple(self.pieces),
            self.arguments.time_zone,
            default_partitions=self.arguments.default_partitions,
            principal_pattern=self.arguments.principal_pattern,
            topics=getattr(self.arguments, "by_topic", False),
        )

    @property
    def windows(self) -> Windows:
        """The broker's quota windows, for commands that replay."""
        given = self.arguments
        window_ms = given.quota_window_size_seconds * 1000
        return Windows(num_samples=given.quota_window_num, window_ms=window_ms)

    @property
    def spark(self) -> Any:
        """The session."""
        return self.run.spark


@contextmanager
def opened(arguments: argparse.Namespace, command: str) -> Iterator[Opened]:
    """
    Check the flags, list the inputs, start Spark; say so on stderr as it goes.

    Raises:
        BadUsage: for flags that make no sense, before Spark starts.
        ConfigError: for what they name and can't be used.
    """
    console = progress_console(arguments)
    wrong: list[str] = []
    mistakes: list[str] = []
    files: list[tuple[str, int]] = []
    pieces: list[FilePiece] = []
    notes: list[str] = []
    found = Quotas.of(QuotaTable())
    try:
        check_time_zone(arguments.time_zone)
    except BadUsage as exc:
        wrong.append(str(exc))
    try:
        files = find_files(arguments.requests)
        pieces = pieces_of(
            files,
            broker_id=arguments.broker_id,
            broker_id_pattern=arguments.broker_id_pattern,
            notes=notes,
            copies=arguments.copies,
        )
    except ConfigError as exc:
        mistakes.append(str(exc))
    if files and not any(size for _, size in files) and not arguments.allow_empty:
        mistakes.append(f"--requests: there is nothing in any file; {HINT}")
    try:
        found = read_quotas(arguments)
    except HeadgateError as exc:
        mistakes.append(str(exc))
    try:
        Principals(arguments.principal_pattern)
    except ConfigError as exc:
        mistakes.append(str(exc))
    config: dict[str, str] = {}
    try:
        config = named_values("--spark-conf", arguments.spark_conf)
    except BadUsage as exc:
        wrong.append(str(exc))
    wrong += refuse_engine(arguments)
    mistakes += _unreachable("--master", arguments.master, "spark://")
    mistakes += _unreachable("--remote", remote_of(arguments), "sc://")
    # Makes the directory, to try it; so only where all else is right.
    mistakes += [] if wrong or mistakes else unwritable(arguments.out, arguments.format)
    if not wrong and not mistakes:
        spark_dir = config.get("spark.local.dir", "").partition(",")[0]
        mistakes += too_small(command, arguments.out, files, spark_dir)
    if mistakes:
        raise ConfigError("\n".join([*wrong, *mistakes]))
    if wrong:
        raise BadUsage("\n".join(wrong))
    megabytes = sum(size for _, size in files) / 1e6
    count = f"{len(files)} file{'s' if len(files) != 1 else ''}"
    console.print(
        f"{command}: {count}, {megabytes:,.1f} MB; "
        f"time zone of logs that print none: {arguments.time_zone}"
    )
    if not arguments.quiet:
        say_notes(f"headgate {command}", found.notes)
    for note in notes[:MOST_NOTES]:
        console.print(f"  {printable(note)}", markup=False)
    if len(notes) > MOST_NOTES:
        console.print(f"  and {len(notes) - MOST_NOTES} more")
    known = notes_of(pieces, arguments)
    for about in known:
        console.print(f"  {printable(about.text)}", markup=False)
    run = start(command, arguments, console, config)
    run.mode, run.by_day = arguments.mode, bool(arguments.partition_by)
    yield Opened(run, pieces, found, arguments, notes=known)


def notes_of(pieces: Sequence[FilePiece], arguments: argparse.Namespace) -> list[Note]:
    """Look at a sample of the logs; return what is to be known about them."""
    options = ReadOptions(
        (),
        arguments.time_zone or "UTC",
        principal_pattern=arguments.principal_pattern,
    )
    return look(pieces, options.parser_of).notes()


def check_time_zone(name: str) -> None:
    """
    Refuse what is no time zone.

    Raises:
        BadUsage: says what is.
    """
    try:
        zone_of(name)
    except ValueError as exc:
        raise BadUsage(f"--time-zone: {exc}") from exc


def named_values(flag: str, settings: Sequence[str]) -> dict[str, str]:
    """
    Return the settings that a repeated flag gives as NAME=VALUE.

    Raises:
        BadUsage: some aren't that.
    """
    wrong = [f"{flag} {setting}: write NAME=VALUE" for setting in settings if "=" not in setting]
    if wrong:
        raise BadUsage("\n".join(wrong))
    return dict(setting.split("=", 1) for setting in settings)


def _unreachable(flag: str, url: str | None, scheme: str) -> list[str]:
    """Refuse a server's address where nobody answers; Spark would try for a minute, or ten."""
    if url is None or not url.startswith(scheme):
        return []
    hosts = url.removeprefix(scheme).partition("/")[0]
    addresses = [a.rpartition(":") for a in hosts.split(",")]
    for host, _, port in addresses:
        try:
            with socket.create_connection((host, int(port)), _CONNECT_S):
                return []
        except (OSError, ValueError, OverflowError):
            continue
    whose = "Spark's master" if flag == "--master" else "a Spark Connect server"
    return [f"{flag} {url}: nobody listens there; is the address that of {whose}?"]


def start(
    command: str, arguments: argparse.Namespace, console: Console, config: dict[str, str]
) -> Run:
    """Start the engine and return the run."""
    if arguments.engine == "sail" or remote_of(arguments):
        return _start_connect(command, arguments, console, config)
    os.environ.pop("SPARK_REMOTE", None)  # it isn't to be used; PySpark would see two sessions
    if not session.submitted():
        os.environ.update(spark_env())
    config = {**SETTINGS[arguments.format], **config}
    # A new file: at a fixed name, somebody could have put a link to another file.
    handle, name = tempfile.mkstemp(prefix="headgate-spark-", suffix=".log")
    os.close(handle)
    log = Path(name)
    with console.status("starting Spark"):
        try:
            spark = session.open_session(
                f"headgate {command}", master=arguments.master, config=config, log=log
            )
        except Exception as exc:
            raise ConfigError("\n".join(_why_not_started(exc, log))) from exc
    log.unlink()  # it is read only where Spark doesn't start
    context = spark.sparkContext
    console.print(f"Spark {spark.version}, {context.master}")
    if arguments.format in CLASSES:
        _check_format(context, arguments.format)
    is_here = context.master.startswith("local")
    return Run(command, spark, arguments.out, console, arguments.format, is_here=is_here)


def _start_connect(
    command: str, arguments: argparse.Namespace, console: Console, config: dict[str, str]
) -> Run:
    """Start Sail, or connect to a server of Spark's; return the run."""
    address = remote_of(arguments)
    try:
        spark = session.open_remote(address, config) if address else open_sail(config)
        version = spark.version
    except ImportError as exc:
        raise ConfigError(
            f"{_flag_of(arguments)}: {exc}; pip install 'kafka-headgate[pipeline,sail]' brings "
            "what it needs"
        ) from exc
    except Exception as exc:
        first = next((w for w in str(exc).splitlines() if w.strip()), type(exc).__name__)
        raise ConfigError(f"{_flag_of(arguments)}: no session: {first}") from exc
    if address:
        console.print(f"Spark {version}, {address}")
    else:
        console.print(f"Sail {metadata.version('pysail')}, as Spark {version}")
    is_here = not address
    return Run(command, spark, arguments.out, console, arguments.format, is_here=is_here)


def remote_of(arguments: argparse.Namespace) -> str | None:
    """Return the address of the Spark Connect server to use, if it is one."""
    given: str | None = arguments.remote
    if given or arguments.engine != "spark" or arguments.master:
        return given
    return os.environ.get("SPARK_REMOTE")


def _flag_of(arguments: argparse.Namespace) -> str:
    """Return what asked for another engine than a Spark of our own."""
    if arguments.engine == "sail":
        return "--engine sail"
    return f"--remote {arguments.remote}" if arguments.remote else "SPARK_REMOTE"


def refuse_engine(arguments: argparse.Namespace) -> list[str]:
    """Return what can't be done with the engine that is asked for, a sentence each."""
    sail, remote = arguments.engine == "sail", remote_of(arguments)
    if not sail and not remote:
        try:
            refuse_format(arguments.format, installed() or "")
        except ConfigError as exc:
            return [f"--{exc}"]
        return []
    flag = _flag_of(arguments)
    others = {"--master": arguments.master, "--remote": sail and arguments.remote}
    wrong = [f"{flag} and {other}: give one of them" for other, given in others.items() if given]
    if getattr(arguments, "incremental", False) or getattr(arguments, "follow", False):
        wrong.append(f"{flag}: --incremental and --follow need a Spark that is started here")
    if sail and arguments.format != "parquet":
        wrong.append(f"{flag} writes Parquet; leave --format out")
    if local_path(arguments.out) != arguments.out or (
        arguments.format != "parquet" and is_name(arguments.out)
    ):
        wrong.append(f"{flag}: give --out a directory of this machine, not {arguments.out}")
    return wrong


def _why_not_started(exc: Exception, log: Path) -> list[str]:
    """Return why Spark doesn't start, without stack traces, and the file that has these."""
    words = log.read_text(errors="replace").splitlines() if log.exists() else []
    plain = [w for w in words if w.strip() and not _STACK.match(w)]
    first = next((w for w in str(exc).splitlines() if w.strip()), type(exc).__name__)
    where = [f"the whole error is in {log}"] if len(plain) < len(words) else []
    return [f"Spark doesn't start: {first}", *plain[-_MOST_WORDS:], *where]


_STACK: Final = re.compile(r"\s+(at |\.\.\. \d+ more)|\S+ \S+ (INFO|WARN) |WARNING: |Using Spark's")
_MOST_WORDS: Final = 8
_CONNECT_S: Final = 3.0


def _check_format(context: Any, format: str) -> None:
    """Say what to do if Spark lacks a format's classes; Spark's own error is a page of Java."""
    loader = context._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(CLASSES[format])
    except Exception:  # whatever py4j makes of a ClassNotFoundException
        context.stop()
        way_out = way_to(
            format,
            context.version,
            "--spark-conf spark.jars.packages={}",
            "--spark-conf spark.jars=PATH,PATH",
        )
        raise ConfigError(
            f"--format {format}: this Spark has no {format.capitalize()}. {way_out}"
        ) from None


def read_quotas(arguments: argparse.Namespace) -> Quotas:
    """Return the quotas that --quotas or --store names; none without either."""
    if arguments.quotas:
        return load(arguments.quotas)
    if arguments.store:
        return Quotas.of(table_of_store(arguments.store, arguments.command_config), "store")
    return Quotas.of(QuotaTable())


def table_of_store(url: str, config_file: str | None = None) -> QuotaTable:
    """
    Return the quotas of a store at this moment.

    Args:
        url: the store's.
        config_file: properties for the connection, as Kafka's tools take; None: none.

    Raises:
        ConfigError: it is a file that isn't there.
    """
    if store_kinds.is_missing(url):
        raise ConfigError(
            f"--store {url}: there is no such file; give the gateway's headgate.store"
        )
    with open_quota_store(url, config_file) as store:
        return store.snapshot()
