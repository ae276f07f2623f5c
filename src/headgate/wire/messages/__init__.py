"""
Whole messages for what is off the hot path: typed in, typed out, every version.

Four functions serve all of them::

    request = decode_request(CREATE_TOPICS, version, frame, body_offset)
    frame = encode_response(CREATE_TOPICS, version, correlation_id, CreateTopicsResponse(...))

The draft's 48, 49 and 50 have keys of released calls, so ``draft`` has four functions of its own.

- ``api_versions``: ApiVersions: what a client is told it may use.
- ``sasl``: SaslHandshake and SaslAuthenticate.
- ``metadata``: Metadata, for our own questions.
- ``cluster``: ListGroups, DescribeCluster, ListConfigResources.
- ``addresses``: swaps the addresses of brokers in answers.
- ``produce``: Produce, as far as quotas care.
- ``fetch``: Fetch, as far as quotas care.
- ``share``: ShareFetch, as far as quotas care.
- ``mutation``: CreateTopics, DeleteTopics, CreatePartitions.
- ``configs``: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.
- ``quotas``: DescribeClientQuotas and AlterClientQuotas, as released.
- ``draft``: KIP-546's own quota calls.
- ``live``: Headgate's own call: what goes on at a broker now.
- ``denied``: refuses every entity or resource of a request, without reading it whole.
- ``log_dirs``: DescribeLogDirs.
- ``delegation``: DescribeDelegationToken.
- ``scram``: DescribeUserScramCredentials and AlterUserScramCredentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.errors import LocalProtocolError
from headgate.steps import Work
from headgate.wire.fields import Buffer
from headgate.wire.header import (
    build_request,
    build_response,
    is_flexible,
    response_body_offset,
)
from headgate.wire.messages import (
    api_versions,
    cluster,
    configs,
    delegation,
    live,
    log_dirs,
    mutation,
    quotas,
    sasl,
    scram,
)
from headgate.wire.schema import Struct

_MODULES: Final = (
    api_versions,
    cluster,
    configs,
    delegation,
    live,
    log_dirs,
    mutation,
    quotas,
    sasl,
    scram,
)
REQUESTS: Final[Mapping[int, Struct[Any]]] = {k: s for m in _MODULES for k, s in m.REQUESTS.items()}
RESPONSES: Final[Mapping[int, Struct[Any]]] = {
    k: s for m in _MODULES for k, s in m.RESPONSES.items()
}


def _known(structs: Mapping[int, Struct[Any]], api_key: int) -> Struct[Any]:
    try:
        return structs[api_key]
    except KeyError:
        raise LocalProtocolError(f"no message is described for API {api_key}") from None


def decode_request(api_key: int, version: int, frame: Buffer, body_offset: int) -> Any:
    """
    Read a request frame's body.

    Args:
        api_key: from its header.
        version: from its header.
        frame: the request with its length prefix.
        body_offset: where its body begins, from ``parse_request_header``.

    Raises:
        RemoteProtocolError: it doesn't parse.
        LocalProtocolError: this API isn't described here.
    """
    struct = _known(REQUESTS, api_key)
    return struct.decode(frame, version, is_flexible(api_key, version), body_offset)


def decode_request_steps(api_key: int, version: int, frame: Buffer, body_offset: int) -> Work[Any]:
    """Do as ``decode_request``, step by step."""
    struct = _known(REQUESTS, api_key)
    return struct.decode_steps(frame, version, is_flexible(api_key, version), body_offset)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Any
) -> bytes:
    """Return a request frame."""
    body = _known(REQUESTS, api_key).encode(message, version, is_flexible(api_key, version))
    return build_request(api_key, version, correlation_id, client_id, body)


def decode_response(api_key: int, version: int, frame: Buffer) -> Any:
    """Read a response frame to a request of that API and version."""
    at = response_body_offset(api_key, version, frame)
    return _known(RESPONSES, api_key).decode(frame, version, is_flexible(api_key, version), at)


def decode_response_steps(api_key: int, version: int, frame: Buffer) -> Work[Any]:
    """Do as ``decode_response``, step by step."""
    at = response_body_offset(api_key, version, frame)
    return _known(RESPONSES, api_key).decode_steps(
        frame, version, is_flexible(api_key, version), at
    )


def encode_request_steps(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Any
) -> Work[bytes]:
    """Do as ``encode_request``, step by step."""
    body = yield from _known(REQUESTS, api_key).encode_steps(
        message, version, is_flexible(api_key, version)
    )
    return build_request(api_key, version, correlation_id, client_id, body)


def encode_response_steps(
    api_key: int, version: int, correlation_id: int, message: Any
) -> Work[bytes]:
    """Do as ``encode_response``, step by step."""
    body = yield from _known(RESPONSES, api_key).encode_steps(
        message, version, is_flexible(api_key, version)
    )
    return build_response(api_key, version, correlation_id, body)


def encode_response(api_key: int, version: int, correlation_id: int, message: Any) -> bytes:
    """Return a response frame."""
    body = _known(RESPONSES, api_key).encode(message, version, is_flexible(api_key, version))
    return build_response(api_key, version, correlation_id, body)
