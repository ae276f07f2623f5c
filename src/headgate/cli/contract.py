"""
The contract of every command: its parser, one JSON object for ``--json``, its exit status.

A command's parser knows its action: a function of the parsed flags that prints for people by
:func:`~headgate.cli.output.say`, which is silent where ``--json`` was given, and returns a
:class:`~headgate.cli.results.Result`. :func:`command` does the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from headgate.cli import exit_codes, extras
from headgate.cli.environment import TwoPlaces
from headgate.cli.output import complain, printable, say
from headgate.cli.results import Error, Failed, Result
from headgate.errors import ApiError, ConfigError, HeadgateError, KafkaError

Action = Callable[[argparse.Namespace], Result]
_JSON: Final = frozenset({"--json", "-json"})  # the second as Kafka's tools read flags


class BadUsage(ConfigError):
    """
    The command line makes no sense; nothing was tried.

    Args:
        problem: what is wrong with it.
        usage: the command's usage, for people.
    """

    def __init__(self, problem: str, usage: str = "") -> None:
        super().__init__(problem)
        self.usage = usage


class _Formatter(argparse.HelpFormatter):
    """Wraps sentences, keeps indented lines as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        lines = text.splitlines()
        return "\n".join(x if x.startswith(" ") else fill(x, width, indent) for x in lines)


class Parser(argparse.ArgumentParser):
    """
    A command's parser: ``--json`` is there, ``--help`` ends with an example, mistakes are raised.

    Args:
        prog: such as ``headgate plan``.
        description: what the command does, in a sentence or two.
        does: called with the parsed flags; None for a command that has only actions, each with a
            parser of its own.
        example: a command line that people can copy.
        progress: the command shows progress, which ``--quiet`` turns off.
        json: what ``--json`` prints; None: the command takes no such flag.
        given: argparse's own.

    Attributes:
        alone: flags that print a text and end the command, whatever else is given; each with the
            function that returns its text.
    """

    def __init__(
        self,
        prog: str,
        description: str,
        does: Action | None = None,
        *,
        example: str,
        progress: bool = False,
        json: str | None = "print one JSON object, also for errors",
        **given: Any,
    ) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=f"example:\n  {example}",
            formatter_class=_Formatter,
            allow_abbrev=False,
            **given,
        )
        self.alone: dict[str, Callable[[], str]] = {}
        if does is not None:
            self.set_defaults(does=does)
        if json is not None:
            self.add_argument("--json", action="store_true", help=json)
        if progress:
            self.add_argument("--quiet", action="store_true", help="show no progress on stderr")

    def error(self, message: str) -> NoReturn:
        """
        Refuse the command line.

        Raises:
            BadUsage: always.
        """
        raise BadUsage(message, self.format_usage().rstrip())


def command(made: Parser, words: Sequence[str]) -> int:
    """
    Run a command and return its exit status.

    Args:
        made: its parser.
        words: what follows its name.
    """
    for flag, text in made.alone.items():
        if flag in words:
            say(text())
            return exit_codes.DONE

    def act() -> Result:
        arguments = made.parse_args(words)
        result: Result = arguments.does(arguments)
        return result

    return run(made.prog, words, act)


def run(name: str, words: Sequence[str], action: Callable[[], Result]) -> int:
    """
    Run an action: its result or what it raises becomes lines or an object, and an exit status.

    Args:
        name: what lines on stderr begin with, such as ``headgate plan``.
        words: the command line, read or not.
        action: parses and does it.
    """
    as_json = not _JSON.isdisjoint(words)
    try:
        with contextlib.ExitStack() as stack:
            if as_json:
                nowhere = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
            result = action()
    except (Exception, KeyboardInterrupt) as problem:
        return failed(name, words, problem)
    if as_json:
        _print(result)
    return result.status


def failed(name: str, words: Sequence[str], problem: BaseException) -> int:
    """
    Say what went wrong: lines on stderr and, where ``--json`` was given, the object.

    Returns:
        The exit status.

    Raises:
        BaseException: the problem itself, where it is a bug; the object is printed before.
    """
    status, error = _judged(name, problem)
    if not _JSON.isdisjoint(words):
        _print(Failed(error=error))
    if status is None:
        raise problem
    if isinstance(problem, BadUsage) and problem.usage:
        complain(problem.usage)
    code = f"{error.name}: " if isinstance(problem, ApiError) else ""
    for line in f"{code}{error.message}".splitlines():
        complain(printable(f"{name}: {line}"))
    if error.code == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
        complain(
            f"{name}: log in (--command-config) as one of the gateway's super.users or "
            "headgate.admin.principals; a broker itself wants ACLs: DescribeConfigs and "
            "AlterConfigs on the cluster"
        )
    return status


def error_of(problem: BaseException) -> Error:
    """Return a problem for ``--json``, with Kafka's code and name, or with its class's name."""
    if isinstance(problem, ApiError):
        return Error(int(problem.code), problem.name, str(problem))
    if isinstance(problem, OSError) and problem.errno is not None:
        name = errno.errorcode.get(problem.errno, "OS_ERROR")
        if problem.filename is None:
            return Error(None, name, str(problem))
        file = str(problem.filename)
        return Error(None, name, f"{file}: {problem.strerror}", file)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(problem).__name__).upper()
    return Error(None, name, str(problem))


def _judged(name: str, problem: BaseException) -> tuple[int | None, Error]:
    """Return the exit status, None for a bug, and the problem for programs."""
    error = error_of(problem)
    if isinstance(problem, KeyboardInterrupt):
        error.message = "; ".join(filter(None, ("stopped", error.message)))
        return exit_codes.INTERRUPTED, error
    if isinstance(problem, ModuleNotFoundError):
        line = extras.missing(name, problem.name or "")
        if line is None:
            return None, error
        error.message = line.removeprefix(f"{name}: ")
        return exit_codes.FAILED, error
    if isinstance(problem, BadUsage | TwoPlaces):
        return exit_codes.USAGE, error
    return exit_codes.FAILED if isinstance(problem, HeadgateError | OSError) else None, error


def _print(result: Result) -> None:
    """Print the object; ASCII, so that no terminal's encoding changes a name."""
    say(json.dumps(msgspec.to_builtins(result), indent=2, allow_nan=False))
