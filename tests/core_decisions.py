"""
Traffic that any core must decide alike: `python tests/core_decisions.py` prints what was decided.

The figures are chosen by a generator with a seed: clients under every kind of quota, requests of
many sizes cut anywhere, a clock that jumps both ways, quotas that come, change and go.
"""

from __future__ import annotations

import hashlib
import random
import struct
import sys
from collections.abc import Sequence
from typing import Any

from headgate import _compiled
from headgate.config import Settings
from headgate.gateway import session as session_module
from headgate.gateway.commands import WakeAt
from headgate.gateway.enforcement import Enforcement
from headgate.gateway.journal import Journal
from headgate.gateway.plans import build_plans
from headgate.gateway.session import Session
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, MUTATION, PRODUCER, PRODUCER_BPS, REQUEST, QuotaType
from headgate.quota.table import QuotaTable, table_delta
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.overrides import KAFKA_3_9, KAFKA_4
from headgate.throttle.pacing import PacedQuotaManager
from headgate.throttle.sensor import SampledRate

START_MS = 1_700_000_000_000
USERS = ("alice", "bob", "carol", "")
CLIENTS = ("app", "etl", "")
ENTITIES = [
    QuotaEntity.of(user=user, client_id=client)
    for user in (None, DEFAULT, *USERS[:3])
    for client in (None, DEFAULT, *CLIENTS[:2])
][1:]


class Written(Journal):
    """Keep what is charged, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def record(self, *charge: Any) -> None:
        _, context, plan, *rest = charge
        who = f"{context.principal} {context.client_id} {plan.name}"
        self.lines.append(f"{who} {_with_amount(rest)}")

    def unchecked(self, *charge: Any) -> None:
        self.lines.append(f"unchecked {_with_amount(charge[2:])}")

    def unrecord(self, *charge: Any) -> None:
        self.lines.append(f"unrecord {_with_amount(charge[3:])}")


def _with_amount(charge: Sequence[Any]) -> list[Any]:
    """A charge as lines have it: amounts are floats, which compiled calls make of whole ones."""
    quota_type, t_ms, amount, *rest = charge
    return [quota_type, t_ms, float(amount), *rest]


class Still:
    """An identity known from the start."""

    authenticated = True
    close_reason = None
    close_text = ""
    raw = False

    def __init__(self, principal: str) -> None:
        self.principal = principal


class Face:
    """Addresses of one broker."""

    addresses = {1: ("127.0.0.1", 9092)}  # noqa: RUF012


def sensors(chance: random.Random) -> list[str]:
    """Charges to rates and managers of their own, whole and not."""
    told = []
    for samples, window in ((11, 1000), (2, 30_000), (3, 500), (1, 100)):
        rate = SampledRate(samples, window)
        now = START_MS
        for step in range(3_000):
            now += chance.choice((0, 0, 1, 7, 90, 1_100, -40, 9_000))
            amount: float = chance.choice((1, 17, 0, 65_536, 1 << chance.randrange(60)))
            if step > 2_000:
                amount = chance.choice((amount, 0.1, 2.5, -3))
            if chance.random() < 0.3:
                rate.record(amount, now)
            else:
                told.append(f"{rate.charge(amount, now)!r} {rate.peek(now + 5)!r}")
    for rules in (KAFKA_4, KAFKA_3_9):
        managers: list[Any] = [
            ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE, rules=rules, start_ms=START_MS),
            PacedQuotaManager(QuotaType.PRODUCER_BYTE_RATE, rules=rules, start_ms=START_MS),
        ]
        for manager in managers:
            now = START_MS
            for _ in range(4_000):
                now += chance.choice((0, 1, 3, 50, 700, -20, 40_000))
                user, client = chance.choice(USERS), chance.choice(CLIENTS)
                what = chance.random()
                if what < 0.05:
                    value = chance.choice((None, 0.0, 1.5, 1_000.0, 1e9, 2.0**63))
                    manager.update_quota(chance.choice(ENTITIES), value, now)
                elif what < 0.1:
                    told.append(repr(sorted(manager.expire(now))))
                elif what < 0.2:
                    told.append(repr(manager.unrecord(user, client, chance.randrange(999), now)))
                else:
                    amount = chance.choice((1, 300, 16_384, 1_000_000, 0.25))
                    told.append(repr(tuple(manager.record(user, client, amount, now))))
                tags = manager.tags(user, client)
                told.append(f"{tags} {manager.bound(tags)!r} {manager.peek(tags, now)!r}")
    return told


def produce(size: int, number: int, acks: int, client: str) -> bytes:
    """A Produce 7 of about so many bytes."""
    body = struct.pack(">hhi", -1, acks, 1000) + struct.pack(">i", 1) + b"\0\x01t"
    body += struct.pack(">iii", 1, 0, size) + bytes(size)
    head = struct.pack(">hhih", 0, 7, number, len(client)) + client.encode()
    return struct.pack(">i", len(head) + len(body)) + head + body


def fetch(number: int, client: str) -> bytes:
    """A Fetch 11."""
    body = struct.pack(">iiiibii", -1, 500, 1, 52_428_800, 0, 0, -1) + bytes(8) + b"\0\0"
    head = struct.pack(">hhih", 1, 11, number, len(client)) + client.encode()
    return struct.pack(">i", len(head) + len(body)) + head + body


def produced(number: int, throttle_ms: int) -> bytes:
    """The answer to ``produce``."""
    body = struct.pack(">i", 1) + b"\0\x01t" + struct.pack(">iihqqq", 1, 0, 0, 0, -1, 0)
    body += struct.pack(">i", throttle_ms)
    return struct.pack(">ii", 4 + len(body), number) + body


def fetched(number: int, size: int) -> bytes:
    """A Fetch 11 answer."""
    body = struct.pack(">ihi", 0, 0, 0) + struct.pack(">i", 1) + b"\0\x01t"
    body += struct.pack(">iihqqqiii", 1, 0, 0, 0, 0, 0, -1, -1, size) + bytes(size)
    return struct.pack(">ii", 4 + len(body), number) + body


def sessions(chance: random.Random, more: dict[str, str]) -> list[str]:
    """Conversations of a few clients with one broker, under quotas that change."""
    settings = Settings.from_properties(
        {
            "headgate.upstream": "127.0.0.1:1",
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            **more,
        }
    )
    now = START_MS
    written = Written()
    rules = Enforcement(settings, 1, now, written)
    table = QuotaTable.of({ENTITIES[0]: {PRODUCER: 200_000.0, CONSUMER: 100_000.0}})
    rules.load(table, now)
    keys = (PRODUCER, CONSUMER, REQUEST, PRODUCER_BPS, MUTATION)
    plans = build_plans()
    told: list[str] = written.lines
    links = []
    for number in range(8):
        one: Any = Session(rules, plans, Still(USERS[number % 3]), Face())  # type: ignore[arg-type]
        one.upstream_ready(now)
        links.append((one, CLIENTS[number % 2], [], []))
    wakes: dict[int, int] = {}
    for number in range(4_000):
        now += chance.choice((0, 0, 1, 4, 30, 250))
        at = chance.randrange(len(links))
        one, client, asked, _ = links[at]
        what = chance.random()
        if what < 0.01:
            values = {
                chance.choice(keys): chance.choice((5_000.0, 50_000.0, 400_000.0, 1e9))
                for _ in range(3)
            }
            values = {k: v for k, v in values.items() if k not in (PRODUCER_BPS, MUTATION)}
            changed = QuotaTable.of({**table.entities, chance.choice(ENTITIES): values})
            rules.update(table_delta(table, changed), now)
            table = changed
        elif what < 0.5:
            size, acks = chance.choice((0, 100, 16_384, 90_000)), chance.choice((-1, -1, -1, 0))
            ours = (
                fetch(number, client)
                if chance.random() < 0.3
                else produce(size, number, acks, client)
            )
            cut = chance.randrange(len(ours))
            one.spent_ns += chance.randrange(10_000_000)
            for piece in (ours[:cut], ours[cut:]) if chance.random() < 0.3 else (ours,):
                one.client_data(memoryview(bytearray(piece)), now)
                asked.append(b"".join(one.to_broker))
                one.to_broker.clear()
        elif one.unanswered:
            expected, plan = one.unanswered[0][:2]
            theirs = (
                fetched(expected, chance.choice((0, 3_000, 200_000)))
                if plan.name == "Fetch"
                else produced(expected, chance.choice((0, 0, 0, 700)))
            )
            one.broker_data(memoryview(bytearray(theirs)), now)
            told.append(hashlib.sha256(b"".join(one.to_client)).hexdigest())
            one.to_client.clear()
        due = wakes.get(at)
        if due is not None and now >= due:
            del wakes[at]
            one.wake(now)
        for command in one.commands:
            if isinstance(command, WakeAt):
                wakes[at] = command.t_ms
            told.append(f"{at} {now} {command!r}")
        one.commands.clear()
        told.append(f"{one.mute.state.name} {one.held_bytes} {one.in_flight}")
        if number % 500 == 499:
            rules.expire(now)
    for one, _, asked, _ in links:
        told.append(hashlib.sha256(b"".join(asked)).hexdigest())
        told.append(f"{one.closed} {one.requests} {one.throttled_until_ms}")
    return told


def main() -> None:
    """Print each core's word: which it is, and what it decided."""
    told = [*sensors(random.Random(1))]
    for seed, more in enumerate(
        (
            {},
            {"headgate.fetch": "kafka"},
            {"headgate.pacing": "smooth"},
            {"headgate.enforce": "observe"},
        )
    ):
        told += sessions(random.Random(seed), more)
    file = str(session_module.__file__)
    print(_compiled.status().text.split()[0].strip(":"), file.rpartition(".")[2])
    print(len(told), sum("Throttle(throttle_time_ms=0" not in line for line in told))
    print(
        "\n".join(told)
        if "--all" in sys.argv
        else hashlib.sha256("\n".join(told).encode()).hexdigest()
    )


if __name__ == "__main__":
    main()
