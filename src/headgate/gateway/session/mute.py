"""
When a client's connection may be read: Kafka's mute states, as a table.

Kafka mutes a connection as soon as a complete request is in, and reads it again once the answer is
out *and* the throttle time is over. So it has one request in flight. Here that holds only for
requests that may be throttled (``session``).

Source: KafkaChannel.java (``ChannelMuteState``, ``handleChannelMuteEvent``); KIP-219.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from headgate.errors import LocalProtocolError


class MuteState(enum.Enum):
    """What keeps a connection from being read."""

    NOT_MUTED = "NOT_MUTED"
    MUTED = "MUTED"
    MUTED_AND_RESPONSE_PENDING = "MUTED_AND_RESPONSE_PENDING"
    MUTED_AND_THROTTLED = "MUTED_AND_THROTTLED"
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = "MUTED_AND_THROTTLED_AND_RESPONSE_PENDING"

    __hash__ = object.__hash__  # an enum's own is written in Python


class MuteEvent(enum.Enum):
    """What moves a muted connection from one state to another."""

    REQUEST_RECEIVED = "REQUEST_RECEIVED"
    RESPONSE_SENT = "RESPONSE_SENT"
    THROTTLE_STARTED = "THROTTLE_STARTED"
    THROTTLE_ENDED = "THROTTLE_ENDED"

    __hash__ = object.__hash__


# In Python 3.11 looking up an enum's member costs more than all that is done with it.
NOT_MUTED: Final = MuteState.NOT_MUTED
MUTED: Final = MuteState.MUTED
PENDING: Final = MuteState.MUTED_AND_RESPONSE_PENDING
THROTTLED: Final = MuteState.MUTED_AND_THROTTLED
THROTTLED_AND_PENDING: Final = MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING
REQUEST_RECEIVED: Final = MuteEvent.REQUEST_RECEIVED
RESPONSE_SENT: Final = MuteEvent.RESPONSE_SENT
THROTTLE_STARTED: Final = MuteEvent.THROTTLE_STARTED
THROTTLE_ENDED: Final = MuteEvent.THROTTLE_ENDED
TRANSITIONS: Final[Mapping[tuple[MuteEvent, MuteState], MuteState]] = {
    (REQUEST_RECEIVED, MUTED): PENDING,
    (THROTTLE_STARTED, PENDING): THROTTLED_AND_PENDING,
    (RESPONSE_SENT, PENDING): MUTED,
    (RESPONSE_SENT, THROTTLED_AND_PENDING): THROTTLED,
    (THROTTLE_ENDED, THROTTLED): MUTED,
    (THROTTLE_ENDED, THROTTLED_AND_PENDING): PENDING,
}


class ChannelMute:
    """
    The mute state of one connection.

    ``mute()`` and ``try_unmute()`` are the two ways between ``NOT_MUTED`` and the rest; every
    other move is a row of ``TRANSITIONS``.
    """

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: MuteState = NOT_MUTED

    @property
    def muted(self) -> bool:
        """Whether nothing more is taken from the client for now."""
        return self.state is not NOT_MUTED

    def mute(self) -> None:
        """Stop reading: a complete request is in."""
        if self.state is NOT_MUTED:
            self.state = MUTED

    def try_unmute(self) -> bool:
        """Read again if nothing is pending; return whether the connection is readable."""
        if self.state is MUTED:
            self.state = NOT_MUTED
        return self.state is NOT_MUTED

    def apply(self, event: MuteEvent) -> None:
        """
        Move by an event.

        Raises:
            LocalProtocolError: when the table has no such move; the text is Kafka's.
        """
        after = TRANSITIONS.get((event, self.state))
        if after is None:
            raise LocalProtocolError(f"Cannot transition from {self.state.name} for {event.name}")
        self.state = after
