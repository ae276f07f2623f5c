"""``headgate.quota.rules``: whose way of choosing a client's quota level the gateway follows."""

from __future__ import annotations

import pytest

from headgate.config import Settings
from headgate.gateway.charging.managers import Managers
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, MUTATION, PRODUCER, REQUEST

T0 = 1_700_000_000_000
ALICE = QuotaEntity.of(user="alice")


@pytest.mark.parametrize("pacing", ["kafka", "smooth"])
@pytest.mark.parametrize(("rules", "tags"), [("4", ("", "c")), ("3.9", ("alice", ""))])
def test_a_level_goes_with_its_last_quota_or_stays_until_restart(
    rules: str, tags: tuple[str, str], pacing: str
) -> None:
    settings = Settings.from_properties(
        {
            "headgate.upstream": "embedded",
            "headgate.quota.rules": rules,
            "headgate.pacing": pacing,
        }
    )
    managers = Managers(settings, T0)
    for key in (PRODUCER, CONSUMER, REQUEST, MUTATION):
        managers.by_key[key].update_quota(ALICE, 10.0, T0)
        managers.by_key[key].update_quota(ALICE, None, T0)
        assert managers.by_key[key].tags("alice", "c") == tags
