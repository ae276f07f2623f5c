"""
Look at the head of a file: what it is compressed with, and its first request.
"""

from __future__ import annotations

from typing import Final

from headgate.pipeline.sources.compressed import Damaged, decompressed
from headgate.pipeline.sources.files import filesystem

_COMPRESSION: Final = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bz2"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x5d\0\0", "xz"),  # its elder form, .lzma
    *((bytes((n,)) + b"\x2a\x4d\x18", "zstd") for n in range(0x50, 0x60)),  # as pzstd begins
)
# What isn't read, and would be millions of bad lines.
_FOREIGN: Final = (
    (b"PK\3\4", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip"),
    (b"\x1f\x9d", "compress (.Z)"),
    (b"\x02\x21\x4c\x18", "lz4's legacy format"),
    (b"\xff\x06\0\0sNaPpY", "snappy"),
    (b"\x89LZO", "lzop"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


def first_request(head: bytes) -> bytes:
    """Return the first whole request line of a log, as far as its first 64 KB go; else nothing."""
    at = head.find(b'"requestHeader')
    end = head.find(b"\n", at)
    return head[head.rfind(b"\n", 0, at) + 1 : end] if 0 <= at < end else b""


def head_of(path: str) -> tuple[bytes, str, str]:
    """Return (the first 64 KB of text, compression, why it isn't read) of a file."""
    system, inner = filesystem(path)
    with system.open_input_file(inner) as file:
        head: bytes = file.read(65536)
    for magic, name in _COMPRESSION:
        if head.startswith(magic):
            try:
                return next(decompressed(system, inner, name), b""), name, ""
            except Damaged:
                return b"", name, ""
    for magic, name in _FOREIGN:
        if head.startswith(magic):
            why = f"it is {name}; make it UTF-8 text, plain or as gzip, zstd, bzip2, lz4 or xz"
            return b"", "", why
    return head, "", ""
