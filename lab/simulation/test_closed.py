"""
A closed connection leaves no timer, no bytes and no reference, but the ends of its mutes.

Each test closes many connections in one state, and counts what is left of them while their
quota-id still owes: the simulated clock stands shortly after the last close.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from headgate.gateway.charging.gates import MOST_GONE, GateTurn
from headgate.gateway.charging.hold import Hold
from headgate.gateway.charging.lanes import Debts
from headgate.gateway.connection.link import Link
from headgate.gateway.session.requests import HeldBytes
from headgate.gateway.session.session import Session
from simulation import doors
from simulation import speech as say
from simulation.brokers import ENDLESS
from simulation.conversations import Conversation
from simulation.life import Life
from simulation.story import Person, draw

OF_CONNECTIONS = (Link, Session, HeldBytes, Debts, Hold, GateTurn)
PRODUCED = "producer_byte_rate"
QUOTA = 10_000.0
LARGE = 2_000_000
"""At the quota it takes three minutes: no mute ends within a test."""
NAMES = ("c0", "c1")
CLOSED_MS = 5_500
"""After this what wasn't sent to a client that has gone is given up (``LINGER_S``)."""
Make = Callable[..., Life]


@pytest.fixture
def make() -> Iterator[Make]:
    """``make(quotas, settings)``: a life without a story, whose gateway has started."""
    lives = []

    def life(quotas: dict[str, float], **settings: str) -> Life:
        story = replace(
            draw(3),
            quotas=tuple((("alice", None), key, value) for key, value in quotas.items()),
            settings=tuple((key.replace("__", "."), value) for key, value in settings.items()),
            network=(0.05, 0.3, 0.0, 0.0, 131_072),
            brokers=1,
            people=tuple(Person(n, "alice", "app", 1, (9, 12), obeys=False) for n in NAMES),
            actions=(),
            secured=(),
        )
        made = Life(story)
        lives.append(made)
        made.loop.run(900)
        assert made.gateway.started
        made._tick()
        return made

    with doors.opened():
        yield life
        for one in lives:
            one.over = True
            one.loop.close()


def close_many(life: Life, many: int, do: Callable[[Conversation], Any], ms: int = 20) -> None:
    """Open connections one after the other, and close each some milliseconds after its deed."""
    client = life.clients["c0"]
    for _ in range(many):
        client.with_line(do)
        life.loop.run(life.loop.now_ms + ms)
        assert client.line is not None
        client.line.hang_up("close")
        life.loop.run(life.loop.now_ms + 2)
    assert life.outcome.counts["connections"] >= many


def left(life: Life, stay: int = 0) -> dict[str, int]:
    """Return how much is left of connections, of which some stay open."""
    life.loop.run(life.loop.now_ms + CLOSED_MS)
    assert life.outcome.broken == ("", "")
    product = life.gateway.gateway
    (broker,) = product.brokers.values()
    assert len(broker.links) == stay
    gc.collect()  # exceptions' tracebacks are circles; nothing else has to be
    found = Counter(type(one).__name__ for one in gc.get_objects() if type(one) in OF_CONNECTIONS)
    for timer in life.loop.timers(life.gateway.process):
        owners = (getattr(one, "__self__", None) for one in (timer._callback, *timer._args))
        found["timers"] += any(type(one) in OF_CONNECTIONS for one in owners)
    found["bytes"] = product._buffer.pool.used
    found["kept bytes"] = broker.rules.gates.kept_bytes
    found["watched"] = len(broker._hangup._links)
    return {what: count for what, count in found.items() if count}


def owe(life: Life, *keys: str) -> None:
    """Have the quota-id owe for the rest of the test, by a connection that has closed."""
    # Shares are given out once a second.
    close_many(life, 3, lambda line: line.produce(LARGE, -1, None), 1_500)
    (broker,) = life.gateway.gateway.brokers.values()
    assert {key.quota_type for key in broker.rules.lanes._lanes} >= set(keys)


def produce(line: Conversation) -> None:
    line.produce(120_000, -1, None)


@pytest.mark.parametrize(
    ("quotas", "settings"),
    [
        ({"producer_byte_rate": QUOTA}, {}),
        ({"producer_byte_rate": QUOTA}, {"headgate__pacing": "smooth"}),
        ({"producer_byte_rate:bps": QUOTA}, {}),
        ({"producer_byte_rate:shares": 1.0}, {"headgate__capacity__producer_byte_rate": "10000"}),
    ],
    ids=["kafka", "smooth", "bps", "shares"],
)
def test_who_waits_for_anothers_debt_leaves_nothing(
    make: Make, quotas: dict[str, float], settings: dict[str, str]
) -> None:
    life = make(quotas, **settings)
    owe(life, *quotas)
    close_many(life, 2_000 if PRODUCED in quotas and not settings else 100, produce)
    assert left(life) == {}
    (broker,) = life.gateway.gateway.brokers.values()
    assert len(broker.rules.lanes) <= 1


def test_who_is_muted_for_its_own_request_leaves_nothing_but_its_end(make: Make) -> None:
    life = make({"producer_byte_rate": QUOTA})

    def muted(line: Conversation) -> None:
        line.produce(LARGE, -1, None)
        line.produce(120_000, -1, None)  # waits behind the mute

    close_many(life, 20, muted, 300)
    assert left(life) == {}
    (broker,) = life.gateway.gateway.brokers.values()
    assert len(broker.rules.lanes) >= 1


def test_who_is_muted_for_its_time_leaves_nothing(make: Make) -> None:
    life = make({"request_percentage": 0.000_01})
    close_many(life, 100, lambda line: line.produce(100_000, -1, None))
    assert left(life) == {}


def test_who_is_muted_for_new_producer_ids_leaves_nothing(make: Make) -> None:
    life = make({"producer_ids_rate": 0.001})
    client = life.clients["c0"]

    def named(line: Conversation) -> None:
        client.become_idempotent(False)
        life.loop.after(8, lambda: line.produce(1_000, -1, None))
        life.loop.after(12, lambda: line.produce(100_000, -1, None))

    close_many(life, 100, named, 30)
    (broker,) = life.gateway.gateway.brokers.values()
    assert left(life) == {}
    assert {key.quota_type for key in broker.rules.lanes._lanes} == {"producer_ids_rate"}


@pytest.mark.parametrize("key", ["consumer_byte_rate", "consumer_byte_rate:bps"])
def test_a_held_fetch_leaves_nothing(make: Make, key: str) -> None:
    life = make({key: QUOTA})
    close_many(life, 1, lambda line: line.fetch(ENDLESS, 100, LARGE, None), 300)
    (broker,) = life.gateway.gateway.brokers.values()
    assert len(broker.rules.gates) == 1
    life.clients["c1"].fetch(ENDLESS, 1, 100, LARGE)  # it waits before all others
    life.loop.run(life.loop.now_ms + 50)
    close_many(life, 200, lambda line: line.fetch(ENDLESS, 100, LARGE, None), 5)
    assert left(life, stay=1).get("GateTurn", 0) <= 1 + MOST_GONE
    assert life.clients["c1"].line is not None
    life.clients["c1"].line.hang_up("close")
    assert left(life) == {}


def test_who_waits_in_line_leaves_nothing(make: Make) -> None:
    life = make({"producer_byte_rate:bps": QUOTA})
    line_of = life.clients["c0"]

    def one(line: Conversation) -> None:
        line.produce(LARGE, 0, None)  # a throttle tells ten seconds of it at most

    close_many(life, 1, one, 300)
    life.loop.run(life.loop.now_ms + 11_000)  # the end that it left is over, and not its debt
    close_many(life, 200, lambda line: line.produce(120_000, -1, None))
    assert line_of.line is None
    assert left(life) == {}


def test_an_idle_connection_leaves_nothing(make: Make) -> None:
    life = make({"producer_byte_rate": QUOTA})
    close_many(life, 100, lambda line: line.ask(say.METADATA, 4, b"\0\0\0\0\0"))
    assert left(life) == {}


def test_half_a_request_leaves_nothing_but_its_charge(make: Make) -> None:
    life = make({"producer_byte_rate": 1e9})
    close_many(life, 100, lambda line: line.produce(60_000, -1, None, cut=40_000))
    close_many(life, 100, lambda line: line.produce(60_000, -1, None, cut=9))
    assert left(life) == {}


def test_half_a_login_leaves_nothing(make: Make) -> None:
    life = make({"producer_byte_rate": QUOTA})
    client = life.clients["c0"]
    for _ in range(100):
        client.connect()
        while client.line is None or client.line.peer.end.sent_fin:
            life.loop.run(life.loop.now_ms + 0.1)
        life.loop.run(life.loop.now_ms + 0.7)  # the handshake is on its way
        client.line.hang_up("close")
        life.loop.run(life.loop.now_ms + 2)
    assert left(life) == {}


def test_who_never_reads_leaves_nothing(make: Make) -> None:
    life = make({"producer_byte_rate": QUOTA})

    def deaf(line: Conversation) -> None:
        line.peer.reads = False
        for _ in range(4):
            line.fetch(ENDLESS, 100, 1_000_000, None)

    close_many(life, 100, deaf)
    assert left(life) == {}


def test_connections_of_a_gateway_that_ends_leave_nothing(make: Make) -> None:
    life = make({"producer_byte_rate": QUOTA})
    owe(life)
    client = life.clients["c0"]
    client.with_line(produce)  # it waits for the debt
    life.loop.run(life.loop.now_ms + 50)
    life.orderly = False
    life.gateway.stop()
    life.loop.run(life.loop.now_ms + 5_000)
    assert life.gateway.stopped
    assert left(life) == {}
