"""
Write the dashboards and the rules to a folder: ``python -m headgate.metrics.monitoring DIR``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from headgate.metrics.monitoring.dashboards import dashboard_json
from headgate.metrics.monitoring.panels import DASHBOARDS

RULES = Path(__file__).parent / "rules.yml"


def main(argv: list[str] | None = None) -> int:
    """
    Write the files.

    Args:
        argv: the command line without the program's name.

    Returns:
        0 done, 1 failed (the reason is on stderr).
    """
    parser = argparse.ArgumentParser(
        prog="python -m headgate.metrics.monitoring",
        description="Write Grafana dashboards and Prometheus rules; files of these names that are "
        "there already are written again.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="made where it is missing")
    folder = parser.parse_args(argv).folder
    files = {
        f"{dashboard.name}.json": json.dumps(dashboard_json(dashboard), indent=2) + "\n"
        for dashboard in DASHBOARDS
    }
    files["headgate-rules.yml"] = RULES.read_text(encoding="utf-8")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
            sys.stdout.write(f"{folder / name}\n")
    except OSError as error:
        sys.stderr.write(f"error: nothing more can be written to {folder}: {error.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
