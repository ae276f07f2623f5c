"""Connection quotas: rates and counts of broker, listeners and addresses (KIP-612)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.throttle.connection import Admission, ConnectionQuotas, Outcome, host_address
from headgate.throttle.java import INT_MAX

CASES = json.loads(
    (Path(__file__).parents[2] / "data" / "cases" / "connection_quotas.json").read_text()
)
T0 = 1_700_000_000_000
IPS = {"ext": "192.168.1.1", "admin": "192.168.1.3"}
LISTENERS = ("EXTERNAL", "ADMIN", "REPLICATION")
FINE = Admission(Outcome.ACCEPTED, 0)


def quotas(num_samples: int = 2, **config: Any) -> ConnectionQuotas:
    return ConnectionQuotas(
        LISTENERS,
        "REPLICATION",
        {key.replace("_", "."): str(value) for key, value in config.items()},
        num_samples=num_samples,
        start_ms=T0,
    )


def test_bounds_of_addresses() -> None:
    q = quotas()
    for step in CASES["ip_bounds"]:
        if "set_default" in step:
            q.set_ip_rate(None, step["set_default"])
        else:
            q.set_ip_rate(IPS[step["set_ip"]], step["rate"])
        assert {name: q.ip_bound(IPS[name]) for name in IPS} == {n: step[n] for n in IPS}


def test_enforcement_at_one_instant() -> None:
    q = quotas()
    for step in CASES["instant_enforcement"]:
        address = IPS[step["ip"]]
        if "set_ip_rate" in step:
            q.set_ip_rate(address, step["set_ip_rate"])
        if "set_default_rate" in step:
            q.set_ip_rate(None, step["set_default_rate"])
        for _ in range(step["attempts"]):
            throttled = q.admit("EXTERNAL", address, T0).outcome is Outcome.THROTTLED
            if throttled and step.get("stop_at_first_throttle"):
                break
        assert q._counts.get(address, 0) == step["total"]


def test_most_connections_per_address() -> None:
    case = CASES["per_ip_max"]
    q = quotas(max_connections_per_ip=case["max"])
    address = IPS["ext"]
    for _ in range(case["accept"]):
        assert q.admit("EXTERNAL", address, T0) == FINE
    for _ in range(case["then_rejected"]):
        assert q.admit("EXTERNAL", address, T0).outcome is Outcome.TOO_MANY
    assert q._counts.get(address, 0) == case["count_after"]
    assert q.admit("EXTERNAL", IPS["admin"], T0) == FINE
    for _ in range(4):
        q.release("EXTERNAL", address)
    assert q._counts.get(address, 0) == case["after_dec_4"]
    for _ in range(case["then_accept"]):
        assert q.admit("EXTERNAL", address, T0) == FINE
    assert q._counts.get(address, 0) == case["count"]


def test_overrides_per_address_and_their_forms() -> None:
    q = quotas(
        max_connections_per_ip=1, max_connections_per_ip_overrides="10.0.0.1:2, [::1]:3,host:0"
    )
    assert q.max_per_ip_overrides == {"10.0.0.1": 2, "0:0:0:0:0:0:0:1": 3, "host": 0}
    outcomes = [q.admit("ADMIN", "10.0.0.1", T0).outcome for _ in range(3)]
    assert outcomes == [Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.TOO_MANY]


def test_612_1_612_10_by_default_no_limit_and_no_delay() -> None:
    q = quotas()
    for i in range(10_000):
        assert q.reserve("EXTERNAL", T0 + i // 100) == 0
        assert q.slot_available("EXTERNAL")
        assert q.admit("EXTERNAL", "10.1.1.1", T0 + i // 100) == FINE
    assert (q.total, q._listeners["EXTERNAL"].count) == (10_000, 10_000)


def test_612_3_a_listeners_own_rate_comes_on_top_of_the_brokers_which_is_its_default() -> None:
    def waits(listener: str, count: int) -> list[int]:
        q = ConnectionQuotas(
            LISTENERS,
            "REPLICATION",
            {
                "max.connection.creation.rate": "5",
                "listener.name.external.max.connection.creation.rate": "3",
                "listener.name.admin.max.connection.creation.rate": "100",
            },
            num_samples=2,
        )
        return [q.reserve(listener, T0) for _ in range(count)]

    assert waits("EXTERNAL", 5) == [0, 0, 0, 333, 667]  # its own
    assert waits("ADMIN", 6) == [0] * 5 + [200]  # the broker's, whatever its own
    assert waits("REPLICATION", 6) == [0] * 5 + [200]  # none of its own


def test_612_3_listeners_with_rates_of_their_own_use_up_the_brokers_together() -> None:
    config = {f"listener.name.{name}.max.connection.creation.rate": "4" for name in ("external",
              "admin")}  # fmt: skip
    q = ConnectionQuotas(
        LISTENERS, "REPLICATION", {"max.connection.creation.rate": "5", **config}, num_samples=2
    )
    assert [q.reserve("EXTERNAL", T0) for _ in range(4)] == [0] * 4
    assert [q.reserve("ADMIN", T0) for _ in range(2)] == [0, 200]


def test_612_4_the_inter_broker_listener_is_spared_the_brokers_rate_while_there_are_others() -> (
    None
):
    q = quotas()
    q.set_broker_rate(2)
    assert [q.reserve("EXTERNAL", T0) for _ in range(3)] == [0, 0, 500]
    assert [q.reserve("REPLICATION", T0) for _ in range(9)] == [0] * 9
    alone = ConnectionQuotas(["REPLICATION"], "REPLICATION", num_samples=2)
    alone.set_broker_rate(2)
    assert [alone.reserve("REPLICATION", T0) for _ in range(3)] == [0, 0, 500]  # not protected


def test_612_5_one_delay_is_at_most_one_window() -> None:
    q = quotas(num_samples=11)
    q.set_listener_rate("ADMIN", 1)
    waits = [q.reserve("ADMIN", T0) for _ in range(40)]
    assert waits[:10] == [0] * 10
    assert waits[10:] == [1000] * 30


def test_a_rate_of_zero_lets_one_through_per_window() -> None:
    q = quotas()
    q.set_listener_rate("ADMIN", 0)
    assert q.reserve("ADMIN", T0) == 1000
    assert q.reserve("ADMIN", T0 + 1000) == 1000


def test_a_refused_address_leaves_every_rate_as_it_was() -> None:
    for listener in ("EXTERNAL", "REPLICATION"):
        q = quotas()
        q.set_ip_rate("10.0.0.9", 0)
        assert q.reserve(listener, T0) == 0
        assert q.admit(listener, "10.0.0.9", T0) == Admission(Outcome.THROTTLED, 1000)
        assert (q.broker_rate(T0), q.listener_rate(listener, T0)) == (0.0, 0.0)
        assert dict(q.ip_rates(T0)) == {"10.0.0.9": 0.0}
        assert (q.total, q._counts.get("10.0.0.9", 0)) == (0, 0)


def test_an_unknown_listener_never_waits_and_is_never_counted() -> None:
    q = quotas()
    q.set_broker_rate(0)
    assert q.reserve("GONE", T0) == 0
    assert q.admit("GONE", "10.0.0.1", T0) == FINE
    assert q.total == 1
    q.release("GONE", "10.0.0.1")
    assert q.total == 0
    with pytest.raises(ValueError, match=r"no connection of 10\.0\.0\.1 is counted"):
        q.release("GONE", "10.0.0.1")


def test_612_9_slots_of_broker_and_listener() -> None:
    q = quotas(max_connections=3)
    for _ in range(3):
        q.admit("EXTERNAL", "10.0.0.1", T0)
    assert not q.slot_available("EXTERNAL")
    assert not q.slot_available("ADMIN")
    assert q.slot_available("REPLICATION")
    assert not q.max_connections_exceeded("EXTERNAL")  # exactly full isn't exceeded
    q.admit("REPLICATION", "10.0.0.2", T0)
    assert q.max_connections_exceeded("EXTERNAL")
    assert not q.max_connections_exceeded("REPLICATION")
    q.release("EXTERNAL", "10.0.0.1")
    assert not q.slot_available("ADMIN")
    q.release("EXTERNAL", "10.0.0.1")
    assert q.slot_available("ADMIN")


def test_a_listeners_own_count_binds_the_inter_broker_listener_too() -> None:
    q = ConnectionQuotas(
        LISTENERS,
        "REPLICATION",
        {"max.connections": "8", "listener.name.replication.max.connections": "2"},
    )
    for _ in range(2):
        q.admit("REPLICATION", "10.0.0.1", T0)
    assert not q.slot_available("REPLICATION")


def test_612_2_settings_change_while_samples_stay() -> None:
    q = quotas()
    for _ in range(20):
        assert q.reserve("EXTERNAL", T0) == 0
    q.configure({"listener.name.external.max.connection.creation.rate": "10"})
    assert q.reserve("EXTERNAL", T0) == 1000
    q.configure({})
    assert q.reserve("EXTERNAL", T0) == 0


def test_every_bad_setting_is_told_and_none_is_taken() -> None:
    q = quotas(max_connections=5)
    with pytest.raises(ConfigError) as caught:
        q.configure(
            {
                "max.connections": "-1",
                "listener.name.admin.max.connection.creation.rate": "2147483648",
                "max.connections.per.ip.overrides": "a,b:x",
            }
        )
    assert len(caught.value.problems) == 4
    assert q.max_connections == 5


def test_address_sensors_expire_after_an_hour_and_broker_sensors_never() -> None:
    q = quotas()
    q.set_ip_rate(None, 20.7)  # truncated to an int, as Kafka does
    assert q.ip_bound("10.0.0.1") == 20
    q.admit("ADMIN", "10.0.0.1", T0)
    assert dict(q.ip_rates(T0)) == {"10.0.0.1": 1.0}
    assert list(filter(None, q.expiring(T0 + 3_600_000))) == []
    assert dict(q.ip_rates(T0 + 3_600_000)) == {"10.0.0.1": 0.0}
    assert list(filter(None, q.expiring(T0 + 3_630_000))) == ["10.0.0.1"]
    assert q.broker_rate(T0 + 3_630_000) == 0.0
    q.set_ip_rate("10.0.0.1", None)
    q.set_ip_rate(None, None)
    assert q.ip_bound("10.0.0.1") == INT_MAX


@pytest.mark.parametrize(
    ("text", "java"),
    [
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("localhost", "localhost"),
    ],
)
def test_addresses_as_java_spells_them(text: str, java: str) -> None:
    assert host_address(text) == java
