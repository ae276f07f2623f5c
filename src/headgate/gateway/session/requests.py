"""
Find the requests in a client's bytes, and let the handler of each decide what happens to it. Hold
the bytes that a client sent too early, in order and up to a bound.

Most of a frame is never looked at. A request's header is read where it lies, the bytes are passed
on as slices of the buffer they came in, and requests that follow each other and all pass leave as
one slice.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, NoReturn

from headgate.errors import RemoteProtocolError
from headgate.gateway.charging.plans import MAX_VERSION, RAW_TOKEN, RequestKind, RequestPlan
from headgate.gateway.session import authentication, fetch, produce, questions, relay
from headgate.gateway.session.commands import Command, PauseClient, ResumeClient
from headgate.gateway.session.relay import (
    COLLECT,
    INCOMPLETE,
    PASSED,
    WAITS,
    Collecting,
    InFlight,
    Passing,
    new_in_flight,
)
from headgate.gateway.session.waits import (
    ANSWER,
    NO_REQUEST,
    QUESTION,
    THROTTLE,
    TURN,
    UPSTREAM,
    WORK,
)
from headgate.wire.apis import API_VERSIONS

if TYPE_CHECKING:
    from headgate.gateway.session.session import Session

HELD_BYTES: Final = 262_144
"""Most bytes held for a waiting client before reading stops: one read buffer of the shell."""
RESUME_BYTES: Final = HELD_BYTES // 2
"""Reading goes on when no more than this is held, so it doesn't stop and start for each request."""
SMALL_BYTES: Final = 4_096
"""What comes in smaller pieces than this is joined to the piece before it."""


class HeldBytes:
    """
    The bytes of one client that can't be handled yet.

    Args:
        commands: of the session; the commands to stop reading and to go on are added to it.

    Attributes:
        pieces: what is held, in its order.
        size: how many bytes that are.
    """

    __slots__ = ("_commands", "_paused", "pieces", "size")

    def __init__(self, commands: list[Command]) -> None:
        self._commands = commands
        self.pieces: deque[memoryview] = deque()
        self._paused = False
        self.size = 0

    def add(self, data: memoryview) -> None:
        """Keep a copy of bytes that just came, behind what is held already."""
        pieces = self.pieces
        if pieces and len(pieces[-1]) + len(data) <= SMALL_BYTES:
            # A piece takes a few hundred bytes besides: byte by byte that would be a hundred MB.
            pieces.append(memoryview(bytearray(pieces.pop()) + data))
        else:
            pieces.append(memoryview(bytearray(data)))
        self._grown(len(data))

    def put_back(self, data: memoryview, *, owned: bool) -> None:
        """
        Keep bytes that can't be taken yet, before what is held already.

        Args:
            data: the bytes.
            owned: whether they lie in the session's own memory. Others are copied, because the
                read buffer they lie in is about to be used again. The end of a much longer piece is
                copied too: it would keep all of that piece, a hundred megabytes at most, and nobody
                would count them.
        """
        if owned and data.nbytes < memoryview(data.obj).nbytes // 2:
            owned = False
        self.pieces.appendleft(data if owned else memoryview(bytearray(data)))
        self._grown(len(data))

    def take(self) -> memoryview:
        """Return the first piece, which isn't held any more; empty when nothing is held."""
        if not self.pieces:
            return memoryview(b"")
        piece = self.pieces.popleft()
        self.size -= len(piece)
        return piece

    def clear(self) -> None:
        """Drop all of it."""
        self.pieces.clear()
        self.size = 0

    def resume(self) -> None:
        """Resume reading from the client if few enough bytes are held."""
        if self._paused and self.size <= RESUME_BYTES:
            self._paused = False
            self._commands.append(ResumeClient())

    def _grown(self, by_bytes: int) -> None:
        self.size += by_bytes
        if self.size > HELD_BYTES and not self._paused:
            self._paused = True
            self._commands.append(PauseClient())


MAX_IN_FLIGHT: Final = 2_000
"""Most unanswered requests of one connection; then it waits until all are answered. Clients have 5
to a few hundred, so this slows none of them. It bounds what a client that never reads its answers
takes in memory, to a quarter of a megabyte."""
MAX_UNKNOWN_IN_FLIGHT: Final = 32
"""The same before authentication: clients have one."""
REPLAYS: Final = 100
"""How many of the last unanswered requests are searched when a correlation id isn't above the last
one. Clients count their ids up, so only others cause a search, and this bounds what it costs."""
CLIENT_ID: Final = 40
"""Units of work (``Session.budget``) that another client id costs. Under three default quotas
a new one takes 0.2 ms: its quotas are looked up, and the one before it is charged."""
COLLECTED: Final = 4
"""Bytes of a collected request by a unit of work, as a power of two."""
MIN_REQUEST_BYTES: Final = 10
"""Key, version, correlation id and the length of a client id: the shortest header (v1)."""

_HTTP_BEGINS: Final = frozenset(
    (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI ")
)
"""How a request of HTTP begins, read where Kafka has a size."""

_INT: Final = struct.Struct(">i").unpack_from
_REQUEST: Final = struct.Struct(">iIih").unpack_from
_HEAD_BYTES: Final = 14
"""A request's header up to the client id."""
_BODY_PEEK: Final = 64
"""Bytes after the request header that suffice to read acks, or a fetch's limits, in place."""
_BEFORE_LOGIN: Final = frozenset({RequestKind.SASL, RequestKind.VERSIONS, RequestKind.OWN_VERSIONS})
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_RELAY: Final = RequestKind.RELAY
_KIND_SHARE_FETCH: Final = RequestKind.SHARE_FETCH

_ASKED: Final = (RequestKind.ASK, RequestKind.DRAFT, RequestKind.OWN_VERSIONS)
Handler = Callable[["Session", memoryview, int, int, int, RequestPlan, int, int], int]
_HANDLER_OF: Final[Mapping[RequestKind, Handler]] = {
    RequestKind.PRODUCE: produce.on_request,
    RequestKind.FETCH: fetch.on_request,
    RequestKind.SHARE_FETCH: fetch.on_share_request,
    RequestKind.SASL: authentication.on_request,
    RequestKind.MUTATION: questions.on_mutation,
    **dict.fromkeys(_ASKED, questions.on_request),
}
_HANDLERS: Final = tuple(_HANDLER_OF.get(kind, relay.on_request) for kind in RequestKind)
_TAKE: Final[Mapping[RequestKind, Callable[[Session, RequestPlan, memoryview, int], None]]] = {
    RequestKind.SHARE_FETCH: fetch.take_share_fetch,
    RequestKind.SASL: authentication.take,
    **dict.fromkeys((*_ASKED, RequestKind.MUTATION), questions.take),
}


class RequestReader:
    """
    Reads one client's requests.

    The session is an argument of its methods and isn't kept: a circle of references would outlive
    the connection until the garbage collector comes.

    Args:
        commands: of the session.
        plans: how each API is handled, by ``key << 16 | version``.

    Attributes:
        held: bytes that wait for their turn.
    """

    __slots__ = ("_client_raw", "_head", "_plans", "_wanted", "held")

    def __init__(self, commands: list[Command], plans: Mapping[int, RequestPlan]) -> None:
        self._plans = plans
        self._head = bytearray()  # of a request whose header isn't complete
        self._wanted = 0  # bytes of it before it is read again
        self._client_raw: bytes | None = None  # the client id that the context was asked for
        self.held = HeldBytes(commands)

    def retained(self, session: Session) -> int:
        """Bytes that are held or collected here: copies."""
        begun = session.begun
        collected = len(begun.frame) if isinstance(begun, Collecting) else 0
        return self.held.size + len(self._head) + collected

    def at_rest(self, session: Session) -> bool:
        """Whether no request is half read."""
        return session.begun is None and not self._head

    def drop(self) -> None:
        """Forget what is held: the conversation is over."""
        self.held.clear()
        self._head = bytearray()

    def open(self, session: Session, now_ms: int) -> None:
        """Begin: the upstream connection is up."""
        session.waits &= ~UPSTREAM
        self.go_on(session, now_ms)

    def go_on(self, session: Session, now_ms: int) -> None:
        """Take held bytes if nothing keeps the client waiting any more."""
        held = self.held
        while session.closed is None:
            waits = session.waits
            if waits & (UPSTREAM | THROTTLE | QUESTION) or (session.unanswered and waits & ANSWER):
                session.step_aside(now_ms)
                return
            session.waits &= WORK
            if not held.size:
                break
            try:
                self.feed(session, held.take(), now_ms, owned=True)
            except RemoteProtocolError as error:
                session.end(error.reason, f"from the client: {error}")
                return
            if session.waits & NO_REQUEST:
                break
            if session.budget <= 0:
                if held.size:  # another piece, of which nothing was taken yet
                    session.go_on_later()
                break
        if session.closed is None:
            held.resume()

    def answered(self, session: Session, now_ms: int) -> None:
        """An answer is on its way: go on if nothing else is due."""
        session.answer_sent = session.rules.counts_requests
        session.asked_ms = now_ms  # a broker begins with a request when the one before is answered
        if not session.waits:
            return
        if not session.unanswered and session.question is None:
            session.waits &= ~ANSWER
        self.go_on(session, now_ms)

    # --- bytes ------------------------------------------------------------------------------

    def feed(self, session: Session, data: memoryview, now_ms: int, *, owned: bool) -> None:
        """
        Go through bytes request by request.

        Args:
            session: whose bytes they are.
            data: the bytes.
            now_ms: epoch ms.
            owned: whether they lie in the session's own memory.

        Raises:
            RemoteProtocolError: the client breaks the protocol; its connection is to be closed.
        """
        begun = session.begun
        if begun is not None and begun.left > len(data) and begun.passes_untouched:
            begun.left -= len(data)
            session.to_broker.append(data)
            return
        contexts, unanswered, plans = session.rules.contexts, session.unanswered, self._plans
        began_ms, counts = session.partial_since_ms, session.rules.counts_requests
        run = pos = 0  # all before ``run`` is dealt with; from there up to ``pos`` it passes
        if begun is not None or self._head or session.tokens:
            run, pos, data, owned = self._resume(session, data, now_ms, owned=owned)
        end = len(data)
        verdict = PASSED
        try:
            while pos < end:
                if session.waits & NO_REQUEST or session.budget <= 0:
                    verdict = WAITS
                    break
                avail = end - pos
                if avail < _HEAD_BYTES:
                    if avail >= 4:
                        self._check_size(session, _INT(data, pos)[0])
                    break
                size, key_version, correlation_id, client_length = _REQUEST(data, pos)
                if size > session.max_bytes or size < MIN_REQUEST_BYTES:
                    self._check_size(session, size)
                plan = plans.get(key_version) or self._unknown(session, key_version)
                frame_bytes = size + 4
                header = 14 + client_length if client_length > 0 else 14
                if header > frame_bytes:
                    raise _bad_client_id(plan, client_length, size)
                if avail < frame_bytes and avail < header + _BODY_PEEK:
                    break
                raw = data[pos + 14 : pos + header].tobytes()
                if raw != self._client_raw or contexts.epoch != session.context.epoch:
                    self._use_client_id(session, raw)
                if not unanswered:
                    session.asked_ms = now_ms
                elif correlation_id <= unanswered[-1].correlation_id:
                    self._check_replay(session, correlation_id)
                context = session.context
                unpaid = context.limited and not session.debts_taken & plan.bit
                if (
                    (len(unanswered) >= MAX_UNKNOWN_IN_FLIGHT or not session.known)
                    and self._must_stop(session, plan, key_version)
                ) or (unpaid and self._owes(session, plan, now_ms)):
                    verdict = WAITS
                    break
                if plan.kind is _KIND_RELAY and not counts and avail >= frame_bytes:
                    asked = (correlation_id, plan, size, context, None, None)
                    unanswered.append(new_in_flight(InFlight, asked))
                else:
                    verdict = _HANDLERS[plan.kind](
                        session, data, pos, header, size, plan, correlation_id, now_ms
                    )
                    if verdict == COLLECT:
                        if run < pos:
                            session.to_broker.append(data[run:pos])
                        run = pos
                        run = pos = self._collect(session, plan, data, pos, frame_bytes, now_ms)
                        verdict = PASSED
                        continue
                    if verdict:
                        break
                session.requests_taken += 1
                session.budget -= 1
                pos += frame_bytes
        finally:  # what came before an error was well, and counts
            if run < pos:
                session.to_broker.append(data[run:pos] if run or pos < end else data)
        if pos < end:
            if verdict == WAITS:
                self._put_back(session, data[pos:], now_ms, owned=owned)
            else:
                self._keep_head(session, data[pos:], verdict)
                # A header that dribbles in began when its first byte came.
                session.partial_since_ms = began_ms if began_ms and not pos else now_ms
        if session.repays and session.debts is not None:
            session.debts.reads(not self.at_rest(session), now_ms)

    def _put_back(self, session: Session, data: memoryview, now_ms: int, *, owned: bool) -> None:
        """Hold bytes until their turn; until a later callback if this one has done enough."""
        if session.waits & (ANSWER | THROTTLE):
            session.step_aside(now_ms)
        self.held.put_back(data, owned=owned)
        session.retains = True
        if session.budget <= 0:
            session.go_on_later()

    def _keep_head(self, session: Session, head: memoryview, verdict: int) -> None:
        """Keep the first bytes of a request until there are more."""
        self._head = bytearray(head)
        if verdict == INCOMPLETE:
            # To read them again with each byte that comes could take a minute.
            most = min(_INT(head)[0] + 4, produce.MAX_HEAD_BYTES)
            self._wanted = min(2 * len(head), most)
            session.retains = True

    def _resume(
        self, session: Session, data: memoryview, now_ms: int, *, owned: bool
    ) -> tuple[int, int, memoryview, bool]:
        """Go on with what began before; return ``run``, ``pos``, the bytes, and ``owned``."""
        begun = session.begun
        run = pos = 0
        if begun is not None:
            pos = min(begun.left, len(data))
            begun.left -= pos
            if isinstance(begun, Collecting):
                begun.frame += data[:pos]
                run = pos
                if begun.left:
                    return run, pos, data, owned
                session.begun = None
                if begun.plan.kind is _KIND_SHARE_FETCH:  # whether it is held is decided now
                    session.requests_taken -= 1
                    session.partial_since_ms = 0
                    begun.frame += data[pos:]  # in place: it may be a hundred megabytes
                    return 0, 0, memoryview(begun.frame), True
                _TAKE[begun.plan.kind](session, begun.plan, memoryview(begun.frame), now_ms)
            else:
                if begun.walker is not None:
                    self._walk_on(session, begun, data[:pos])
                if begun.left:
                    return run, pos, data, owned
                session.begun = None
                relay.pass_rest(session, begun, now_ms)
            session.partial_since_ms = 0
        elif self._head:
            head = self._head
            head += data
            if len(head) < self._wanted:
                return len(data), len(data), data, owned
            self._head, self._wanted = bytearray(), 0
            session.partial_since_ms = 0
            data, owned = memoryview(head), True
        if session.tokens and not session.waits & NO_REQUEST:
            run = pos = self._read_token(session, data, now_ms)
        return run, pos, data, owned

    def _walk_on(self, session: Session, passing: Passing, piece: memoryview) -> None:
        """Read producer ids from more of a Produce as it passes."""
        walker = passing.walker
        assert walker is not None
        try:
            walker.feed(piece)
            if not passing.left:
                walker.end()
        except RemoteProtocolError:
            session.to_broker.append(piece)
            raise

    def _read_token(self, session: Session, data: memoryview, now_ms: int) -> int:
        """Take a bare SASL token: a length, then bytes; return where what follows begins."""
        if len(data) < 4:
            self._head = bytearray(data)
            session.partial_since_ms = now_ms
            return len(data)
        size = _INT(data)[0]
        if not 0 <= size <= min(session.max_bytes, authentication.MAX_REQUEST_BYTES):
            raise RemoteProtocolError(f"a SASL token of {size} bytes", reason="oversized")
        return self._collect(session, RAW_TOKEN, data, 0, size + 4, now_ms)

    def _collect(
        self,
        session: Session,
        plan: RequestPlan,
        data: memoryview,
        pos: int,
        frame_bytes: int,
        now_ms: int,
    ) -> int:
        """Take a request whole, now or when its rest has come; return where the next begins."""
        session.budget -= frame_bytes >> COLLECTED
        if plan is not RAW_TOKEN:
            session.requests_taken += 1
        frame = data[pos : pos + frame_bytes]
        left = frame_bytes - len(frame)
        if left:
            session.begun = Collecting(plan, bytearray(frame), left)
            session.retains = True
            session.partial_since_ms = now_ms
        else:
            _TAKE[plan.kind](session, plan, frame, now_ms)
        return pos + len(frame)

    # --- headers ----------------------------------------------------------------------------

    def _use_client_id(self, session: Session, raw: bytes) -> None:
        """The client id or the rules have changed: ask again who is charged."""
        session.budget -= CLIENT_ID
        if raw != self._client_raw:
            # Bytes that aren't UTF-8 become U+FFFD, as in a broker.
            session.client_id = raw.decode("utf-8", "replace")
            self._client_raw = raw
        session.use_context()

    def _must_stop(self, session: Session, plan: RequestPlan, key_version: int) -> bool:
        """Whether too many requests are unanswered; raise for one before authentication."""
        waiting = len(session.unanswered)
        if waiting >= (MAX_IN_FLIGHT if session.known else MAX_UNKNOWN_IN_FLIGHT):
            relay.wait_for_answers(session)
            return True
        if not session.known and plan.kind not in _BEFORE_LOGIN:
            self._refuse(session, key_version)
        return False

    def _owes(self, session: Session, plan: RequestPlan, now_ms: int) -> bool:
        """Whether the client waits for closed connections' debts (``lanes``); if so, mute it."""
        until_ms = session.debts_end_ms(plan, now_ms)
        if session.closed is not None:
            return True
        debts = session.debts
        if debts is not None and debts.waits_at is not None:  # nobody knows how long
            session.step_aside(now_ms)
            session.waits |= TURN
            return True
        if until_ms <= now_ms:
            return False
        lanes = tuple(session.rules.lanes_of(session.context, plan.owes))
        session.wait_for(until_ms - now_ms, session.told, now_ms, (plan.owes, lanes))
        return True

    def _check_replay(self, session: Session, correlation_id: int) -> None:
        """Close for an id that an unanswered request has: answers couldn't be told apart."""
        # Differs: a correlation id again before its answer closes; a broker answers both. No client
        # of Kafka's does that.
        last = islice(reversed(session.unanswered), REPLAYS)
        if any(asked.correlation_id == correlation_id for asked in last):
            raise RemoteProtocolError(
                f"correlation id {correlation_id} again before its answer",
                reason="replayed-correlation-id",
            )

    def _check_size(self, session: Session, size: int) -> None:
        if size > session.max_bytes:
            if size.to_bytes(4, "big") in _HTTP_BEGINS:
                raise RemoteProtocolError(
                    "an HTTP request at a port for Kafka clients; the gateway's HTTP port is that "
                    "of headgate.http.listener",
                    reason="oversized",
                )
            raise RemoteProtocolError(
                f"a request of {size} bytes; at most {session.max_bytes} are taken"
                + ("" if session.known else " before authentication"),
                reason="oversized",
            )
        if size < MIN_REQUEST_BYTES:
            raise RemoteProtocolError(f"a request of {size} bytes; none is that short")

    def _unknown(self, session: Session, key_version: int) -> RequestPlan:
        """Let any version of ApiVersions pass, as a broker answers all; refuse the rest."""
        if key_version >> 16 != API_VERSIONS:
            self._refuse(session, key_version)
        return self._plans[API_VERSIONS << 16 | MAX_VERSION]

    def _refuse(self, session: Session, key_version: int) -> NoReturn:
        """Close for an API that can't pass; a broker does the same."""
        key, version = key_version >> 16, key_version & 0xFFFF
        if not session.known and key_version in self._plans:
            raise RemoteProtocolError(f"API {key} before authentication", reason="unauthenticated")
        # Looked up and not searched for: if unknown APIs are passed on, plans are 60,000.
        versions = range(key << 16, (key << 16) + MAX_VERSION + 1)
        known = not self._plans.keys().isdisjoint(versions)
        raise RemoteProtocolError(
            f"API {key} v{version} isn't offered here",
            reason="unsupported-version" if known else "unknown-api",
        )


def _bad_client_id(plan: RequestPlan, client_length: int, size: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{plan.name} v{plan.version}: a client id of {client_length} bytes in a request of {size}"
    )
