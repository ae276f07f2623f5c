"""
Ask `headgate why` 200 times while quotas change under load: does a sentence contradict itself?

    python bench/gateway/why_sentences.py

A gateway stands in front of a real Kafka. Twelve clients produce and fetch without a pause. Their
quotas are raised, lowered, removed, added, replaced by more specific ones, in `bps` and `shares`;
one has a quota of request time, one only the broker's own, one connects again every second. Every
other second each client is asked about. The figures of each sentence are compared with each
other (`tests/kit/sentences.py`). The exit status is 1 if one contradicts itself.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient as KafkaAdmin
from confluent_kafka.admin import NewTopic

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from headgate.admin import AdminClient
from headgate.config import Settings
from headgate.embedded import EmbeddedKafka, run_tool
from headgate.gateway import Gateway, GatewayThread
from headgate.live.why import why
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import (
    CONSUMER,
    PRODUCER,
    PRODUCER_BPS,
    PRODUCER_SHARES,
    REQUEST,
    QuotaKey,
)
from headgate.store import open_store
from headgate.store.watched import QuotaStore
from kit.sentences import contradictions

USER = "ANONYMOUS"
START: dict[str, tuple[QuotaKey, float]] = {
    "steady": (PRODUCER, 100e3),
    "raised": (PRODUCER, 20e3),
    "removed": (PRODUCER, 30e3),
    "replaced": (PRODUCER, 40e3),
    "again": (PRODUCER, 50e3),
    "bps": (PRODUCER_BPS, 60e3),
    "shares": (PRODUCER_SHARES, 1.0),
    "time": (REQUEST, 0.05),
    "fetches": (CONSUMER, 50e3),
    "fetches-changed": (CONSUMER, 20e3),
}
FREE = ("brokers-own", "added")
CHANGES: tuple[tuple[str, QuotaKey, float | None, bool], ...] = (
    ("raised", PRODUCER, 200e3, False),
    ("removed", PRODUCER, None, False),
    ("replaced", PRODUCER, 500e3, True),
    ("fetches-changed", CONSUMER, 90e3, False),
    ("added", PRODUCER, 10e3, False),
    ("bps", PRODUCER_BPS, 20e3, False),
    ("raised", PRODUCER, 20e3, False),
    ("removed", PRODUCER, 30e3, False),
    ("replaced", PRODUCER, None, True),
    ("fetches-changed", CONSUMER, None, False),
    ("shares", PRODUCER_SHARES, 50.0, False),
    ("added", PRODUCER, None, False),
    ("fetches-changed", CONSUMER, 20e3, False),
    ("time", REQUEST, 0.5, False),
)
"""Client, key, value (None: removed), and whether the entity is the pair with the user."""


def put(
    store: QuotaStore, client: str, key: QuotaKey, value: float | None, *, pair: bool = False
) -> None:
    """Set or remove a quota."""
    entity = QuotaEntity.of(**({"user": USER} if pair else {}), client_id=client)
    [result] = store.alter([QuotaAlteration(entity, (Op(key, value),))], who="bench", tool="bench")
    if result.error is not None:
        raise result.error


def produce(servers: str, client: str, over: threading.Event) -> None:
    """Produce without a pause; "again" opens a new connection every second."""
    while not over.is_set():
        producer = Producer({"bootstrap.servers": servers, "client.id": client, "linger.ms": 5,
                             "queue.buffering.max.kbytes": 2_000})  # fmt: skip
        until = time.monotonic() + (1.0 if client == "again" else 1e9)
        while not over.is_set() and time.monotonic() < until:
            with contextlib.suppress(BufferError):
                producer.produce("written", bytes(20_000))
            producer.poll(0.02)
        producer.purge()


def fetch(servers: str, client: str, over: threading.Event) -> None:
    """Fetch without a pause, from the beginning again and again."""
    consumer = Consumer({"bootstrap.servers": servers, "client.id": client, "group.id": client})
    place = TopicPartition("read", 0, 0)
    consumer.assign([place])
    while not over.is_set():
        message = consumer.poll(0.2)
        if message is not None and message.offset() > 150:
            consumer.seek(place)
    consumer.close()


def ask(servers: str, store: QuotaStore, samples: int) -> tuple[list[str], Counter[str]]:
    """Change quotas and ask about every client in turn; return what contradicts itself."""
    wrong: list[str] = []
    seen: Counter[str] = Counter()
    changes = iter(CHANGES * 100)
    with AdminClient(servers) as admin:
        while seen.total() < samples:
            client, key, value, pair = next(changes)
            put(store, client, key, value, pair=pair)
            for name in (*START, *FREE):
                found = why(admin.describe_live(USER, name), USER, name)
                seen[found.state] += 1
                print(found.sentence, flush=True)
                wrong += (f"{found.sentence} - {text}" for text in contradictions(found.sentence))
            time.sleep(2.0)
    return wrong, seen


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200)
    arguments = parser.parse_args()
    over = threading.Event()
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka(brokers=1) as kafka:
        place = Path(name)
        settings = Settings.from_properties(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "headgate.upstream": kafka.bootstrap(),
                "headgate.broker.id.min": "1",
                "headgate.broker.id.max": "1",
                "headgate.data.dir": name,
                "headgate.store": f"sqlite:{place / 'quotas.db'}",
                "headgate.usage": "none",
                "headgate.capacity.producer_byte_rate": "200000",
                "super.users": f"User:{USER}",
            }
        )
        admin = KafkaAdmin({"bootstrap.servers": kafka.bootstrap()})
        for made in admin.create_topics(
            [NewTopic("written", 1, 1), NewTopic("read", 1, 1)]
        ).values():
            made.result(60)
        filler = Producer({"bootstrap.servers": kafka.bootstrap()})
        for _ in range(200):
            filler.produce("read", bytes(20_000))
        filler.flush(60)
        run_tool(
            "kafka.admin.ConfigCommand",
            ["--bootstrap-server", kafka.bootstrap(), "--alter", "--entity-type", "clients",
             "--entity-name", "brokers-own", "--add-config", "producer_byte_rate=30000"],
        )  # fmt: skip
        store = open_store(settings.store)
        for client, (key, value) in START.items():
            put(store, client, key, value)
        gateway = GatewayThread(lambda: Gateway(settings, open_store(settings.store))).start()
        host, port = gateway.gateway.addresses("PLAINTEXT")[1]
        servers = f"{host}:{port}"
        threads = []
        for client in (*START, *FREE):
            work: Callable[[str, str, threading.Event], None]
            work = fetch if client.startswith("fetches") else produce
            threads.append(threading.Thread(target=work, args=(servers, client, over), daemon=True))
            threads[-1].start()
        try:
            time.sleep(5.0)
            wrong, seen = ask(servers, store, arguments.samples)
        finally:
            over.set()
            for thread in threads:
                thread.join(30)
            gateway.stop(0)
            store.close()
    print(f"\n{seen.total()} sentences: {dict(seen.most_common())}")
    print(f"that contradict themselves: {len(wrong)}", *wrong, sep="\n  ")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
