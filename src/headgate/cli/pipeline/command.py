"""
Run a pipeline command: our errors, Spark's and the disk's become a line and an exit status.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headgate.cli import exit_codes
from headgate.cli.output import printable
from headgate.cli.pipeline.print import number
from headgate.errors import HeadgateError


def command(name: str, function: Any, argv: Sequence[str], made: argparse.ArgumentParser) -> int:
    """
    Parse, run, and turn our errors into a message and an exit status.

    Args:
        name: the command, for messages.
        function: takes the parsed arguments.
        argv: arguments after the command's name.
        made: the command's parser.
    """
    arguments = made.parse_args(list(argv))
    try:
        function(arguments)
    except HeadgateError as exc:
        for line in str(exc).splitlines():
            print(f"headgate {name}: {printable(line)}", file=sys.stderr)
        return exit_codes.FAILED
    except KeyboardInterrupt:
        print(f"headgate {name}: stopped; {_UNCHANGED}", file=sys.stderr)
        return exit_codes.INTERRUPTED
    except Exception as exc:
        if isinstance(exc, BrokenPipeError) or not (isinstance(exc, OSError) or _is_sparks(exc)):
            raise
        if _FULL.search(str(exc)):
            print(f"headgate {name}: {full_disk(arguments.out)}", file=sys.stderr)
        elif isinstance(exc, OSError):
            print(f"headgate {name}: {printable(str(exc))}; {_UNCHANGED}", file=sys.stderr)
        else:
            _complain_of_spark(name, exc)
        return exit_codes.FAILED
    return exit_codes.DONE


_UNCHANGED: Final = "no table was changed"
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded|DSQuotaExceeded")


def _is_sparks(exc: Exception) -> bool:
    return type(exc).__module__.startswith(("pyspark", "py4j"))


def full_disk(out: str) -> str:
    """Say which disk may be full, how much each has left, and what to do."""
    free = [
        f"{place} has {number(shutil.disk_usage(place).free / 1e6)} MB left"
        for place in ([] if "://" in out else [out]) + [tempfile.gettempdir()]
        if Path(place).exists()
    ]
    return (
        f"the disk is full ({', '.join(free)}); {_UNCHANGED}. Make room, or give another --out; "
        "for Spark's own files another --spark-conf spark.local.dir=DIR"
    )


_SAID: Final = re.compile(r"(?:: |Caused by: )?([\w.$]+(?:Error|Exception)): (.+)")


def _complain_of_spark(name: str, exc: Exception) -> None:
    """Say in a line what Spark says in pages, and where the pages are."""
    pages = Path(tempfile.gettempdir()) / f"headgate-{name}-{os.getpid()}.txt"
    pages.write_text("".join(traceback.format_exception(exc)), encoding="utf-8")
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    # A worker's own words come last before Java's stack; Java's come first.
    said = [m for line in lines if (m := _SAID.match(line))]
    unread = [m[2] for m in said if m[1].endswith(".ReadError")]
    worker = [m for m in said if "." not in m[1]]
    text = worker[-1][0] if worker else said[0][2] if said else next(iter(lines), "")
    text = f"{unread[-1]}; {_UNCHANGED}" if unread else f"Spark failed: {text}"
    print(f"headgate {name}: {printable(text)}", file=sys.stderr)
    print(f"headgate {name}: all that it said is in {pages}", file=sys.stderr)
