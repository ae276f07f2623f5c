"""Bodies of every API and version, requests and answers: read or refused, and written back."""

from __future__ import annotations

import struct

from fuzzing.real_messages import BOOK, CASES, message_seeds
from fuzzing.target import Target, outcome
from headgate.gateway.session.rewrite import rewriting
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
from headgate.wire.messages.addresses import REWRITERS


def messages(data: bytes) -> None:
    """Any body of any API and version: read or refused, and what is read is written back."""
    if len(data) < 3:
        return
    key, version = CASES[int.from_bytes(data[:2], "big") % len(CASES)]
    if data[2] & 1:
        _request(key, version, data[3:])
    else:
        _response(key, version, data[3:], data[2] >> 1)


def _request(key: int, version: int, body: bytes) -> None:
    raw = header.build_request(key, version, 7, "app", b"")[4:] + body
    raw = struct.pack(">i", len(raw)) + raw
    how, head = outcome(lambda: header.parse_request_header(raw))
    assert how == "read"
    at = head[4]  # type: ignore[index]
    assert head[:4] == (key, version, 7, None if (key, version) == (7, 0) else "app")  # type: ignore[index]
    if key in REQUESTS:
        how, message = outcome(lambda: decode_request(key, version, raw, at))
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
        how, message = outcome(lambda: draft.decode_request(key, raw, at))
        if how == "read":
            again = draft.REQUESTS[key].encode(message, 0, False)
            assert draft.REQUESTS[key].decode(again, 0, False) == message
    if key == apis.PRODUCE and version <= 13:
        how, ids = outcome(lambda: produce.producer_ids(raw, version, at))
        if how == "read":
            assert len(ids) <= produce.MOST_PRODUCER_IDS  # type: ignore[arg-type]
            assert produce.acks(raw, version, at) in range(-32_768, 32_768)
    if key == apis.FETCH and version <= 18:
        how, read = outcome(lambda: fetch.read_request(raw, version, at))
        if how == "read":
            capped = fetch.cap_request(bytearray(raw), version, at, 1000)
            assert len(capped) == len(raw)
            assert fetch.read_request(capped, version, at).max_bytes <= max(1000, read.max_bytes)  # type: ignore[attr-defined]
            outcome(lambda: fetch.set_session(raw, version, at, 1, 2))
    if key == apis.SHARE_FETCH:
        outcome(lambda: share.cap_request(raw, version, at, 1000))


def _response(key: int, version: int, body: bytes, choice: int) -> None:
    raw = header.build_response(key, version, 7, body)
    how, at = outcome(lambda: throttle.throttle_offset(key, version, raw))
    if how == "read" and at is not None:
        assert isinstance(at, int)
        assert 8 <= at <= len(raw) - 4
        patched = throttle.patch_throttle(raw, at, 12345)
        assert len(patched) == len(raw)
        # A zero at the end of Produce is found without a walk; written to, it has to be walked,
        # and only an answer that parses leads there.
        if key != apis.PRODUCE or outcome(
            lambda: throttle.throttle_offset(key, version, patched)
        ) == ("read", at):
            assert throttle.read_throttle(patched, at) == 12345
    if key in REWRITERS and version >= REWRITERS[key][0]:
        how, out = outcome(lambda: finish(rewriting(key, version, raw, BOOK)))
        if how == "read":
            rewritten = bytes(out.frame)  # type: ignore[attr-defined]
            assert struct.unpack_from(">i", rewritten)[0] == len(rewritten) - 4
            assert rewritten[4:8] == raw[4:8]
            again = finish(rewriting(key, version, rewritten, BOOK))
            assert again.hidden == ()
            assert bytes(again.frame) == rewritten
    if key in RESPONSES and key != apis.API_VERSIONS:
        how, message = outcome(lambda: decode_response(key, version, raw))
        if how == "read":
            again_raw = encode_response(key, version, 7, message)
            read = decode_response(key, version, again_raw)
            assert encode_response(key, version, 7, read) == again_raw
    if key == apis.API_VERSIONS and version <= 5:
        how, out = outcome(lambda: api_versions.narrow_response(raw, version))
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

        how, size = outcome(mask)
        if how == "read":
            assert size == len(raw)


TARGETS = {
    "messages": Target(messages, message_seeds),
}
