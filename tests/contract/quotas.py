"""Quotas are read and changed; what is refused changes nothing."""

import math

from contract.homes import (
    ALICE,
    BOB,
    ENTITIES,
    Homed,
    Opener,
    alteration,
    errors,
    set_key,
)
from headgate.errors import KafkaError
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import (
    CONNECTION,
    CONSUMER,
    CONSUMER_BPS,
    KEYS,
    MUTATION,
    PRODUCER,
    PRODUCER_IDS,
    PRODUCER_SHARES,
    REQUEST,
)
from headgate.quota.table import QuotaTable
from headgate.store import QuotaStore


class Quotas(Homed):
    """Quotas are read and changed; what is refused changes nothing."""

    # --- reading and changing

    def test_a_new_home_is_empty(self, store: QuotaStore) -> None:
        assert isinstance(store, QuotaStore)
        assert len(store.snapshot()) == 0
        assert store.history.entries() == []
        assert store.history.audit_log() == []
        assert dict(store.broker_settings.now()) == {}

    def test_every_entity_is_kept_apart_under_its_own_name(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        wanted = {entity: {PRODUCER: 1000.0 + i} for i, entity in enumerate(ENTITIES)}
        results = store.alter([set_key(e, PRODUCER, v[PRODUCER]) for e, v in wanted.items()])
        assert errors(results) == [None] * len(ENTITIES)
        assert [r.entity for r in results] == ENTITIES
        assert store.snapshot() == QuotaTable.of(wanted)
        assert open_home().snapshot() == QuotaTable.of(wanted)

    def test_ip_entities(self, store: QuotaStore, open_home: Opener) -> None:
        wanted = {QuotaEntity.of(ip=ip): {CONNECTION: 7.0} for ip in ("127.0.0.1", "::1", DEFAULT)}
        assert errors(store.alter([set_key(e, CONNECTION, 7.0) for e in wanted])) == [None] * 3
        assert open_home().snapshot() == QuotaTable.of(wanted)

    def test_every_key_can_be_kept(self, store: QuotaStore, open_home: Opener) -> None:
        where = {key: QuotaEntity.of(ip=DEFAULT) if key is CONNECTION else ALICE for key in KEYS}
        for key, entity in where.items():
            assert errors(store.alter([set_key(entity, key, 42.0)])) == [None], key
        table = open_home().snapshot()
        assert {key: table.get(entity, key) for key, entity in where.items()} == dict.fromkeys(
            KEYS, 42.0
        )
        for key, entity in where.items():
            assert errors(store.alter([set_key(entity, key, None)])) == [None], key
        assert len(open_home().snapshot()) == 0

    def test_values_come_back_to_the_last_bit(self, store: QuotaStore, open_home: Opener) -> None:
        values = [
            (PRODUCER, 9223372036854775807.0),
            (PRODUCER, 9007199254740993.0),
            (PRODUCER, 1.0),
            (CONSUMER_BPS, 123456789012.0),
            (REQUEST, 12.75),
            (REQUEST, 0.1),
            (MUTATION, 1e-4),
            (MUTATION, 1e22),
            (PRODUCER_IDS, 0.001),
            (PRODUCER_SHARES, 3.0),
        ]
        other = open_home()
        for key, value in values:
            assert errors(store.alter([set_key(ALICE, key, value)])) == [None]
            assert other.snapshot().get(ALICE, key) == value, (key, value)

    def test_an_entity_goes_with_its_last_key(self, store: QuotaStore, open_home: Opener) -> None:
        store.alter([alteration(ALICE, producer_byte_rate=1.0, consumer_byte_rate=2.0)])
        store.alter([alteration(ALICE, producer_byte_rate=None)])
        assert open_home().snapshot() == QuotaTable.of({ALICE: {CONSUMER: 2.0}})
        store.alter([alteration(ALICE, consumer_byte_rate=None)])
        assert len(open_home().snapshot()) == 0

    def test_own_changes_are_in_the_next_snapshot(self, store: QuotaStore) -> None:
        for value in range(1, 6):
            store.alter([set_key(ALICE, REQUEST, value)])
            assert store.snapshot().get(ALICE, REQUEST) == value

    def test_versions_grow(self, store: QuotaStore) -> None:
        versions = [store.snapshot().version]
        for value in (1.0, 2.0):
            store.alter([set_key(ALICE, PRODUCER, value)])
            versions.append(store.snapshot().version)
        assert versions == sorted(set(versions))

    def test_clearing_what_is_not_set_is_no_error_and_no_change(self, store: QuotaStore) -> None:
        store.alter([set_key(ALICE, PRODUCER, 1.0)])
        before = store.snapshot().version
        unset = [set_key(BOB, PRODUCER, None), set_key(ALICE, CONSUMER, None)]
        assert errors(store.alter(unset)) == [None, None]
        assert store.snapshot().version == before
        assert len(store.history.entries()) == 1

    # --- refusals

    def test_validate_only_changes_nothing(self, store: QuotaStore) -> None:
        asked = [set_key(ALICE, PRODUCER, 5.0), set_key(BOB, PRODUCER, 0.0)]
        checked = store.alter(asked, validate_only=True)
        assert errors(checked) == [None, "Quota producer_byte_rate must be greater than 0"]
        assert len(store.snapshot()) == 0
        assert store.history.entries() == []

    def test_one_entity_refused_does_not_spoil_the_others(self, store: QuotaStore) -> None:
        asked = [
            set_key(BOB, PRODUCER, -1.0),
            set_key(ALICE, PRODUCER, 1.0),
            set_key(QuotaEntity({"GROUP": "internal-group"}), PRODUCER, 1.0),
            set_key(QuotaEntity({}), PRODUCER, 1.0),
        ]
        results = store.alter(asked)
        assert errors(results) == [
            "Quota producer_byte_rate must be greater than 0",
            None,
            "Unhandled client quota entity type: GROUP",
            "Invalid empty client quota entity",
        ]
        assert {int(r.error.code) for r in results if r.error} == {KafkaError.INVALID_REQUEST}
        assert store.snapshot() == QuotaTable.of({ALICE: {PRODUCER: 1.0}})

    def test_an_entity_is_altered_whole_or_not_at_all(self, store: QuotaStore) -> None:
        store.alter([alteration(ALICE, producer_byte_rate=1.0)])
        half = alteration(ALICE, producer_byte_rate=2.0, consumer_byte_rate=1.5)
        assert errors(store.alter([half])) == ["consumer_byte_rate cannot be a fractional value."]
        assert store.snapshot() == QuotaTable.of({ALICE: {PRODUCER: 1.0}})

    def test_what_is_no_quota_is_refused(self, store: QuotaStore) -> None:
        for value in (math.nan, 0.0, -3.0, -math.inf):
            results = store.alter([set_key(ALICE, REQUEST, value)])
            assert errors(results) == ["Quota request_percentage must be greater than 0"], value
        assert len(store.snapshot()) == 0

    def test_a_second_alteration_of_one_entity_is_refused_the_first_holds(
        self, store: QuotaStore
    ) -> None:
        results = store.alter([set_key(ALICE, PRODUCER, 1.0), set_key(ALICE, PRODUCER, 2.0)])
        assert results[1].error is not None
        assert store.snapshot().get(ALICE, PRODUCER) == 1.0

    def test_nothing_asked_nothing_answered(self, store: QuotaStore) -> None:
        assert store.alter([]) == []
