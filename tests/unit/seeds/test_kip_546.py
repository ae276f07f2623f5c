"""KIP-546's clauses that the core decides: levels, matches, units, unknown types."""

from __future__ import annotations

from headgate.errors import ApiError
from headgate.quota.alteration import Op, QuotaAlteration, validate
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import KEYS, PRODUCER, PRODUCER_BPS, PRODUCER_SHARES, QuotaUnit
from headgate.quota.precedence import PRECEDENCE, resolve
from headgate.quota.table import QuotaTable

# KIP-546 "Background", as it prints them.
BACKGROUND = """
/config/users/<user>/clients/<client-id>
/config/users/<user>/clients/<default>
/config/users/<user>
/config/users/<default>/clients/<client-id>
/config/users/<default>/clients/<default>
/config/users/<default>
/config/clients/<client-id>
/config/clients/<default>
"""


def test_546_1_the_eight_levels_in_the_order_of_the_kip() -> None:
    paths = []
    for level in PRECEDENCE:
        entity = level.entity("U", "C")
        assert entity is not None
        paths.append("/config/" + entity.path)
    printed = BACKGROUND.replace("<user>", "U").replace("<client-id>", "C").split()
    assert paths == printed


def test_546_4_a_request_has_an_entity_and_a_quota_an_entity_match() -> None:
    request = QuotaEntity.of(user="test-user", client_id="test-client")
    match = QuotaEntity.of(user=DEFAULT)
    table = QuotaTable.of({match: {PRODUCER: 5.0}})
    assert isinstance(request.user, str)
    assert isinstance(request.client_id, str)
    assert resolve(table, request.user, request.client_id, PRODUCER).source == match
    assert not request.has_default
    assert match.has_default


def test_546_7_units_are_keys_of_their_own_side_by_side() -> None:
    user = QuotaEntity.of(user="u")
    table = QuotaTable.of({user: {PRODUCER: 1.0, PRODUCER_BPS: 2.0, PRODUCER_SHARES: 3.0}})
    got = {key: resolve(table, "u", "c", key).value for key in KEYS}
    assert (got[PRODUCER], got[PRODUCER_BPS], got[PRODUCER_SHARES]) == (1.0, 2.0, 3.0)
    assert {key.units for key in KEYS if key.type == "producer_byte_rate"} == {
        QuotaUnit.BPS,
        QuotaUnit.BROKER_BPS,
        QuotaUnit.SHARES,
    }


def test_546_10_entity_types_are_strings_and_unknown_ones_are_refused_by_name() -> None:
    entity = QuotaEntity({"GROUP": "internal-group"})
    results = validate([QuotaAlteration(entity, (Op(PRODUCER, 1.0),))]).results
    assert results[0].error == ApiError(42, "Unhandled client quota entity type: GROUP")
