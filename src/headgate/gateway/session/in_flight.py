"""
Requests that the broker has and hasn't answered yet, and the request whose rest is still to come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from headgate.gateway.charging.plans import RequestKind, RequestPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.gateway.charging.contexts import Context
    from headgate.gateway.charging.headroom import Headroom
    from headgate.gateway.charging.plans import RequestPlan
    from headgate.gateway.session.commands import Ask
    from headgate.wire.messages.produce import IdWalker

InFlight: TypeAlias = (
    "tuple[int, RequestPlan, int, Context, frozenset[int] | None,"
    " Callable[[bytes], bytes | Ask] | None, Headroom | int | None]"
)
"""
An unanswered request: correlation id, plan, bytes (header and body, as Kafka counts them), the
context that is charged, producer ids, merge, claim.

It is a plain tuple because one is made per request. ``merge`` makes the client's answer from the
broker's. The claim is the headroom that the request uses until it is charged. If the request is
charged before its answer comes, the claim is the throttle time to be told, in ms.
"""
IN_FLIGHT_BYTES: Final = 128
"""About what one unanswered request takes in memory."""
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_PRODUCE: Final = RequestKind.PRODUCE


class Passing:
    """
    A request that is passed on in pieces while it arrives.

    Args:
        asked: the request.
        left: bytes that haven't come yet.
        silent: the broker won't answer it (acks=0).
        walker: reads its producer ids as the pieces pass; None: they aren't needed.

    Attributes:
        passes_untouched: nothing has to be read of its pieces.
    """

    __slots__ = ("asked", "left", "passes_untouched", "silent", "walker")

    def __init__(self, asked: InFlight, left: int, silent: bool, walker: IdWalker | None) -> None:
        self.asked = asked
        self.left = left
        self.silent = silent
        self.walker = walker
        self.passes_untouched = walker is None


class Collecting:
    """
    A request that is collected whole before anything is done with it.

    Args:
        plan: of the request.
        frame: its bytes so far, a copy.
        left: bytes that haven't come yet.
    """

    __slots__ = ("frame", "left", "plan")

    passes_untouched: Final = False

    def __init__(self, plan: RequestPlan, frame: bytearray, left: int) -> None:
        self.plan = plan
        self.frame = frame
        self.left = left


def told_before(asked: InFlight) -> int | None:
    """
    Give back the headroom that an answered request claimed.

    Returns:
        The throttle time to be told, in ms, if the request was charged before its answer; None: it
        has to be charged now.
    """
    claim = asked[6]
    if claim is None or isinstance(claim, int):
        return claim
    produced = asked[2] if asked[1].kind is _KIND_PRODUCE else 0
    claim.release(produced, asked[4])
    return None
