"""
A life as data: who is there, which quotas, and what happens when. It is drawn from a seed.

A story is all there is to a life besides its seed, so it can be printed, and shortened while the
same law stays broken.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from simulation.brokers import ENDLESS
from simulation.certificates import BROKEN, ISSUED
from simulation.oracle import DEFAULT, Level
from simulation.seed import Seed, weighted

LEAST_MS: Final = 60_000
PRODUCED, CONSUMED, TIMED = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
BEYOND: Final = (
    "producer_byte_rate:bps", "consumer_byte_rate:bps", "producer_byte_rate:shares",
    "consumer_byte_rate:shares", "producer_ids_rate",
)  # fmt: skip
"""Quotas that no Kafka broker enforces."""
GATE: Final = "gate1"
SHAKES: Final = ("silent", "plain text", "hello", "leave", "reset")
"""Ways not to get through a TLS handshake."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that happens: when, at which part of the world, what."""

    t_ms: int
    who: str
    what: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.t_ms / 1000:9.3f} s  {self.who:<10} {self.what} {self.args or ''}".rstrip()


@dataclass(frozen=True, slots=True)
class Person:
    """A client: its name, whose it is, what it calls itself, which broker it talks to."""

    name: str
    principal: str
    client_id: str
    broker: int
    versions: tuple[int, int]
    obeys: bool


@dataclass(frozen=True, slots=True)
class Story:
    """
    A life.

    Attributes:
        seed: of all chance that isn't in the story.
        length_ms: until load ends.
        settings: of the gateway, besides those that every life has.
        quotas: in force at the start.
        network: shortest and longest latency (ms), share of sends that come in pieces, bytes per ms
            (0: no bound), room of a socket (bytes).
        brokers: how many.
        batch_bytes: of a batch that consumers read.
        people: the clients.
        actions: what happens, in order.
        secured: clients that come by TLS: the authorities that each trusts, and whether it speaks
            TLS 1.2.
        brokers_tls: the way from the gateway to brokers is TLS too.
    """

    seed: int
    length_ms: int
    settings: tuple[tuple[str, str], ...]
    quotas: tuple[tuple[Level, str, float], ...]
    network: tuple[float, float, float, float, int]
    brokers: int
    batch_bytes: int
    people: tuple[Person, ...]
    actions: tuple[Action, ...]
    secured: tuple[tuple[str, tuple[str, bool]], ...] = ()
    brokers_tls: bool = False

    @property
    def delivers(self) -> bool:
        """Whether fetches over quota are delivered (``headgate.fetch=deliver``)."""
        return ("headgate.fetch", "kafka") not in self.settings

    @property
    def smooth(self) -> bool:
        """Whether pacing is by token bucket."""
        return ("headgate.pacing", "smooth") in self.settings

    @property
    def window_s(self) -> float:
        """What may be taken at once, in seconds' worth of the quota."""
        return 1.0 if self.smooth else 11.0

    @property
    def plain(self) -> bool:
        """Whether Kafka's byte rates alone decide."""
        return not self.smooth and all(key in (PRODUCED, CONSUMED) for _, key, _ in self.quotas)

    def lines(self) -> list[str]:
        """Return the story as text."""
        said = [f"seed {self.seed}, {self.length_ms / 1000:.0f} s of load, {self.brokers} brokers"]
        said += [f"  setting {key}={value}" for key, value in self.settings]
        said += [f"  quota {_entity(level)} {key} {value:g}" for level, key, value in self.quotas]
        said += [
            f"  {p.name}: {p.principal}/{p.client_id} at broker {p.broker}"
            f"{'' if p.obeys else ', does not pause when told to'}"
            for p in self.people
        ]
        said += [
            f"  {name} comes by TLS{' 1.2' if old else ''} and trusts {' and '.join(trusted)}"
            for name, (trusted, old) in self.secured
        ]
        said += ["  brokers speak TLS"] if self.brokers_tls else []
        return said + [f"  {action}" for action in self.actions]


def _entity(level: Level) -> str:
    user, client = level
    parts = [f"user {user}"] if user is not None else []
    return ", ".join(parts + ([f"client-id {client}"] if client is not None else []))


def draw(number: int) -> Story:
    """Draw the story of a seed."""
    chance = Seed(number).stream("story")
    brokers = chance.choice((1, 2, 2, 3))
    principals = ["alice", "bob", "carol"][: chance.choice((1, 2, 2, 3))]
    names = ["app", "app", "etl", "free"]
    quota = float(chance.choice((20_000, 50_000, 100_000, 300_000)))
    people = tuple(
        Person(
            f"c{at}",
            principals[0] if chance.random() < 0.6 else chance.choice(principals),
            chance.choice(names),
            1 if chance.random() < 0.6 else chance.randint(1, brokers),
            (chance.choice((7, 9)), chance.choice((11, 12))),
            chance.random() < 0.7,
        )
        for at in range(chance.randint(5, 9))
    )
    length = LEAST_MS + chance.randrange(0, 20_000)
    settings: list[tuple[str, str]] = []
    if chance.random() < 0.2:
        settings.append(("headgate.fetch", "kafka"))
    if chance.random() < 0.15:
        settings.append(("headgate.pacing", "smooth"))
    if chance.random() < 0.1:
        settings += [("socket.request.max.bytes", "600000"),
                     ("queued.max.request.bytes", "750000")]  # fmt: skip
    actions: list[Action] = []
    quotas: list[tuple[Level, str, float]] = []
    more = Seed(number).stream("story", "more")
    if more.random() < 0.12:
        quotas += _beyond(more, principals, quota)
        settings += [("headgate.capacity.producer_byte_rate", str(quota)),
                     ("headgate.capacity.consumer_byte_rate", str(quota))]  # fmt: skip
    for person in people:
        actions += _deeds(person, quota, length, chance)
    if more.random() < 0.12:
        herd, deeds = _herd(more, people[0], quota, length)
        people += herd
        actions += deeds
    rare = Seed(number).stream("story", "rare")
    for what in ("share", "share", "late acks"):
        if rare.random() < 0.15:
            t_ms = rare.randrange(1_000, length - 5_000)
            who = rare.choice(people).name
            actions.append(Action(t_ms, who, what, _arguments(what, quota, rare)))
    unseen = Seed(number).stream("story", "unseen")
    if unseen.random() < 0.08:
        t_ms = unseen.randrange(1_000, length // 2)
        who = unseen.choice(people).name
        actions.append(Action(t_ms, who, "orphan", _arguments("orphan", quota, unseen)))
    for _ in range(chance.choice((0, 1, 2, 3, 5))):
        actions.append(_mishap(chance, length, brokers, people, principals, quota))
    quotas = _quotas(chance, principals, quota) + quotas
    if more.random() < 0.08:
        actions += _raise(more, people, quotas, quota, length)
    secured, brokers_tls, deeds = _tls(Seed(number).stream("story", "tls"), people, length)
    actions += deeds
    actions.sort(key=lambda action: (action.t_ms, action.who))
    return Story(
        number,
        length,
        tuple(settings),
        tuple(quotas),
        _network(chance),
        brokers,
        chance.choice((2_000, 10_000, 60_000)),
        people,
        tuple(actions),
        secured,
        brokers_tls,
    )


def _tls(
    chance: random.Random, people: tuple[Person, ...], length: int
) -> tuple[tuple[tuple[str, tuple[str, bool]], ...], bool, list[Action]]:
    """Draw who comes by TLS, in one life of four, and what happens to certificates."""
    if chance.random() >= 0.25:
        return (), False, []
    trusts = ("a", "ab", "ab", "ab", "b")
    secured = tuple(
        (person.name, (chance.choice(trusts), chance.random() < 0.25))
        for person in people
        if chance.random() < 0.6
    ) or ((people[0].name, ("ab", False)),)
    names = [name for name, _ in secured]
    actions: list[Action] = []
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        t_ms = chance.randrange(2_000, length - 8_000)
        kind = chance.choice((*ISSUED, *ISSUED, chance.choice(BROKEN)))
        actions.append(Action(t_ms, GATE, "certificate", (kind,)))
        for name in chance.sample(names, min(2, len(names))):  # somebody comes soon after
            at_ms = t_ms + chance.randrange(0, 2_000)
            actions.append(Action(at_ms, name, "hang up", ("close",)))
            actions.append(Action(at_ms + 500, name, "chat", (3, 1)))
    for _ in range(chance.choice((0, 0, 1, 3))):
        t_ms = chance.randrange(1_000, length - 15_000)
        how = (chance.choice(SHAKES), chance.choice((0.0, 1.0, 30.0)))
        actions.append(Action(t_ms, chance.choice(names), "shake", how))
    return secured, chance.random() < 0.4, actions


def _network(chance: random.Random) -> tuple[float, float, float, float, int]:
    low, high = chance.choice(((0.05, 0.3), (0.05, 0.3), (0.5, 5.0), (5.0, 60.0)))
    return (
        low,
        high,
        chance.choice((0.0, 0.05, 0.5)),
        chance.choice((0.0, 0.0, 0.0, 500.0)),
        chance.choice((131_072, 131_072, 16_384, 1_048_576)),
    )


def _quotas(
    chance: random.Random, principals: list[str], quota: float
) -> list[tuple[Level, str, float]]:
    first = principals[0]
    levels: list[Level] = [
        (first, None), (first, None), (first, "app"), (DEFAULT, None), (None, "app"),
        (None, DEFAULT), (first, DEFAULT), (DEFAULT, "app"),
    ]  # fmt: skip
    found: dict[tuple[Level, str], float] = {}
    for _ in range(chance.choice((1, 1, 2, 3))):
        level = chance.choice(levels)
        found[level, PRODUCED] = quota * chance.choice((1, 1, 2))
        found[level, CONSUMED] = quota * chance.choice((1, 1, 3))
    if chance.random() < 0.1:
        found[levels[0], TIMED] = chance.choice((0.05, 1.0, 50.0))
    return [(level, key, value) for (level, key), value in found.items()]


def _beyond(
    chance: random.Random, principals: list[str], quota: float
) -> list[tuple[Level, str, float]]:
    """Draw quotas that no Kafka broker has."""
    found = []
    for key in chance.sample(BEYOND, chance.choice((1, 1, 2, 3))):
        level = chance.choice(((principals[0], None), (DEFAULT, None), (principals[0], "app")))
        value = quota * chance.choice((0.5, 1.0, 2.0))
        if key.endswith("shares"):
            value = float(chance.choice((1, 3)))
        elif key == BEYOND[-1]:
            value = chance.choice((0.1, 1.0))
            level = (level[0], None)
        found.append((level, key, value))
    return found


def _herd(
    chance: random.Random, first: Person, quota: float, length: int
) -> tuple[tuple[Person, ...], list[Action]]:
    """Draw many clients of one quota-id that come and leave at about the same time."""
    herd = tuple(
        Person(f"h{at}", first.principal, first.client_id, first.broker, (9, 12), False)
        for at in range(chance.randint(3, 8))
    )
    actions: list[Action] = []
    for _ in range(chance.randint(1, 3)):
        t_ms = chance.randrange(1_000, length - 5_000)
        what = chance.choice(("evade", "evade", "evade fetch", "produce and leave", "poll"))
        for one in herd:
            at_ms = t_ms + chance.randrange(0, 500)
            actions.append(Action(at_ms, one.name, what, _arguments(what, quota, chance)))
    return herd, actions


def _raise(
    chance: random.Random,
    people: tuple[Person, ...],
    quotas: list[tuple[Level, str, float]],
    quota: float,
    length: int,
) -> list[Action]:
    """Draw who leaves a debt, comes again, and finds that quotas were raised meanwhile."""
    t_ms = chance.randrange(2_000, length - 10_000)
    who = chance.choice(people).name
    found = [
        Action(t_ms, who, "produce and leave", (int(quota * 15), -1, "close", 500.0)),
        Action(t_ms + 2_500, who, "produce", (1_000, -1, 2, 1)),
    ]
    found += [
        Action(t_ms + 2_000, GATE, "quota", (level, key, value * 10))
        for level, key, value in quotas
        if key == PRODUCED
    ]
    return found


def _deeds(person: Person, quota: float, length: int, chance: random.Random) -> list[Action]:
    """Draw what a client does."""
    kind = weighted(
        chance,
        [(5, "producer"), (4, "consumer"), (3, "evader"), (2, "talker"), (2, "odd"), (3, "mixed")],
    )
    menus = {
        "producer": ["produce"] * 4 + ["silent", "burst", "idempotent", "rename", "hang up"],
        "consumer": ["fetch"] * 4 + ["poll", "join", "hang up", "tail"],
        "evader": ["evade", "evade fetch", "produce and leave", "rename", "fetch"],
        "talker": ["chat", "chat", "join", "produce", "poll"],
        "odd": ["half", "half", "deaf", "garbage", "wrong login", "flood", "produce"],
        "mixed": ["produce", "fetch", "burst", "half", "produce and leave", "hang up", "chat",
                  "rename"],
    }  # fmt: skip
    found = []
    for _ in range(chance.randint(2, 5)):
        what = chance.choice(menus[kind])
        t_ms = chance.randrange(1_000, length - 3_000)
        found.append(Action(t_ms, person.name, what, _arguments(what, quota, chance)))
    return found


def _size(quota: float, chance: random.Random) -> int:
    """Draw the size of a produce: small, about a second's quota, or much more."""
    return int(quota * chance.choice((0.005, 0.1, 0.5, 1.0, 3.0)) * chance.uniform(0.5, 1.5)) + 10


def _arguments(what: str, quota: float, chance: random.Random) -> tuple[Any, ...]:
    size = _size(quota, chance)
    if what == "produce":
        return (size, chance.choice((-1, -1, -1, 1)), chance.randint(1, 20), chance.choice((1, 5)))
    if what == "silent":
        return (size, 0, chance.randint(1, 8), chance.choice((1, 3)))
    if what == "burst":
        return (int(quota * 0.02), -1, chance.randint(10, 40), 40)
    if what == "fetch":
        return (ENDLESS, chance.randint(2, 25), 500, int(quota * chance.choice((0.2, 0.5, 2.0))))
    if what == "poll":
        return ("t", chance.randint(2, 8), chance.choice((500, 5_000)), 1_048_576)
    if what == "share":
        return (chance.randint(2, 15), int(quota * chance.choice((0.2, 1.0, 3.0))))
    if what == "late acks":
        return (size, chance.choice((-1, 0, 0)), chance.choice((200, 5_000, 32_000)),
                chance.randint(1, 5))  # fmt: skip
    if what == "tail":
        return ("t", chance.randint(5, 15), 500, 100_000)
    if what == "chat":
        return (chance.randint(3, 30), chance.choice((1, 3)))
    if what in ("evade", "evade fetch"):
        return (max(size, int(quota)), chance.randint(3, 15))
    if what == "produce and leave":
        return (size, chance.choice((-1, 1, 0)), chance.choice(("close", "reset", "vanish")),
                chance.choice((0.0, 0.3, 1.0, 3.0, 20.0)))  # fmt: skip
    if what == "orphan":
        return (int(quota) + 500_000, chance.choice((-1, 0)), chance.randint(3, 8),
                chance.choice((1.0, 300.0)))  # fmt: skip
    if what == "half":
        return (size, chance.randint(1, 200), chance.choice((-1, 20, 3_000, 15_000)))
    if what == "deaf":
        return (chance.choice((100, 5_000, 40_000)), chance.randint(1, 6))
    if what == "flood":
        return (int(quota * 0.5) + 20_000, chance.randint(3, 30))
    if what == "garbage":
        return (chance.choice(("noise", "huge", "negative", "unknown", "short", "early")),)
    if what == "rename":
        return (chance.choice(("app", "etl", "free", "other")),)
    if what == "idempotent":
        return (chance.random() < 0.3,)
    if what == "hang up":
        return (chance.choice(("close", "close", "reset", "vanish")),)
    return ()


def _mishap(
    chance: random.Random,
    length: int,
    brokers: int,
    people: tuple[Person, ...],
    principals: list[str],
    quota: float,
) -> Action:
    """Draw what goes wrong."""
    t_ms = chance.randrange(2_000, length - 5_000)
    what = chance.choice(
        ("slow", "die", "power", "cut", "cut", "clock", "freeze", "move", "quota", "quota",
         "reload", "crash", "restart")
    )  # fmt: skip
    broker = f"broker{chance.randint(1, brokers)}"
    ms = chance.choice((300, 3_000, 12_000))
    if what == "slow":
        return Action(t_ms, broker, what, (chance.choice((10.0, 200.0, 3_000.0)), ms))
    if what in ("die", "power"):
        return Action(t_ms, broker, what, (ms,))
    if what == "cut":
        who = broker if chance.random() < 0.5 else chance.choice(people).name
        return Action(t_ms, GATE, what, (who, ms))
    if what == "clock":
        return Action(t_ms, GATE, what, (chance.choice((-5_000, -50, 40, 3_000)),))
    if what == "freeze":
        return Action(t_ms, GATE, what, (chance.choice((50, 1_000, 8_000)),))
    if what == "move":
        return Action(
            t_ms, "cluster", what, ("t", chance.randint(0, 3), chance.randint(1, brokers))
        )
    if what == "quota":
        level = chance.choice(((principals[0], None), (None, "app"), (DEFAULT, None)))
        key = chance.choice((PRODUCED, CONSUMED))
        value = chance.choice((None, quota * 0.3, quota, quota * 10))
        return Action(t_ms, GATE, what, (level, key, value))
    if what == "crash":
        return Action(t_ms, GATE, what, (chance.randint(1, 40), chance.choice((100, 2_000))))
    return Action(t_ms, GATE, what, (chance.choice((100, 2_000)),))
