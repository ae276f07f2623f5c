"""
Nobody waits on a peer that isn't sending or reading; memory is bounded; in the end all is at rest.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from headgate.gateway.connection.link import Link
from simulation import speech as say
from simulation.conversations import LOGIN
from simulation.laws import CONSUMED, FETCHES, PRODUCED, UNSEEN, Law, Row
from simulation.loop import NS_PER_MS
from simulation.oracle import Quotas, resolve

if TYPE_CHECKING:
    from simulation.life import Life
    from simulation.watch import Asked, View

SLACK_NS: Final = 60 * NS_PER_MS
HOLD_NS: Final = 10_500 * NS_PER_MS
"""Longest hold of a fetch (``headgate.fetch.hold.max.ms``), and some."""
SEEN_NS: Final = 100 * NS_PER_MS
"""How long a newcomer waits behind one that has repaid, or whose request is half here."""
REFUSED_NS: Final = 100 * NS_PER_MS
"""How long who is refused waits to be told (``connection.failed.authentication.delay.ms``)."""
MOST_KEPT: Final = 2 * 262_144 + 66_560 + 65_536
"""Of one client: what is held, one read on top, and a head of a Produce."""
LOOK_AGAIN_MS: Final = 700
LOOKS_AGAIN: Final = 3
"""The gateway may be asking its brokers something when all should be at rest. It asks once for each
listener, one after the other. Over TLS that is six times there and back (handshake, login, two
questions, goodbye), and a way takes up to 60 ms: 1.5 s for two listeners."""
ORPHAN_WAIT_MS: Final = 10_000
MOST_ORPHAN_WAITS: Final = 120
"""Clients that hang up unseen are read when their mutes, and those before them, are over."""
OWN: Final = frozenset({"sockets", "tasks"})
"""What it asks with; nothing else may be left when it is looked at again for the first time."""


FETCH_KEYS: Final = frozenset({CONSUMED, f"{CONSUMED}:bps", f"{CONSUMED}:shares"})
CAPS_NS: Final = {f"{PRODUCED}:bps": 10_000 * NS_PER_MS, f"{PRODUCED}:shares": 2_000 * NS_PER_MS}
"""Longest throttle by quotas whose bounds move: two of their periods."""


class Owed:
    """What a quota-id owes by a bound that moves, told by the journal; a second's worth is free."""

    def __init__(self, now_ns: int) -> None:
        self.tokens = self.bound = math.inf
        self.then_ns = now_ns
        self.over_ns = -1  # when more was owed for the last time than a throttle may tell
        self.unsure_ns = -1  # when the clock was set, by which waits are counted

    def told(self, row: Row) -> None:
        """Take a charge, or another bound."""
        self.refill(row.now_ns)
        self.bound = row.bound
        self.tokens = min(self.tokens, self.bound)
        if row.kind != "bound":
            self.tokens -= row.amount if row.kind == "record" else -row.amount
        if self.bound == math.inf:
            self.tokens = math.inf  # what comes into force later owes nothing

    def refill(self, now_ns: int) -> None:
        if self.bound < math.inf:
            paid = self.bound * (now_ns - self.then_ns) / 1e9
            self.tokens = min(self.tokens + paid, max(self.bound, self.tokens))
        self.then_ns = now_ns

    def ns(self, ahead: int) -> float:
        """How long it takes until what is owed, and what waits, is paid."""
        return (ahead - self.tokens) / self.bound * 1e9 if 0 < self.bound < math.inf else 0.0


class Waits(Law):
    """
    A whole request passes at once, unless Kafka would have it wait, or a newcomer owes, or more is
    owed by a bound that moves than one throttle may tell.
    """

    name = "waiting"

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._owed_ns: dict[str, int] = {}
        self._lanes: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        self._known: dict[int, set[tuple[str, bool]]] = {}
        keys = (key for _, key, _ in life.story.quotas)
        self._fetching = sorted({CONSUMED, *(key for key in keys if key.startswith(CONSUMED))})
        # Who is no newcomer: a connection, a client-id, and whether by what it produced.
        self._charged: set[tuple[int, str, bool]] = set()
        self._repaid_ns: dict[str, int] = {}  # when a principal's newcomer was charged, or left
        self._before: list[tuple[int, Quotas]] = []  # until when quotas were in force, and which
        self._owed: dict[tuple[int, str, tuple[str, str]], Owed] = {}

    def charged(self, row: Row) -> None:
        if row.kind == "quota":
            self._known.clear()  # another level may apply now: everybody is a newcomer to it
            self._charged.clear()
        if row.quota_type in CAPS_NS and row.kind in ("record", "unrecord", "bound"):
            key = row.broker, row.quota_type, row.tags
            self._owed.setdefault(key, Owed(row.now_ns)).told(row)
        if row.view is None or row.kind != "record":
            return
        repays = not self.life.story.plain or row.quota_type == PRODUCED
        charge = row.view.number, row.client, row.quota_type == PRODUCED
        if repays and charge not in self._charged:
            self._charged.add(charge)
            self._repaid_ns[row.principal] = row.now_ns
        if row.throttle_ms > 0:
            until = row.now_ns + row.throttle_ms * NS_PER_MS
            self._owed_ns[row.principal] = max(self._owed_ns.get(row.principal, 0), until)
            if row.quota_type == PRODUCED:
                lanes = self._lanes[row.broker, row.tags, "" if row.tags[0] else row.principal]
                lanes[:] = [lane for lane in lanes if lane[0] > row.now_ns]
                lanes.append((until, until - row.now_ns))

    def _owes_until(self, view: View, asked: Asked, since_ns: int) -> int:
        """Return until when a newcomer waits, who came at a time, at most."""
        life, principal = self.life, view_principal(view)
        if not self._limits(principal, asked):
            return min(life.requoted_ns, self._owed_ns.get(principal, 0))  # it is called then
        # What a newcomer waits for is decided when its request begins to come.
        if not life.story.plain or asked.head_ns < life.requoted_ns:
            return self._owed_ns.get(principal, 0)
        if asked.key != say.PRODUCE:
            return 0
        tags, _ = resolve(life.quotas, principal, asked.client, PRODUCED)
        latest = 0
        key = (life.broker_of(view.number), tags, "" if tags[0] else principal)
        for end_ns, whole_ns in self._lanes.get(key, ()):
            latest = max(latest, since_ns + min(end_ns - since_ns, whole_ns))
        return latest

    def closed(self, view: View) -> None:
        who = self.life.principals.get(view.number, "")
        self._repaid_ns[who] = self.life.loop.now_ns

    def _behind_until(self, view: View, asked: Asked) -> int:
        """Return until when a newcomer waits behind others of its principal that repay."""
        life, now_ns, who = self.life, self.life.loop.now_ns, view_principal(view)
        plain = life.story.plain
        if plain and asked.key != say.PRODUCE:
            return 0
        if not self._limits(who, asked):
            return life.requoted_ns
        for other in life.watch.open.values():
            if other is view or life.principals.get(other.number) != who:
                continue
            for one in (*other.flying.values(), *other.waiting.values()):
                produces = one.key == say.PRODUCE
                if (other.number, one.client, produces) in self._charged or (
                    plain and not produces
                ):
                    continue
                came_before = one.read_ns <= asked.read_ns or one.passed_ns >= 0
                if came_before or self._owes_until(other, one, one.read_ns) > now_ns:
                    return now_ns
        return self._repaid_ns.get(who, -SEEN_NS) + SEEN_NS

    def _overdue_until(self, view: View, asked: Asked) -> int:
        """Return until when a Produce waits for what is owed and waits before it, and looks."""
        life, latest = self.life, 0
        who, now_ns = (view_principal(view), asked.client), life.loop.now_ns
        ahead = sum(
            one.size + 4
            for other in life.watch.open.values()
            if other is not view
            for one in other.waiting.values()
            if one.key == say.PRODUCE
        )
        for (broker, quota_type, tags), owed in self._owed.items():
            mine = all(tag in ("", name) for tag, name in zip(tags, who, strict=True))
            if not mine or broker != life.broker_of(view.number):
                continue
            owed.refill(now_ns)
            cap_ns = CAPS_NS[quota_type]
            if owed.ns(ahead) > cap_ns - SLACK_NS:
                owed.over_ns = now_ns
            if owed.unsure_ns >= 0:
                latest = max(latest, owed.unsure_ns + cap_ns)
            latest = max(latest, owed.over_ns)  # the first is called, and calls the next
        return latest

    def _limits(self, user: str, asked: Asked) -> bool:
        """Whether a quota limits what is charged for a request before it is answered."""
        charged = (key for _, key in self.life.quotas if key not in FETCH_KEYS)
        quotas, client = self.life.quotas, asked.client
        return any(resolve(quotas, user, client, key)[1] < math.inf for key in set(charged))

    def clock_set(self, by_ms: int) -> None:
        for owed in self._owed.values():
            owed.unsure_ns = self.life.loop.now_ns
        # What a closed connection owes follows the wall clock: set back, it lasts as much longer,
        # and for a newcomer at most as long as was told.
        by_ns = max(-by_ms, 0) * NS_PER_MS
        self._owed_ns = {who: end_ns + by_ns for who, end_ns in self._owed_ns.items()}
        for lanes in self._lanes.values():
            lanes[:] = [(end_ns + by_ns, whole_ns) for end_ns, whole_ns in lanes]

    def requoting(self) -> None:
        self._before.append((self.life.loop.now_ns, dict(self.life.quotas)))

    def crashed(self) -> None:
        self._lanes.clear()
        self._owed.clear()

    def _held_until(self, view: View, asked: Asked, since_ns: int) -> int:
        """Return until when a fetch may be held: as long as a quota charges it."""
        most_ns, who = since_ns + HOLD_NS, (view_principal(view), asked.client)
        if self._charges_fetches(self.life.quotas, *who):
            return most_ns
        for until_ns, quotas in reversed(self._before):
            if until_ns <= since_ns:
                break
            if self._charges_fetches(quotas, *who):  # it was taken away meanwhile
                return min(until_ns, most_ns)
        return since_ns

    def _charges_fetches(self, quotas: Quotas, user: str, client: str) -> bool:
        return any(resolve(quotas, user, client, key)[1] < math.inf for key in self._fetching)

    @staticmethod
    def _is_refused(view: View, asked: Asked) -> bool:
        """Whether a request comes before login, and may not."""
        login = view.last_asked.get(say.SASL_AUTHENTICATE)
        return asked.key not in LOGIN and (login is None or login.answer_ns < 0)

    def _since(self, view: View, asked: Asked) -> int:
        """Return since when a request waits for no good reason."""
        life = self.life
        if view.broker_ready_ns < 0 or asked.read_ns < 0 or view.flying or view.unwritten:
            return life.loop.now_ns
        if view.client_side.unsent:
            return life.loop.now_ns  # as at a broker: the next one when an answer is sent
        since = max(asked.read_ns, view.broker_ready_ns, view.muted_ns, view.last_answer_ns,
                    view.passed_ns, view.client_side.drained_ns, life.calm_ns)  # fmt: skip
        if self._is_refused(view, asked):
            return since + REFUSED_NS
        fetches = asked.key in FETCHES
        if asked.key == say.PRODUCE and self._owed:
            since = max(since, self._overdue_until(view, asked))
        # A newcomer to a quota-id waits for what others left.
        if (asked.client, fetches) not in self._known.get(view.number, ()):
            # Who waited behind others takes an end that one of these has left, perhaps.
            taken_ns = max(since, self._repaid_ns.get(view_principal(view), 0))
            since = max(since, self._owes_until(view, asked, taken_ns))
            since = max(since, self._behind_until(view, asked))
        return self._held_until(view, asked, since) if fetches else since

    def passing(self, view: View, asked: Asked) -> None:
        self._look(view, asked)
        if asked.key == say.PRODUCE or asked.key in FETCHES:
            seen = self._known.setdefault(view.number, set())
            if (asked.client, asked.key in FETCHES) not in seen:
                self._repaid_ns[view_principal(view)] = self.life.loop.now_ns
            seen.add((asked.client, asked.key in FETCHES))

    def _look(self, view: View, asked: Asked) -> None:
        late_ns = self.life.loop.now_ns - self._since(view, asked) - SLACK_NS
        if late_ns > 0 and asked.read_ns >= 0 and view.client_open:
            self.broken(
                f"{self.life.whose(view.number)} waits {late_ns / 1e6 + 60:.0f} ms with request "
                f"{asked.correlation} (API {asked.key}) and for no reason"
            )

    def tick(self) -> None:
        for view in self.life.watch.open.values():
            if view.client_side.said_goodbye:
                continue  # over: what is open still waits for the client's goodbye
            if view.waiting:
                self._look(view, next(iter(view.waiting.values())))
            if view.unwritten and view.client_open:
                self._look_at_answers(view)

    def _look_at_answers(self, view: View) -> None:
        asked = next(iter(view.unwritten.values()))
        end = view.client_end
        if end.ended or end.error is not None or view.client_side.unsent:
            return
        since = max(asked.answer_ns, self.life.calm_ns)
        if asked.key == say.FETCH:
            since += HOLD_NS
        if self.life.loop.now_ns - since > SLACK_NS:
            self.broken(f"an answer to {self.life.whose(view.number)} is kept back")


def view_principal(view: View) -> str:
    """Return the name that a conversation's client logs in with."""
    return view.life.principals[view.number]


class Memory(Law):
    """What is held for a client is bounded."""

    name = "memory"

    def tick(self) -> None:
        total = 0
        for view in self.life.watch.open.values():
            if view.client_side.said_goodbye:
                continue  # what still comes is read and dropped
            kept = view.from_client.total - view.to_broker.total
            if not view.broker_open:
                kept = min(kept, MOST_KEPT) if view.closed_ns >= 0 else kept
            total += max(kept, 0)
            if kept > MOST_KEPT:
                self.broken(f"{kept} bytes are held for {self.life.whose(view.number)}")
        self.life.peak("bytes held", total)


class AtRest(Law):
    """When load has ended, nothing is left of it; of a closed connection no timer is, ever."""

    name = "at rest"

    def tick(self) -> None:
        for timer in self.life.loop.timers(self.life.gateway.process):
            link = getattr(timer._args[1], "__self__", None) if timer._args[1:] else None
            if isinstance(link, Link) and link.closed is not None:
                self.broken(f"{link.session.connection} is closed and has a timer")

    def end(self) -> None:
        life = self.life
        if not life.gateway.started or not life.gateway.process.alive:
            return
        for _ in range(MOST_ORPHAN_WAITS):
            if not self._has_orphans():
                break
            life.loop.run(life.loop.now_ms + ORPHAN_WAIT_MS)
        left = self._left()
        for _ in range(LOOKS_AGAIN):
            if not left:
                return
            life.loop.run(life.loop.now_ms + LOOK_AGAIN_MS)
            left = self._left()
            if left.keys() - OWN:
                break
        for what, count in left.items():
            self.broken(f"{count} {what} are left")

    def _has_orphans(self) -> bool:
        """
        Whether a client's connection is open that hung up behind what isn't read yet.

        It goes on in its turn, as any other does: behind others that owe, that may take minutes.
        """
        for view in self.life.watch.open.values():
            line = self.life.line_of(view.number)
            if line is not None and (line.gone == UNSEEN or (line.gone and view.waiting)):
                return True
        return False

    def _left(self) -> dict[str, int]:
        """Return how much of each thing is still there, of those that are."""
        life = self.life
        product = life.gateway.gateway
        brokers = product.brokers.values()
        counts = {
            "connections": sum(len(broker.links) for broker in brokers),
            "connections that open": sum(len(broker.clients.opening) for broker in brokers),
            "slots": sum(broker.quotas.total for broker in brokers),
            "sockets": sum(end.host is life.gateway.host for end in life.net.ends),
            "bytes of the pool": product._buffer.pool.used,
            "kept bytes": sum(broker.rules.gates.kept_bytes for broker in brokers),
            "tasks": sum(not t.done() for t in life.gateway.process.tasks) - life.own_tasks,
        }
        return {what: count for what, count in counts.items() if count > 0}


__all__ = ["PRODUCED", "AtRest", "Memory", "Waits"]
