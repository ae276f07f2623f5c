"""
What fuzzers call: each takes any bytes and fails if a parser does anything but read or refuse.

Used by Hypothesis in tests/property/test_wire_fuzz.py with few examples, and by ``make fuzz`` with
millions. Importing headgate happens here, so that a fuzzer can instrument it.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator

from headgate.config import Settings
from headgate.errors import LocalProtocolError, RemoteProtocolError
from headgate.gateway.charging.enforcement import Enforcement
from headgate.gateway.charging.journal import NO_JOURNAL
from headgate.gateway.charging.plans import RAW_TOKEN, build_plans
from headgate.gateway.identity.identity import (
    AuthenticationContext,
    DefaultPrincipalBuilder,
    Identity,
)
from headgate.gateway.identity.sasl import OBSERVABLE, Refusal, SaslObserver
from headgate.gateway.identity.ssl_names import dn_text, subject_of
from headgate.gateway.session.rewrite import needs_rewrite, rewrite_response
from headgate.gateway.session.session import Session
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER, REQUEST
from headgate.quota.table import QuotaTable
from headgate.steps import finish
from headgate.wire import apis, header, throttle
from headgate.wire.messages import (
    REQUESTS,
    RESPONSES,
    api_versions,
    decode_request,
    decode_response,
    draft,
    encode_request,
    encode_response,
    fetch,
    mutation,
    produce,
    share,
)

BOOK = {1: ("gate.example", 19001), 2: ("gate.example", 19002)}
ALLOWED = (RemoteProtocolError,)


def _outcome(call: Callable[[], object]) -> tuple[str, object]:
    """What a call gives, or that it refuses: the only two things it may do."""
    try:
        return "read", call()
    except ALLOWED:
        return "refused", None


# --- messages -------------------------------------------------------------------------------

_KEYS = sorted(apis.API)


def _versions(key: int) -> range:
    api = apis.API[key]
    newest = api.max_version if api.passes_until is None else api.passes_until
    return range(api.min_version, newest + 2)


_CASES = [(key, version) for key in _KEYS for version in _versions(key)]


def messages(data: bytes) -> None:
    """Any body of any API and version: read or refused, and what is read is written back."""
    if len(data) < 3:
        return
    key, version = _CASES[int.from_bytes(data[:2], "big") % len(_CASES)]
    if data[2] & 1:
        _request(key, version, data[3:])
    else:
        _response(key, version, data[3:], data[2] >> 1)


def _request(key: int, version: int, body: bytes) -> None:
    raw = header.build_request(key, version, 7, "app", b"")[4:] + body
    raw = struct.pack(">i", len(raw)) + raw
    how, head = _outcome(lambda: header.parse_request_header(raw))
    assert how == "read"
    at = head[4]  # type: ignore[index]
    assert head[:4] == (key, version, 7, None if (key, version) == (7, 0) else "app")  # type: ignore[index]
    if key in REQUESTS:
        how, message = _outcome(lambda: decode_request(key, version, raw, at))
        if how == "read":
            again = encode_request(key, version, 7, "app", message)
            # By bytes, since a NaN isn't equal to itself.
            read = decode_request(key, version, again, at)
            assert encode_request(key, version, 7, "app", read) == again
            if key in mutation.REQUESTS:
                seen = finish(mutation.mutations(key, version, message, default_partitions=1))
                finish(mutation.keep(key, version, raw, message, set(seen.topics[:1])))
                finish(mutation.refuse(key, version, 7, seen.topics, 5))
    if key in draft.REQUESTS and version == 0:
        how, message = _outcome(lambda: draft.decode_request(key, 0, raw, at))
        if how == "read":
            again = draft.REQUESTS[key].encode(message, 0, False)
            assert draft.REQUESTS[key].decode(again, 0, False) == message
    if key == apis.PRODUCE and version <= 13:
        how, walk = _outcome(lambda: produce.walk(raw, version, at))
        if how == "read":
            assert walk.acks == produce.acks(raw, version, at)  # type: ignore[attr-defined]
    if key == apis.FETCH and version <= 18:
        how, read = _outcome(lambda: fetch.read_request(raw, version, at))
        if how == "read":
            capped = fetch.cap_request(bytearray(raw), version, at, 1000)
            assert len(capped) == len(raw)
            assert fetch.read_request(capped, version, at).max_bytes <= max(1000, read.max_bytes)  # type: ignore[attr-defined]
            _outcome(lambda: fetch.set_session(raw, version, at, 1, 2))
    if key == apis.SHARE_FETCH:
        _outcome(lambda: share.cap_request(raw, version, at, 1000))


def _response(key: int, version: int, body: bytes, choice: int) -> None:
    raw = header.build_response(key, version, 7, body)
    how, at = _outcome(lambda: throttle.throttle_offset(key, version, raw))
    if how == "read" and at is not None:
        assert isinstance(at, int)
        assert 8 <= at <= len(raw) - 4
        patched = throttle.patch_throttle(key, version, raw, 12345)
        assert len(patched) == len(raw)
        # A zero at the end of Produce is found without a walk; written to, it has to be walked,
        # and only an answer that parses leads there.
        if key != apis.PRODUCE or _outcome(
            lambda: throttle.throttle_offset(key, version, patched)
        ) == ("read", at):
            assert throttle.read_throttle(key, version, patched) == 12345
    if needs_rewrite(key, version):
        how, out = _outcome(lambda: rewrite_response(key, version, raw, BOOK))
        if how == "read":
            rewritten = bytes(out.frame)  # type: ignore[attr-defined]
            assert struct.unpack_from(">i", rewritten)[0] == len(rewritten) - 4
            assert rewritten[4:8] == raw[4:8]
            again = rewrite_response(key, version, rewritten, BOOK)
            assert again.hidden == ()
            assert bytes(again.frame) == rewritten
    if key in RESPONSES and key != apis.API_VERSIONS:
        how, message = _outcome(lambda: decode_response(key, version, raw))
        if how == "read":
            again_raw = encode_response(key, version, 7, message)
            read = decode_response(key, version, again_raw)
            assert encode_response(key, version, 7, read) == again_raw
    if key == apis.API_VERSIONS and version <= 5:
        how, out = _outcome(lambda: api_versions.narrow_response(raw, version))
        if how == "read":
            seen = api_versions.parse_response(out, version).ranges  # type: ignore[arg-type]
            assert all(key in apis.API for key in seen)
    if key == apis.FETCH and 16 <= version <= 18:
        masker = fetch.EndpointMasker(version)
        step = choice % 29 + 1

        def mask() -> int:
            size = 0
            for start in range(0, len(raw), step):
                size += len(masker.feed(raw[start : start + step]))
            masker.finish()
            return size

        how, size = _outcome(mask)
        if how == "read":
            assert size == len(raw)


# --- who is it ------------------------------------------------------------------------------

_MECHANISMS = sorted(OBSERVABLE)


def identity(data: bytes) -> None:
    """Any tokens and certificates: a name only after a broker's yes, and never two."""
    if len(data) < 2:
        return
    if data[0] & 1:
        _outcome(lambda: dn_text(data[1:]))
        _outcome(lambda: dn_text(subject_of(data[1:])))
        return
    observer = SaslObserver(owner_of=lambda token: "owner" if token == "t" else None)
    mechanism = _MECHANISMS[data[1] % len(_MECHANISMS)]
    names = set()
    for part in data[2:].split(b"\xfe"):
        if not part:
            continue
        action, rest = part[0] % 5, part[1:]
        yes = False
        try:
            if action == 0:
                observer.handshake(mechanism, rest[0] & 1 if rest else 1)
            elif action == 1:
                observer.handshake_answered(rest[0] & 1 if rest else 0)
            elif action == 2:
                observer.token(rest)
            elif action == 3:
                before = observer.name
                yes = True
                observer.answered(0, rest)
                assert before is None or observer.name == before
            else:
                observer.answered(58, rest)
        except (RemoteProtocolError, Refusal):
            pass
        if observer.name is not None:
            assert yes or names
            names.add(observer.name)
            assert observer.name
    assert len(names) <= 1


# --- conversations --------------------------------------------------------------------------

_PLANS = build_plans()
_START_MS = 1_700_000_000_000
_SETTINGS = Settings.from_properties(
    {
        "headgate.upstream": "127.0.0.1:9092",
        "headgate.broker.id.min": "1",
        "headgate.broker.id.max": "1",
    }
)
_TABLES = (
    QuotaTable.of({}),
    QuotaTable.of({QuotaEntity.of(client_id="app"): {PRODUCER: 100.0}}),
    QuotaTable.of({QuotaEntity.of(client_id="app"): {REQUEST: 0.5, PRODUCER: 1e6}}),
)
MAX_HELD = 4 * 1024 * 1024


class _Face:
    addresses = BOOK

    def unknown_brokers(self, broker_ids: tuple[int, ...]) -> None:
        return None


def _steps(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Cut bytes into (action, number, payload)."""
    at = 0
    while at + 4 <= len(data):
        action, number, size = struct.unpack_from(">BBH", data, at)
        payload = data[at + 4 : at + 4 + size % 600]
        at += 4 + len(payload)
        yield action, number, payload


def conversation(data: bytes) -> None:
    """Any client and any broker, in any pieces and order: served or closed with a reason."""
    if len(data) < 2:
        return
    rules = Enforcement(_SETTINGS, 1, lambda: _START_MS, NO_JOURNAL)
    rules.load(_TABLES[data[0] % len(_TABLES)], _START_MS)
    context = AuthenticationContext("L", "SASL_PLAINTEXT" if data[1] & 1 else "PLAINTEXT", "::1")
    owners = {"t": "owner"}
    observer = SaslObserver(owner_of=owners.get) if data[1] & 1 else None
    session = Session(
        rules,
        _PLANS,
        Identity(DefaultPrincipalBuilder(), context, observer),
        _Face(),
        max_request_bytes=100_000,
    )
    now = _START_MS
    session.upstream_ready(now)
    given = taken = 0
    for action, number, payload in itertools.islice(_steps(data[2:]), 60):
        closed = session.state.closed
        before = len(session.to_client), len(session.to_broker)
        kind = action % 6
        if kind == 0:
            session.client_data(memoryview(bytearray(payload)), now)
            given += len(payload)
        elif kind == 1:
            key, version = _CASES[number * 256 % len(_CASES)]
            raw = header.build_request(key, version, number, "app", payload)
            session.client_data(memoryview(bytearray(raw)), now)
            given += len(raw)
        elif kind == 2:
            session.broker_data(memoryview(bytearray(payload)), now)
        elif kind == 3 and session.state.unanswered:
            correlation_id, plan = session.state.unanswered[0][:2]
            if plan is RAW_TOKEN:
                raw = struct.pack(">i", len(payload)) + payload
            else:
                raw = header.build_response(plan.key, plan.version, correlation_id, payload)
            cut = number % len(raw)
            for piece in (raw[:cut], raw[cut:]):
                if piece:
                    session.broker_data(memoryview(bytearray(piece)), now)
        elif kind == 4:
            now += number * 100
            session.wake(now)
        elif session.state.question is not None:
            ask = session.state.question
            if ask.token_id is not None:
                session.resume(ask, now)
            elif number & 1:
                session.forward(ask, ask.frame)
            else:
                # Our own answers are never malformed.
                raw = header.build_response(
                    ask.plan.key, ask.plan.version, ask.correlation_id, bytes(64)
                )
                session.answer(ask, raw, now)
        assert session.held_bytes <= MAX_HELD
        if closed is not None:
            assert (len(session.to_client), len(session.to_broker)) == before
        taken += sum(len(piece) for piece in session.to_broker)
        session.to_broker.clear()
        session.to_client.clear()
        session.commands.clear()
        assert taken <= given
    if session.state.closed is not None:
        assert session.state.closed.reason


TARGETS: dict[str, Callable[[bytes], None]] = {
    "messages": messages,
    "identity": identity,
    "conversation": conversation,
}

__all__ = ["TARGETS", "LocalProtocolError"]
