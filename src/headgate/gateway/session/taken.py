"""
What a session does with a request that it collected whole: passed on, asked about, charged.
"""

from __future__ import annotations

from typing import Final

from headgate.gateway.charging.plans import RAW_TOKEN, Kind, Plan
from headgate.gateway.session.commands import Ask
from headgate.gateway.session.state import SessionState
from headgate.wire.header import parse_request_header
from headgate.wire.messages import share

# In Python 3.11 looking up an enum's member costs more than all that is done with it.
_KIND_SASL: Final = Kind.SASL
_KIND_SHARE_FETCH: Final = Kind.SHARE_FETCH


class Taken(SessionState):
    """What becomes of requests that don't pass in pieces."""

    __slots__ = ()

    def _take(self, plan: Plan, frame: memoryview, now_ms: int) -> None:
        """Deal with a request that was collected whole."""
        if plan is RAW_TOKEN:
            self.requests += 1
            self._block()
            if not self._asks_for_owner(plan, 0, None, 4, frame):
                self._authenticate(plan, 0, 4, frame, now_ms)
            return
        _, version, correlation_id, client_id, body = parse_request_header(frame)
        kind = plan.kind
        if kind is _KIND_SHARE_FETCH:
            limit = self.rules.fetch_limit(self.context, now_ms)
            passed = frame if limit is None else share.cap_request(frame, version, body, limit)
            if self.hold is not None and self.hold.little:
                passed = share.ask_little(passed, version, body)
            self.to_broker.append(passed)
        elif kind is _KIND_SASL:
            self._block()
            if not self._asks_for_owner(plan, correlation_id, client_id, body, frame):
                self._authenticate(plan, correlation_id, body, frame, now_ms)
            return
        else:
            self._block()
            self._asked = Ask(
                plan,
                correlation_id,
                client_id,
                body,
                bytes(frame),
                self.identity.principal,
                client_ip=self.client_ip,
            )
            self.retains = True
            self.commands.append(self._asked)
            return
        self._inflight.append(
            (correlation_id, plan, len(frame) - 4, self.context, None, None, None)
        )
        if self.context.limited:
            self._block()

    def _asks_for_owner(
        self, plan: Plan, correlation_id: int, client_id: str | None, body: int, frame: memoryview
    ) -> bool:
        """Have the owner of a delegation token looked up, if that is what a client came with."""
        token_id = self.identity.unknown_token(plan.key, plan.version, frame, body)
        if token_id is None:
            return False
        principal = self.identity.principal
        self._asked = Ask(plan, correlation_id, client_id, body, bytes(frame), principal, token_id)
        self.commands.append(self._asked)
        return True

    def _authenticate(
        self, plan: Plan, correlation_id: int, body: int, frame: memoryview | bytes, now_ms: int
    ) -> None:
        """Pass a SASL request or bare token on, unless the identity refuses it."""
        if plan is RAW_TOKEN:
            self.identity.raw_request(frame)
        else:
            refusal = self.identity.request(plan.key, plan.version, bytes(frame), body)
            if refusal is not None:
                self.to_client.append(refusal)
                reason = self.identity.close_reason or "authentication-failed"
                self._close(reason, self.identity.close_text, now_ms)
                return
        self.to_broker.append(frame)
        self._inflight.append(
            (correlation_id, plan, len(frame) - 4, self.context, None, None, None)
        )
