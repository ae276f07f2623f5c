"""Broker settings, and leases of one holder at a time."""

import threading

import pytest

from contract.homes import Homed, Opener, Seen
from headgate.errors import ApiError
from headgate.store import QuotaStore


class Settings(Homed):
    """Broker settings, and leases of one holder at a time."""

    # --- broker settings

    def test_broker_settings_are_set_and_removed_per_broker(
        self, store: QuotaStore, open_home: Opener
    ) -> None:
        store.broker_settings.alter("", {"max.connection.creation.rate": "100"}, who="User:ops")
        one = {"max.connections": "5", "listener.name.external.max.connections.per.ip": "2"}
        store.broker_settings.alter("1", one)
        store.broker_settings.alter("1", {"max.connections.per.ip.overrides": "h:1,127.0.0.1:9"})
        store.broker_settings.alter("1", {"max.connections": None})
        wanted = {
            "": {"max.connection.creation.rate": "100"},
            "1": {
                "listener.name.external.max.connections.per.ip": "2",
                "max.connections.per.ip.overrides": "h:1,127.0.0.1:9",
            },
        }
        assert {b: dict(c) for b, c in open_home().broker_settings.now().items()} == wanted
        lines = [
            (e.who, e.action, e.outcome, e.subject, e.detail) for e in store.history.audit_log()
        ]
        assert lines[0] == (
            "User:ops",
            "alter_broker_configs",
            "done",
            "default of brokers",
            "max.connection.creation.rate: unset -> 100",
        )
        assert lines[-1][4] == "max.connections: 5 -> unset"
        store.broker_settings.alter("", {"max.connection.creation.rate": None})
        assert set(open_home().broker_settings.now()) == {"1"}

    def test_broker_settings_that_cannot_be_are_refused_whole(self, store: QuotaStore) -> None:
        for broker, name, value, says in (
            ("1", "max.connections", "-1", "Value must be at least 0"),
            # 0 would lock every client out, also one that wants to change it back.
            ("1", "max.connections", "0", "Invalid max.connections 0"),
            ("", "max.connection.creation.rate", "0", "Invalid max.connection.creation.rate 0"),
            ("1", "listener.name.x.max.connections", "0", "Invalid max.connections 0"),
            ("1", "max.connections.per.ip", "0", "can be set to zero only if max.connections.per"),
            ("1", "max.connections", "many", "Not a number of type INT"),
            ("1", "max.connections", "3000000000", "Not a number of type INT"),
            ("1", "max.connections.per.ip.overrides", "host", "isn't of the form host:count"),
            ("1", "log.retention.ms", "1", "isn't a setting kept here"),
            ("one", "max.connections", "1", "must be an integer"),
        ):
            with pytest.raises(ApiError, match=says):
                store.broker_settings.alter(broker, {"max.connections.per.ip": "1", name: value})
        assert dict(store.broker_settings.now()) == {}

    def test_no_connections_of_an_address_go_with_exceptions_only(self, store: QuotaStore) -> None:
        both = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:5"}
        store.broker_settings.alter("1", both)
        with pytest.raises(ApiError, match="can be set to zero only if"):
            store.broker_settings.alter("1", {"max.connections.per.ip.overrides": None})
        store.broker_settings.alter("", {"max.connections.per.ip.overrides": "10.0.0.2:5"})
        store.broker_settings.alter("1", {"max.connections.per.ip.overrides": None})
        store.broker_settings.alter("1", {"max.connections.per.ip": None})
        assert set(store.broker_settings.now()) == {""}

    def test_broker_settings_validate_only(self, store: QuotaStore) -> None:
        store.broker_settings.alter("1", {"max.connections": "1"}, validate_only=True)
        assert dict(store.broker_settings.now()) == {}
        assert store.history.audit_log() == []

    def test_broker_settings_are_watched(self, store: QuotaStore, open_home: Opener) -> None:
        seen = Seen()
        watch = store.broker_settings.watch(seen)
        assert dict(seen.events[0][0]) == {}
        open_home().broker_settings.alter("2", {"max.connections": "3"})
        seen.until(lambda: dict(seen.events[-1][0].get("2", {})) == {"max.connections": "3"})
        store.broker_settings.alter("2", {"max.connections": None})
        seen.until(lambda: dict(seen.events[-1][0]) == {})
        watch.close()

    # --- leases

    def test_one_holder_at_a_time_and_epochs_grow(self, open_home: Opener) -> None:
        one, two = open_home(), open_home()
        first = one.leases.take("broker-1", "worker-a", 60_000)
        assert first is not None
        assert first.held()
        assert two.leases.take("broker-1", "worker-b", 60_000) is None
        assert two.leases.take("broker-2", "worker-b", 60_000) is not None
        assert first.renew()
        first.release()
        assert not first.held()
        second = two.leases.take("broker-1", "worker-b", 60_000)
        assert second is not None
        assert second.epoch > first.epoch
        assert not first.renew()
        first.release()
        assert second.held()

    def test_a_lease_runs_out_and_its_old_holder_is_fenced(self, open_home: Opener) -> None:
        one, two = open_home(), open_home()
        first = one.leases.take("broker-1", "worker-a", 200)
        assert first is not None
        second = None
        for _ in range(600):
            second = two.leases.take("broker-1", "worker-b", 60_000)
            if second is not None:
                break
            threading.Event().wait(0.05)
        assert second is not None
        assert not first.held()
        assert not first.renew()
        assert second.epoch > first.epoch

    def test_a_restarted_owner_fences_its_former_self(self, open_home: Opener) -> None:
        before = open_home().leases.take("broker-1", "worker-a", 60_000)
        after = open_home().leases.take("broker-1", "worker-a", 60_000)
        assert before is not None
        assert after is not None
        assert after.epoch > before.epoch
        assert not before.renew()
        assert after.renew()
