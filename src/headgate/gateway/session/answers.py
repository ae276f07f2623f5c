"""
Match the broker's answers to requests, and have fetches charged. Pass the answers on, with
throttle times and the gateway's addresses written into them.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import RemoteProtocolError
from headgate.gateway.charging.plans import RequestKind, RequestPlan
from headgate.gateway.session import authentication, fetch, produce, relay
from headgate.gateway.session.commands import Ask, PauseBroker, ResumeBroker
from headgate.gateway.session.relay import InFlight
from headgate.gateway.session.rewrite import Rewrite, Rewriter, Rewritten
from headgate.gateway.session.waits import HOLDS_ANSWER, HOLDS_TURN, HOLDS_WORK, QUESTION
from headgate.quota.key import PRODUCER_IDS
from headgate.wire import apis
from headgate.wire.messages import api_versions
from headgate.wire.messages.fetch import EndpointMasker
from headgate.wire.throttle import patch_throttle, read_throttle, throttle_offset

if TYPE_CHECKING:
    from headgate.gateway.session.session import Session

MAX_ANSWER_BYTES: Final = 268_435_456
"""Largest answer that is collected to be rewritten; Metadata of 100,000 partitions is 10 MB."""
SMALL_ANSWER_BYTES: Final = 65_536
"""A Fetch answer up to this size that comes in one read keeps its node endpoints, rewritten. In any
other they are masked."""
REWRITTEN: Final = 6
"""Bytes of an answer that is taken whole by a unit of work (``Session.budget``), as a power of
two."""
CHARGED: Final = 20
"""Units of work of an answer to another client id than the one before: it may be the first that is
charged to that client id, by a sensor and a line in the journal for each type of quota."""
OWN_APIS: Final = {apis.DESCRIBE_CLIENT_QUOTAS: (0, 1), apis.ALTER_CLIENT_QUOTAS: (0, 1)}
"""The gateway answers these, so it advertises them even where the upstream lacks them."""

_ANSWER: Final = struct.Struct(">ii").unpack_from
_INT: Final = struct.Struct(">i").unpack_from
_ANSWER_PEEK: Final = 24
"""Bytes of an answer needed to charge it: throttle time, error and session of a Fetch."""
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_PRODUCE: Final = RequestKind.PRODUCE
_KIND_FETCH: Final = RequestKind.FETCH
_KIND_VERSIONS: Final = RequestKind.VERSIONS
_KIND_SASL: Final = RequestKind.SASL
_KIND_NEW_PRODUCER_ID: Final = RequestKind.NEW_PRODUCER_ID
_KIND_SHARE_FETCH: Final = RequestKind.SHARE_FETCH


@dataclass(slots=True, eq=False)
class AnswerReader:
    """
    Reads the answers that one client's requests get.

    The session is an argument of its methods and isn't kept (``RequestReader``).

    Args:
        rewriter: replaces brokers' addresses in answers.
        pass_unknown: ``headgate.unknown.apis=pass``.
    """

    _rewriter: Rewriter
    _pass_unknown: bool
    _head: bytearray = field(default_factory=bytearray)  # of an answer that isn't all here
    _left: int = 0  # bytes that are still to come of the answer that has begun
    _untouched: bool = False  # the rest of that answer passes as it comes
    _collected: bytearray | None = None  # an answer that is taken whole
    _masker: EndpointMasker | None = None  # an answer passes through it
    _dropping: bool = False  # the rest of an answer that was emptied
    _kept: bytearray = field(default_factory=bytearray)  # an answer that waits for its turn

    @property
    def retained(self) -> int:
        """Bytes that are kept or collected here."""
        kept = len(self._head) + len(self._collected or b"") + len(self._kept)
        return kept + self._rewriter.pending_bytes

    @property
    def collects(self) -> bool:
        """Whether an answer is being collected."""
        return self._collected is not None

    @property
    def at_rest(self) -> bool:
        """Whether no answer is half read."""
        return not (self._left or self._head or self._rewriter.pending)

    @property
    def passing(self) -> bool:
        """Whether the answer to the oldest unanswered request is half passed on."""
        return bool(self._left) and self._collected is None

    # --- answers that wait for their turn ---------------------------------------------------

    def release(self, session: Session, now_ms: int) -> bool:
        """
        Go on with the answer that waits, if its turn has come.

        Returns:
            Whether the broker may be read again.

        Raises:
            RemoteProtocolError: the broker breaks the protocol.
        """
        kept = self._take_kept(session)
        self.feed(session, memoryview(kept), now_ms)
        return not session.holds & HOLDS_ANSWER

    def drop(self, session: Session) -> None:
        """Forget what is kept and collected: the conversation is over."""
        self._take_kept(session)
        self._head = bytearray()
        self._collected = self._rewriter.pending = None
        session.holds &= ~HOLDS_WORK

    def _take_kept(self, session: Session) -> bytearray:
        """Stop keeping the answer that waits; return its bytes."""
        kept, self._kept = self._kept, bytearray()
        session.holds &= ~HOLDS_TURN
        session.rules.gates.kept_bytes -= len(kept)
        return kept

    def _keep(self, session: Session, data: memoryview) -> None:
        """Keep the beginning of an answer until its turn; the rest is left unread."""
        if session.holds & HOLDS_WORK:
            self._head += data
            return
        if not session.holds & HOLDS_TURN:
            session.holds |= HOLDS_TURN
            session.commands.append(PauseBroker())
        self._kept += data  # more may come before the shell stops reading
        session.retains = True
        session.rules.gates.kept_bytes += len(data)

    # --- bytes ------------------------------------------------------------------------------

    def feed(self, session: Session, data: memoryview, now_ms: int) -> None:
        """Go through bytes answer by answer; raise RemoteProtocolError for a broken protocol."""
        if self._left > len(data) and self._untouched:
            self._left -= len(data)
            session.to_client.append(data)
            return
        if session.holds & HOLDS_ANSWER or session.tokens:
            self._set_aside(session, data, now_ms)
            return
        unanswered, out = session.unanswered, session.to_client
        charged, counts = session.context, session.rules.counts_requests
        run = pos = 0  # all before ``run`` is dealt with; from there up to ``pos`` it passes
        if self._left:
            run, pos = self._continue(session, data, now_ms)
        elif self._head:
            head, self._head = self._head, bytearray()
            head += data
            data = memoryview(head)
        end = len(data)
        while (avail := end - pos) >= 8 and session.closed is None and session.budget > 0:
            size, correlation_id = _ANSWER(data, pos)
            frame_bytes = size + 4
            if avail < frame_bytes and avail < _ANSWER_PEEK:
                break
            if size < 4 or not unanswered or unanswered[0].correlation_id != correlation_id:
                raise _unexpected(size, correlation_id, unanswered)
            asked = unanswered[0]
            plan, at = asked.plan, asked.plan.throttle_at
            session.budget -= 3 + (frame_bytes >> REWRITTEN) if plan.whole else 1
            if asked.context is not charged:
                charged = asked.context
                session.budget -= CHARGED
            answer: Any = None  # what goes to the client in place of what came
            if not (
                plan.kind is _KIND_PRODUCE
                and avail >= frame_bytes
                and produce.answered_in_place(session, data, pos, size, now_ms)
            ):
                if plan.whole:
                    if plan.kind is _KIND_SHARE_FETCH:
                        fetch.charge_share(session, frame_bytes, now_ms)
                    if avail < frame_bytes:
                        self._collect(session, plan, data[pos:], frame_bytes)
                        end = pos
                        break
                    answer, is_read = self._whole(session, data[pos : pos + frame_bytes], now_ms)
                    if not is_read:
                        self._head = bytearray(data[pos + frame_bytes :])
                        end = pos
                        break
                else:
                    if plan.kind is _KIND_FETCH:
                        answer, is_charged = fetch.answered(session, data, pos, size, asked, now_ms)
                        if not is_charged:
                            self._keep(session, data[pos:])
                            end = pos
                            break
                        if plan.mask and answer is None:
                            answer = self._masked(plan, data[pos : pos + frame_bytes], frame_bytes)
                    elif counts or asked.throttle or (0 < at <= size and _INT(data, pos + at)[0]):
                        relay.answered(session, data, pos, size, asked, now_ms)
                    if avail < frame_bytes:
                        self._begin(frame_bytes - avail, answer)
                    else:
                        unanswered.popleft()
            if answer is not None:
                out += (data[run:pos], answer) if run < pos else (answer,)
                run = pos + frame_bytes
            pos += frame_bytes
            session.asked_ms = now_ms  # a broker begins with the next when this one is answered
            if session.waits and pos <= end:
                if run < pos:
                    out.append(data[run:pos])
                    run = pos
                session.requests.answered(session, now_ms)
        if run < pos:
            out.append(data[run:pos] if run or pos < len(data) else data)
        if pos < end:
            self._keep_head(session, data[pos:])

    def _set_aside(self, session: Session, data: memoryview, now_ms: int) -> None:
        """Keep bytes behind an answer that waits, or take them for a bare SASL token."""
        if session.holds & HOLDS_ANSWER:
            self._keep(session, data)
        else:
            self._feed_token(session, data, now_ms)

    def _keep_head(self, session: Session, head: memoryview) -> None:
        """Keep what can't be read yet: too little, or too much for one callback."""
        self._head = bytearray(head)
        if session.budget <= 0:
            session.go_on_later()

    def go_on(self, session: Session, now_ms: int) -> None:
        """Read on in what came before and had to wait."""
        if self._head and not session.holds & HOLDS_ANSWER:
            head, self._head = self._head, bytearray()
            self.feed(session, memoryview(head), now_ms)

    def _continue(self, session: Session, data: memoryview, now_ms: int) -> tuple[int, int]:
        """Go on with the answer that has begun; return ``run`` and ``pos``."""
        out = session.to_client
        pos = min(self._left, len(data))
        self._left -= pos
        collected = self._collected
        if collected is not None:
            collected += data[:pos]
            if not self._left:
                self._collected = None
                answer, is_read = self._whole(session, memoryview(collected), now_ms, owned=True)
                if not is_read:
                    self._head = bytearray(data[pos:])
                    return len(data), len(data)
                out.append(collected if answer is None else answer)
                session.requests.answered(session, now_ms)
            return pos, pos
        run = 0
        if self._masker is not None:
            out.append(self._masker.feed(data[:pos]))
            run = pos
        elif self._dropping:
            run = pos
        if not self._left:
            self._masker = None
            session.unanswered.popleft()
            if run < pos and session.waits:
                out.append(data[:pos])
                run = pos
            session.requests.answered(session, now_ms)
        return run, pos

    def _begin(self, left: int, answer: Any) -> None:
        """Note that the beginning of an answer passes, or that its rest will be dropped."""
        self._left = left
        self._dropping = answer is not None and self._masker is None
        self._untouched = answer is None

    def _collect(
        self, session: Session, plan: RequestPlan, head: memoryview, frame_bytes: int
    ) -> None:
        """Begin to collect an answer."""
        if frame_bytes > MAX_ANSWER_BYTES:
            raise RemoteProtocolError(
                f"{plan.name}: an answer of {frame_bytes - 4} bytes", reason="upstream-oversized"
            )
        self._collected = bytearray(head)
        self._untouched = False
        self._left = frame_bytes - len(head)
        session.retains = True

    def _feed_token(self, session: Session, data: memoryview, now_ms: int) -> None:
        """Collect the answer to a bare SASL token; a broker that refuses closes instead."""
        if self._collected is None:
            self._collected = bytearray()
            session.retains = True
        self._collected += data
        if authentication.token_answered(session, self._collected):
            self._collected = None
            session.requests.answered(session, now_ms)

    # --- whole answers ----------------------------------------------------------------------

    def _whole(
        self, session: Session, frame: memoryview, now_ms: int, *, owned: bool = False
    ) -> tuple[Any, bool]:
        """
        Read the answer to the oldest request, and tell the throttle time in it.

        Args:
            session: whose request it is.
            frame: the answer.
            now_ms: epoch ms.
            owned: whether it lies in the session's own memory.

        Returns:
            The answer as the client shall see it (None: as it came), and whether it was read;
            False: it is read in slices first.
        """
        asked = session.unanswered[0]
        plan, merge = asked.plan, asked.merge
        if merge is None and plan.kind is not _KIND_VERSIONS:
            read = self._rewriter.at_once(plan, frame, now_ms, owned=owned)
            if isinstance(read, Rewrite):
                session.retains = True
                session.holds |= HOLDS_WORK
                session.commands += PauseBroker(), read
                return None, False
            if plan.kind is _KIND_SASL:
                authentication.answered(session, plan, frame)
            session.unanswered.popleft()
            return self._told(session, asked, frame, read, now_ms), True
        if merge is None:
            answer: Any = api_versions.narrow_response(
                bytes(frame), plan.version, self._pass_unknown, OWN_APIS
            )
        else:
            answer = merge(bytes(frame))
            if isinstance(answer, Ask):  # there is more to do first: ``Session.answer`` ends it
                session.question, session.passed_on = answer, session.unanswered.popleft()
                session.waits |= QUESTION
                return b"", True
        at = throttle_offset(plan.key, plan.version, answer)
        session.unanswered.popleft()
        return self._told(session, asked, frame, Rewritten(answer, (), at), now_ms), True

    def _told(
        self, session: Session, asked: InFlight, frame: Any, read: Rewritten, now_ms: int
    ) -> Any:
        """Tell what is left of a throttle in an answer; return it, None: as it came."""
        answer: Any = self._rewriter.shown(read)
        upstream = read_throttle(answer, read.throttle_at)
        plan, at = asked.plan, asked.plan.throttle_at
        if plan.kind is _KIND_NEW_PRODUCER_ID and bytes(frame[at + 4 :][:2]) == b"\0\0":
            # Only written down: KIP-936 charges the id's first Produce.
            session.rules.journal.note(
                "producer_id", session, asked.context, plan, PRODUCER_IDS.name, now_ms, 1.0,
                upstream_ms=upstream, size=asked.size,
            )  # fmt: skip
        told = session.tell(asked, upstream, now_ms)
        if told > upstream:
            if isinstance(answer, bytes):
                answer = bytearray(answer)
            answer = patch_throttle(answer, read.throttle_at, told)
        return None if answer is frame else answer

    def rewritten(self, session: Session, rewrite: Rewrite, result: Rewritten, now_ms: int) -> None:
        """
        Pass on an answer that was read in slices, and read what came behind it.

        Raises:
            RemoteProtocolError: the broker breaks the protocol.
        """
        if rewrite is not self._rewriter.pending:
            return
        self._rewriter.pending = None
        session.holds &= ~HOLDS_WORK
        session.commands.append(ResumeBroker())
        session.asked_ms += now_ms - rewrite.came_ms  # the slices' time isn't the broker's
        asked = session.unanswered.popleft()
        answer = self._told(session, asked, rewrite.frame, result, now_ms)
        session.to_client.append(rewrite.frame if answer is None else answer)
        session.requests.answered(session, now_ms)
        if session.closed is None:
            self.go_on(session, now_ms)

    def _masked(self, plan: RequestPlan, piece: memoryview, frame_bytes: int) -> Any:
        """Return a Fetch's answer, or its first piece, without the brokers' own addresses."""
        if len(piece) == frame_bytes <= SMALL_ANSWER_BYTES:
            return self._rewriter.whole(plan, piece)
        masker = EndpointMasker(plan.version)
        if len(piece) < frame_bytes:
            self._masker = masker
        return masker.feed(piece)


def _unexpected(size: int, correlation_id: int, unanswered: deque[InFlight]) -> RemoteProtocolError:
    """Return the error for an answer that isn't the next one due."""
    if size < 4:
        return RemoteProtocolError(f"an answer of {size} bytes", reason="upstream-malformed")
    if not unanswered:
        return RemoteProtocolError(
            f"an answer {correlation_id} to nothing", reason="upstream-unexpected"
        )
    return RemoteProtocolError(
        f"answer {correlation_id} where {unanswered[0].correlation_id} was due",
        reason="upstream-out-of-order",
    )
