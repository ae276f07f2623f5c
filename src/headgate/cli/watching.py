"""
Ask again and again: the flag that says how often, and an answer told whenever it changes.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final

from headgate.cli.contract import BadUsage
from headgate.cli.output import printable, reader_gone, say
from headgate.clock import now_ms
from headgate.errors import HeadgateError
from headgate.live.why import Why
from headgate.words import moment

LEAST_EVERY_S: Final = 0.2
_MOST_EVERY_S: Final = 86_400
_FIGURES: Final = re.compile(r"[\d.]+(\s(ms|s|min|h|days)\b)?|\s+")


def add_every(made: argparse.ArgumentParser, to: str = "") -> None:
    """Add the flag that says how often a gateway is asked; ``to``: what it goes with."""
    made.add_argument(
        "--every",
        metavar="S",
        type=float,
        default=2.0,
        help=f"{to}seconds from an answer to the next question; default: 2",
    )


def every_s(arguments: argparse.Namespace) -> float:
    """
    Return how long to wait before the next question, in seconds.

    Raises:
        BadUsage: it is too short or too long, or no number.
    """
    given: float = arguments.every
    if not LEAST_EVERY_S <= given <= _MOST_EVERY_S:
        raise BadUsage(f"--every takes {LEAST_EVERY_S} to {_MOST_EVERY_S} seconds")
    return given


def watch(ask: Callable[[], Why], pause_s: float) -> Why:
    """
    Tell an answer now and whenever it changes, until Ctrl-C or until nobody reads any more.

    Figures alone are no change. On a terminal the last line keeps them up to date. A gateway that
    goes away is told, and asked again.

    Args:
        ask: asks once.
        pause_s: from an answer to the next question, seconds.

    Returns:
        The last answer.

    Raises:
        HeadgateError: there is no first answer.
    """
    found = ask()
    told: object = None
    with _last_line() as live:
        while not reader_gone():
            try:
                found = ask() if told is not None else found
                at_ms, text, what = found.at_ms, sentence(found), answer(found)
            except HeadgateError as error:
                at_ms, what = now_ms(), "no answer"
                text = f"No answer from the gateway, asking again: {' '.join(str(error).split())}"
            line = printable(f"{moment(at_ms)}  {text}")
            if what != told:
                say(line)
                sys.stdout.flush()
            if live is not None:
                live.update(line if what == told else "", refresh=True)
            told = what
            time.sleep(pause_s)
    return found


def sentence(found: Why) -> str:
    """Return an answer in a line: its sentence, what keeps connections out, its note."""
    return " ".join(filter(None, (found.sentence, *found.connecting, found.note)))


def answer(found: Why) -> object:
    """Return what an answer says apart from figures; two that are equal are the same answer."""
    about: Any = ()
    if found.quotas:
        first = found.quotas[0]
        limit = first.limit if first.use is None else first.use.quota
        about = (first.key, first.user, first.client_id, first.entries[:1], limit, first.outlived)
    others = (*found.connecting, found.note)
    return found.state, about, tuple(_FIGURES.sub("", text) for text in others)


def is_screen() -> bool:
    """Return whether stdout is a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _last_line() -> Any:
    """Return the line of a terminal that is written again and again; None in a pipe."""
    if not is_screen():
        return nullcontext()
    from rich.console import Console
    from rich.live import Live

    return Live("", console=Console(highlight=False), auto_refresh=False, transient=True)
