"""Which store it is: an identity and a revision, and what takes the place of another."""

import threading
from collections.abc import Callable

import pytest

from contract.homes import ALICE, BOB, Homed, Opener, Seen, errors, set_key
from headgate.errors import StoreError, StoreMovedOn, StoreReplaced
from headgate.quota.key import (
    PRODUCER,
    PRODUCER_IDS,
)
from headgate.quota.table import QuotaTable
from headgate.store import AuditEvent, QuotaStore
from headgate.store.identity import StoreIdentity


class Identities(Homed):
    """Which store it is: an identity and a revision, and what takes the place of another."""

    def test_a_home_is_one_store_whoever_opens_it(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        found = store.home.identity()
        assert found is not None
        assert len(found.id) == 16
        assert open_home().home.identity() == found == open_home(create=False).home.identity()
        assert store.home.identify() == found

    def test_the_revision_grows_with_what_changes_and_nothing_else(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        def revision() -> int:
            found = open_home(create=False).home.identity()
            assert found is not None
            return found.revision

        at = [revision()]
        for change in (
            lambda: store.alter([set_key(ALICE, PRODUCER, 1.0)]),
            lambda: store.alter([set_key(ALICE, PRODUCER_IDS, 1.0)]),
            lambda: store.alter([set_key(ALICE, PRODUCER, None)]),
            lambda: store.broker_settings.alter("1", {"max.connections": "5"}),
        ):
            change()
            at.append(revision())
        assert at == sorted(set(at))
        store.alter([set_key(ALICE, PRODUCER_IDS, 1.0)])
        store.alter([set_key(ALICE, PRODUCER, 2.0)], validate_only=True)
        store.alter([set_key(ALICE, PRODUCER, -1.0)])
        store.broker_settings.alter("1", {"max.connections": "5"})
        store.history.audit(AuditEvent("eve", "admin", "alter", "refused"))
        lease = store.leases.take("broker-1", "worker", 60_000)
        assert lease is not None
        assert lease.renew()
        store.history.entries()
        assert revision() == at[-1]

    def test_what_reads_makes_nothing_and_what_changes_makes_it_ready(
        self, open_home: Opener, empty_home: Callable[[], None]
    ) -> None:
        empty_home()
        try:
            reader = open_home(create=False)
        except StoreError as exc:
            assert "there is no" in str(exc)
        else:
            assert (
                len(reader.snapshot())
                == len(reader.history.entries())
                == len(reader.history.audit_log())
                == 0
            )
            assert dict(reader.broker_settings.now()) == {}
            assert reader.home.identity() is None
            assert open_home(create=False).home.identity() is None
        open_home().alter([set_key(ALICE, PRODUCER_IDS, 1.0)])
        late = open_home(create=False)
        assert errors(late.alter([set_key(BOB, PRODUCER_IDS, 1.0)])) == [None]
        assert late.home.identity() == open_home(create=False).home.identity()

    def test_a_change_that_goes_by_another_revision_is_refused_whole(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        def revision() -> int:
            return store.home.identify().revision

        seen = revision()
        asked = [set_key(ALICE, PRODUCER, 1.0), set_key(BOB, PRODUCER, 1.0)]
        assert errors(store.alter(asked, at_revision=seen)) == [None, None]
        for key in (PRODUCER, PRODUCER_IDS):
            with pytest.raises(
                StoreMovedOn, match=f"based on revision {seen}; nothing was changed"
            ):
                store.alter([set_key(ALICE, key, 2.0)], at_revision=seen)
        open_home().alter([set_key(BOB, PRODUCER_IDS, 7.0)])
        assert errors(store.alter([set_key(ALICE, PRODUCER_IDS, 2.0)], at_revision=revision())) == [
            None
        ]
        wanted = {
            ALICE: {PRODUCER: 1.0, PRODUCER_IDS: 2.0},
            BOB: {PRODUCER: 1.0, PRODUCER_IDS: 7.0},
        }
        assert open_home().snapshot() == QuotaTable.of(wanted)

    def test_an_emptied_home_is_not_the_store_and_takes_no_changes(
        self, store: QuotaStore, open_home: Opener, empty_home: Callable[[], None]
    ) -> None:
        seen, brokers = Seen(), Seen()
        store.alter([set_key(ALICE, PRODUCER_IDS, 1.0)])
        store.broker_settings.alter("1", {"max.connections": "5"})
        known = store.home.identify()
        store.watch(seen)
        store.broker_settings.watch(brokers)
        assert store.availability.trouble is None
        empty_home()
        with pytest.raises(StoreReplaced, match=known.id):
            store.snapshot()
        for key in (PRODUCER_IDS, PRODUCER):
            with pytest.raises(StoreReplaced):
                store.alter([set_key(ALICE, key, 2.0)])
        with pytest.raises(StoreReplaced):
            store.broker_settings.alter("1", {"max.connections": "6"})
        assert store.home.identity() is None

        other = open_home()  # as a tool would that is to change something
        other.alter([set_key(BOB, PRODUCER_IDS, 9.0)])
        found = other.home.identity()
        assert found is not None
        assert found.id != known.id
        with pytest.raises(StoreReplaced, match=rf"{known.id}.*{found.id}"):
            store.snapshot()
        with pytest.raises(StoreReplaced):
            store.alter([set_key(ALICE, PRODUCER_IDS, 2.0)])
        with pytest.raises(StoreReplaced):
            store.leases.take("broker-1", "worker", 60_000)
        assert len(seen.events) == len(brokers.events) == 1
        for _ in range(600):
            if found.id in str(store.availability.trouble):
                break
            threading.Event().wait(0.05)
        assert found.id in str(store.availability.trouble)

        store.home.accept(found)
        seen.until(lambda: seen.table == QuotaTable.of({BOB: {PRODUCER_IDS: 9.0}}))
        brokers.until(lambda: dict(brokers.events[-1][0]) == {})
        assert errors(store.alter([set_key(ALICE, PRODUCER_IDS, 2.0)])) == [None]
        assert set(other.snapshot().entities) == {ALICE, BOB}

    def test_emptying_by_the_tools_is_a_change_like_any_other(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        store.alter([set_key(ALICE, PRODUCER, 1.0), set_key(BOB, PRODUCER_IDS, 1.0)])
        seen = Seen()
        store.watch(seen)
        known = store.home.identify()
        open_home().alter([set_key(ALICE, PRODUCER, None), set_key(BOB, PRODUCER_IDS, None)])
        seen.until(lambda: len(seen.table) == 0)
        now = store.home.identity()
        assert now is not None
        assert now.follows(known)

    def test_a_store_that_took_over_says_from_whom(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        before = store.home.identify()
        old = StoreIdentity("0123456789abcdef", 41, (("fedcba9876543210", 7),))
        told = store.home.succeed(old)
        assert told.succeeds == (("0123456789abcdef", 41), ("fedcba9876543210", 7))
        assert told.revision > before.revision
        found = open_home().home.identity()
        assert found is not None
        assert found.follows(old)
        assert found.follows(StoreIdentity("fedcba9876543210", 7))
        assert not found.follows(old._replace(revision=42))
        assert not found.follows(StoreIdentity("0123456789abcdee", 1))
