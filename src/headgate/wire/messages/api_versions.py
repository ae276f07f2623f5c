"""
ApiVersions 18: what a client is told it may use.

Of the APIs that the gateway must read, only versions that it can read are advertised. Of keys that
it doesn't know, nothing is (but for ``headgate.unknown.apis=pass``). The rest of the answer
(features) is copied.

Source: Apache Kafka's ``ApiVersions*.json``; KIP-511 (an unknown version is answered in version 0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headgate.errors import KafkaError
from headgate.wire.apis import API, API_VERSIONS
from headgate.wire.fields import (
    INT16,
    INT32,
    Buffer,
    read_array_length,
    read_int16,
    skip_tags,
    write_array_length,
)
from headgate.wire.header import build_response
from headgate.wire.schema import Int16, Int32, message, struct, versions

Ranges = Mapping[int, tuple[int, int]]


@message()
class ApiVersionsRequest:
    """What the client is (since version 3) and which broker it expects (version 5, KIP-1242)."""

    client_software_name: str = versions("", since=3)
    client_software_version: str = versions("", since=3)


@message()
class ApiVersion:
    """The versions of one API."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@message("error_code")
class ApiVersionsResponse:
    """The APIs of a broker; features are dropped when read as a whole."""

    api_keys: tuple[ApiVersion, ...]
    error_code: Int16 = 0
    throttle_time_ms: Int32 = versions(0, since=1)


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """
    What a broker answered.

    Attributes:
        error: Kafka's error code; 35 (then in version 0) if it doesn't know the asked version.
        ranges: api key to (oldest, newest) version.
        version: the version the body is in.
        tail: offset of what follows the keys.
    """

    error: int
    ranges: dict[int, tuple[int, int]]
    version: int
    tail: int


REQUESTS: Final = {API_VERSIONS: struct(ApiVersionsRequest)}
RESPONSES: Final = {API_VERSIONS: struct(ApiVersionsResponse)}


def parse_response(frame: Buffer, version: int) -> ApiVersions:
    """
    Read an ApiVersions response.

    Args:
        frame: with its length prefix.
        version: of the request answered.
    """
    error, at = read_int16(frame, 8)
    if error == KafkaError.UNSUPPORTED_VERSION:
        version = 0
    flexible = version >= 3
    count, at = read_array_length(frame, at, flexible)
    ranges: dict[int, tuple[int, int]] = {}
    for _ in range(count):
        key, at = read_int16(frame, at)
        oldest, at = read_int16(frame, at)
        newest, at = read_int16(frame, at)
        if flexible:
            at = skip_tags(frame, at)
        ranges[key] = (oldest, newest)
    return ApiVersions(error, ranges, version, at)


def narrow(ranges: Ranges, pass_unknown: bool = False) -> dict[int, tuple[int, int]]:
    """
    Return the versions that may be advertised, of those that an upstream has.

    Args:
        ranges: the upstream's.
        pass_unknown: keep keys that aren't in the table (``headgate.unknown.apis=pass``).
    """
    narrowed: dict[int, tuple[int, int]] = {}
    for key, (oldest, newest) in ranges.items():
        api = API.get(key)
        if api is None:
            if pass_unknown:
                narrowed[key] = (oldest, newest)
            continue
        if not api.proxied:
            continue
        if api.passes_until is not None:
            # What is older than any release (ShareFetch 0 of 4.0's preview) isn't read either.
            oldest, newest = max(oldest, api.min_version), min(newest, api.passes_until)
            if oldest > newest:
                continue
        narrowed[key] = (oldest, newest)
    return narrowed


def _write_ranges(ranges: Ranges, flexible: bool) -> bytes:
    out = [write_array_length(len(ranges), flexible)]
    for key, (oldest, newest) in ranges.items():
        out.append(INT16.pack(key) + INT16.pack(oldest) + INT16.pack(newest))
        if flexible:
            out.append(b"\x00")
    return b"".join(out)


def narrow_response(
    frame: Buffer, version: int, pass_unknown: bool = False, own: Ranges | None = None
) -> bytes:
    """
    Rewrite an upstream's answer for a client.

    Args:
        frame: the upstream's response.
        version: of the request.
        pass_unknown: as in ``narrow``.
        own: APIs the gateway answers itself; they are advertised whatever the upstream has.

    Returns:
        The response: same error, throttle and features.
    """
    answer = parse_response(frame, version)
    # With error 35 the answer lists ApiVersions alone, and ``narrow`` caps that too.
    ranges = narrow(answer.ranges, pass_unknown)
    if own is not None and answer.error == KafkaError.NONE:
        ranges = {**ranges, **own}
    raw = INT16.pack(answer.error) + _write_ranges(ranges, answer.version >= 3)
    rest = bytes(frame[answer.tail :])
    return INT32.pack(4 + len(raw) + len(rest)) + bytes(frame[4:8]) + raw + rest


def own_response(correlation_id: int, version: int, ranges: Ranges, error: int = 0) -> bytes:
    """Return an answer of our own, without features."""
    flexible = version >= 3
    body = INT16.pack(error) + _write_ranges(ranges, flexible)
    if version >= 1:
        body += INT32.pack(0)
    return build_response(API_VERSIONS, version, correlation_id, body + b"\x00" * flexible)


def admin_response(correlation_id: int, version: int, keys: Iterable[int]) -> bytes:
    """Return what the admin listener advertises: the draft's keys in version 0, others as known."""
    ranges = {}
    for key in keys:
        api = API[key]
        draft = key in (48, 49, 50)
        ranges[key] = (0, 0) if draft else (api.min_version, api.passes_until or api.max_version)
    return own_response(correlation_id, version, ranges)


def unsupported_response(correlation_id: int) -> bytes:
    """Return the answer to a version that isn't known: version 0 with error 35 (KIP-511)."""
    api = API[API_VERSIONS]
    ranges = {API_VERSIONS: (api.min_version, api.max_version)}
    return own_response(correlation_id, 0, ranges, KafkaError.UNSUPPORTED_VERSION)
