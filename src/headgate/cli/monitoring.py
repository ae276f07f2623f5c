"""
`headgate monitoring`: write the dashboards for Grafana and the alerts for Prometheus to a folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from headgate.cli.contract import Parser
from headgate.cli.output import say
from headgate.cli.results import Written
from headgate.metrics.monitoring.dashboards import files


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        "headgate monitoring",
        "Write dashboards for Grafana and alerts for Prometheus, over the metrics of gateways. "
        "Files of the same names that are there already are replaced.",
        _write,
        example="headgate monitoring dashboards",
    )
    made.add_argument("folder", type=Path, metavar="DIR", help="made where it is missing")
    return made


def _write(options: argparse.Namespace) -> Written:
    options.folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in files().items():
        path = options.folder / name
        path.write_text(text, encoding="utf-8")
        say(str(path))
        written.append(str(path))
    return Written(written)
