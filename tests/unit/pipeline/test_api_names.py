"""Journals name APIs as logs do."""

from __future__ import annotations

from headgate.pipeline.logs.api_names import API_NAMES, api_name
from headgate.wire.apis import API


def test_every_api_that_is_known_has_its_name() -> None:
    assert len(API_NAMES) == max(API) + 1 == 93
    named = {0: "PRODUCE", 4: "LEADER_AND_ISR", 22: "INIT_PRODUCER_ID", 37: "CREATE_PARTITIONS"}
    named |= {50: "DESCRIBE_USER_SCRAM_CREDENTIALS", 92: "DELETE_SHARE_GROUP_OFFSETS"}
    assert {key: api_name(key) for key in named} == named


def test_others_have_their_number() -> None:
    assert (api_name(99), api_name(-1), api_name(None)) == ("API_99", "API_-1", None)
