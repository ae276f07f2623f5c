"""Real messages for fuzzers to begin with, in the form their targets take."""

from __future__ import annotations

import functools
import struct

import fuzz_targets
from headgate.wire.header import build_request, build_response
from wire_oracles import kio_encode, kio_versions, random_kio


def case(key: int, version: int) -> bytes:
    """The first bytes of the messages target's input: which API and version."""
    return fuzz_targets._CASES.index((key, version)).to_bytes(2, "big")


@functools.cache
def seeds(name: str) -> tuple[bytes, ...]:
    return tuple({"messages": _messages, "identity": _identity}.get(name, _conversation)())


def _real(response: bool) -> list[tuple[int, int, bytes]]:
    from kio.schema.index import api_key_map

    return [
        (key, version, kio_encode(random_kio(key, version, response, seed)))
        for key in api_key_map
        for version in kio_versions(key)
        if (key, version) in fuzz_targets._CASES
        for seed in (1, 2)
    ]


def _messages() -> list[bytes]:
    requests = [case(k, v) + b"\x01" + body for k, v, body in _real(False)]
    return requests + [case(k, v) + b"\x10" + body for k, v, body in _real(True)]


def _identity() -> list[bytes]:
    parts = (b"\x00\x01", b"\x01\x00")
    plain = (
        *parts,
        b"\x02\0alice\0pw",
        b"\x03",
        b"\x00\x01",
        b"\x01\x00",
        b"\x02\0alice\0pw",
        b"\x03",
    )
    scram = (*parts, b"\x02n,,n=alice,r=x", b"\x03r=x,s=c2FsdA==,i=4096", b"\x02c=biws", b"\x03v=x")
    token = (*parts, b"\x02n,,n=t,r=x,tokenauth=true", b"\x03r=x", b"\x02c=biws", b"\x03v=x")
    bearer = (*parts, b"\x02n,,\x01auth=Bearer YQ.eyJzdWIiOiJhbGljZSJ9.Yw\x01\x01", b"\x03")
    out = [
        b"\x00" + bytes([index]) + b"\xfe".join(steps)
        for index, steps in enumerate((bearer, plain, scram, token))
    ]
    name = "30163114301206035504030c0b4475636b2c20446f6e616c"
    return [*out, b"\x01" + bytes.fromhex(name)]


def _conversation() -> list[bytes]:
    def step(action: int, payload: bytes, number: int = 0) -> bytes:
        return struct.pack(">BBH", action, number, min(len(payload), 599)) + payload[:599]

    out = []
    for table in range(3):
        for key, version, body in _real(False):
            raw = build_request(key, version, 5, "app", body)
            if len(raw) < 590:
                out.append(
                    bytes((table, 0)) + step(0, raw) + step(3, b"\0" * 20) + step(4, b"", 50)
                )
    for key, version, body in _real(True):
        raw = build_response(key, version, 1, body)
        request = build_request(key, version, 1, "app", b"\0" * 30)
        if len(raw) < 590:
            out.append(b"\0\0" + step(0, request) + step(2, raw))
    return out
