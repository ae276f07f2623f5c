"""
Why a client's next request isn't taken, and why the broker's next answer isn't.

Kafka mutes a connection as soon as a complete request is in, and reads it again once the answer is
out *and* the throttle time is over. So it has one request in flight. Here that holds only for
requests that may be throttled (``session``).

Source: KafkaChannel.java (``ChannelMuteState``, ``handleChannelMuteEvent``); KIP-219.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final


class Waits(IntFlag):
    """What a client's next request waits for; it is taken when nothing is set but ``WORK``."""

    UPSTREAM = 1
    """The upstream connection isn't up yet."""
    ANSWER = 2
    """The last request in flight has to be answered before another is taken, as in Kafka."""
    ANSWERS = 4
    """All in flight have to be answered: they are too many, or the next may not fit."""
    THROTTLE = 8
    """A throttle is in force."""
    TURN = 16
    """A fetch is held, or a newcomer waits for those that repay before it."""
    QUESTION = 32
    """The shell answers a request or says how to pass it on."""
    WORK = 64
    """The shell goes on in a later callback; until then ``Session.budget`` says what is taken."""


class Holds(IntFlag):
    """Why the broker's next answer isn't taken."""

    CLIENT = 1
    """The client doesn't take its answers."""
    TURN = 2
    """A fetch's answer is kept until its turn."""
    WORK = 4
    """An answer is rewritten in slices."""


# In Python 3.11 each operation on an enum's member is a call.
UPSTREAM: Final = int(Waits.UPSTREAM)
ANSWER: Final = int(Waits.ANSWER)
ANSWERS: Final = int(Waits.ANSWERS)
THROTTLE: Final = int(Waits.THROTTLE)
TURN: Final = int(Waits.TURN)
QUESTION: Final = int(Waits.QUESTION)
WORK: Final = int(Waits.WORK)
NO_REQUEST: Final = UPSTREAM | ANSWER | ANSWERS | THROTTLE | TURN | QUESTION
"""Any of these: no request is taken."""
OURS: Final = THROTTLE | TURN | QUESTION
"""Any of these: the client waits for the gateway."""
HOLDS_CLIENT: Final = int(Holds.CLIENT)
HOLDS_TURN: Final = int(Holds.TURN)
HOLDS_WORK: Final = int(Holds.WORK)
HOLDS_ANSWER: Final = HOLDS_TURN | HOLDS_WORK
"""Either: what comes from the broker is set aside."""
