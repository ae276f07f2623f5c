"""
Check what the library's functions are given, and say what is wrong in the caller's own words.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, ParamSpec, TypeVar

from pyspark.sql import DataFrame

from headgate.errors import BadArgument, ConfigError
from headgate.pipeline import quotas
from headgate.pipeline.logs.time_stamps import zone_of
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.session import context_of
from headgate.quota.table import QuotaTable

P = ParamSpec("P")
R = TypeVar("R")
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
QuotasGiven = Quotas | QuotaTable | str | os.PathLike[str] | None
"""Quotas, or the path of a quotas file or of a `headgate history` export; None = none."""
COPIES: Final = ("refuse", "once", "count")
_FLAG: Final = re.compile(r"(?<!\w)--(?:requests |([a-z]+(?:-[a-z]+)*))")
_SECONDS: Final = 20
# What a classic session and one of Spark Connect have, which share no class.
_OF_SESSIONS: Final = ("createDataFrame", "range", "readStream")


def worded(text: str, *, camel: bool = False) -> str:
    """
    Return a message that names commands' flags with the names of arguments in their place.

    Args:
        text: the message; ``--broker-id-pattern`` becomes ``broker_id_pattern``.
        camel: as Spark's options are written: ``brokerIdPattern``.
    """

    def name(found: re.Match[str]) -> str:
        if found[1] is None:
            return ""
        first, *others = found[1].split("-")
        return first + "".join(map(str.title, others)) if camel else "_".join([first, *others])

    return _FLAG.sub(name, text)


def own_words(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function's errors name its arguments, and be ValueErrors."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BadArgument:
            raise
        except ConfigError as exc:
            raise BadArgument([worded(problem) for problem in exc.problems]) from exc

    return wrapped


def check_frame(frame: object, name: str = "requests") -> None:
    """
    Refuse what is no frame of rows that are all there.

    Raises:
        BadArgument: it isn't a DataFrame, or it is a stream; as `check_session`.
    """
    if not isinstance(frame, DataFrame):
        raise BadArgument(
            f"{name}: {type(frame).__name__} {_short(frame)} isn't a DataFrame; give what "
            "headgate.pipeline.requests(spark, path) returns, or a table `requests`"
        )
    check_session(frame.sparkSession)
    if frame.isStreaming:
        raise BadArgument(
            f"{name}: this frame is a stream, and an answer needs all of its rows: call the "
            "function within writeStream.foreachBatch, or of the table that the stream writes"
        )


def check_session(spark: Any) -> None:
    """
    Refuse what is no session, and a session whose workers can't run this package.

    Raises:
        BadArgument: it isn't a SparkSession, or local workers run another version of Python.
    """
    if not all(hasattr(spark, name) for name in _OF_SESSIONS):
        raise BadArgument(
            f"spark: {type(spark).__name__} {_short(spark)} isn't a SparkSession; give one, such "
            "as SparkSession.builder.getOrCreate() returns"
        )
    context = context_of(spark)
    if context is not None and context.master.startswith("local"):
        _check_python(context.pythonExec)


@functools.cache
def _check_python(program: str) -> None:
    """Refuse workers of another Python: Spark itself says so in 60 lines, once a job runs."""
    ask = "import sys; print(*sys.version_info[:2], sep='.')"
    try:
        found = subprocess.run(
            [program, "-S", "-c", ask],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return  # Spark says what it doesn't find
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if found and found != ours:
        raise BadArgument(
            f"Spark's workers run Python {found} ({program}) and this process runs Python {ours}: "
            f"set the environment variable PYSPARK_PYTHON to {sys.executable} before the session "
            "starts"
        )


def check_time_zone(name: object, argument: str) -> None:
    """
    Refuse what is no time zone.

    Raises:
        BadArgument: says what is one.
    """
    if not isinstance(name, str):
        raise BadArgument(f"{argument}: {name!r} isn't a time zone; write UTC or Europe/Berlin")
    try:
        zone_of(name)
    except ValueError as exc:
        raise BadArgument(f"{argument}: {exc}") from exc


def check_copies(copies: object, argument: str) -> None:
    """
    Refuse what says nothing about files that begin alike.

    Raises:
        BadArgument: says what does.
    """
    if copies not in COPIES:
        raise BadArgument(f"{argument}: {copies!r}; give refuse, once or count")


def paths_of(given: Paths) -> list[str]:
    """
    Return paths as texts.

    Raises:
        BadArgument: something isn't a path.
    """
    every = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(every, Iterable):
        raise BadArgument(f"path: {given!r} isn't a path; give one, or several")
    found = list(every)
    for path in found:
        if not isinstance(path, str | os.PathLike):
            raise BadArgument(f"path: {path!r} isn't a path; give texts or pathlib.Path objects")
    return [os.fspath(path) for path in found]


def quotas_of(given: QuotasGiven, name: str = "quotas") -> Quotas:
    """
    Return quotas in whatever way they were given.

    Args:
        given: the quotas.
        name: of those that have none of their own, for ``what_if``'s column ``plan``.

    Raises:
        BadArgument: they are none of these.
        ConfigError: they are a file that can't be read.
    """
    if isinstance(given, Quotas):
        return given
    if given is None or isinstance(given, QuotaTable):
        return Quotas.of(given or QuotaTable(), name)
    if not isinstance(given, str | os.PathLike):
        raise BadArgument(
            f"{name}: {type(given).__name__} {_short(given)} isn't quotas; give the path of a "
            "quotas file, a QuotaTable, or None"
        )
    return quotas.load(os.fspath(given), "quotas")


def named(plans: Sequence[Quotas], caller: str) -> list[Quotas]:
    """
    Return plans, none of which has another's name, or ``logged``.

    Args:
        plans: the plans.
        caller: the function that they were given to.

    Raises:
        BadArgument: two have the same name, or one is called ``logged``.
    """
    names = [plan.name for plan in plans]
    twice = sorted({name for name in names if name == "logged" or names.count(name) > 1})
    if twice:
        raise BadArgument(
            f"{caller}: several plans are called {', '.join(twice)} (`logged` is what the log "
            "says); give a mapping of names to plans"
        )
    return list(plans)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
