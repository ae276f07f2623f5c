"""
Step over what nobody looks at in a message, by a table of how it is laid out.

A layout says what each element of an array holds, in order: a number (that many bytes), a function
that skips one value (``fields.skip_string``), or a layout (an array of such elements). Where the
version is flexible, the tagged fields at the end of each element are stepped over too.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeAlias

from headgate.steps import FEW, Work
from headgate.wire.fields import Buffer, read_array_length, skip_tags, truncated

Value: TypeAlias = int | Callable[[Buffer, int, bool], int]
Layout: TypeAlias = "tuple[Value | Layout, ...]"


class Skipper:
    """
    Step over arrays of one message, in steps of ``FEW`` elements of whatever array.

    Args:
        frame: the message.
        flexible: whether its version is flexible.

    Attributes:
        seen: counts elements; a caller that reads elements itself counts them here too.
    """

    __slots__ = ("_flexible", "_frame", "seen")

    def __init__(self, frame: Buffer, flexible: bool = True) -> None:
        self._frame = frame
        self._flexible = flexible
        self.seen = count(1)

    def array(self, at: int, layout: Layout) -> Work[int]:
        """
        Return where an array ends.

        Raises:
            RemoteProtocolError: it doesn't parse. That its last element ends within the message
                isn't checked here.
        """
        frame, flexible, seen = self._frame, self._flexible, self.seen
        elements, at = read_array_length(frame, at, flexible)
        try:
            for _ in range(elements):
                if not next(seen) % FEW:
                    yield
                for part in layout:
                    if type(part) is int:
                        at += part
                    elif type(part) is tuple:
                        # As most arrays in arrays are: null or empty.
                        if flexible and frame[at] <= 1:
                            at += 1
                        else:
                            at = yield from self.array(at, part)
                    else:
                        at = part(frame, at, flexible)  # type: ignore[operator]
                if flexible:
                    at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
        except IndexError:
            raise truncated("an array", at) from None
        return at
