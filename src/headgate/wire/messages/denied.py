"""
Answers to requests without permission: every entity or resource asked for is refused.

A client waits for each of them, so all must be named. Reading and writing a mebibyte of them takes
half a second, so a gateway has it done in another process::

    python -c "from headgate.wire.messages.denied import main; main()" released 49 1 < request
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from headgate.errors import KafkaError, RemoteProtocolError
from headgate.wire.apis import ALTER_CLIENT_QUOTAS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from headgate.wire.header import parse_request_header
from headgate.wire.messages import configs, decode_request, draft, encode_response, quotas

RELEASED: Final = "released"
DRAFT: Final = "draft"
MOST_ANSWER_BYTES: Final = 4 << 20
"""Four times the largest request: only entities without names make a longer answer."""
_CODE: Final = int(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
_TEXT: Final = KafkaError.CLUSTER_AUTHORIZATION_FAILED.generic_message


def denied(calls: str, key: int, version: int, frame: bytes) -> bytes:
    """
    Refuse a request with CLUSTER_AUTHORIZATION_FAILED.

    Args:
        calls: to which calls the key belongs: ``RELEASED`` or ``DRAFT``.
        key: 49 (both), 50 of the draft, 33 or 44.
        version: of the request.
        frame: the request with its length prefix.

    Returns:
        The answer's frame.

    Raises:
        RemoteProtocolError: the request doesn't parse, or its answer would be too long.
    """
    answer = _draft(key, frame) if calls == DRAFT else _released(key, version, frame)
    if len(answer) > MOST_ANSWER_BYTES:
        raise RemoteProtocolError(f"an answer of {len(answer)} bytes", reason="oversized")
    return answer


def _released(key: int, version: int, frame: bytes) -> bytes:
    _, _, correlation_id, _, body = parse_request_header(frame)
    request = decode_request(key, version, frame, body)
    response: Any
    if key == ALTER_CLIENT_QUOTAS:
        response = quotas.AlterClientQuotasResponse(
            tuple(quotas.AlteredEntry(entry.entity, _CODE, _TEXT) for entry in request.entries)
        )
    else:
        assert key in (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS)
        response = configs.AlterConfigsResponse(
            tuple(
                configs.ResourceResult(r.resource_type, r.resource_name, _CODE, _TEXT)
                for r in request.resources
            )
        )
    return encode_response(key, version, correlation_id, response)


def _draft(key: int, frame: bytes) -> bytes:
    correlation_id = int.from_bytes(frame[8:12], "big", signed=True)
    request = draft.decode_request(key, frame, draft.body_offset(frame))
    response: Any
    if key == draft.ALTER_QUOTAS:
        response = draft.AlterQuotasResponse(
            tuple(draft.DraftAlteredEntry(entry.entity, _CODE, _TEXT) for entry in request.entries)
        )
    else:
        entry = draft.EffectiveEntry(request.entity, (), _CODE, _TEXT)
        response = draft.DescribeEffectiveQuotasResponse((entry,))
    return draft.encode_response(key, correlation_id, response)


def main() -> None:
    """Refuse the request on standard input; what is wrong with it goes to standard error."""
    os.nice(10)
    calls, key, version = sys.argv[1:]
    try:
        answer = denied(calls, int(key), int(version), sys.stdin.buffer.read())
    except RemoteProtocolError as error:
        sys.exit(f"{error.reason}: {error}")
    sys.stdout.buffer.write(answer)
