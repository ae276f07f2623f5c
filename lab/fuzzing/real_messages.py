"""Real messages for fuzzers to begin with, and which APIs and versions there are."""

from __future__ import annotations

import functools

from headgate.wire import apis
from kit.wire_oracles import kio_encode, kio_versions, random_kio

BOOK = {1: ("gate.example", 19001), 2: ("gate.example", 19002)}


def _versions(key: int) -> range:
    api = apis.API[key]
    newest = api.max_version if api.passes_until is None else api.passes_until
    return range(api.min_version, newest + 2)


CASES = [(key, version) for key in sorted(apis.API) for version in _versions(key)]


def case(key: int, version: int) -> bytes:
    """The first bytes of the messages target's input: which API and version."""
    return CASES.index((key, version)).to_bytes(2, "big")


@functools.cache
def real(*, response: bool) -> list[tuple[int, int, bytes]]:
    """Bodies that an oracle wrote: API, version, body."""
    return [
        (key, version, body)
        for key, version in CASES
        for seed in (1, 2)
        if (body := one(key, version, seed, response=response)) is not None
    ]


def one(key: int, version: int, seed: int, *, response: bool) -> bytes | None:
    """Return a body that an oracle wrote; None where it doesn't know the API or version."""
    from kio.schema.index import api_key_map

    if key not in api_key_map or version not in kio_versions(key):
        return None
    return kio_encode(random_kio(key, version, response, seed))


def message_seeds() -> list[bytes]:
    """Inputs of the messages target."""
    requests = [case(k, v) + b"\x01" + body for k, v, body in real(response=False)]
    return requests + [case(k, v) + b"\x10" + body for k, v, body in real(response=True)]
