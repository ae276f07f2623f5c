"""With headgate.fetch=kafka a violating fetch is answered as a broker answers it."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER
from kit.playbook import (
    NOTHING,
    After,
    FromBroker,
    FromClient,
    Mute,
    Ready,
    ToBroker,
    ToClient,
)

from .conftest import (
    Setup,
    answer,
    fetch,
    fetched,
)

Make = Callable[..., Setup]
ALICE = QuotaEntity.of(user="alice")


def full_fetch(correlation: int, session: int = 0, epoch: int = 0) -> bytes:
    """A Fetch v11 in a session."""
    made = bytearray(fetch(correlation, max_bytes=10_000))
    at = 4 + 8 + 2 + 3 + 17
    struct.pack_into(">ii", made, at, session, epoch)
    return bytes(made)


def sessioned(records: int, correlation: int, session: int) -> bytes:
    made = bytearray(fetched(records, correlation))
    struct.pack_into(">i", made, 14, session)
    return bytes(made)


def emptied(correlation: int, throttle_ms: int, session: int = 0) -> bytes:
    return answer(correlation, struct.pack(">ihii", throttle_ms, 0, session, 0))


@pytest.mark.parametrize("pieces", [0, 1_000])
def test_as_kafka_a_violating_fetch_is_emptied_uncharged_and_its_session_closed(
    gateway: Make, pieces: int
) -> None:
    setup = gateway({ALICE: {CONSUMER: 1_000.0}}, {"headgate.fetch": "kafka"})
    play = setup.play
    play >> Ready() << NOTHING
    play >> FromClient(full_fetch(1)) << ToBroker(full_fetch(1))
    told = round(((len(fetched(11_000)) - 4) / 10 - 1_000) / 1_000 * 10_000)
    play >> FromBroker(sessioned(11_000, 1, 77), pieces)
    play << ToClient(emptied(1, told)) << Mute(told) << NOTHING
    assert setup.rules.managers.fetch.peek(("alice", ""), play.now_ms) == 0.0
    play >> After(told) << NOTHING
    play >> FromClient(full_fetch(2)) << ToBroker(full_fetch(2, session=77))
    play >> FromBroker(sessioned(100, 2, 78)) << ToClient(sessioned(100, 2, 78))
    play >> FromClient(full_fetch(3, 78, 1)) << ToBroker(full_fetch(3, 78, 1))
    play >> FromBroker(sessioned(20_000, 3, 78), pieces)
    assert play.said[0].data[4:8] == struct.pack(">i", 3)
    assert play.said[0].data[14:18] == struct.pack(">i", 78)


def test_as_kafka_a_session_that_takes_anothers_place_unheard_of_is_closed_too(
    gateway: Make,
) -> None:
    play = gateway({ALICE: {CONSUMER: 1_000.0}}, {"headgate.fetch": "kafka"}).play
    play >> Ready() << NOTHING
    # The client ends session 5 and asks for a new one, as it does after an error.
    play >> FromClient(full_fetch(1, 5)) << ToBroker(full_fetch(1, 5))
    play >> FromBroker(sessioned(11_000, 1, 77))
    told = round(((len(fetched(11_000)) - 4) / 10 - 1_000) / 1_000 * 10_000)
    play << ToClient(emptied(1, told)) << Mute(told) << NOTHING
    play >> After(told) << NOTHING
    play >> FromClient(full_fetch(2)) << ToBroker(full_fetch(2, session=77))
