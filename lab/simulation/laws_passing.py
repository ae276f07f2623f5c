"""
What is true of a request when it passes: it is charged, nothing keeps it, and it isn't forgotten.
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

from simulation import speech as say
from simulation.charges import Owners
from simulation.laws import CONSUMED, EARLY_NS, FETCHES, PRODUCED, Law, Row
from simulation.laws_waiting import CAPS_NS, HOLD_NS, REFUSED_NS, Owed, Waits
from simulation.loop import NS_PER_MS
from simulation.oracle import resolve

if TYPE_CHECKING:
    from simulation.conversations import Conversation, Sent
    from simulation.life import Life
    from simulation.watch import Asked, View

TIMED: Final = "request_percentage"
Account = tuple[int, str, tuple[str, str]]
"""A quota-id at one broker: the broker, the quota type, and whose it is."""
PATIENCE_NS: Final = 500 * NS_PER_MS
"""Longest silence beyond the longest throttle: some slots of a gate, and looking again."""
UNANSWERED_NS: Final = 10_000 * NS_PER_MS
"""How long a newcomer waits behind a request that passed and isn't answered: a broker may be gone
without saying so."""
SLACK_MS: Final = 2
"""Two clocks with whole milliseconds."""
WHOLE: Final = (say.METADATA, say.FIND_COORDINATOR)
"""Requests whose answers the gateway reads whole."""
PLAINLY_TOLD: Final = frozenset(
    {
        (say.HEARTBEAT, 1), (say.METADATA, 4), (say.FIND_COORDINATOR, 1), (say.LIST_OFFSETS, 2),
        (say.JOIN_GROUP, 2), (say.INIT_PRODUCER_ID, 1), (say.ADD_PARTITIONS, 1), (say.END_TXN, 1),
    }
)  # fmt: skip
"""Requests whose answer begins with the throttle time."""


class ChargedWhenPassed(Law):
    """What has passed and isn't charged is at most the half-passed request of each connection."""

    name = "charged when passed"

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._owners = Owners(life)
        self._uncharged: dict[int, dict[int, Asked]] = defaultdict(dict)
        self._fresh: deque[tuple[View, Asked]] = deque()

    def _look(self) -> None:
        """Look at what passed in a moment that is over."""
        now_ns = self.life.loop.now_ns
        while self._fresh and self._fresh[0][1].passed_ns < now_ns:
            view, asked = self._fresh.popleft()
            uncharged = self._uncharged[view.number]
            if asked.correlation not in uncharged:
                continue
            whose = f"{self.life.whose(view.number)} passed {asked.correlation}"
            if not asked.acks:
                self.broken(f"{whose}, which gets no answer, and wasn't charged")
            self.broken(f"{whose}, {asked.size} bytes, uncharged")

    def asking(self, view: View, asked: Asked) -> None:
        self._look()

    def tick(self) -> None:
        self._look()

    def passing(self, view: View, asked: Asked) -> None:
        self._look()
        self._owners.passing(view, asked)

    def passed(self, view: View, asked: Asked) -> None:
        self._look()
        if asked.key == say.PRODUCE and not self._owners.is_charged(asked):
            self._uncharged[view.number][asked.correlation] = asked
            self._fresh.append((view, asked))

    def charged(self, row: Row) -> None:
        self._look()
        view = row.view
        if view is None or row.kind not in ("record", "norecord"):
            return
        asked = self._owners.of(row)
        if asked is None:
            return
        now_ns, whose = self.life.loop.now_ns, f"{self.life.whose(view.number)}'s"
        if row.quota_type == PRODUCED:
            self._uncharged[view.number].pop(asked.correlation, None)
        elif row.quota_type == CONSUMED and asked.key == say.SHARE_FETCH:
            late_ns = now_ns - asked.answer_begun_ns
            if asked.answer_begun_ns >= 0 and late_ns > 0:
                self.broken(f"{whose} {asked.correlation} was charged {late_ns / 1e6:.1f} ms late")
        elif (
            row.quota_type == TIMED
            and row.bound < math.inf
            and asked.key not in (say.PRODUCE, *FETCHES)
            and 0 <= asked.passed_ns < now_ns
            and len(self._owners.rows(asked)) == 1  # what it is charged later is of its answer
        ):
            self.broken(f"{whose} {asked.correlation} passed uncharged")

    def telling(self, view: View, asked: Asked, head: bytes, size: int) -> None:
        self._look()
        if asked.correlation in self._uncharged[view.number]:
            self.broken(f"{self.life.whose(view.number)} is told that {asked.correlation} is "
                        "stored, and wasn't charged")  # fmt: skip

    def closed(self, view: View) -> None:
        self._look()
        left = self._uncharged.pop(view.number, {})
        if left and self.life.orderly:
            self.broken(f"{self.life.whose(view.number)} is closed, and {list(left)} uncharged")

    def crashed(self) -> None:
        self._uncharged.clear()
        self._fresh.clear()


class Told(Law):
    """
    A client is told what is left of its request's throttle when the answer is sent.

    It may hear it when the gateway that told it has ended.
    """

    name = "told"

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._owners = Owners(life)

    def passing(self, view: View, asked: Asked) -> None:
        self._owners.passing(view, asked)

    def charged(self, row: Row) -> None:
        if row.view is not None and row.kind in ("record", "norecord"):
            self._owners.of(row)

    def answered(self, line: Conversation, sent: Sent, data: bytes) -> None:
        view = self.life.watch.views.get(line.number)
        asked = None if view is None else view.asked.get(sent.correlation)
        if asked is None or line.broken:
            return
        if sent.key == say.PRODUCE or sent.key in FETCHES:
            heard_ms = sent.told_ms
        elif (sent.key, sent.version) in PLAINLY_TOLD:
            heard_ms = struct.unpack_from(">i", data, 8)[0]
        else:
            return
        rows = self._owners.rows(asked)
        left_ms = 0
        for row in rows:
            gone_ms = (asked.told_ns - row.now_ns) / NS_PER_MS
            left_ms = max(left_ms, math.ceil(row.told_ms - gone_ms))
        self.life.count(f"told {'a wait' if heard_ms else 'none'}")
        if abs(heard_ms - left_ms) > SLACK_MS:
            self.broken(f"{line.client.name} was told {heard_ms} ms for {sent.correlation} (API "
                        f"{sent.key}); left are {left_ms}")  # fmt: skip


class ProduceGates(Law):
    """
    No Produce begins to pass while its quota-id owes more than one throttle may tell.

    That is so under quotas whose throttles are capped (``bps`` and ``shares``).
    """

    name = "produce gates"

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._owed: dict[tuple[int, str, tuple[str, str]], Owed] = {}
        self._own: dict[tuple[int, str], tuple[int, float]] = {}
        """Of a connection and quota type: when it was charged last, and how much in that moment."""

    def charged(self, row: Row) -> None:
        if row.quota_type not in CAPS_NS:
            return
        if row.kind == "quota":
            self._owed.clear()
        elif row.kind in ("record", "unrecord", "bound"):
            key = row.broker, row.quota_type, row.tags
            self._owed.setdefault(key, Owed(row.now_ns)).told(row)
        if row.view is not None and row.kind == "record":
            then_ns, amount = self._own.get((row.view.number, row.quota_type), (-1, 0.0))
            amount = row.amount + (amount if then_ns == row.now_ns else 0.0)
            self._own[row.view.number, row.quota_type] = row.now_ns, amount

    def passing(self, view: View, asked: Asked) -> None:
        life, now_ns = self.life, self.life.loop.now_ns
        if asked.key != say.PRODUCE or now_ns < life.requoted_ns:
            return
        for (broker, quota_type, tags), owed in self._owed.items():
            mine, bound = resolve(
                life.quotas, life.principals[view.number], asked.client, quota_type
            )
            if broker != life.broker_of(view.number) or mine != tags or bound == math.inf:
                continue
            owed.refill(now_ns)
            at_ns, own = self._own.get((view.number, quota_type), (-1, 0.0))
            early_ns = owed.ns(-own if at_ns == now_ns else 0) - CAPS_NS[quota_type]
            if early_ns > EARLY_NS:
                self.broken(f"{life.whose(view.number)} began to pass {asked.correlation} "
                            f"{early_ns / 1e6:.1f} ms before {tags} owed little enough by "
                            f"{quota_type}")  # fmt: skip

    def clock_set(self, by_ms: int) -> None:
        self._owed.clear()

    def crashed(self) -> None:
        self._owed.clear()


class Silence(Law):
    """
    Where a request waits, something happens within the longest throttle decided, and some.

    Others that pay one of its quotas are charged, pass or leave, or it passes itself: who waits at
    a gate waits for those before it, one after the other. A wake-up that is lost, and two that wait
    for each other, are followed by silence. The throttles of quotas that it pays are counted only.
    A connection that a quota hasn't charged yet also waits while another's request under that quota
    is at a broker.
    """

    name = "silence"

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._longest_ns: dict[Account, float] = defaultdict(float)
        self._heard_ns: dict[Account, int] = defaultdict(int)
        self._owed: dict[Account, Owed] = {}
        self._charged: set[tuple[int, Account]] = set()
        """Connections that a quota has charged: no newcomers to it."""
        self._paid: dict[int, list[Account]] = {}
        self._set_ns = 0
        types = {PRODUCED, CONSUMED, TIMED, *(key for _, key, _ in life.story.quotas)}
        self._types = {
            beginning: [one for one in sorted(types) if one.startswith((beginning, TIMED))]
            for beginning in ("producer_", CONSUMED, TIMED)
        }

    def _accounts(self, view: View, asked: Asked) -> list[Account]:
        """Return which quotas a request pays."""
        life, found = self.life, []
        beginning = CONSUMED if asked.key in FETCHES else TIMED
        for one in self._types["producer_" if asked.key == say.PRODUCE else beginning]:
            tags, bound = resolve(life.quotas, life.principals[view.number], asked.client, one)
            if bound < math.inf:
                found.append((life.broker_of(view.number), one, tags))
        return found

    def asking(self, view: View, asked: Asked) -> None:
        # By what it was to pay when it came, though another quota may begin to apply meanwhile.
        if self.life.line_of(view.number) is not None:
            self._paid[asked.correlation] = self._accounts(view, asked)

    def charged(self, row: Row) -> None:
        key = row.broker, row.quota_type, row.tags
        if row.kind not in ("record", "unrecord", "bound"):
            return
        if ":" in row.quota_type:  # a throttle tells no more than two periods of what is owed
            owed = self._owed.setdefault(key, Owed(row.now_ns))
            owed.told(row)
            # A bound that falls makes what is left longer, after some of it has been waited for.
            waited_ns = row.now_ns - self._heard_ns[key] if row.kind == "bound" else 0
            owed_ns = owed.ns(0)
            if owed_ns > 0:
                self._longest_ns[key] = max(self._longest_ns[key], waited_ns + owed_ns)
        if row.view is not None and row.kind == "record":
            self._longest_ns[key] = max(self._longest_ns[key], row.throttle_ms * NS_PER_MS)
            self._charged.add((row.view.number, key))
            if row.amount > 0:
                self._heard_ns[key] = row.now_ns

    def passing(self, view: View, asked: Asked) -> None:
        accounts = self._accounts(view, asked)
        self._look(view, asked, accounts)
        self._hear(accounts)
        self._paid.pop(asked.correlation, None)

    def _hear(self, accounts: list[Account]) -> None:
        for account in accounts:
            self._heard_ns[account] = self.life.loop.now_ns

    def closed(self, view: View) -> None:
        if self.life.line_of(view.number) is not None:  # its client got as far as that
            for asked in view.last_asked.values():
                self._hear(self._accounts(view, asked))

    def clock_set(self, by_ms: int) -> None:
        self._set_ns += abs(by_ms) * NS_PER_MS

    def crashed(self) -> None:
        self._longest_ns.clear()
        self._owed.clear()

    def tick(self) -> None:
        for view in self.life.watch.open.values():
            if view.waiting and not view.client_side.said_goodbye:
                asked = next(iter(view.waiting.values()))
                self._look(view, asked, self._accounts(view, asked))

    def _look(self, view: View, asked: Asked, accounts: list[Account]) -> None:
        life, now_ns = self.life, self.life.loop.now_ns
        if view.broker_ready_ns < 0 or asked.read_ns < 0 or view.unwritten or not view.client_open:
            return
        if any(one is not asked for one in view.flying.values()) or view.client_side.unsent:
            return
        accounts = accounts + self._paid.get(asked.correlation, [])
        since_ns = max(
            asked.read_ns, view.broker_ready_ns, view.muted_ns, view.last_answer_ns,
            view.passed_ns, view.client_side.drained_ns, life.calm_ns, life.requoted_ns,
            *(self._heard_ns[account] for account in accounts),
        )  # fmt: skip
        most_ns = max((self._longest_ns[account] for account in accounts), default=0.0)
        if asked.key in FETCHES:
            most_ns = min(most_ns, HOLD_NS)
        most_ns += self._set_ns + PATIENCE_NS
        if Waits._is_refused(view, asked):
            most_ns += REFUSED_NS
        if now_ns - since_ns > most_ns:
            since_ns = max(since_ns, self._unanswered_until(view, accounts))
        if now_ns - since_ns > most_ns:
            late = f"{(now_ns - since_ns) / 1e6:.0f} ms; {most_ns / 1e6:.0f} are the most"
            self.broken(f"{life.whose(view.number)} waits with {asked.correlation} (API "
                        f"{asked.key}), and nothing has happened for {late}")  # fmt: skip

    def _unanswered_until(self, view: View, accounts: list[Account]) -> int:
        """Return until when a newcomer waits behind requests that are at a broker, at most."""
        until_ns = 0
        new = {one for one in accounts if (view.number, one) not in self._charged}
        for other in self.life.watch.open.values() if new else ():
            if other is not view:
                for one in other.flying.values():
                    if not new.isdisjoint(self._accounts(other, one)):
                        until_ns = max(until_ns, one.passed_ns + UNANSWERED_NS)
        return min(until_ns, self.life.loop.now_ns)


class WholeAlone(Law):
    """Under a request quota, a request whose answer is read whole goes alone in flight."""

    name = "whole answers alone"

    def passing(self, view: View, asked: Asked) -> None:
        life = self.life
        flying = [one for one in view.flying.values() if one is not asked]
        if not flying or asked.begun_ns <= life.requoted_ns:
            return
        if asked.key not in WHOLE and not any(one.key in WHOLE for one in flying):
            return
        who = life.principals[view.number]
        if resolve(life.quotas, who, asked.client, TIMED)[1] < math.inf:
            self.broken(f"{life.whose(view.number)} had {asked.correlation} (API {asked.key}) "
                        f"passed on behind {[one.correlation for one in flying[:3]]}")  # fmt: skip


LAWS_OF_PASSING: Final[tuple[Any, ...]] = (
    ChargedWhenPassed,
    Told,
    ProduceGates,
    Silence,
    WholeAlone,
)

__all__ = ["LAWS_OF_PASSING", "ChargedWhenPassed", "ProduceGates", "Silence", "Told", "WholeAlone"]
