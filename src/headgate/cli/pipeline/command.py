"""
Run a pipeline command; errors of Spark and of the disk become messages of a line or two.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import tempfile
import threading
import traceback
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from headgate.cli.results import Result
from headgate.errors import HeadgateError
from headgate.pipeline import spark_versions


class PipelineError(HeadgateError):
    """Spark or the disk failed; the message is a line or two, without Spark's stack traces."""


def stop_on_sigterm() -> threading.Event:
    """Return what SIGTERM sets from now on; nothing sets it if this isn't the main thread."""
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return stop


def run_on_spark(name: str, action: str, arguments: argparse.Namespace) -> Result:
    """
    Import and run a command's action; turn errors of Spark and of the disk into PipelineError.

    Args:
        name: the command, such as ``headgate usage``.
        action: ``module:function``, the module below this package. It imports Spark.
        arguments: the parsed flags.
    """
    # Checked first: later it would look like a Spark that doesn't start.
    spark_versions.prepare(name)
    try:
        result: Result = resolve_name(f"headgate.cli.pipeline.{action}")(arguments)
        return result
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_unchanged(arguments)) from None
    except Exception as exc:
        if isinstance(exc, BrokenPipeError) or not (isinstance(exc, OSError) or _is_sparks(exc)):
            raise
        if _FULL.search(str(exc)):
            raise PipelineError(full_disk(arguments.out, _unchanged(arguments))) from exc
        if isinstance(exc, OSError):
            raise PipelineError(f"{exc}; {_unchanged(arguments)}") from exc
        raise PipelineError(_what_spark_said(name, exc, _unchanged(arguments))) from exc


UNCHANGED: Final = "no table was changed"


def _unchanged(arguments: argparse.Namespace) -> str:
    """Say what the tables are after an error."""
    if getattr(arguments, "follow", False):
        return "the tables are those of the last round that was told"
    return UNCHANGED


_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded|DSQuotaExceeded")


def _is_sparks(exc: Exception) -> bool:
    return type(exc).__module__.startswith(("pyspark", "py4j"))


def full_disk(out: str, tables: str = UNCHANGED) -> str:
    """Say which disk may be full, how much each has left, and what to do."""
    from headgate.cli.pipeline.print import number

    free = [
        f"{place} has {number(shutil.disk_usage(place).free / 1e6)} MB left"
        for place in ([] if "://" in out else [out]) + [tempfile.gettempdir()]
        if Path(place).exists()
    ]
    return (
        f"the disk is full ({', '.join(free)}); {tables}. Make room, or give another --out; "
        "for Spark's own files another --spark-conf spark.local.dir=DIR"
    )


_SAID: Final = re.compile(r"(?:: |Caused by: )?([\w.$]+(?:Error|Exception)): (.+)")


def _what_spark_said(name: str, exc: Exception, tables: str) -> str:
    """Return one line with the cause of Spark's error, and one naming the file with all of it."""
    pages = Path(tempfile.gettempdir()) / f"{name.replace(' ', '-')}-{os.getpid()}.txt"
    pages.write_text("".join(traceback.format_exception(exc)), encoding="utf-8")
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    # A worker's own words come last before Java's stack; Java's come first.
    said = [m for line in lines if (m := _SAID.match(line))]
    own = [m[2] for m in said if m[1].startswith("headgate.")]
    worker = [m for m in said if "." not in m[1]]
    text = worker[-1][0] if worker else said[0][2] if said else next(iter(lines), "")
    text = f"{own[-1]}; {tables}" if own else f"Spark failed: {text}"
    return f"{text}\nthe whole error is in {pages}"
