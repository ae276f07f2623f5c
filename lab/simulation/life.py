"""
One life: a story's world built, lived through under the laws, and looked at when it is over.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.quota.entity import DEFAULT as ANY
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.quota.table import QuotaTable, table_delta
from simulation import laws as law
from simulation import laws_passing, laws_tls, laws_turns, laws_waiting
from simulation.brokers import Cluster
from simulation.certificates import authority, keystore
from simulation.clients import Client
from simulation.conversations import Conversation, Sent, conversation_of
from simulation.deeds import do
from simulation.gateways import SimGateway
from simulation.loop import NS_PER_MS, Host, SimLoop
from simulation.network import Network, Way
from simulation.oracle import DEFAULT, Level
from simulation.seed import Seed
from simulation.story import GATE, Story
from simulation.watch import Watch

ALWAYS: Final = {
    "listeners": "SASL_PLAINTEXT://10.0.2.1:9092",
    "headgate.broker.id.min": "1",
    "headgate.broker.id.max": "9",
    "headgate.upstream.admin.sasl.username": "admin",
    "headgate.upstream.admin.sasl.password": "right",
    "headgate.upstream.connect.timeout.ms": "4000",
    "headgate.drain.timeout.ms": "1000",
}
FIRST: Final = "a1"
"""The gateway's certificate when a life begins."""
OVER_TLS: Final = {
    "listeners": "SASL_PLAINTEXT://10.0.2.1:9092,SASL_SSL://10.0.2.1:9292",
    "headgate.handshake.timeout.ms": "5000",
    **keystore(FIRST),
}
LAWS: Final[tuple[type[law.Law], ...]] = (
    law.ChargedOnce,
    law.Decisions,
    law.Mutes,
    law.Answers,
    law.NoGain,
    *laws_passing.LAWS_OF_PASSING,
    laws_turns.Gates,
    laws_tls.Certificates,
    laws_tls.Kept,
    laws_waiting.Waits,
    laws_waiting.Memory,
    laws_waiting.AtRest,
)
TICK_MS: Final = 250.0
REST_MS: Final = 25_000


@dataclass(slots=True)
class Outcome:
    """
    What became of a life.

    Attributes:
        broken: the law that was broken, and how; "" and "".
        at_ms: when.
        digest: the life's fingerprint.
        counts: how often each thing happened.
        peaks: the largest of each thing measured.
    """

    story: Story
    broken: tuple[str, str] = ("", "")
    at_ms: float = 0.0
    digest: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    peaks: dict[str, float] = field(default_factory=dict)


class Life:
    """
    A life.

    Args:
        story: what happens.
        keep_trace: how many of the last events are kept, to be looked at.

    Attributes:
        calm_ns: before this time the gateway itself was held up: it waits for no client's sake.
        orderly: the gateway didn't crash and isn't ending.
        requoted_ns: a change of quotas is in force for sure from then on.
        certificate: the gateway's, in force.
        scarce: the gateway has little memory.
    """

    def __init__(self, story: Story, keep_trace: int = 0) -> None:
        self.story = story
        self.loop = loop = SimLoop(Seed(story.seed), keep_trace)
        self.net = Network(loop)
        self.digest = loop.digest.note
        self.outcome = Outcome(story)
        self.count: Callable[..., None] = self._count
        self.calm_ns = 0
        self.orderly = True
        self.over = False
        self.load_over = False
        self.requoted_ns = 0
        self.own_tasks = 0
        self.deaf: dict[int, int] = {}
        self.principals: dict[int, str] = {}
        self._lines: dict[int, Conversation] = {}
        self._numbers = 0
        self._tokens = 0
        low, high, cut, bandwidth, self._room = story.network
        self.net.make_way = lambda _number, _from, _to, chance: Way(
            chance, (low, high), bandwidth, cut
        )
        self.net.capacity = lambda chance: self._room
        self.certificate = FIRST
        self.cluster = Cluster(
            loop, story.brokers, batch_bytes=story.batch_bytes, tls=story.brokers_tls
        )
        self.quotas: dict[tuple[Level, str], float] = {
            (level, key): value for level, key, value in story.quotas
        }
        self.laws: list[law.Law] = []
        self.watch = Watch(self)
        self.laws = [kind(self) for kind in LAWS]
        self.host = Host(loop, GATE, "10.0.2.1")
        self.settings = {
            **ALWAYS,
            "headgate.upstream": ",".join(f"broker{n}:9092" for n in self.cluster.brokers),
            **dict(story.settings),
            **_tls(story),
        }
        self.scarce = "queued.max.request.bytes" in self.settings
        self.gateway: SimGateway
        self.clients = {
            person.name: Client(
                self, person.name, person.principal, person.client_id,
                min(person.broker, story.brokers), person.versions, person.obeys,
                dict(story.secured).get(person.name),
            )
            for person in story.people
        }  # fmt: skip
        self.start_gateway()

    # --- the gateway ------------------------------------------------------------------------

    def table(self) -> QuotaTable:
        """Return the quotas in force as the product has them."""
        entities: dict[QuotaEntity, dict[QuotaKey, float]] = {}
        for (level, key), value in self.quotas.items():
            entities.setdefault(_entity(level), {})[QuotaKey.parse(key)] = value
        return QuotaTable.of(entities)

    def start_gateway(self) -> None:
        """Start the gateway, or another one after it has ended."""
        self.orderly = True
        made = self.gateway = SimGateway(self.loop, self.host, self.settings, table=self.table())
        made.journal.told = self._charged

    def crash_gateway(self) -> None:
        """Kill the gateway between two callbacks."""
        self.orderly = False
        self.gateway.crash()
        self.forget()

    def forget(self) -> None:
        """The gateway has ended: what it knew is gone."""
        self.watch.crashed()
        for one in self.laws:
            one.crashed()

    def change_quota(self, level: Level, key: str, value: float | None) -> None:
        """Change a quota, as a store tells it."""
        for one in self.laws:
            one.requoting()
        before = self.table()
        if value is None:
            self.quotas.pop((level, key), None)
        else:
            self.quotas[level, key] = value
        after = self.table()
        # A gateway that stands still hears of it when it goes on.
        heard_ns = max(self.loop.now_ns, self.gateway.process.frozen_until_ns)
        self.requoted_ns = heard_ns + 200 * NS_PER_MS
        self.gateway.requoted(after, table_delta(before, after))

    def _charged(self, event: tuple[Any, ...]) -> None:
        origin, t_ms, amount, bound, throttle_ms, told_ms, _, size, *_ = event
        if origin.kind == "bound":
            bound = origin.value
        number = 0
        if origin.client_ip and origin.client_ip.startswith("10."):
            _, high, middle, low = map(int, origin.client_ip.split("."))
            number = (high - 64 << 16) + (middle << 8) + low
        row = law.Row(
            self.loop.now_ns,
            origin.kind,
            origin.quota_type or "",
            origin.broker_id or 0,
            (origin.quota_user or "", origin.quota_client_id or ""),
            origin.principal or "",
            origin.client_id or "",
            self.watch.views.get(number),
            origin.api_key,
            t_ms,
            amount if amount is not None else 0.0,
            bound if bound is not None else float("inf"),
            throttle_ms or 0,
            told_ms or 0,
            size or 0,
        )
        self.digest(origin.kind, origin.quota_type, number, t_ms, amount, throttle_ms, told_ms)
        for one in self.laws:
            one.charged(row)

    # --- what clients ask -------------------------------------------------------------------

    def new_conversation(self) -> int:
        """Return a number for a connection."""
        self._numbers += 1
        return self._numbers

    def new_token(self) -> int:
        """Return a token that no other batch has."""
        self._tokens += 1
        return self._tokens

    def partition_of(self, broker: int) -> int:
        """Return a partition that a broker leads."""
        return next(at for at, one in enumerate(self.cluster.topics["t"]) if one.leader == broker)

    def address(self, broker: int, listener: str) -> tuple[str, int] | None:
        """Return where clients reach a broker."""
        if not self.gateway.started:
            return None
        return self.gateway.gateway.addresses(listener).get(broker)

    def shaken(self, line: Conversation, error: str) -> None:
        """A client's TLS handshake is over."""
        self.digest("shaken", line.number, self.loop.now_ns, line.certificate, error)
        for one in self.laws:
            one.shaken(line, error)

    def certify(self, name: str) -> None:
        """Put another certificate in the gateway's key store."""
        self.certificate = name
        self.settings.update(keystore(name))
        for one in self.laws:
            one.certified(name)

    def line_of(self, number: int) -> Conversation | None:
        """Return a connection from its client's side."""
        return self._lines.get(number)

    def opened(self, line: Conversation) -> None:
        """A client is connected."""
        self._lines[line.number] = line
        self.principals[line.number] = line.client.principal
        self.count("connections")

    def ended(self, line: Conversation) -> None:
        """A client's connection has ended."""
        self.digest("ended", line.number, self.loop.now_ns, line.gone)

    def acknowledged(self, line: Conversation, sent: Sent, offset: int) -> None:
        """A client was told that its batch is stored."""
        self.count("acknowledged")
        if self.cluster.acknowledged.get(sent.token) != offset:
            self.broken(
                "acknowledged",
                f"{line.client.name} was told that batch {sent.token} is at {offset}; no broker "
                "said so",
            )

    def broker_of(self, number: int) -> int:
        """Return which broker a connection leads to."""
        return self._lines[number].client.broker

    def acks_of(self, correlation: int) -> int:
        """Return which answer a client wants to a request (acks): 0 is none."""
        sent = self._lines[conversation_of(correlation)].sent.get(correlation)
        return 1 if sent is None else sent.acks

    def whose(self, number: int) -> str:
        """Return whose connection it is, for messages."""
        line = self._lines.get(number)
        return f"connection {number}" if line is None else f"{line.client.name} ({number})"

    # --- laws -------------------------------------------------------------------------------

    def broken(self, name: str, what: str) -> None:
        """A law doesn't hold; the life ends here."""
        if not self.outcome.broken[0]:
            self.outcome.broken = (name, what)
            self.outcome.at_ms = self.loop.now_ms
            self.loop.halt(what)

    def _count(self, what: str, by: int = 1) -> None:
        self.outcome.counts[what] += by

    def peak(self, what: str, value: float) -> None:
        """Note a value, of which the largest counts."""
        self.outcome.peaks[what] = max(self.outcome.peaks.get(what, 0.0), value)

    def _tick(self) -> None:
        for one in self.laws:
            one.tick()
        for failure in (*self.gateway.process.failures, *self.loop.world.failures):
            self.broken("failures", f"{failure.get('message')}: {failure.get('exception')!r}")
        if not self.over:
            self.loop.after(TICK_MS, self._tick)

    # --- from beginning to end --------------------------------------------------------------

    def live(self) -> Outcome:
        """Live the story through."""
        loop, story = self.loop, self.story
        loop.run(2_500 if story.secured else 900)  # over TLS a gateway takes longer to start
        if not self.gateway.started:
            self.broken("start", repr(self.gateway.failed))
        self.own_tasks = sum(not task.done() for task in self.gateway.process.tasks)
        self._tick()
        for action in story.actions:
            loop.at(action.t_ms * NS_PER_MS, self._act, action)
        loop.run(story.length_ms)
        self.load_over = True
        for client in self.clients.values():
            if client.line is not None:
                client.line.hang_up("close")
        self.net.bring_back()
        loop.run(story.length_ms + REST_MS)
        self._end()
        self.outcome.digest = loop.digest.text()
        loop.close()
        return self.outcome

    def _act(self, action: Any) -> None:
        self.digest("act", action.t_ms, action.who, action.what)
        self._count(f"deed {action.what}")
        chance = random.Random(f"{self.story.seed}/{action}")
        do(self, action, chance)

    def _end(self) -> None:
        """Look whether all is at rest, end the gateway in order, and look again."""
        for one in self.laws:
            if self.loop.halted is None:
                one.end()
        self.over = True
        if self.loop.halted is not None or not self.gateway.started:
            return
        self.orderly = False
        self.gateway.stop()
        self.loop.run(self.loop.now_ms + 12_000)
        process = self.gateway.process
        left = [task for task in process.tasks if not task.done()]
        if not self.gateway.stopped or left:
            self.broken("at rest", f"the gateway doesn't end: {left[:3]}")
        for failure in (*process.failures, *self.loop.world.failures):
            self.broken("failures", f"{failure.get('message')}: {failure.get('exception')!r}")


def _tls(story: Story) -> dict[str, str]:
    """Return the settings of a gateway that speaks TLS, if a story has one."""
    if not story.secured:
        return {}
    protocol = {"headgate.upstream.security.protocol": "SASL_PLAINTEXT"}
    if story.brokers_tls:
        protocol = {
            "headgate.upstream.security.protocol": "SASL_SSL",
            "headgate.upstream.ssl.truststore.certificates": authority("a"),
        }
    return OVER_TLS | protocol


def _entity(level: Level) -> QuotaEntity:
    user, client = level
    parts: dict[str, Any] = {}
    if user is not None:
        parts["user"] = ANY if user == DEFAULT else user
    if client is not None:
        parts["client_id"] = ANY if client == DEFAULT else client
    return QuotaEntity.of(**parts)
