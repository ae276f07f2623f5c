"""The mute states are Kafka's, every one of them."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from headgate.errors import LocalProtocolError
from headgate.gateway.session.mute import TRANSITIONS, ChannelMute, MuteEvent, MuteState

CASES = json.loads(
    (Path(__file__).parents[2] / "data" / "gateway" / "mute_states.json").read_text()
)


def test_the_states_are_kafkas() -> None:
    assert [state.name for state in MuteState] == CASES["states"]


def test_the_table_is_kafkas() -> None:
    ours = {(event.name, before.name, after.name) for (event, before), after in TRANSITIONS.items()}
    assert ours == {tuple(row) for row in CASES["transitions"]}


@pytest.mark.parametrize(("event", "state"), list(product(MuteEvent, MuteState)))
def test_every_move_is_in_the_table_or_refused(event: MuteEvent, state: MuteState) -> None:
    channel = ChannelMute()
    channel.state = state
    rows = {(row[0], row[1]): row[2] for row in CASES["transitions"]}
    after = rows.get((event.name, state.name))
    if after is None:
        with pytest.raises(LocalProtocolError, match=f"from {state.name} for {event.name}"):
            channel.apply(event)
        assert channel.state is state
    else:
        channel.apply(event)
        assert channel.state.name == after


def test_only_a_muted_channel_without_reasons_is_unmuted() -> None:
    channel = ChannelMute()
    assert channel.try_unmute()
    channel.mute()
    channel.apply(MuteEvent.REQUEST_RECEIVED)
    channel.apply(MuteEvent.THROTTLE_STARTED)
    assert not channel.try_unmute()
    channel.apply(MuteEvent.RESPONSE_SENT)
    assert not channel.try_unmute()
    channel.apply(MuteEvent.THROTTLE_ENDED)
    assert channel.muted
    assert channel.try_unmute()
    assert not channel.muted
