"""
Why a client's next request isn't taken, and why the broker's next answer isn't.

Kafka mutes a connection as soon as a complete request is in, and reads it again once the answer is
out *and* the throttle time is over. So it has one request in flight. Here the next may follow when
the throttle is over, which begins when a request was passed on; some go alone (``ANSWER``).

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
    """All in flight have to be answered, as in Kafka: one of them goes alone, or the next one
    does, or they are too many."""
    THROTTLE = 4
    """A throttle is in force."""
    TURN = 8
    """It is held at a gate, or a newcomer waits for those that repay before it."""
    QUESTION = 16
    """The shell answers a request or says how to pass it on."""
    WORK = 32
    """The shell goes on in a later callback; until then ``Session.budget`` says what is taken."""


class Holds(IntFlag):
    """Why the broker's next answer isn't taken."""

    TURN = 1
    """A fetch's answer is kept until its turn."""
    WORK = 2
    """An answer is rewritten in slices."""


# In Python 3.11 each operation on an enum's member is a call.
UPSTREAM: Final = int(Waits.UPSTREAM)
ANSWER: Final = int(Waits.ANSWER)
THROTTLE: Final = int(Waits.THROTTLE)
TURN: Final = int(Waits.TURN)
QUESTION: Final = int(Waits.QUESTION)
WORK: Final = int(Waits.WORK)
NO_REQUEST: Final = UPSTREAM | ANSWER | THROTTLE | TURN | QUESTION
"""Any of these: no request is taken."""
OURS: Final = THROTTLE | TURN | QUESTION
"""Any of these: the client waits for the gateway."""
HOLDS_TURN: Final = int(Holds.TURN)
HOLDS_WORK: Final = int(Holds.WORK)
HOLDS_ANSWER: Final = HOLDS_TURN | HOLDS_WORK
"""Either: what comes from the broker is set aside."""
