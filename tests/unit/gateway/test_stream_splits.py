"""Splits from a topic: fenced, counted as in force or expired, and said so once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest

from headgate.gateway.splits.dividing import share_out
from headgate.gateway.splits.streamed import StreamedSplits, put_in_force
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER_BPS, PRODUCER_SHARES
from headgate.steps import finish
from headgate.usage.splits import Heartbeat, Split, decode, encode, encode_heartbeat
from kit.playbook import START_MS

from .conftest import Setup

BPS = "producer_byte_rate:bps"
SPLIT = Split("alice", "", BPS, 1, 250.0, 7, START_MS, 15_000)


class Reader:
    """A reader of splits without a topic, and a clock to set."""

    def __init__(self) -> None:
        self.now = START_MS
        self.taken: list[Split] = []
        self.splits = StreamedSplits("splits", {}, self.take, lambda: self.now, 5_000)

    def take(self, splits: Sequence[Split]) -> None:
        self.taken += splits


def test_a_lower_epoch_and_what_has_expired_are_passed_over() -> None:
    reader = Reader()
    later = SPLIT._replace(epoch=8, split=300.0)
    old = SPLIT._replace(computed_ms=START_MS - 20_000)
    reader.splits.read([encode(old), encode(SPLIT), (b"junk", b"junk"), encode(later)])
    reader.splits.read([encode(SPLIT), (encode(SPLIT)[0], None)])
    assert reader.taken == [SPLIT, later]
    assert reader.splits.epoch == 8
    # A heartbeat fences as well.
    reader.splits.read([encode_heartbeat(Heartbeat(9, START_MS, 15_000)), encode(later)])
    assert reader.taken == [SPLIT, later]


def test_a_split_of_another_quota_becomes_the_same_part_of_the_one_in_force(
    gateway: Callable[..., Setup],
) -> None:
    """A quota was lowered, and a split of what it was comes after that."""
    alice = QuotaEntity.of(user="alice")
    managers = gateway({alice: {PRODUCER_BPS: 100.0}}).rules.managers
    manager = managers.produce_bps

    def take(split: Split) -> float:
        assert finish(put_in_force([split], {split.broker: managers}, lambda: START_MS)) == 1
        return manager.split(("alice", ""), START_MS)

    assert take(SPLIT._replace(split=750.0, quota=1_000.0)) == 75.0
    assert take(SPLIT._replace(split=30.0, quota=100.0)) == 30.0
    assert take(SPLIT._replace(split=30.0, quota=50.0)) == 60.0  # it was raised
    assert take(SPLIT._replace(split=30.0)) == 30.0  # of a stream that doesn't tell
    assert take(SPLIT._replace(split=750.0)) == 100.0
    manager.update_quota(alice, None, START_MS)
    assert take(SPLIT._replace(split=750.0, quota=1_000.0)) > 1e18  # none is in force any more


def test_a_split_tells_of_which_quota_it_is_a_part() -> None:
    whole = SPLIT._replace(quota=1_000.0)
    assert decode(*encode(whole)) == whole
    assert decode(*encode(SPLIT)) == SPLIT
    key, value = encode(whole)
    for wrong in (b"0", b"-5.0", b"NaN", b"Infinity", b'"much"'):
        assert decode(key, value.replace(b"1000.0", wrong)) is None


def test_that_splits_expired_is_said_once_and_noted_until_they_are_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "headgate.gateway")
    reader = Reader()
    splits = reader.splits

    def said() -> list[str]:
        splits.watch(reader.now)
        words = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return words

    assert splits.expired(reader.now)
    assert "haven't come yet" in str(splits.note(reader.now))
    assert said() == []  # the first may take three periods
    reader.now += 15_001
    assert "haven't come yet; quota / brokers is in force" in said()[0]
    assert said() == []
    splits.read([encode_heartbeat(Heartbeat(7, reader.now, 15_000))])
    assert splits.note(reader.now) is None
    assert "are in force" in said()[0]
    reader.now += 15_001
    assert splits.note(reader.now) is not None
    assert "have expired" in said()[0]
    assert said() == []
    reader.now += 3_000
    assert "expired 3 s ago" in str(splits.note(reader.now))
    splits.read([encode_heartbeat(Heartbeat(8, reader.now, 15_000))])
    assert "are in force" in said()[0]


def test_546_9_a_fleets_shares_replace_this_gateways_own_until_they_expire(
    gateway: Callable[..., Setup],
) -> None:
    quotas = {QuotaEntity.of(user="alice"): {PRODUCER_SHARES: 1.0}}
    setup = gateway(quotas, {"headgate.capacity.producer_byte_rate": "1000"})
    managers = setup.rules.managers
    shares = managers.produce_shares
    split = SPLIT._replace(key="producer_byte_rate:shares", split=600.0)
    force = put_in_force(
        [split._replace(split=9.0), split], {split.broker: managers}, lambda: START_MS
    )
    assert finish(force) == 1
    for second in range(1, 15):
        finish(share_out(managers, lambda at=START_MS + second * 1_000: at))
        assert shares.record("alice", "app", 1, START_MS + second * 1_000).bound == 600.0
    # Expired: its own division, where 1 byte a second contests nothing.
    finish(share_out(managers, lambda: START_MS + 15_001))
    assert shares.record("alice", "app", 1, START_MS + 15_001).bound > 1e18
    bare = gateway(quotas).rules.managers  # without a capacity shares aren't enforced
    assert not finish(put_in_force([split], {split.broker: bare}, lambda: START_MS))
    odd = split._replace(key="no such key")
    assert not finish(put_in_force([odd], {split.broker: managers}, lambda: START_MS))
    assert not finish(put_in_force([split], {}, lambda: START_MS))
