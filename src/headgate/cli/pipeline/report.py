"""
`headgate report`: draw the tables of pipeline runs as one HTML page.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from headgate.cli import extras
from headgate.cli.contract import BadUsage, Parser
from headgate.cli.output import complain, say
from headgate.cli.pipeline.command import stop_on_sigterm
from headgate.cli.results import Drawn
from headgate.clock import now_ms
from headgate.errors import ConfigError
from headgate.pipeline.tables.lake import FORMATS
from headgate.pipeline.tables.pointer import POINTER

if TYPE_CHECKING:
    from headgate.pipeline.report import ReportTables


def parser() -> Parser:
    """Return the command's parser."""
    found = Parser(
        "headgate report",
        "Draw the tables of pipeline runs (usage and, where they are, what_if, recommend, "
        "chargeback, storms, effective, bad_lines, summary) as one self-contained HTML page. "
        "Parquet tables need no Spark.",
        _report,
        example="headgate report --tables tables --out report.html",
    )
    found.add_argument(
        "--tables", required=True, type=_place, metavar="DIR", help="the --out of pipeline commands"
    )
    found.add_argument(
        "--format",
        choices=FORMATS,
        default="parquet",
        help="the tables' format (default: parquet); Delta and Iceberg are read by Spark",
    )
    found.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting, for Delta and Iceberg; may be repeated",
    )
    found.add_argument(
        "--out", type=Path, metavar="FILE", help="the page to write (default: DIR/report.html)"
    )
    found.add_argument("--title", default="Headgate report", help="its title")
    found.add_argument(
        "--window-seconds",
        type=int,
        default=11,
        metavar="N",
        help="quota window of the brokers: quota.window.num x quota.window.size.seconds "
        "(default: 11)",
    )
    found.add_argument(
        "--follow",
        action="store_true",
        help="keep running: draw the page again whenever a command (with --follow or not) "
        "has made a table",
    )
    found.add_argument(
        "--every", type=float, default=5.0, metavar="S", help="seconds between looks (--follow)"
    )
    return found


def _place(text: str) -> Path | str:
    """Return a folder, or a URI as it is."""
    return text if "://" in text else Path(text)


def _report(options: argparse.Namespace) -> Drawn:
    extras.require("pyarrow", "plotly", "jinja2")  # before the tables are looked for
    if options.window_seconds < 1 or options.every <= 0:
        raise BadUsage("--window-seconds must be at least 1, --every above 0")
    if isinstance(options.tables, str) and (options.follow or not options.out):
        raise BadUsage(f"--tables {options.tables}: give --out FILE, and no --follow")
    if options.format != "parquet":
        if options.follow or not options.out:
            raise BadUsage(f"--format {options.format}: give --out FILE, and no --follow")
        return _draw(options, _by_spark(options))
    if not options.follow:
        return _draw(options)
    if options.json:
        raise BadUsage("--json prints one object at the end, and --follow has none")
    stop = stop_on_sigterm()
    drawn: list[Drawn] = []

    def draw() -> None:
        try:
            drawn[:] = [_draw(options)]
        except ConfigError as problem:  # a table that is being made: the next round sees it
            for line in problem.problems:
                complain(f"headgate report: {line}")

    with contextlib.suppress(KeyboardInterrupt):
        follow(options.tables, draw, options.every, stop)
    return drawn[0] if drawn else Drawn(str(_page(options)), 0, 0, 0, 0)


def follow(tables: Path, draw: Callable[[], object], every_s: float, stop: Event) -> None:
    """
    Draw whenever a table under a folder was made, until told to stop.

    Args:
        tables: the folder.
        draw: draws the page; a round that comes meanwhile is seen the next time.
        every_s: seconds between looks.
        stop: ends it.
    """
    drawn: bytes | None = None
    while True:
        found = _made(tables)
        if found != drawn:
            draw()
            drawn = found
        if stop.wait(every_s):
            return


def _made(tables: Path) -> bytes:
    """Return what the tables' pointer says; it differs once a table was made again."""
    with contextlib.suppress(OSError):
        return (tables / POINTER).read_bytes()
    return b""


def _by_spark(options: argparse.Namespace) -> ReportTables:
    """Start Spark, and read tables of Delta or Iceberg by it."""
    from rich.console import Console

    from headgate.cli.pipeline.opening import named_values, start
    from headgate.pipeline import spark_versions
    from headgate.pipeline.report import read_lake

    extras.require("pyspark")
    spark_versions.prepare("report")
    spark_versions.refuse_format(options.format, spark_versions.installed() or "")
    config = named_values("--spark-conf", options.spark_conf)
    run_options = argparse.Namespace(
        engine="spark", remote=None, master="local[*]", format=options.format, out=""
    )
    run = start("report", run_options, Console(stderr=True, quiet=True), config)
    return read_lake(run.spark, str(options.tables), options.format)


def _page(options: argparse.Namespace) -> Path:
    return Path(options.out or options.tables / "report.html")


def _draw(options: argparse.Namespace, read: ReportTables | None = None) -> Drawn:
    from headgate.pipeline.report import write_report

    written = write_report(
        read or options.tables,
        _page(options),
        generated_ms=now_ms(),
        title=options.title,
        window_s=options.window_seconds,
    )
    report = written.report
    more, bad = report.others["count"], report.bad_total
    say(f"{written.path}: {written.size / 1e6:.1f} MB, {written.tenants} quota-ids")
    if more:
        say(f"{more} more are summed up in one line; all are in the tables")
    if bad:
        say(f"{bad} lines couldn't be read; their reasons are on the page")
    return Drawn(str(written.path), written.size, written.tenants, more, bad)
