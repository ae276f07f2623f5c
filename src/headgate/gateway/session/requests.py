"""
A session's client side: requests found in the bytes, passed on, held or refused.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, Final, NoReturn

from headgate.errors import RemoteProtocolError
from headgate.gateway.charging.plans import MAX_VERSION, RAW_TOKEN, Kind, Plan
from headgate.gateway.session.commands import ResumeClient
from headgate.gateway.session.fetch_hold import HELD
from headgate.gateway.session.mute import NOT_MUTED, RESPONSE_SENT
from headgate.gateway.session.state import HELD_BYTES, INT, PENDING, InFlight
from headgate.gateway.session.taken import Taken
from headgate.wire.apis import API_VERSIONS
from headgate.wire.header import parse_request_header
from headgate.wire.messages import fetch, produce

if TYPE_CHECKING:
    from headgate.gateway.charging.context import Context

MAX_IN_FLIGHT: Final = 2_000
"""Unanswered requests of one pipelined connection; then it waits until all are answered. Clients
have 5 to a few hundred, so this bounds a peer that never reads (to a quarter of a megabyte) and
slows nobody."""
MAX_UNKNOWN_IN_FLIGHT: Final = 32
"""The same before authentication: clients have one."""
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
MAX_HEAD_BYTES: Final = 66_560
"""Most bytes that are kept until a Produce's acks have come. Before them are a client id and a
transactional id, of 32,767 bytes at most each."""
_BODY_PEEK: Final = 64
"""Bytes after the request header that suffice to read acks, or a fetch's limits, in place."""
_BEFORE_LOGIN: Final = frozenset({Kind.SASL, Kind.VERSIONS, Kind.OWN_VERSIONS})
# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_FETCH: Final = Kind.FETCH
_KIND_PRODUCE: Final = Kind.PRODUCE
_KIND_SASL: Final = Kind.SASL
_KIND_SHARE_FETCH: Final = Kind.SHARE_FETCH
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
            self._barrier = self._lone = False
            if not self.mute.try_unmute():
                return
            self._blocked = False
            if not self._held:
                break
            held = self._held.popleft()
            self._held_size -= len(held)
            try:
                self._feed_client(held, now_ms, owned=True)
            except RemoteProtocolError as error:
                self._close(error.reason, f"from the client: {error}", now_ms)
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
            else:
                if self._walker is not None:
                    self._walk_on(self._walker, data[:pos])
                if self._left:
                    out.append(data)
                    return
                self._part_in(now_ms)
            self.partial_since_ms = 0
        elif self._head:
            self.partial_since_ms = 0
            data = memoryview(bytearray(self._head) + data)
            self._head = b""
            owned = True
            end = len(data)
        if self._raw and not self._blocked:
            self._feed_token(data[pos:], now_ms, owned=owned)
            return

        try:
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
                if raw != self._client_raw or self.rules.contexts.epoch != self._epoch:
                    self._new_context(raw)
                kind = plan.kind
                waiting = len(inflight)
                if not waiting:
                    self.asked_ms = now_ms
                elif correlation_id <= inflight[-1][0]:
                    self._check_replay(correlation_id)
                if waiting >= MAX_UNKNOWN_IN_FLIGHT and (
                    waiting >= MAX_IN_FLIGHT or not self._known
                ):
                    if run < pos:
                        out.append(data[run:pos])
                    self._barrier = self._blocked = True
                    self._put_back(data[pos:], owned=owned)
                    return
                if not self._known and kind not in _BEFORE_LOGIN:
                    self._refuse(key_version)
                context = self.context
                watched = context.timed
                silent = False
                producer_ids = None
                if context.limited and not self._entered & plan.bit:
                    until_ms = self._enter(plan, context, now_ms)
                    if until_ms > now_ms:  # wait for what others left as if it had been told to us
                        if run < pos:
                            out.append(data[run:pos])
                        self._put_back(data[pos:], owned=owned)
                        self._start_throttle(until_ms - now_ms, now_ms)
                        if not inflight:
                            self.mute.apply(RESPONSE_SENT)
                        return
                if kind:
                    if self._must_wait(kind):
                        if run < pos:
                            out.append(data[run:pos])
                        self._barrier = self._blocked = True
                        self._put_back(data[pos:], owned=owned)
                        return
                    if (
                        (kind is _KIND_FETCH or kind is _KIND_SHARE_FETCH)
                        and (self.hold is not None or context.share_gates)
                        and self._waits_for_turn(plan, context, data[pos:], now_ms)
                    ):
                        if run < pos:
                            out.append(data[run:pos])
                        self._blocked = True
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
                            self.retains = True
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
                        hold = self.hold
                        if limit is not None or hold is not None:
                            view = data[pos : pos + min(avail, frame_bytes)]
                            body = parse_request_header(view)[4]
                            if limit is not None:
                                fetch.cap_request(view, plan.version, body, limit)
                            if plan.version >= 7 and (
                                self.rules.empties_fetches or hold is not None
                            ):
                                self._session_of(view, plan.version, body)
                            if hold is not None and not hold.idle:
                                hold.spend(view, plan.version, body, now_ms)
                        watched = watched or context.fetches_alone
                    elif kind is _KIND_PRODUCE:
                        at = pos + header
                        acks: int | None = -1
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
                        if acks is None:  # not here yet, and never guessed
                            if avail >= MAX_HEAD_BYTES:
                                raise RemoteProtocolError(
                                    f"a Produce whose acks don't come in its first {avail} bytes"
                                )
                            break
                        silent = not acks
                        watched = silent or context.headroom is not None
                        if self.rules.counts_producer_ids:
                            producer_ids = self._ids_in(data[pos:end], plan, frame_bytes, header)
                # What may not fit comes after those of its connection are answered, as in Kafka.
                if (
                    watched
                    and waiting
                    and context.headroom is not None
                    and not context.headroom.fits(size if kind is _KIND_PRODUCE else 0, now_ms)
                ):
                    if run < pos:
                        out.append(data[run:pos])
                    self._barrier = self._blocked = True
                    self._walker = None
                    self._put_back(data[pos:], owned=owned)
                    return
                self.requests += 1
                asked = (correlation_id, plan, size, context, producer_ids, None, None)
                pos += frame_bytes
                if pos > end:
                    self._left = pos - end
                    self._silent = silent
                    self._part = asked
                    if not silent:
                        inflight.append(asked)
                    self.partial_since_ms = now_ms
                    out.append(data[run:])
                    return
                if watched:
                    self._request_in(asked, silent, now_ms)
                else:
                    inflight.append(asked)
        except RemoteProtocolError:
            if run < pos <= end:  # what came before it was well, and counts
                out.append(data[run:pos])
            raise
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
            self.retains = True
            self._taken_plan = RAW_TOKEN
            self._left = end - len(data)
            self.partial_since_ms = now_ms
            return
        self._take(RAW_TOKEN, data[:end], now_ms)
        if len(data) > end:
            self._put_back(data[end:], owned=owned)

    def _waits_for_turn(self, plan: Plan, context: Context, frame: memoryview, now_ms: int) -> bool:
        """Whether a fetch is held for now; one that asks for no records never is."""
        is_fetch = plan.kind is _KIND_FETCH
        keys = context.gates if is_fetch else context.share_gates
        if (self.hold is None or self.hold.idle) and not self.rules.gates.any_at(keys):
            return False
        # Differs: a fetch whose quota-id owes is held; Kafka answers it empty and mutes.
        if self._turn(plan, context, keys, now_ms, now_ms) != HELD:
            return False
        if is_fetch and fetch.asks_nothing(frame, plan.version, parse_request_header(frame)[4]):
            assert self.hold is not None
            self.hold.let_by(now_ms)
            return False
        return True

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
        return plan.take or (plan.kind is _KIND_MUTATION and self.rules.counts_mutations)

    def _new_context(self, raw: bytes) -> None:
        """The client id or the rules have changed: ask anew who is charged."""
        if raw != self._client_raw:
            # Bytes that aren't UTF-8 become U+FFFD, as in a broker.
            self.client_id = raw.decode("utf-8", "replace")
            self._client_raw = raw
        self._epoch = self.rules.contexts.epoch
        self._entered = 0
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

    def _ids_in(
        self, view: memoryview, plan: Plan, frame_bytes: int, header: int
    ) -> frozenset[int] | None:
        """Return the producer ids of a Produce, or begin to walk one that isn't all here."""
        version = plan.version
        body = header if version < 9 else parse_request_header(view)[4]
        if len(view) >= frame_bytes:
            ids = frozenset(produce.walk(view[:frame_bytes], version, body).producer_ids)
            if len(ids) > produce.MOST_PRODUCER_IDS:
                raise produce.too_many_ids()
            return ids
        self._walker = produce.IdWalker(version, frame_bytes - body)
        self._walker.feed(view[body:])
        return None

    def _walk_on(self, walker: produce.IdWalker, data: memoryview) -> None:
        """Read producer ids from more of a Produce as it passes."""
        try:
            walker.feed(data)
            if not self._left:
                walker.end()
        except RemoteProtocolError:
            self.to_broker.append(data)
            raise

    def _part_in(self, now_ms: int) -> None:
        """The rest of a request that came in pieces has been passed on."""
        part, self._part = self._part, None
        walker, self._walker = self._walker, None
        if part is None:
            return
        inflight = self._inflight
        if not self._silent:
            if not inflight or inflight[-1] is not part:
                return  # answered before it was all there: no broker does that
            inflight.pop()
        correlation_id, plan, size, context, producer_ids, _, _ = part
        if walker is not None:
            producer_ids = walker.end()
        if context.epoch != self.rules.contexts.epoch:  # quotas have changed since its header came
            context = self.rules.context(context.principal, context.client_id)
        part = (correlation_id, plan, size, context, producer_ids, None, None)
        kind = plan.kind
        if (
            self._silent
            or context.timed
            or (kind is _KIND_PRODUCE and context.headroom is not None)
            or (kind is _KIND_FETCH and context.fetches_alone)
        ):
            self._request_in(part, self._silent, now_ms)
        else:
            inflight.append(part)

    def _request_in(self, asked: InFlight, silent: bool, now_ms: int) -> None:
        """A complete request of a limited client, or one without an answer, is passed on."""
        correlation_id, plan, size, context, producer_ids, _, _ = asked
        kind = plan.kind
        produced = size if kind is _KIND_PRODUCE else 0
        headroom = context.headroom
        if silent:
            if headroom is not None:
                headroom.claim(self, size, producer_ids, now_ms)
                headroom.release(size, producer_ids)
            throttle = self.rules.produce(self, context, plan, size, producer_ids, 0, False, now_ms)
            if throttle:
                self._start_throttle(throttle, now_ms)
                if not self._inflight:
                    self.mute.apply(RESPONSE_SENT)
            return
        early = headroom is None
        if headroom is not None and (produced or context.timed):
            early = headroom.claim(self, produced, producer_ids, now_ms)
            asked = (correlation_id, plan, size, context, producer_ids, None, headroom)
        self._inflight.append(asked)
        if not early or (kind is _KIND_FETCH and context.fetches_alone):
            self._lone = True
            self._block()
        if self._stalled:
            self.stalled(True, now_ms)

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


def _acks(view: memoryview, version: int, header: int) -> int | None:
    """Read a Produce request's acks from its first bytes; None: they aren't among them."""
    try:
        if version < 3:
            return int(_SHORT(view, header)[0])
        body = header if version < 9 else parse_request_header(view)[4]
        return produce.acks(view, version, body)
    except (RemoteProtocolError, struct.error):
        if len(view) >= INT.unpack_from(view)[0] + 4:
            raise RemoteProtocolError("a Produce request that ends before its acks") from None
        return None
