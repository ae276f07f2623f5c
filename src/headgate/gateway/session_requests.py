"""
A session's client side: requests found in the bytes, passed on, held or refused.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import Final, NoReturn

from headgate.errors import RemoteProtocolError
from headgate.gateway.commands import ResumeClient, WakeAt
from headgate.gateway.headroom import ALONE, EARLY, WAIT, Headroom
from headgate.gateway.mute import NOT_MUTED, RESPONSE_SENT
from headgate.gateway.plans import MAX_VERSION, RAW_TOKEN, Kind, Plan
from headgate.gateway.session_state import HELD_BYTES, INT, PENDING
from headgate.gateway.session_taken import Taken
from headgate.wire.apis import API_VERSIONS
from headgate.wire.header import parse_request_header
from headgate.wire.messages import fetch, produce

MAX_IN_FLIGHT: Final = 10_000
"""Unanswered requests of one pipelined connection; then it waits until all are answered. Clients
have 5 to a few hundred, so this bounds a peer that never reads and slows nobody."""
MAX_ASKED_BYTES: Final = 1 << 20
"""Longest request that is decoded field by field, on the event loop: a million bytes may hold as
many fields, which take a second and more."""
RESUME_BYTES: Final = HELD_BYTES // 2
"""A client is read again when no more than this is held: not at every request."""
REPLAYS: Final = 100
"""So many of the last unanswered requests are looked through where ids don't go up: the clients'
ids do, so this costs only who repeats himself, and him a bounded amount."""
MIN_REQUEST_BYTES: Final = 10
"""Key, version, correlation id and the length of a client id: the shortest header (v1)."""

_REQUEST: Final = struct.Struct(">iIih").unpack_from
_SHORT: Final = struct.Struct(">h").unpack_from
_ACKS: Final = struct.Struct(">hh").unpack_from
_BODY_PEEK: Final = 64
"""Bytes after the request header that suffice to read acks, or a fetch's limits, in place."""
_BEFORE_LOGIN: Final = frozenset({Kind.SASL, Kind.VERSIONS, Kind.OWN_VERSIONS})
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_FETCH: Final = Kind.FETCH
_KIND_PRODUCE: Final = Kind.PRODUCE
_KIND_SASL: Final = Kind.SASL
_KIND_ASK: Final = Kind.ASK
_KIND_MUTATION: Final = Kind.MUTATION
_KIND_DRAFT: Final = Kind.DRAFT


class Requests(Taken):
    """What a session does with what its client says."""

    __slots__ = ()

    def _maybe_go_on(self, now_ms: int) -> None:
        """Take held bytes if nothing keeps the client waiting any more."""
        while self.closed is None:
            if not self._open or self._asked is not None or self.throttled_until_ms:
                return
            waiting = self._barrier or self.mute.state is not NOT_MUTED
            if waiting and self._inflight:
                return
            self._barrier = False
            if not self.mute.try_unmute():
                return
            self._blocked = False
            self._stop_waiting()
            if not self._held:
                break
            held = self._held.popleft()
            self._held_size -= len(held)
            try:
                self._feed_client(held, now_ms, owned=True)
            except RemoteProtocolError as error:
                self._close(error.reason, f"from the client: {error}")
                return
            if self._blocked:
                break
        if self._paused and self._held_size <= RESUME_BYTES and self.closed is None:
            self._paused = False
            self.commands.append(ResumeClient())

    def _feed_client(self, data: memoryview, now_ms: int, *, owned: bool) -> None:
        """Go through bytes frame by frame; everything before ``run`` is dealt with."""
        out = self.to_broker
        inflight = self._inflight
        end = len(data)
        run = pos = 0
        began_ms = self.partial_since_ms
        size: int
        key_version: int
        correlation_id: int
        client_length: int
        if self._left:
            pos = self._left if self._left < end else end
            self._left -= pos
            taken = self._taken
            if taken is not None:
                taken += data[:pos]
                run = pos
                if self._left:
                    return
                self._taken = None
                self.partial_since_ms = 0
                assert self._taken_plan is not None
                self._take(self._taken_plan, memoryview(taken), now_ms)
            elif self._left:
                out.append(data)
                return
            self.partial_since_ms = 0
            if taken is None and (self._silent or self._alone):
                self._request_in(now_ms)
        elif self._head:
            self.partial_since_ms = 0
            data = memoryview(bytearray(self._head) + data)
            self._head = b""
            owned = True
            end = len(data)
        if self._raw and not self._blocked:
            self._feed_token(data[pos:], now_ms, owned=owned)
            return

        while pos < end:
            if self._blocked:
                if run < pos:
                    out.append(data[run:pos])
                self._put_back(data[pos:], owned=owned)
                return
            avail = end - pos
            if avail < 14:
                if avail >= 4:
                    self._check_size(INT.unpack_from(data, pos)[0])
                break
            size, key_version, correlation_id, client_length = _REQUEST(data, pos)
            if size > self._max_bytes or size < MIN_REQUEST_BYTES:
                self._check_size(size)
            plan = self._plans.get(key_version)
            if plan is None:
                plan = self._unknown(key_version)
            frame_bytes = size + 4
            header = 14 + client_length if client_length > 0 else 14
            if header > frame_bytes:
                raise RemoteProtocolError(
                    f"{plan.name} v{plan.version}: a client id of {client_length} bytes in a "
                    f"request of {size}"
                )
            if avail < frame_bytes and avail < header + _BODY_PEEK:
                break
            raw = data[pos + 14 : pos + header].tobytes()
            if raw != self._client_raw or self.rules.epoch != self._epoch:
                self._new_context(raw)
            kind = plan.kind
            waiting = len(inflight)
            if not waiting:
                self.asked_ms = now_ms
            elif correlation_id <= inflight[-1][0]:
                self._check_replay(correlation_id)
            if waiting >= MAX_IN_FLIGHT:
                if run < pos:
                    out.append(data[run:pos])
                self._barrier = self._blocked = True
                self._put_back(data[pos:], owned=owned)
                return
            if not self._known and kind not in _BEFORE_LOGIN:
                self._refuse(key_version)
            context = self.context
            alone = context.alone
            if kind:
                if self._must_wait(kind):
                    if run < pos:
                        out.append(data[run:pos])
                    self._barrier = self._blocked = True
                    self._put_back(data[pos:], owned=owned)
                    return
                if self._must_take(plan):
                    if size > MAX_ASKED_BYTES and (
                        kind is _KIND_ASK or kind is _KIND_MUTATION or kind >= _KIND_DRAFT
                    ):
                        # Differs: what the gateway reads whole is 1 MiB at most, or it closes.
                        raise RemoteProtocolError(
                            f"{plan.name} of {size} bytes; at most {MAX_ASKED_BYTES} are read",
                            reason="oversized",
                        )
                    self.requests += 1
                    if run < pos:
                        out.append(data[run:pos])
                    if avail < frame_bytes:
                        self._taken = bytearray(data[pos:])
                        self._taken_plan = plan
                        self._left = frame_bytes - avail
                        self.partial_since_ms = now_ms
                        return
                    run = pos + frame_bytes
                    self._take(plan, data[pos:run], now_ms)
                    pos = run
                    continue
                if kind is _KIND_FETCH:
                    limit = self.rules.fetch_limit(context, now_ms)
                    if limit is not None:
                        view = data[pos : pos + min(avail, frame_bytes)]
                        body = parse_request_header(view)[4]
                        fetch.cap_request(view, plan.version, body, limit)
                        if self.rules.empties_fetches and plan.version >= 7:
                            self._session_of(view, plan.version, body)
                    alone = context.fetches_alone
                elif kind is _KIND_PRODUCE:
                    at = pos + header
                    if header + 4 <= frame_bytes:
                        # No transactional id, and no tags in a flexible header: acks are next.
                        none, acks = _ACKS(data, at)
                        if none != (-1 if plan.version < 9 else 0) or plan.version < 3:
                            acks = _acks(
                                data[pos : pos + min(avail, frame_bytes)], plan.version, header
                            )
                    else:
                        acks = _acks(
                            data[pos : pos + min(avail, frame_bytes)], plan.version, header
                        )
                    silent = not acks
                    headroom = context.headroom
                    way = EARLY
                    if headroom is not None:
                        way = headroom.admit(size)
                    elif context.produces_alone:
                        alone = True
                        way = ALONE
                    # Without an answer it is charged at once, so what is in flight comes first.
                    if way == WAIT or (silent and waiting and way == ALONE):
                        if run < pos:
                            out.append(data[run:pos])
                        self._barrier = self._blocked = True
                        if headroom is not None:
                            self._await(headroom, size, way, now_ms)
                        self._put_back(data[pos:], owned=owned)
                        return
                    if way == ALONE:
                        alone = True
                    if silent:
                        self._silent = size
                        self._silent_way = way
                        self._taken_plan = plan
                    else:
                        self._lone = way == ALONE and headroom is not None
            self.requests += 1
            if not self._silent:
                inflight.append((correlation_id, plan, size, context, None, None))
            pos += frame_bytes
            if pos > end:
                self._left = pos - end
                self._alone = alone
                self.partial_since_ms = now_ms
                out.append(data[run:])
                return
            if self._silent or alone:
                self._alone = alone
                self._request_in(now_ms)
        if run < pos:
            out.append(data[run:pos] if run or pos < end else data)
        if pos < end:
            self._head = bytes(data[pos:])
            # A header that dribbles in began when its first byte came.
            self.partial_since_ms = began_ms if began_ms and not pos else now_ms

    def _feed_token(self, data: memoryview, now_ms: int, *, owned: bool) -> None:
        """Take a bare SASL token: a length, then what only the mechanism understands."""
        if len(data) < 4:
            self._head = bytes(data)
            self.partial_since_ms = now_ms
            return
        size = INT.unpack_from(data)[0]
        if not 0 <= size <= self._max_bytes:
            raise RemoteProtocolError(f"a SASL token of {size} bytes", reason="oversized")
        end = size + 4
        if len(data) < end:
            self._taken = bytearray(data)
            self._taken_plan = RAW_TOKEN
            self._left = end - len(data)
            self.partial_since_ms = now_ms
            return
        self._take(RAW_TOKEN, data[:end], now_ms)
        if len(data) > end:
            self._put_back(data[end:], owned=owned)

    def _await(self, headroom: Headroom, size: int, way: int, now_ms: int) -> None:
        """Let a request that might be throttled wait for what is in flight."""
        if way != WAIT:
            headroom.release(size, way)
            return
        headroom.waiting += 1
        self._awaited = headroom
        if not self._inflight:
            self.commands.append(WakeAt(now_ms + 1))  # other connections' early ones

    def _must_wait(self, kind: Kind) -> bool:
        """Whether a request can't be taken before all earlier ones are answered."""
        if not self._inflight:
            return False
        return (
            kind is _KIND_SASL
            or kind is _KIND_ASK
            or kind >= _KIND_DRAFT
            or (kind is _KIND_MUTATION and self.rules.counts_mutations)
        )

    def _must_take(self, plan: Plan) -> bool:
        """Whether a request is collected before anything is done with it."""
        return (
            plan.take
            or (plan.kind is _KIND_MUTATION and self.rules.counts_mutations)
            or (plan.kind is _KIND_PRODUCE and self.rules.counts_producer_ids)
        )

    def _new_context(self, raw: bytes) -> None:
        """The client id or the rules have changed: ask anew who is charged."""
        if raw != self._client_raw:
            # Bytes that aren't UTF-8 become U+FFFD, as in a broker.
            self.client_id = raw.decode("utf-8", "replace")
            self._client_raw = raw
        self._epoch = self.rules.epoch
        self.context = self.rules.context(self.identity.principal, self.client_id)

    def _check_replay(self, correlation_id: int) -> None:
        """Close for an id that an unanswered request has: answers couldn't be told apart."""
        # Differs: a correlation id again before its answer closes; a broker answers both. No client
        # of Kafka's does that.
        if any(asked[0] == correlation_id for asked in islice(reversed(self._inflight), REPLAYS)):
            raise RemoteProtocolError(
                f"correlation id {correlation_id} again before its answer",
                reason="replayed-correlation-id",
            )

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise RemoteProtocolError(
                f"a request of {size} bytes; at most {self._max_bytes} are taken"
                + ("" if self._known else " before authentication"),
                reason="oversized",
            )
        if size < MIN_REQUEST_BYTES:
            raise RemoteProtocolError(f"a request of {size} bytes; none is that short")

    def _unknown(self, key_version: int) -> Plan:
        """Let any version of ApiVersions pass: a broker answers all of them with its range."""
        if key_version >> 16 != API_VERSIONS:
            self._refuse(key_version)
        return self._plans[API_VERSIONS << 16 | MAX_VERSION]

    def _refuse(self, key_version: int) -> NoReturn:
        """Close for an API that can't pass; a broker does the same."""
        key, version = key_version >> 16, key_version & 0xFFFF
        if not self._known and key_version in self._plans:
            raise RemoteProtocolError(f"API {key} before authentication", reason="unauthenticated")
        known = any(other >> 16 == key for other in self._plans)
        raise RemoteProtocolError(
            f"API {key} v{version} isn't offered here",
            reason="unsupported-version" if known else "unknown-api",
        )

    def _session_of(self, view: memoryview, version: int, body: int) -> None:
        """Note a fetch's session; have a full one close the session its client never heard of."""
        head = fetch.read_request(view, version, body)
        self._fetch_session = head.session_id
        if self._lost_session and not head.session_id and head.session_epoch == 0:
            fetch.set_session(view, version, body, self._lost_session, 0)
            self._lost_session = 0

    def _request_in(self, now_ms: int) -> None:
        """A complete request has been passed on, of a limited client or one without an answer."""
        size = self._silent
        if not size:
            self._alone = False
            if self._inflight:  # else it was answered before it was all in: no broker does that
                self._block()
            return
        self._silent = 0
        self._alone = False
        assert self._taken_plan is not None
        headroom = self.context.headroom
        if headroom is not None:
            headroom.release(size, self._silent_way)
        throttle = self.rules.produce(
            self, self.context, self._taken_plan, size, None, 0, False, now_ms
        )
        if throttle:
            self._start_throttle(throttle, now_ms)
            if not self._inflight:
                self.mute.apply(RESPONSE_SENT)

    def _sent(self, throttle: int, now_ms: int) -> None:
        """An answer is on its way: start its throttle, go on when nothing else is due."""
        self._network_due = self.rules.counts_requests
        self.asked_ms = now_ms  # a broker begins with a request when the one before is answered
        if throttle:
            self._start_throttle(throttle, now_ms)
        if not self._blocked:
            return
        if not self._inflight and self._asked is None and self.mute.state in PENDING:
            self.mute.apply(RESPONSE_SENT)
        self._maybe_go_on(now_ms)


def _acks(view: memoryview, version: int, header: int) -> int:
    """Read a Produce request's acks from its first bytes."""
    if header + 2 > len(view):
        raise RemoteProtocolError("a Produce request that ends inside its header")
    if version < 3:
        at = header
    elif version < 9:
        length = _SHORT(view, header)[0]
        at = header + 2 + (length if length > 0 else 0)
    elif not view[header]:
        length = view[header + 1]
        if length > 127:
            return produce.acks(view, version, header + 1)
        at = header + 2 + (length - 1 if length else 0)
    else:  # tagged fields in the header: nobody sends them yet
        return produce.acks(view, version, parse_request_header(view)[4])
    if at + 2 > len(view):
        # A transactional id longer than what has come so far; transactions never use acks=0.
        return -1
    acks: int = _SHORT(view, at)[0]
    return acks
