"""
A session's broker side: answers matched to requests, charged, rewritten, told, passed on.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import RemoteProtocolError
from headgate.gateway.charging.fetch_gate import KEPT_BYTES
from headgate.gateway.charging.plans import NO_FIELD, Kind, Plan
from headgate.gateway.session.commands import Ask, PauseBroker
from headgate.gateway.session.fetch_hold import HELD, LITTLE, PASS
from headgate.gateway.session.requests import Requests
from headgate.gateway.session.rewrite import rewrite_response
from headgate.gateway.session.state import INT, INT_MAX
from headgate.wire import apis
from headgate.wire.messages import api_versions, fetch
from headgate.wire.throttle import patch_throttle, read_throttle

if TYPE_CHECKING:
    from headgate.gateway.charging.context import Context

MAX_ANSWER_BYTES: Final = 268_435_456
"""Largest answer that is collected to be rewritten; Metadata of 100,000 partitions is 10 MB."""
MAX_RAW_ANSWER_BYTES: Final = 1_048_576
"""Largest answer to a bare SASL token: far above what any mechanism says."""
SMALL_ANSWER_BYTES: Final = 65_536
"""A Fetch answer up to this size keeps its node endpoints, rewritten, when it came in whole."""
OWN_APIS: Final = {apis.DESCRIBE_CLIENT_QUOTAS: (0, 1), apis.ALTER_CLIENT_QUOTAS: (0, 1)}
"""Answered by the gateway, so offered whatever the upstream has."""

_INT: Final = INT.unpack_from
_ANSWER: Final = struct.Struct(">ii").unpack_from
_ANSWER_PEEK: Final = 24
"""Bytes of an answer needed to charge it: throttle time, error and session of a Fetch."""
_NO_THROTTLE: Final = b"\0\0\0\0\0"
_TAIL: Final = struct.Struct(">iB").unpack_from
"""The end of a flexible Produce answer without tags: the throttle time, and how many tags."""
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_PRODUCE: Final = Kind.PRODUCE
_KIND_FETCH: Final = Kind.FETCH
_KIND_VERSIONS: Final = Kind.VERSIONS
_KIND_SASL: Final = Kind.SASL
_KIND_NEW_PRODUCER_ID: Final = Kind.NEW_PRODUCER_ID
_KIND_SHARE_FETCH: Final = Kind.SHARE_FETCH


class Replies(Requests):
    """What a session does with what its broker says."""

    __slots__ = ()

    def _feed_broker(self, data: memoryview, now_ms: int) -> None:
        if self._raw:
            self._feed_raw_answer(data, now_ms)
            return
        out = self.to_client
        end = len(data)
        run = pos = 0
        size: int
        correlation_id: int
        expected: int
        if self._answer_left:
            pos = self._answer_left if self._answer_left < end else end
            self._answer_left -= pos
            taken = self._answer_taken
            if taken is not None:
                taken += data[:pos]
                run = pos
                if self._answer_left:
                    return
                self._answer_taken = None
                out.append(self._whole_answer(memoryview(taken), now_ms))
                self._sent(self._answer_throttle, now_ms)
            else:
                if self._masker is not None:
                    out.append(self._masker.feed(data[:pos]))
                    run = pos
                elif self._dropping:
                    run = pos
                if self._answer_left:
                    if run < pos:
                        out.append(data)
                    return
                self._masker = None
                self._dropping = False
                self._inflight.popleft()
                self._sent(self._answer_throttle, now_ms)
        elif self._answer_head:
            data = memoryview(bytearray(self._answer_head) + data)
            self._answer_head = b""
            end = len(data)

        while pos < end and self.closed is None:
            avail = end - pos
            if avail < 8:
                break
            size, correlation_id = _ANSWER(data, pos)
            frame_bytes = size + 4
            if avail < frame_bytes and avail < _ANSWER_PEEK:
                break
            if size < 4:
                raise RemoteProtocolError(f"an answer of {size} bytes", reason="upstream-malformed")
            if not self._inflight:
                raise RemoteProtocolError(
                    f"an answer {correlation_id} to nothing", reason="upstream-unexpected"
                )
            expected, plan, asked_bytes, context, producer_ids, _, claim = self._inflight[0]
            if expected != correlation_id:
                raise RemoteProtocolError(
                    f"answer {correlation_id} where {expected} was due",
                    reason="upstream-out-of-order",
                )
            if plan.kind is _KIND_PRODUCE and avail >= frame_bytes and size > 8:
                at = pos + size
                upstream, tags = _TAIL(data, at - 1)
                if plan.version < 9:
                    upstream = _INT(data, at)[0]
                elif upstream or tags:  # a throttle, endpoints or both: it has to be read
                    at = 0
                if at and plan.version:
                    self._inflight.popleft()
                    if isinstance(claim, int):  # it is charged, and its throttle has begun
                        told, throttle = claim, 0
                    else:
                        if claim is not None:
                            claim.release(asked_bytes, producer_ids)
                        told = throttle = self.rules.produce(
                            self, context, plan, asked_bytes, producer_ids, upstream, True, now_ms
                        )
                    if told > upstream:
                        INT.pack_into(
                            data,
                            at if plan.version < 9 else at - 1,
                            told if told < INT_MAX else INT_MAX,
                        )
                    pos += frame_bytes
                    self._sent(throttle, now_ms)
                    continue
            if plan.whole:
                if avail < frame_bytes:
                    if frame_bytes > MAX_ANSWER_BYTES:
                        raise RemoteProtocolError(
                            f"{plan.name}: an answer of {size} bytes", reason="upstream-oversized"
                        )
                    if run < pos:
                        out.append(data[run:pos])
                    self._answer_taken = bytearray(data[pos:])
                    self.retains = True
                    self._answer_left = frame_bytes - avail
                    return
                frame = data[pos : pos + frame_bytes]
                answer = self._whole_answer(frame, now_ms)
                if answer is not frame:
                    if run < pos:
                        out.append(data[run:pos])
                    out.append(answer)
                    run = pos + frame_bytes
                pos += frame_bytes
                self._sent(self._answer_throttle, now_ms)
                continue

            at = plan.throttle_at
            is_fetch = plan.kind is _KIND_FETCH
            withheld = False
            if is_fetch and (
                context.limited or self.hold is not None or self.rules.contexts.epoch != self._epoch
            ):
                way = self._answer_way(plan, context, data[pos:], now_ms)
                if way == HELD:
                    if run < pos:
                        out.append(data[run:pos])
                    self._keep(data[pos:])
                    return
                withheld = way == LITTLE
            upstream = throttle = told = 0
            if isinstance(claim, int):
                told = claim
            elif claim is not None:
                claim.release(0, None)
                self._inflight[0] = (expected, plan, asked_bytes, context, None, None, 0)
            if at > 0 and size >= at and (is_fetch or self.rules.counts_requests):
                upstream = _INT(data, pos + at)[0]
            if is_fetch:
                # Differs: a fetch over quota keeps its records and is charged; Kafka empties it.
                # Differs: node endpoints (of moved leaders) in a fetch's answer are charged.
                told = throttle = self.rules.fetch(
                    self, context, plan, asked_bytes, frame_bytes, upstream, now_ms,
                    withheld=withheld,
                )  # fmt: skip
                if withheld:
                    assert self.hold is not None
                    self.hold.emptied()
                elif self.hold is not None and not self.hold.idle:
                    self.hold.delivered(now_ms)
            elif self.rules.counts_requests and not isinstance(claim, int):
                told = throttle = self.rules.request(
                    self, context, plan, asked_bytes, upstream, now_ms
                )
            if withheld or (throttle and is_fetch and self.rules.empties_fetches):
                if run < pos:
                    out.append(data[run:pos])
                out.append(self._emptied(data[pos:], correlation_id, plan, throttle, upstream))
                self.rules.unfetch(self, context, plan, frame_bytes, now_ms)
                run = pos + min(avail, frame_bytes)
                self._dropping = avail < frame_bytes
            elif told > upstream and at > 0 and size >= at:
                INT.pack_into(data, pos + at, told if told < INT_MAX else INT_MAX)
            if plan.mask and run <= pos:
                if run < pos:
                    out.append(data[run:pos])
                piece = data[pos : pos + frame_bytes]
                if avail >= frame_bytes and frame_bytes <= SMALL_ANSWER_BYTES:
                    out.append(self._rewritten(plan, piece))
                else:
                    self._masker = fetch.EndpointMasker(plan.version)
                    out.append(self._masker.feed(piece))
                run = pos + len(piece)
            pos += frame_bytes
            if pos > end:
                self._answer_left = pos - end
                self._answer_throttle = throttle
                if run < end:
                    out.append(data[run:])
                return
            self._masker = None
            self._inflight.popleft()
            if throttle or self._blocked:
                self._sent(throttle, now_ms)
        if run < pos:
            out.append(data[run:pos] if run or pos < end else data)
        if pos < end:
            self._answer_head = bytes(data[pos:])

    def _answer_way(self, plan: Plan, context: Context, data: memoryview, now_ms: int) -> int:
        """Say what becomes of a fetch's answer: passed on, kept for its turn, or emptied."""
        if self.rules.contexts.epoch != self._epoch:  # quotas have changed since it was asked for
            context = self.rules.context(context.principal, context.client_id)
        hold = self.hold
        if hold is None or hold.idle:
            if self.gone or not self.rules.gates.any_at(context.gates):
                return PASS
        elif hold.little:
            return LITTLE
        elif hold.free or self.gone:
            return PASS
        if plan.version >= 7 and fetch.response_session(data, plan.version)[0]:
            return PASS  # an error has no records
        way = self._turn(plan, context, context.gates, self.asked_ms, now_ms)
        if way == HELD and self.rules.gates.kept_bytes + len(data) > KEPT_BYTES:
            assert self.hold is not None
            self.hold.give_up(now_ms)
            return LITTLE
        return way

    def _keep(self, data: memoryview) -> None:
        """Keep the beginning of an answer until its turn; the rest is left unread."""
        self._kept = bytearray(data)
        self.retains = True
        self.rules.gates.kept_bytes += len(data)
        self.commands.append(PauseBroker())

    def _feed_raw_answer(self, data: memoryview, now_ms: int) -> None:
        """Collect the answer to a bare SASL token; a broker refuses by closing instead."""
        taken = self._answer_taken
        if taken is None:
            taken = self._answer_taken = bytearray()
            self.retains = True
        taken += data
        if len(taken) < 4:
            return
        end = INT.unpack_from(taken)[0] + 4
        if not 4 <= end <= MAX_RAW_ANSWER_BYTES:
            raise RemoteProtocolError(
                f"an answer of {end - 4} bytes to a SASL token", reason="upstream-oversized"
            )
        if len(taken) < end:
            return
        self._answer_taken = None
        if not self._inflight or len(taken) > end:
            raise RemoteProtocolError("a SASL answer to no token", reason="upstream-unexpected")
        self._inflight.popleft()
        before = self.identity.principal
        self.identity.raw_response(taken)
        self._identified(before)
        self.to_client.append(taken)
        self._sent(0, now_ms)

    def _emptied(
        self, head: memoryview, correlation_id: int, plan: Plan, throttle: int, upstream: int
    ) -> bytes:
        """
        Return a throttled fetch's answer without records, as a broker does.

        The client never learns of a session that the answer opened, so its next full fetch is made
        to close that one: else each would hold a slot of the broker's cache.
        """
        session = 0
        if plan.version >= 7:
            session = fetch.response_session(head, plan.version)[1]
        if session and session != self._fetch_session:
            self._lost_session, session = session, 0
        return fetch.empty_response(plan.version, correlation_id, max(throttle, upstream), session)

    def _whole_answer(self, frame: memoryview, now_ms: int) -> Any:
        """Return a collected answer as the client shall see it, charged and told."""
        _, plan, size, context, producer_ids, merge, claim = self._inflight.popleft()
        key, version, kind = plan.key, plan.version, plan.kind
        answer: Any = frame
        if kind is _KIND_PRODUCE:
            answer = self._rewritten(plan, frame)  # endpoints end in a zero, as no tags do
            if bytes(frame[-5:]) == _NO_THROTTLE or not version:
                upstream = 0
            else:
                upstream = read_throttle(key, version, answer)
            if isinstance(claim, int):
                told, throttle = claim, 0
            else:
                if claim is not None:
                    claim.release(size, producer_ids)
                told = throttle = self.rules.produce(
                    self, context, plan, size, producer_ids, upstream, True, now_ms
                )
        else:
            if claim is not None and not isinstance(claim, int):
                claim.release(0, None)
            if merge is not None:
                merged = merge(bytes(frame))
                if isinstance(merged, Ask):  # there is more to do first: `answer` ends it
                    self._asked = merged
                    self._answer_throttle = 0
                    return b""
                answer = merged
            if kind is _KIND_VERSIONS:
                answer = api_versions.narrow_response(
                    bytes(frame), version, self.pass_unknown, OWN_APIS
                )
            elif kind is _KIND_SASL:
                self._authenticated(plan, bytes(frame))
            elif plan.addresses:
                answer = self._rewritten(plan, frame)
            upstream = read_throttle(key, version, answer) if plan.throttle_at != NO_FIELD else 0
            if (
                kind is _KIND_NEW_PRODUCER_ID
                and bytes(frame[plan.throttle_at + 4 :][:2]) == b"\0\0"
            ):
                self.rules.producer_id(self, context, plan, size, upstream, now_ms)
            if isinstance(claim, int):
                told, throttle = claim, 0
            elif kind is _KIND_SHARE_FETCH:
                told = throttle = self.rules.fetch(
                    self, context, plan, size, len(frame), upstream, now_ms
                )
                if self.hold is not None:
                    self.hold.delivered(now_ms)
            else:
                told = throttle = self._charge(plan, context, size, upstream, now_ms)
        if told > upstream and plan.throttle_at != NO_FIELD:
            if isinstance(answer, bytes):
                answer = bytearray(answer)
            answer = patch_throttle(key, version, answer, told)
        self._answer_throttle = throttle
        return answer

    def _rewritten(self, plan: Plan, frame: memoryview) -> Any:
        """Return an answer with our addresses; brokers without one are left out and reported."""
        face = self._face
        answer, hidden = rewrite_response(plan.key, plan.version, frame, face.addresses)
        if hidden:
            face.unknown_brokers(hidden)
        return answer

    def _authenticated(self, plan: Plan, frame: bytes) -> None:
        """Let the identity see a broker's answer to SASL; only a success makes a principal."""
        before = self.identity.principal
        self.identity.response(plan.key, plan.version, frame)
        self._identified(before)

    def _identified(self, before: str) -> None:
        """Go by what the identity has become."""
        self._raw = self.identity.raw
        if self.identity.authenticated and not self._known:
            self._known = True
            self._entered = 0
            self._max_bytes = self.max_request_bytes
        if self.identity.principal != before:
            self._epoch = -1
            self._entered = 0
            self.context = self.rules.context(self.identity.principal, self.client_id)
