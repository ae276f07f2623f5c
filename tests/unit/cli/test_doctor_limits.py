"""`headgate doctor`: limits of brokers by address, which hit all of a gateway's clients at once."""

from __future__ import annotations

import pytest

from headgate.cli.doctor.setup import enforced_behind, shared_limits
from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity
from headgate.quota.key import CONNECTION, PRODUCER
from headgate.quota.table import QuotaTable

ALICE = QuotaEntity.of(user="alice")


def test_a_limit_by_address_is_named_once_for_brokers_that_agree() -> None:
    same = {"max.connections.per.ip": "50"}
    own = {"max.connections.per.ip": "50", "max.connections.per.ip.overrides": "10.0.0.1:9"}
    found = shared_limits({2: same, 1: own, 3: {}})
    assert [line.partition(" hits all clients of the gateway at once")[0] for line in found] == [
        "max.connections.per.ip=50 of broker 1, 2",
        "max.connections.per.ip.overrides=10.0.0.1:9 of broker 1",
    ]


@pytest.mark.parametrize("table", [None, QuotaTable()])
@pytest.mark.parametrize("name", ["10.0.0.1", DEFAULT])
def test_quotas_of_addresses_are_named_in_every_mode_and_missing_is_not_offered(
    table: QuotaTable | None, name: EntityName
) -> None:
    [found] = enforced_behind(QuotaEntity.of(ip=name), {CONNECTION: 5.0}, table)
    assert "connection_creation_rate:per_s=5 of the brokers hits all clients" in found
    assert "missing" not in found


def test_other_quotas_matter_only_where_the_gateway_enforces_them_too() -> None:
    assert enforced_behind(ALICE, {PRODUCER: 5.0}, None) == []
    [found] = enforced_behind(ALICE, {PRODUCER: 5.0}, QuotaTable.of({ALICE: {PRODUCER: 7.0}}))
    assert "it enforces 7 besides; clear it there, or set headgate.enforce=missing" in found
