"""
The demo's data: KIP-55's sample quotas, scaled, and the clients that use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SCALE: Final = 100
"""KIP-55's figures are bytes per second in the tens; times 100, two minutes can show them."""
WINDOW_NUM: Final = 4
"""quota.window.num of the demo: cycles of 4 s instead of Kafka's 11 s, so that the load shows
several whole ones."""
WINDOW_S: Final = 1
BROKERS: Final = 2
USERS: Final = {
    "user1": "user1-secret",
    "user2": "user2-secret",
    "user3": "user3-secret",
    "admin": "admin-secret",
}

PRICES: Final = """\
currency: EUR
bytes_in_per_gb: 50
bytes_out_per_gb: 20
per_million_requests: 40
principals:
  user1: {bytes_in_per_gb: 30}  # a special price
"""
"""The demo's prices, so high that two minutes cost something."""

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"


@dataclass(frozen=True, slots=True)
class SampleQuota:
    """
    One entry of KIP-55's "Sample configuration".

    Args:
        words: what the KIP calls it.
        flags: the entity, as kafka-configs takes it.
        produce, fetch: the KIP's figures, bytes per second.
    """

    words: str
    flags: tuple[str, ...]
    produce: int
    fetch: int

    def command(self, store: str) -> list[str]:
        """Return the kafka-configs command line that sets it, scaled."""
        values = f"{PRODUCE}={self.produce * SCALE},{FETCH}={self.fetch * SCALE}"
        return ["--store", store, "--alter", "--add-config", values, *self.flags]


SAMPLE: Final = (
    SampleQuota("default user quota", ("--entity-type", "users", "--entity-default"), 10000, 20000),
    SampleQuota("user1, without client-id overrides",
                ("--entity-type", "users", "--entity-name", "user1"), 1024, 2048),
    SampleQuota("user2", ("--entity-type", "users", "--entity-name", "user2"), 4096, 8192),
    # The JSON says 30 for clientA's consumers, the prose below it 20; the JSON is what would be
    # stored, so it counts.
    SampleQuota("user2's clientA",
                ("--entity-type", "users", "--entity-name", "user2",
                 "--entity-type", "clients", "--entity-name", "clientA"), 10, 30),
    SampleQuota("user2's clientB",
                ("--entity-type", "users", "--entity-name", "user2",
                 "--entity-type", "clients", "--entity-name", "clientB"), 20, 40),
    SampleQuota("client-id clientA of users without a quota",
                ("--entity-type", "clients", "--entity-name", "clientA"), 100, 200),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SampleClient:
    """
    One client-id of one user: a producer and a consumer.

    Args:
        user: "" is anonymous, on the PLAINTEXT listener.
        client_id: its client-id.
        broker: the broker that leads its partition. All clients that share a quota-id use the same
            one, because a quota holds on each broker separately.
        produce_bytes, fetch_bytes: size of its requests and of the answers it asks for: a few
            per cent of its window, so that a burst ends close to its limit.
        pace: bytes per second it wants to produce; 0 is as much as it can.
    """

    user: str
    client_id: str
    broker: int
    produce_bytes: int
    fetch_bytes: int
    pace: int = 0

    @property
    def topic(self) -> str:
        """The topic it writes and the one it reads begin with this."""
        return f"{self.user or 'anonymous'}-{self.client_id}"

    @property
    def name(self) -> str:
        """The principal."""
        return self.user or "ANONYMOUS"

    @property
    def message_bytes(self) -> int:
        """Size of each message it produces."""
        return min(1_000, max(100, self.produce_bytes // 2))

    @property
    def saturating(self) -> bool:
        """Whether it wants more than any quota."""
        return self.pace == 0


CLIENTS: Final = (
    SampleClient("user1", "app", 1, 3_000, 8_000),
    SampleClient("user1", "backup", 1, 3_000, 8_000),
    SampleClient("user2", "clientA", 2, 300, 800),
    SampleClient("user2", "clientB", 2, 400, 900),
    SampleClient("user2", "clientC", 2, 16_000, 32_000),
    SampleClient("user3", "clientA", 1, 32_000, 64_000),
    SampleClient("user3", "clientB", 1, 32_000, 64_000),
    SampleClient("", "sensor", 2, 4_000, 64_000, pace=150_000),
    SampleClient("", "meter", 2, 4_000, 64_000, pace=150_000),
)
