"""
What the actions of a story do: a table from their names to what happens.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from simulation import speech as say
from simulation.brokers import ENDLESS
from simulation.certificates import GATE, ISSUED, client_context, keystore
from simulation.conversations import address_of
from simulation.gateways import settings_of
from simulation.loop import NS_PER_MS
from simulation.peers import Peer, TlsPeer

if TYPE_CHECKING:
    from simulation.clients import Client
    from simulation.life import Life
    from simulation.network import End
    from simulation.story import Action

Deed = Callable[..., None]


def do(life: Life, action: Action, chance: random.Random) -> None:
    """Do what an action says."""
    if action.who in life.clients:
        CLIENTS[action.what](life.clients[action.who], chance, *action.args)
    elif action.who.startswith("broker"):
        number = int(action.who.removeprefix("broker"))
        if number in life.cluster.brokers:
            BROKERS[action.what](life, life.cluster.brokers[number], *action.args)
    else:
        WORLD[action.what](life, *action.args)


# --- clients --------------------------------------------------------------------------------------


def _leave(
    client: Client, chance: random.Random, size: int, acks: int, how: str, ms: float
) -> None:
    """Produce, and hang up soon after."""

    def begin(line: Any) -> None:
        line.produce(size, acks, None)
        client.life.loop.after(ms, line.hang_up, how)

    client.with_line(begin)


def _deaf(client: Client, chance: random.Random, ms: int, fetches: int) -> None:
    """Ask for much, and read nothing for a while."""
    client.be_deaf(ms)
    client.load(fetches, fetches, lambda line, done: line.fetch(ENDLESS, 100, 200_000, done))


def _hang_up(client: Client, chance: random.Random, how: str) -> None:
    if client.line is not None:
        client.line.hang_up(how)


def _wrong_login(client: Client, chance: random.Random) -> None:
    _hang_up(client, chance, "close")
    client.password = "wrong"
    client.connect()
    client.life.loop.after(3_000, lambda: setattr(client, "password", "right"))


def _rename(client: Client, chance: random.Random, name: str) -> None:
    client.client_id = name


def _garbage(client: Client, chance: random.Random, what: str) -> None:
    client.say_garbage(what, chance.randbytes(200))


def _shake(client: Client, chance: random.Random, what: str, ms: float) -> None:
    """Come by TLS, and not get through its handshake."""
    life, where = client.life, client.where
    if client.secured is None or where is None:
        return
    context = client_context("a", old=client.secured[1])

    def done(found: End | OSError) -> None:
        if isinstance(found, OSError):
            return
        peer = Peer(found, lambda _: None, lambda _: None)
        if what == "plain text":
            peer.send(say.request(say.API_VERSIONS, 1, 1, client.client_id, b""))
        elif what != "silent":
            peer = TlsPeer(found, lambda _: None, lambda _: None, context, GATE)
            peer.reads = False  # it says hello, and never hears the answer
        if what == "reset":
            life.loop.after(ms, peer.reset)
        elif what == "leave":
            life.loop.after(ms, peer.close)
        else:
            life.loop.after(12_000, peer.close)

    life.net.connect(client.host, where, done, address_of(life.new_conversation()))


CLIENTS: Final[dict[str, Deed]] = {
    "produce": lambda client, _, *args: client.produce(*args),
    "silent": lambda client, _, *args: client.produce(*args),
    "burst": lambda client, _, *args: client.produce(*args),
    "fetch": lambda client, _, *args: client.fetch(*args),
    "poll": lambda client, _, *args: client.fetch(*args),
    "tail": lambda client, _, *args: client.fetch(*args),
    "share": lambda client, _, *args: client.share(*args),
    "late acks": lambda client, _, *args: client.say_acks_late(*args),
    "chat": lambda client, _, *args: client.chat(*args),
    "join": lambda client, _: client.join(),
    "idempotent": lambda client, _, *args: client.become_idempotent(*args),
    "evade": lambda client, _, *args: client.evade(*args, fetch=False),
    "evade fetch": lambda client, _, *args: client.evade(*args, fetch=True),
    "produce and leave": _leave,
    "orphan": lambda client, _, *args: client.orphan(*args),
    "half": lambda client, _, *args: client.half(*args),
    "deaf": _deaf,
    "flood": lambda client, _, size, count: client.produce(size, -1, count, count),
    "garbage": _garbage,
    "wrong login": _wrong_login,
    "rename": _rename,
    "hang up": _hang_up,
    "shake": _shake,
}


# --- brokers --------------------------------------------------------------------------------------


def _slow(life: Life, broker: Any, factor: float, ms: int) -> None:
    broker.slow = factor
    life.loop.after(ms, lambda: setattr(broker, "slow", 1.0))


def _die(life: Life, broker: Any, ms: int, *, power: bool = False) -> None:
    if broker.alive and sum(one.alive for one in life.cluster.brokers.values()) > 1:
        broker.die(power=power)
        life.loop.after(ms, broker.start)


def _power(life: Life, broker: Any, ms: int) -> None:
    _die(life, broker, ms, power=True)


BROKERS: Final[dict[str, Deed]] = {"slow": _slow, "die": _die, "power": _power}


# --- the gateway and the rest ---------------------------------------------------------------------


def _held_up(life: Life, ms: float) -> None:
    life.calm_ns = max(life.calm_ns, life.loop.now_ns + int(ms * NS_PER_MS))


def _cut(life: Life, who: str, ms: int) -> None:
    if who in life.clients:
        other = life.clients[who].host
    else:
        other = life.cluster.brokers[int(who.removeprefix("broker"))].host
    life.net.cut(life.host, other, ms)
    _held_up(life, ms + 500)


def _clock(life: Life, ms: int) -> None:
    life.host.step(ms)
    for law in life.laws:
        law.clock_set(ms)
    _held_up(life, abs(ms) + 200)


def _freeze(life: Life, ms: int) -> None:
    life.gateway.process.freeze(ms)
    _held_up(life, ms + 100)


def _crash(life: Life, callbacks: int, ms: int) -> None:
    process = life.gateway.process
    if not life.gateway.started or not process.alive or not life.orderly:
        return
    process.on_end.append(lambda crashed: life.forget() if crashed else None)
    life.orderly = False
    process.fuse = callbacks
    life.loop.after(50, lambda: process.end(crashed=True))
    life.loop.after(50 + ms, life.start_gateway)
    _held_up(life, ms + 3_000)


def _restart(life: Life, ms: int) -> None:
    """End the gateway in order, and start another one."""
    if not life.gateway.started or not life.gateway.process.alive or not life.orderly:
        return
    old = life.gateway
    life.orderly = False
    old.stop()

    def again() -> None:
        if not old.stopped:
            life.loop.after(100, again)
            return
        old.process.end(crashed=False)
        life.forget()
        life.start_gateway()

    life.loop.after(ms, again)
    _held_up(life, ms + 8_000)


OTHERWISE: Final = {
    "headgate.pacing": "smooth",
    "headgate.fetch": "kafka",
    "quota.window.num": "3",
    "headgate.fetch.hold.max.ms": "1",
    "headgate.exempt.principals": "User:nobody",
    "headgate.upstream.connect.timeout.ms": "3000",
    "headgate.drain.timeout.ms": "900",
    "max.connections.per.ip": "5000",
}
"""What a file may say after a while: some needs a restart, and the rest concerns nobody here."""


def _reload(life: Life, ms: int) -> None:
    """Do as SIGHUP does; the file says what it said, or what must change no law."""
    if life.gateway.started and life.gateway.process.alive:
        settings: Any = settings_of(life.settings | (OTHERWISE if ms > 1_000 else {}))
        life.gateway.process.run(life.gateway.gateway.reload_soon, settings)


def _certificate(life: Life, name: str) -> None:
    """Put another certificate, or what can't be one, in the key store, and do as SIGHUP does."""
    if not life.gateway.started or not life.gateway.process.alive or not life.orderly:
        return
    file = {key: value for key, value in life.settings.items() if not key.startswith("ssl.")}
    if name in ISSUED:
        life.certify(name)
    # Else it is only half written, and whole again before anybody reads it once more.
    life.gateway.process.run(life.gateway.gateway.reload_soon, file | keystore(name))


def _move(life: Life, topic: str, partition: int, leader: int) -> None:
    life.cluster.move(topic, partition, leader)


WORLD: Final[dict[str, Deed]] = {
    "cut": _cut,
    "clock": _clock,
    "freeze": _freeze,
    "crash": _crash,
    "restart": _restart,
    "reload": _reload,
    "certificate": _certificate,
    "move": _move,
    "quota": lambda life, level, key, value: life.change_quota(level, key, value),
}
