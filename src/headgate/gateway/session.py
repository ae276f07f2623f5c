"""
One client connection and its upstream twin, without sockets: bytes and wake-ups in, bytes out.

The shell calls ``client_data``, ``broker_data``, ``upstream_ready``, ``wake``, ``answer`` and
``forward``, and after each call writes ``to_broker`` and ``to_client`` and does ``commands``.

How bytes go through. Most of a frame is never looked at. A request's header is read where it
lies, the bytes are passed on as slices of the very buffer they came in, and several frames that
need nothing in between leave as one slice. A frame is collected only when its plan says so
(``plans.py``). Slices in ``to_broker`` and ``to_client`` are good until the next call; what is
kept longer is copied.

When the client waits. A connection under a finite quota has one request in flight, as in Kafka,
and after a throttled answer stays muted (``mute.py``). What arrives meanwhile is held, up to
``HELD_BYTES``; then the shell is told to read no more. Connections without any finite quota are
pipelined freely.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from headgate.errors import RemoteProtocolError
from headgate.gateway.commands import (
    Ask,
    Close,
    Command,
    PauseClient,
    ResumeClient,
    WakeAt,
)
from headgate.gateway.mute import ChannelMute, MuteEvent, MuteState
from headgate.gateway.plans import NO_FIELD, Kind, Plan
from headgate.gateway.rewrite import rewrite_response
from headgate.wire import apis
from headgate.wire.header import parse_request_header
from headgate.wire.messages import api_versions, fetch, produce, share
from headgate.wire.throttle import patch_throttle, read_throttle

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.gateway.context import Context, Face, Identity, SessionRules
    from headgate.throttle.controller_mutation import MutationQuota

HELD_BYTES: Final = 262_144
"""Most bytes held for a waiting client before reading stops: one read buffer of the shell."""
MAX_IN_FLIGHT: Final = 100_000
"""Most unanswered requests of one pipelined connection. Clients use 5 to a few hundred; this
bounds a peer that never reads, not one that works."""
MAX_ANSWER_BYTES: Final = 268_435_456
"""Largest answer that is collected to be rewritten; Metadata of 100,000 partitions is 10 MB."""
MIN_REQUEST_BYTES: Final = 10
"""Key, version, correlation id and the length of a client id: the shortest header (v1)."""
SMALL_ANSWER_BYTES: Final = 65_536
"""A Fetch answer up to this size keeps its node endpoints, rewritten, when it came in whole."""

OWN_APIS: Final = {apis.DESCRIBE_CLIENT_QUOTAS: (0, 1), apis.ALTER_CLIENT_QUOTAS: (0, 1)}
"""Answered by the gateway, so offered whatever the upstream has."""

_REQUEST: Final = struct.Struct(">iIih").unpack_from
_ANSWER: Final = struct.Struct(">ii").unpack_from
_INT: Final = struct.Struct(">i")
_INT_MAX: Final = 2**31 - 1
_BODY_PEEK: Final = 64
"""Bytes after the request header that suffice to read acks, or a fetch's limits, in place."""
_NO_THROTTLE: Final = b"\0\0\0\0\0"

InFlight: TypeAlias = (
    "tuple[int, Plan, int, Context, frozenset[int] | None, Callable[[bytes], bytes] | None]"
)
"""Correlation id, plan, request bytes (header and body, as Kafka counts them), who is charged,
producer ids, merge. A plain tuple: one is made per request."""


class Session:
    """
    The conversation of one client with one broker.

    Args:
        rules: charges requests and knows the limits (``enforcement.Enforcement``).
        plans: how each API is handled (``plans.build_plans``), by ``key << 16 | version``.
        identity: observes authentication and says who the client is.
        face: knows what clients of this listener are told of the brokers, as of now.
        pass_unknown: ``headgate.unknown.apis=pass``.
        max_request_bytes: ``socket.request.max.bytes``.
        max_unauthenticated_bytes: largest request before authentication is over.
        client_ip: for the journal.
        listener: for the journal.
        connection: for the journal; unique within the worker.
    """

    __slots__ = (
        "_answer_head",
        "_answer_left",
        "_answer_taken",
        "_answer_throttle",
        "_asked",
        "_barrier",
        "_blocked",
        "_client_raw",
        "_epoch",
        "_face",
        "_head",
        "_held",
        "_held_size",
        "_inflight",
        "_known",
        "_left",
        "_masker",
        "_max_bytes",
        "_network_due",
        "_open",
        "_paused",
        "_plans",
        "_silent",
        "_taken",
        "_taken_plan",
        "client_id",
        "client_ip",
        "closed",
        "commands",
        "connection",
        "context",
        "identity",
        "last_ms",
        "listener",
        "max_request_bytes",
        "mutation_quota",
        "mute",
        "muted_by",
        "partial_since_ms",
        "pass_unknown",
        "requests",
        "rules",
        "spent_ns",
        "throttled_until_ms",
        "to_broker",
        "to_client",
    )

    def __init__(
        self,
        rules: SessionRules,
        plans: dict[int, Plan],
        identity: Identity,
        face: Face,
        *,
        pass_unknown: bool = False,
        max_request_bytes: int = 104_857_600,
        max_unauthenticated_bytes: int = 524_288,
        client_ip: str = "",
        listener: str = "",
        connection: str = "",
    ) -> None:
        self.rules = rules
        self._plans = plans
        self.identity = identity
        self._face = face
        self.pass_unknown = pass_unknown
        self._known = identity.authenticated
        self.max_request_bytes = max_request_bytes
        self._max_bytes = (
            max_request_bytes
            if identity.authenticated
            else min(max_request_bytes, max_unauthenticated_bytes)
        )
        self.client_ip, self.listener, self.connection = client_ip, listener, connection

        self.to_broker: list[Any] = []
        self.to_client: list[Any] = []
        self.commands: list[Command] = []
        self.closed: Close | None = None
        self.last_ms = 0
        self.requests = 0
        self.mutation_quota: MutationQuota | None = None  # of the request now in flight
        self.partial_since_ms = 0  # when the request that isn't complete yet began
        self.muted_by = ""  # the quota type whose throttle is in force or was last
        self.spent_ns = 0
        self.mute = ChannelMute()
        self.throttled_until_ms = 0

        self._open = False  # the upstream connection is up
        self._blocked = True  # nothing is taken from the client for now
        self._barrier = False  # what comes next waits until everything before is answered
        self._asked: Ask | None = None
        self._paused = False
        self._held: list[memoryview] = []
        self._held_size = 0
        self._inflight: deque[InFlight] = deque()
        # The request being read: an incomplete header, or bytes still to pass or to collect.
        self._head = b""
        self._left = 0
        self._taken: bytearray | None = None
        self._taken_plan: Plan | None = None
        self._silent = 0  # bytes of a request that gets no answer (acks=0)
        # The same for the answer being read.
        self._answer_head = b""
        self._answer_left = 0
        self._answer_taken: bytearray | None = None
        self._answer_throttle = 0
        self._masker: fetch.EndpointMasker | None = None
        self._network_due = False

        self.client_id = ""
        self._client_raw: bytes | None = None
        self._epoch = -1
        self.context: Context = rules.context(identity.principal, "")

    # --- what the shell reports -------------------------------------------------------------

    def upstream_ready(self, now_ms: int) -> None:
        """The upstream connection is up: take what the client has said meanwhile."""
        self._open = True
        self._maybe_go_on(now_ms)

    def client_data(self, data: memoryview, now_ms: int) -> None:
        """
        Take bytes from the client.

        Args:
            data: a writable view, valid until the shell has written the output; a fetch's limits
                are patched in place.
            now_ms: milliseconds of the epoch.
        """
        self.last_ms = now_ms
        if self.closed is not None:
            return
        if self._blocked or self._held_size:
            self._hold(data, owned=False)
            return
        try:
            self._feed_client(data, now_ms, owned=False)
        except RemoteProtocolError as error:
            self._close(error.reason, f"from the client: {error}")

    def broker_data(self, data: memoryview, now_ms: int) -> None:
        """Take bytes from the broker; arguments as for ``client_data``."""
        self.last_ms = now_ms
        if self.closed is not None:
            return
        try:
            self._feed_broker(data, now_ms)
        except RemoteProtocolError as error:
            self._close(error.reason, f"from the broker: {error}")

    def wake(self, now_ms: int) -> None:
        """The time of a ``WakeAt`` has come; harmless when it hasn't."""
        if self.closed is not None or not self.throttled_until_ms:
            return
        if now_ms < self.throttled_until_ms:
            self.commands.append(WakeAt(self.throttled_until_ms))
            return
        self.throttled_until_ms = 0
        self.mute.apply(MuteEvent.THROTTLE_ENDED)
        self._maybe_go_on(now_ms)

    def answer(self, ask: Ask, frame: bytes, now_ms: int) -> None:
        """Answer a request ourselves; ``frame`` is the whole answer with its length prefix."""
        if self.closed is not None or self._asked is not ask:
            return
        self._asked = None
        plan = ask.plan
        upstream = read_throttle(plan.key, plan.version, frame)
        throttle = self._charge(plan, self.context, len(ask.frame) - 4, upstream, now_ms)
        if throttle > upstream and plan.throttle_at != NO_FIELD:
            frame = bytes(patch_throttle(plan.key, plan.version, bytearray(frame), throttle))
        self.to_client.append(frame)
        self._sent(throttle, now_ms)

    def forward(
        self,
        ask: Ask,
        frame: bytes,
        merge: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """
        Pass a request on after all.

        Args:
            ask: the request.
            frame: what goes upstream: the request as it came, or a part of it.
            merge: makes the client's answer out of the broker's.
        """
        if self.closed is not None or self._asked is not ask:
            return
        self._asked = None
        self.to_broker.append(frame)
        self._inflight.append(
            (ask.correlation_id, ask.plan, len(ask.frame) - 4, self.context, None, merge)
        )

    def account_client(self, nanos: int) -> None:
        """Add the thread time of a callback that took bytes from the client."""
        self.spent_ns += nanos

    def account_broker(self, nanos: int, now_ms: int) -> None:
        """Add the thread time of a callback that took bytes from the broker."""
        if self._network_due:
            self._network_due = False
            self.rules.network_time(self, self.context, nanos, now_ms)
        else:
            self.spent_ns += nanos

    # --- what the shell may ask -------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Requests passed on or asked about, and not answered yet."""
        return len(self._inflight) + (self._asked is not None)

    @property
    def held_bytes(self) -> int:
        """Bytes taken from the client that wait for their turn."""
        return self._held_size

    @property
    def at_rest(self) -> bool:
        """Whether no request is half read or unanswered: the moment to drain."""
        return not (
            self._inflight
            or self._asked
            or self._head
            or self._left
            or self._answer_left
            or self._answer_head
            or (self._held_size and not self.throttled_until_ms)
        )

    # --- from the client --------------------------------------------------------------------

    def _hold(self, data: memoryview, *, owned: bool) -> None:
        """Keep bytes for later: a copy, unless they are ours already."""
        self._held.append(data if owned else memoryview(bytearray(data)))
        self._held_size += len(data)
        if self._held_size > HELD_BYTES and not self._paused:
            self._paused = True
            self.commands.append(PauseClient())

    def _maybe_go_on(self, now_ms: int) -> None:
        """Take held bytes if nothing keeps the client waiting any more."""
        while self.closed is None:
            if not self._open or self._asked is not None or self.throttled_until_ms:
                return
            waiting = self._barrier or self.mute.state is not MuteState.NOT_MUTED
            if waiting and self._inflight:
                return
            self._barrier = False
            if not self.mute.try_unmute():
                return
            self._blocked = False
            if not self._held_size:
                break
            pieces = self._held
            held = pieces[0] if len(pieces) == 1 else memoryview(bytearray().join(pieces))
            self._held = []
            self._held_size = 0
            try:
                self._feed_client(held, now_ms, owned=True)
            except RemoteProtocolError as error:
                self._close(error.reason, f"from the client: {error}")
                return
            if self._blocked:
                break
        if self._paused and self._held_size <= HELD_BYTES and self.closed is None:
            self._paused = False
            self.commands.append(ResumeClient())

    def _feed_client(self, data: memoryview, now_ms: int, *, owned: bool) -> None:
        """Go through bytes frame by frame; everything before ``run`` is dealt with."""
        out = self.to_broker
        end = len(data)
        run = pos = 0
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
            if taken is None and (self._silent or self.context.limited):
                self._request_in(now_ms)
        elif self._head:
            self.partial_since_ms = 0
            data = memoryview(bytearray(self._head) + data)
            self._head = b""
            owned = True
            end = len(data)

        while pos < end:
            if self._blocked:
                if run < pos:
                    out.append(data[run:pos])
                self._hold(data[pos:], owned=owned)
                return
            avail = end - pos
            if avail < 14:
                if avail >= 4:
                    self._check_size(_INT.unpack_from(data, pos)[0])
                break
            size, key_version, correlation_id, client_length = _REQUEST(data, pos)
            if size > self._max_bytes or size < MIN_REQUEST_BYTES:
                self._check_size(size)
            plan = self._plans.get(key_version)
            if plan is None:
                self._refuse(key_version)
            frame_bytes = size + 4
            header = 14 + client_length if client_length > 0 else 14
            if header > frame_bytes:
                raise RemoteProtocolError(
                    f"{plan.name} v{plan.version}: a client id of {client_length} bytes in a "
                    f"request of {size}"
                )
            if avail < frame_bytes and avail < header + _BODY_PEEK:
                break
            raw = bytes(data[pos + 14 : pos + header])
            if raw != self._client_raw or self.rules.epoch != self._epoch:
                self._new_context(raw)
            self.requests += 1
            kind = plan.kind
            if not self._known and kind != Kind.SASL and kind != Kind.VERSIONS:
                self._refuse(key_version)
            if kind:
                if self._must_wait(kind):
                    if run < pos:
                        out.append(data[run:pos])
                    self._barrier = self._blocked = True
                    self._hold(data[pos:], owned=owned)
                    return
                if self._must_take(plan):
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
                if kind == Kind.FETCH:
                    limit = self.rules.fetch_limit(self.context, now_ms)
                    if limit is not None:
                        view = data[pos : pos + min(avail, frame_bytes)]
                        body = parse_request_header(view)[4]
                        fetch.cap_request(view, plan.version, body, limit)
                elif kind == Kind.PRODUCE:
                    view = data[pos : pos + min(avail, frame_bytes)]
                    if not _acks(view, plan.version, header):
                        self._silent = size
                        self._taken_plan = plan
            if not self._silent:
                self._inflight.append((correlation_id, plan, size, self.context, None, None))
                if len(self._inflight) > MAX_IN_FLIGHT:
                    raise RemoteProtocolError(
                        f"more than {MAX_IN_FLIGHT} requests without an answer",
                        reason="in-flight",
                    )
            pos += frame_bytes
            if pos > end:
                self._left = pos - end
                self.partial_since_ms = now_ms
                out.append(data[run:])
                return
            if self._silent or self.context.limited:
                self._request_in(now_ms)
        if run < pos:
            out.append(data[run:pos])
        if pos < end:
            self._head = bytes(data[pos:])
            self.partial_since_ms = now_ms

    def _must_wait(self, kind: Kind) -> bool:
        """Whether a request can't be taken before all earlier ones are answered."""
        if not self._inflight:
            return False
        return (
            kind == Kind.SASL
            or kind == Kind.ASK
            or (kind == Kind.MUTATION and self.rules.counts_mutations)
        )

    def _must_take(self, plan: Plan) -> bool:
        """Whether a request is collected before anything is done with it."""
        return (
            plan.take
            or (plan.kind == Kind.MUTATION and self.rules.counts_mutations)
            or (plan.kind == Kind.PRODUCE and self.rules.counts_producer_ids)
        )

    def _new_context(self, raw: bytes) -> None:
        """The client id or the rules have changed: ask anew who is charged."""
        if raw != self._client_raw:
            # Bytes that aren't UTF-8 become U+FFFD, as in a broker.
            self.client_id = raw.decode("utf-8", "replace")
            self._client_raw = raw
        self._epoch = self.rules.epoch
        self.context = self.rules.context(self.identity.principal, self.client_id)

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise RemoteProtocolError(
                f"a request of {size} bytes; at most {self._max_bytes} are taken"
                + ("" if self._known else " before authentication"),
                reason="oversized",
            )
        if size < MIN_REQUEST_BYTES:
            raise RemoteProtocolError(f"a request of {size} bytes; none is that short")

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

    def _request_in(self, now_ms: int) -> None:
        """A complete request has been passed on, of a limited client or one without an answer."""
        size = self._silent
        if not size:
            if self._inflight:  # else it was answered before it was all in: no broker does that
                self._block()
            return
        self._silent = 0
        assert self._taken_plan is not None
        throttle = self.rules.produce(
            self, self.context, self._taken_plan, size, None, 0, False, now_ms
        )
        if throttle:
            self._start_throttle(throttle, now_ms)
            if not self._inflight:
                self.mute.apply(MuteEvent.RESPONSE_SENT)

    def _block(self) -> None:
        """Take nothing more until the request just received is answered."""
        self._blocked = True
        if self.mute.state is MuteState.NOT_MUTED:
            self.mute.mute()
            self.mute.apply(MuteEvent.REQUEST_RECEIVED)

    def _take(self, plan: Plan, frame: memoryview, now_ms: int) -> None:
        """Deal with a request that was collected whole."""
        _, version, correlation_id, client_id, body = parse_request_header(frame)
        kind = plan.kind
        if kind == Kind.PRODUCE:
            walk = produce.walk(frame, version, body)
            self.to_broker.append(frame)
            if walk.acks:
                self._inflight.append(
                    (
                        correlation_id,
                        plan,
                        len(frame) - 4,
                        self.context,
                        frozenset(walk.producer_ids),
                        None,
                    )
                )
                if self.context.limited:
                    self._block()
                return
            throttle = self.rules.produce(
                self,
                self.context,
                plan,
                len(frame) - 4,
                frozenset(walk.producer_ids),
                0,
                False,
                now_ms,
            )
            if throttle:
                self._start_throttle(throttle, now_ms)
                if not self._inflight:
                    self.mute.apply(MuteEvent.RESPONSE_SENT)
            return
        if kind == Kind.SHARE_FETCH:
            limit = self.rules.fetch_limit(self.context, now_ms)
            passed = frame if limit is None else share.cap_request(frame, version, body, limit)
            self.to_broker.append(passed)
        elif kind == Kind.SASL:
            refusal = self.identity.request(plan.key, version, bytes(frame), body)
            self._block()
            if refusal is not None:
                self.to_client.append(refusal)
                reason = self.identity.close_reason or "authentication-failed"
                self._close(reason, self.identity.close_text)
                return
            self.to_broker.append(frame)
        else:
            self._block()
            self._asked = Ask(
                plan, correlation_id, client_id, body, bytes(frame), self.identity.principal
            )
            self.commands.append(self._asked)
            return
        self._inflight.append((correlation_id, plan, len(frame) - 4, self.context, None, None))
        if self.context.limited:
            self._block()

    # --- from the broker --------------------------------------------------------------------

    def _feed_broker(self, data: memoryview, now_ms: int) -> None:
        out = self.to_client
        end = len(data)
        run = pos = 0
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
                if self._answer_left:
                    if run < pos:
                        out.append(data)
                    return
                self._masker = None
                self._inflight.popleft()
                self._sent(self._answer_throttle, now_ms)
        elif self._answer_head:
            data = memoryview(bytearray(self._answer_head) + data)
            self._answer_head = b""
            end = len(data)

        while pos < end and self.closed is None:
            avail = end - pos
            if avail < 13 and (avail < 8 or avail < 4 + _INT.unpack_from(data, pos)[0]):
                break
            size, correlation_id = _ANSWER(data, pos)
            frame_bytes = size + 4
            if size < 4:
                raise RemoteProtocolError(f"an answer of {size} bytes", reason="upstream-malformed")
            if not self._inflight:
                raise RemoteProtocolError(
                    f"an answer {correlation_id} to nothing", reason="upstream-unexpected"
                )
            expected, plan, asked_bytes, context, _, _ = self._inflight[0]
            if expected != correlation_id:
                raise RemoteProtocolError(
                    f"answer {correlation_id} where {expected} was due",
                    reason="upstream-out-of-order",
                )
            if plan.whole:
                if avail < frame_bytes:
                    if frame_bytes > MAX_ANSWER_BYTES:
                        raise RemoteProtocolError(
                            f"{plan.name}: an answer of {size} bytes", reason="upstream-oversized"
                        )
                    if run < pos:
                        out.append(data[run:pos])
                    self._answer_taken = bytearray(data[pos:])
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
            upstream = _INT.unpack_from(data, pos + at)[0] if at > 0 and size >= at else 0
            if plan.kind == Kind.FETCH:
                throttle = self.rules.fetch(
                    self, context, plan, asked_bytes, frame_bytes, upstream, now_ms
                )
            elif self.rules.counts_requests:
                throttle = self.rules.request(self, context, plan, asked_bytes, upstream, now_ms)
            else:
                throttle = 0
            if throttle > upstream and at > 0 and size >= at:
                _INT.pack_into(data, pos + at, throttle if throttle < _INT_MAX else _INT_MAX)
            if plan.mask:
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
            out.append(data[run:pos])
        if pos < end:
            self._answer_head = bytes(data[pos:])

    def _whole_answer(self, frame: memoryview, now_ms: int) -> Any:
        """Return a collected answer as the client shall see it, charged and told."""
        _, plan, size, context, producer_ids, merge = self._inflight.popleft()
        key, version, kind = plan.key, plan.version, plan.kind
        answer: Any = frame
        if kind == Kind.PRODUCE:
            if plan.addresses and frame[-1]:
                answer = self._rewritten(plan, frame)
            if bytes(frame[-5:]) == _NO_THROTTLE or not version:
                upstream = 0
            else:
                upstream = read_throttle(key, version, answer)
            throttle = self.rules.produce(
                self, context, plan, size, producer_ids, upstream, True, now_ms
            )
        else:
            if merge is not None:
                answer = merge(bytes(frame))
            if kind == Kind.VERSIONS:
                answer = api_versions.narrow_response(
                    bytes(frame), version, self.pass_unknown, OWN_APIS
                )
            elif kind == Kind.SASL:
                self._authenticated(plan, bytes(frame))
            elif plan.addresses:
                answer = self._rewritten(plan, frame)
            upstream = read_throttle(key, version, answer) if plan.throttle_at != NO_FIELD else 0
            if kind == Kind.SHARE_FETCH:
                throttle = self.rules.fetch(self, context, plan, size, len(frame), upstream, now_ms)
            else:
                throttle = self._charge(plan, context, size, upstream, now_ms)
        if throttle > upstream and plan.throttle_at != NO_FIELD:
            if isinstance(answer, bytes):
                answer = bytearray(answer)
            answer = patch_throttle(key, version, answer, throttle)
        self._answer_throttle = throttle
        return answer

    def _charge(
        self, plan: Plan, context: Context, size: int, upstream_ms: int, now_ms: int
    ) -> int:
        """Charge what is neither produced nor fetched."""
        quota = self.mutation_quota
        if quota is not None:
            self.mutation_quota = None
            return self.rules.mutation(self, context, plan, size, upstream_ms, quota, now_ms)
        if self.rules.counts_requests:
            return self.rules.request(self, context, plan, size, upstream_ms, now_ms)
        return 0

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
        if self.identity.authenticated and not self._known:
            self._known = True
            self._max_bytes = self.max_request_bytes
        if self.identity.principal != before:
            self._epoch = -1
            self.context = self.rules.context(self.identity.principal, self.client_id)

    def _sent(self, throttle: int, now_ms: int) -> None:
        """An answer is on its way: start its throttle, go on when nothing else is due."""
        self._network_due = self.rules.counts_requests
        if throttle:
            self._start_throttle(throttle, now_ms)
        if not self._blocked:
            return
        if not self._inflight and self.mute.state in _PENDING:
            self.mute.apply(MuteEvent.RESPONSE_SENT)
        self._maybe_go_on(now_ms)

    def _start_throttle(self, throttle: int, now_ms: int) -> None:
        self._block()
        until = now_ms + throttle
        if self.throttled_until_ms:
            if until <= self.throttled_until_ms:
                return
        else:
            self.mute.apply(MuteEvent.THROTTLE_STARTED)
        self.throttled_until_ms = until
        self.commands.append(WakeAt(until))

    def _close(self, reason: str, detail: str) -> None:
        self.closed = Close(reason, detail)
        self.commands.append(self.closed)


_PENDING: Final = (
    MuteState.MUTED_AND_RESPONSE_PENDING,
    MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
)


def _acks(view: memoryview, version: int, header: int) -> int:
    """Read a Produce request's acks from its first bytes."""
    if version < 3:
        at = header
    elif version < 9:
        length = int.from_bytes(view[header : header + 2], "big", signed=True)
        at = header + 2 + (length if length > 0 else 0)
    else:
        if view[header]:  # tagged fields in the header: nobody sends them yet
            return produce.acks(view, version, parse_request_header(view)[4])
        length = view[header + 1]
        if length > 127:
            return produce.acks(view, version, header + 1)
        at = header + 2 + (length - 1 if length else 0)
    if at + 2 > len(view):
        # A transactional id longer than what has come so far; transactions never use acks=0.
        return -1
    return int.from_bytes(view[at : at + 2], "big", signed=True)
