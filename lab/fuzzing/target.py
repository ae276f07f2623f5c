"""What a target is, and the two things that it lets a parser do: read or refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from headgate.errors import HeadgateError, LocalProtocolError

T = TypeVar("T")


class Target(NamedTuple):
    """
    Something that reads from outside.

    Args:
        run: takes any bytes; fails where what it tries does anything but read or refuse.
        seeds: makes real inputs to begin with.
        words: what its inputs are made of; mutations put these in.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    words: tuple[bytes, ...] = ()


def outcome(call: Callable[[], T], where: str = "") -> tuple[str, T | None]:
    """
    Return what a call gives, or that it refuses: the only two things it may do.

    Args:
        call: reads something.
        where: what an error has to name, such as a file.
    """
    try:
        return "read", call()
    except LocalProtocolError:
        raise  # our own fault, whatever came in
    except HeadgateError as error:
        said = str(error)
        assert said.strip(), "an error that says nothing"
        assert where in said, f"an error that doesn't say where: {said[:200]}"
        return "refused", None
