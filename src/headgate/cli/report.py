"""
`headgate report`: draw the tables of pipeline runs as one HTML page.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from headgate.cli import exit_codes
from headgate.cli.output import complain, say
from headgate.errors import ConfigError


def parser() -> argparse.ArgumentParser:
    """Return the command's flags."""
    found = argparse.ArgumentParser(
        prog="headgate report",
        description="Draw the tables of pipeline runs (usage and, where they are, what_if, "
        "recommend, chargeback, storms, effective, bad_lines, summary) as one self-contained "
        "HTML page. Needs no Spark.",
    )
    found.add_argument(
        "--tables", required=True, type=Path, metavar="DIR", help="the --out of pipeline commands"
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
    return found


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    options = parser().parse_args(list(argv))
    if options.window_seconds < 1:
        complain("headgate report: --window-seconds must be at least 1")
        return exit_codes.USAGE
    from headgate.pipeline.report import write_report

    out = options.out or options.tables / "report.html"
    try:
        written = write_report(
            options.tables,
            out,
            generated_ms=int(time.time() * 1000),
            title=options.title,
            window_s=options.window_seconds,
        )
    except ConfigError as problem:
        for line in problem.problems:
            complain(f"headgate report: {line}")
        return exit_codes.FAILED
    report = written.report
    say(f"{written.path}: {written.size / 1e6:.1f} MB, {written.tenants} quota-ids")
    if report.others["count"]:
        say(f"{report.others['count']} more are summed up in one line; all are in the tables")
    if report.bad_total:
        say(f"{report.bad_total} lines couldn't be read; their reasons are on the page")
    return exit_codes.DONE
