"""
What must hold in every life, checked at every step.

A law sees what passes on the wires (``watch``), what clients heard, what brokers stored and what
the usage journal says. It knows nothing of the gateway's lanes, gates or sensors; only at
the very end ``AtRest`` looks into the gateway, for what it still has.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from simulation import speech as say
from simulation.charges import Charges, Owners
from simulation.loop import NS_PER_MS
from simulation.oracle import KafkaRate, resolve

if TYPE_CHECKING:
    from simulation.conversations import Conversation, Sent
    from simulation.life import Life
    from simulation.watch import Asked, View

PRODUCED: Final = "producer_byte_rate"
CONSUMED: Final = "consumer_byte_rate"
FETCHES: Final = (say.FETCH, say.SHARE_FETCH)
UNSEEN: Final = "itself: unseen"
"""How a client has gone that hung up behind what a muted connection doesn't read."""
EARLY_NS: Final = 2 * NS_PER_MS
"""Clocks have whole milliseconds, and timers may be early by one."""


@dataclass(slots=True)
class Row:
    """One event of the usage journal, with the time at which it was written."""

    now_ns: int
    kind: str
    quota_type: str
    broker: int
    tags: tuple[str, str]
    principal: str
    client: str
    view: View | None
    api: int | None
    t_ms: int
    amount: float
    bound: float
    throttle_ms: int
    told_ms: int
    size: int
    """Of the request; of a fetch under a quota on bytes, of its answer."""


class Law:
    """A law; each method is called when what it is named after happens."""

    name = ""

    def __init__(self, life: Life) -> None:
        self.life = life

    def broken(self, what: str) -> None:
        """The law doesn't hold."""
        self.life.broken(self.name, what)

    def asking(self, view: View, asked: Asked) -> None:
        """The gateway has read the beginning of a request."""

    def passing(self, view: View, asked: Asked) -> None:
        """The gateway begins to pass a request on."""

    def passed(self, view: View, asked: Asked) -> None:
        """The gateway has passed on a whole request."""

    def answer_begun(self, view: View, asked: Asked) -> None:
        """The gateway has read the beginning of an answer."""

    def telling(self, view: View, asked: Asked, head: bytes, size: int) -> None:
        """The gateway begins to write an answer."""

    def charged(self, row: Row) -> None:
        """The journal has an event."""

    def answered(self, line: Conversation, sent: Sent, data: bytes) -> None:
        """A client has read an answer."""

    def closed(self, view: View) -> None:
        """The gateway has closed both sides of a conversation."""

    def left(self, view: View) -> None:
        """The gateway ends its connection with a client."""

    def shaken(self, line: Conversation, error: str) -> None:
        """A client's TLS handshake is over; with what failed, "": nothing."""

    def certified(self, name: str) -> None:
        """The gateway's certificate was changed."""

    def tick(self) -> None:
        """A quarter of a second has passed."""

    def clock_set(self, by_ms: int) -> None:
        """The gateway's wall clock was set forward, or back."""

    def requoting(self) -> None:
        """Quotas are about to be changed."""

    def crashed(self) -> None:
        """The gateway has crashed."""

    def end(self) -> None:
        """The life is over."""


class ChargedOnce(Law):
    """Every byte that is passed on is charged once, and stands in the journal."""

    name = "charged once"

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._passed: dict[int, Counter[int]] = defaultdict(Counter)
        self._charged: dict[int, Counter[int]] = defaultdict(Counter)
        self._fetched: dict[int, Counter[int]] = defaultdict(Counter)
        self._wanted: dict[int, Counter[int]] = defaultdict(Counter)
        self._lost: set[int] = set()
        self._looked: dict[int, None] = {}

    def passed(self, view: View, asked: Asked) -> None:
        if asked.key == say.PRODUCE:
            self._passed[view.number][asked.size] += 1
            self._looked[view.number] = None

    def charged(self, row: Row) -> None:
        view = row.view
        if view is None or row.kind not in ("record", "norecord", "unrecord"):
            return
        self.life.count(f"charged {row.quota_type}")
        if row.quota_type == PRODUCED:
            self._charged[view.number][int(row.amount)] += 1
            self._looked[view.number] = None
        elif row.quota_type == CONSUMED and row.api in FETCHES:
            by = -1 if row.kind == "unrecord" else 1
            self._fetched[view.number][int(row.amount)] += by

    def telling(self, view: View, asked: Asked, head: bytes, size: int) -> None:
        if asked.key in FETCHES and size == asked.answer_bytes:
            self._wanted[view.number][_charged(asked, size)] += 1

    def closed(self, view: View) -> None:
        self._passed[view.number] += self._cut(view)
        self._looked[view.number] = None

    @staticmethod
    def _cut(view: View) -> Counter[int]:
        """Return what has passed of a produce that hasn't passed as a whole."""
        inside = view.to_broker.inside - 4
        is_produce = view._going is not None and view._going.key == say.PRODUCE
        return Counter({inside: 1} if is_produce and inside > 0 else {})

    @staticmethod
    def _refused(view: View) -> Counter[int]:
        """Return what was handed to a broker whose end has come: the transport didn't take it."""
        end = view.broker_end
        if end is None or not (end.ended or end.error is not None):
            return Counter()
        return Counter([view.from_client.inside - 4]) + Counter(
            asked.size
            for asked in view.asked.values()
            if asked.key == say.PRODUCE and asked.passed_ns < 0
        )

    def tick(self) -> None:
        for number in self._looked:
            self._look(number)
        self._looked.clear()

    def _look(self, number: int) -> None:
        if number in self._lost:
            return
        view = self.life.watch.views[number]
        passed, charged = self._passed[number], self._charged[number]
        extra = charged - passed
        more = extra - self._refused(view)
        # A connection that ends is charged for what passed before its sockets are closed.
        if more and (view.closed_ns >= 0 or more != self._cut(view)):
            self.broken(f"{self.life.whose(number)} was charged {_list(more)} that didn't pass, "
                        "or was charged twice")  # fmt: skip
        left = passed - charged
        if extra:
            left -= self._cut(view)  # it was charged with what the transport didn't take
        flying = sum(asked.key == say.PRODUCE for asked in view.flying.values())
        if left.total() > (0 if view.closed_ns >= 0 else flying):
            self.broken(f"{self.life.whose(number)} passed {_list(left)} that weren't charged")

    def crashed(self) -> None:
        self._lost.update(self._passed)

    def end(self) -> None:
        for number in list(self._passed):
            self._look(number)
        for number, wanted in self._wanted.items():
            if number in self._lost:
                continue
            missing = wanted - self._fetched[number]
            if missing:
                self.broken(f"{self.life.whose(number)} got fetches of {_list(missing)} uncharged")
            begun = Counter(
                _charged(asked, asked.answer_bytes)
                for asked in self.life.watch.views[number].asked.values()
                if asked.key in FETCHES and asked.answer_begun_ns >= 0
            )
            more = +self._fetched[number] - begun
            if more:
                self.broken(f"{self.life.whose(number)} was charged fetches of {_list(more)} "
                            "that no broker answered")  # fmt: skip


def _charged(asked: Asked, size: int) -> int:
    """Return what a broker charges for a fetch's answer: all behind its header's tags."""
    return size - (5 if asked.version >= 12 or asked.key == say.SHARE_FETCH else 4)


def _list(sizes: Counter[int]) -> str:
    return ", ".join(f"{size} bytes" for size in sorted(sizes.elements())[:5])


class Decisions(Law):
    """Every decision is Kafka's to the bit, by the quota that applies."""

    name = "Kafka's decisions"

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._rates: dict[tuple[int, str, tuple[str, str]], KafkaRate] = {}

    def charged(self, row: Row) -> None:
        if row.quota_type not in (PRODUCED, CONSUMED) or row.kind not in ("record", "unrecord"):
            return
        if not self.life.story.plain or row.view is None:
            return
        wall_ms = self.life.gateway.host.wall_ns() // NS_PER_MS
        if abs(wall_ms - row.t_ms) > 1 and row.now_ns > self.life.calm_ns:
            self.broken(f"a charge at {row.t_ms} is dated by {row.t_ms - wall_ms} ms")
        key = (row.broker, row.quota_type, row.tags)
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = KafkaRate()
        if row.kind == "unrecord":
            rate.record(-row.amount, row.t_ms)
            return
        tags, bound = resolve(self.life.quotas, row.principal, row.client, row.quota_type)
        if self.life.loop.now_ns >= self.life.requoted_ns and (
            bound != row.bound or (bound < math.inf and tags != row.tags)
        ):
            self.broken(f"{row.principal}/{row.client} was charged to {row.tags} with "
                        f"{row.bound}, not to {tags} with {bound}")  # fmt: skip
        kafkas = rate.decide(row.amount, row.bound, row.t_ms)
        self.life.count("decisions that throttle" if kafkas else "decisions that don't")
        if kafkas != row.throttle_ms:
            self.broken(f"{row.principal}/{row.client} was throttled by {row.quota_type} for "
                        f"{row.throttle_ms} ms, by Kafka for {kafkas} ms")  # fmt: skip

    def crashed(self) -> None:
        self._rates.clear()


class Mutes(Law):
    """
    Who was told to wait, waits: nothing of a muted connection passes.

    The mute counts from the charge. What is charged as it passes may itself pass in that moment,
    and nothing behind it.
    """

    name = "mutes"

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._owners = Owners(life)
        self._own: dict[int, tuple[int, set[int]]] = {}
        """By connection: when it was muted last, and what may pass in that moment."""

    def charged(self, row: Row) -> None:
        view = row.view
        if view is None or row.kind not in ("record", "norecord"):
            return
        asked = self._owners.of(row)
        if row.told_ms > 0 and row.kind == "record":
            view.muted_ns = max(view.muted_ns, row.now_ns + row.told_ms * NS_PER_MS)
            self._own[view.number] = row.now_ns, self._passing_now(view, row, asked)

    def _passing_now(self, view: View, row: Row, asked: Asked | None) -> set[int]:
        """Return what passes with the request that is charged, before it and itself."""
        own: set[int] = set()
        if asked is not None and asked.begun_ns >= 0:
            return own
        left = self._owners.ahead(row)
        for one in view.asked.values():
            # One whose rest passes in this moment was charged before, and may be as long.
            if one.told_ns < 0 and one.begun_ns < 0:
                own.add(one.correlation)
                left -= (one.key, one.size) == (row.api, row.size)
                if one is asked or not left:
                    break
        return own

    def passing(self, view: View, asked: Asked) -> None:
        self._owners.passing(view, asked)
        now_ns = self.life.loop.now_ns
        early_ns = view.muted_ns - now_ns
        muted_ns, own = self._own.get(view.number, (-1, set()))
        if early_ns > EARLY_NS and not (muted_ns == now_ns and asked.correlation in own):
            self.broken(f"a request of {self.life.whose(view.number)} passed "
                        f"{early_ns / 1e6:.1f} ms before its mute was over")  # fmt: skip


class Answers(Law):
    """
    Answers come from brokers, whole, in order, and none is swallowed.

    That ids are right and in order each client checks; that what is acknowledged was acknowledged
    by a broker, the life does.
    """

    name = "answers"

    def telling(self, view: View, asked: Asked, head: bytes, size: int) -> None:
        if asked.key != say.PRODUCE and asked.key not in FETCHES:
            return
        if asked.answer_begun_ns < 0:
            self.broken(f"{self.life.whose(view.number)} was answered {asked.correlation}, which "
                        "no broker had answered")  # fmt: skip
        elif size != asked.answer_bytes and not (
            asked.key == say.FETCH and size < asked.answer_bytes
        ):
            self.broken(f"an answer of {asked.answer_bytes} bytes became one of {size}")

    def closed(self, view: View) -> None:
        end = view.client_end
        gone = end.ended or end.error is not None or getattr(view.client_side, "peer_ended", False)
        if gone or not self.life.orderly:
            return
        for asked in view.unwritten.values():
            if asked.key != say.FETCH:
                self.broken(f"the answer to {asked.correlation} was read and never told to "
                            f"{self.life.whose(view.number)}")  # fmt: skip


class NoGain(Law):
    """
    Ending a connection never gains.

    Produce: at no time are more charges in their throttle than connections were open at once that
    had asked under this quota-id; as many that never closed could have done the same. What is
    delivered, and under smooth pacing what is produced: over any time T at most quota x
    (T + window), and an answer for each connection. What was passed on before the quota came
    belongs to the time before.
    """

    name = "ending never gains"

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._charges = Charges(life)
        self._ends: dict[Any, list[tuple[int, int]]] = defaultdict(list)  # and whose
        self._users: dict[Any, dict[int, View]] = defaultdict(dict)
        self._most: dict[Any, int] = defaultdict(int)
        self._charged: set[int] = set()  # connections that produced
        self._levels: dict[Any, tuple[float, int, int, float]] = {}
        types = {PRODUCED, CONSUMED, *(key for _, key, _ in life.story.quotas)}
        self._types = {
            api: [one for one in sorted(types) if one.startswith(beginning)]
            for api, beginning in (
                (say.PRODUCE, "producer_"),
                (say.FETCH, CONSUMED),
                (say.SHARE_FETCH, CONSUMED),
            )
        }

    def charged(self, row: Row) -> None:
        if row.kind in ("quota", "bound"):
            self._forget(row.quota_type, row.kind)
            if row.kind == "quota":  # who asked before may be under it now
                for view in self.life.watch.open.values():
                    for asked in view.last_asked.values():
                        self.asking(view, asked)
            return
        is_produce = row.quota_type.startswith("producer_")
        late = is_produce and self._charges.is_late(self._charges.of(row))
        if row.view is None or row.kind not in ("record", "unrecord") or row.bound == math.inf:
            return
        key = self._uses(row.view, row.quota_type, row.tags)
        if is_produce:
            self._charged.add(row.view.number)
            self._produced(key, row, row.view.number, late=late)
        fetches = row.quota_type.startswith(CONSUMED)
        if (fetches and self.life.story.delivers) or (
            row.quota_type == PRODUCED and self.life.story.smooth and not late
        ):
            self._paced(key, row)

    def passing(self, view: View, asked: Asked) -> None:
        self._charges.passing(view, asked)

    def asking(self, view: View, asked: Asked) -> None:
        principal = self.life.principals[view.number]
        for quota_type in self._types.get(asked.key, ()):
            tags, bound = resolve(self.life.quotas, principal, asked.client, quota_type)
            if bound < math.inf:
                self._uses(view, quota_type, tags)

    def _uses(self, view: View, quota_type: str, tags: tuple[str, str]) -> Any:
        """Note that a connection uses a quota-id; return a key for both."""
        owner = "" if tags[0] else self.life.principals[view.number]
        key = (quota_type, self.life.broker_of(view.number), tags, owner)
        users = self._users[key]
        for number in [n for n, one in users.items() if one.closed_ns >= 0]:
            del users[number]
        users[view.number] = view
        there = sum(one is view or not self._left_unseen(one) for one in users.values())
        self._most[key] = max(self._most[key], there)
        return key

    def _left_unseen(self, view: View) -> bool:
        """
        Whether a client has gone, unseen, and nothing of it is on its way to the broker.

        One that has produced before can't be told from one that stays, and counts as that.
        """
        line = self.life.line_of(view.number)
        gone = line is not None and line.gone == UNSEEN
        still = view.flying or view._going is not None or view.number in self._charged
        return gone and not still

    def _produced(self, key: Any, row: Row, number: int, *, late: bool) -> None:
        now = row.now_ns
        ends = self._ends[key] = [one for one in self._ends[key] if one[0] > now + EARLY_NS]
        end = now + row.throttle_ms * NS_PER_MS
        # What was passed on before a quota came is charged by it later, and waits for no throttle.
        # All of it that came by one connection leaves one throttle: the longest.
        own = [one for one in ends if late and one[1] == number]
        if own:
            end = max(end, *(until for until, _ in own))
            ends[:] = [one for one in ends if one[1] != number]
        elif len(ends) >= self._most[key]:
            self.broken(
                f"{row.principal}/{row.client} produced while {len(ends)} throttles ran, with "
                f"{self._most[key]} connections open at once"
            )
        if end > now:
            ends.append((end, number))

    def _paced(self, key: Any, row: Row) -> None:
        quota_type, _, tags, _ = key
        bound = row.bound
        if ":" in quota_type:  # it is for all brokers, and each has a part that moves
            if not quota_type.endswith(":bps"):
                return
            bound = resolve(self.life.quotas, row.principal, row.client, quota_type)[1]
            key = (quota_type, tags)
        users = sum(n for one, n in self._most.items() if (one[0], one[2]) == (quota_type, tags))
        amount = -row.amount if row.kind == "unrecord" else row.amount
        level, then_ms, then_ns, largest = self._levels.get(key, (0.0, row.t_ms, row.now_ns, 0.0))
        largest = max(largest, amount)
        # Kafka's windows forget an answer as a whole. If it is worth more than one of their samples
        # (a second), they let pass more than the quota: up to 1.9 of it, for a window's worth.
        pace = bound if largest <= bound else 2 * bound
        # Quotas follow the wall clock: where that is set forward, more time has passed for them.
        # Where it is set back, as much has passed as before.
        passed_ms = max(row.t_ms - then_ms, (row.now_ns - then_ns) / NS_PER_MS)
        level = max(level - pace * passed_ms / 1e3, 0.0) + amount
        self._levels[key] = (level, row.t_ms, row.now_ns, largest)
        most = bound * self.life.story.window_s + largest * (users + 1)
        if level > most:
            self.broken(f"{row.principal}/{row.client} got {level:.0f} bytes more than its "
                        f"quota of {bound:.0f} allows, {most:.0f} at most")  # fmt: skip

    def _forget(self, quota_type: str, kind: str) -> None:
        for kept in (self._ends, self._levels) if kind == "quota" else (self._ends,):
            for key in [key for key in kept if key[0] == quota_type]:
                del kept[key]

    def clock_set(self, by_ms: int) -> None:
        # What a closed connection owes follows the wall clock.
        for ends in self._ends.values():
            ends[:] = [(end - max(by_ms, 0) * NS_PER_MS, number) for end, number in ends]

    def crashed(self) -> None:
        self._ends.clear()
        self._levels.clear()
        self._users.clear()
        self._most.clear()


__all__ = ["Answers", "ChargedOnce", "Decisions", "Law", "Mutes", "NoGain", "Row", "deque"]
