"""
Read compressed files, and tell a file that is damaged from one that can't be read.

Damage is in the file: it is found by each reading of it, so what came before it counts, and a
row of ``bad_lines`` says so. A read that fails says nothing about the file: it's tried again, and
in the end the run fails.
"""

from __future__ import annotations

import codecs
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

_READ_BYTES: Final = 1 << 20
# If what LZMA is fed in one call is damaged anywhere, the call returns none of it.
_LZMA_FED_BYTES: Final = 1024


class Damaged(ValueError):
    """A file's own bytes are broken; the text says how."""


class ReadError(OSError):
    """A file couldn't be read; the text names it, and says why."""


@contextmanager
def reading(path: str) -> Iterator[None]:
    """
    Name the file in the errors of a block that reads it.

    Raises:
        ReadError: in place of any other OSError.
    """
    try:
        yield
    except ReadError:
        raise
    except OSError as exc:
        raise ReadError(f"{path} can't be read: {exc}") from exc


class Watched(io.RawIOBase):
    """
    A pyarrow stream as a Python file that remembers whether reading failed.

    pyarrow's decompressors raise the same OSError for broken data as for a broken disk. The code
    that opened the stream closes it: closing this file doesn't.

    Args:
        source: the stream.

    Attributes:
        failure: what reading raised; None: nothing.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self.failure: OSError | None = None

    def read(self, count: int = -1) -> bytes:
        """Read up to ``count`` bytes."""
        try:
            data: bytes = self._source.read(None if count < 0 else count)
        except OSError as exc:
            self.failure = exc
            raise
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place, where the stream can."""
        return self._source.seek(offset, whence)

    def tell(self) -> int:
        """Return the place."""
        return self._source.tell()

    def seekable(self) -> bool:
        """Say whether it can go to places."""
        return bool(self._source.seekable())

    def readable(self) -> bool:
        """Say that it can be read."""
        return True


def decompressed(system: Any, inner: str, compression: str) -> Iterator[bytes]:
    """
    Yield the text of a compressed file, or of one in another encoding, as UTF-8.

    Raises:
        Damaged: where the stream ends early or is broken, after all that came before it (gzip),
            or nearly all (others, whose streams give whole blocks).
        OSError: it couldn't be read.
    """
    if compression == "zip":
        with system.open_input_file(inner) as stream:
            yield from _unzip(Watched(stream))
        return
    with system.open_input_stream(inner, compression=None) as stream:
        if compression.startswith("utf-16"):
            yield from _utf_8(stream, compression)
        elif compression == "gzip":
            yield from _gunzip(stream)
        elif compression == "xz":
            yield from _unxz(stream)
        else:
            yield from _by_arrow(stream, compression)


def _by_arrow(stream: Any, compression: str) -> Iterator[bytes]:
    """Yield the text of a stream that pyarrow knows."""
    source = Watched(stream)
    with pa.CompressedInputStream(pa.PythonFile(source, "r"), compression) as text:
        while True:
            try:
                data = text.read(65536)
            except OSError as exc:
                if source.failure is not None:
                    raise source.failure from None
                raise Damaged(str(exc)) from exc
            if not data:
                return
            yield data


def _gunzip(stream: Any) -> Iterator[bytes]:
    unzip, fed = zlib.decompressobj(31), b""
    while data := fed or stream.read(_READ_BYTES):
        before = unzip.copy()
        try:
            text = unzip.decompress(data)
        except zlib.error as exc:
            yield from _up_to_damage(before, data)
            raise Damaged(f"the gzip stream is damaged: {exc}") from exc
        if text:
            yield text
        fed = unzip.unused_data.lstrip(b"\0")
        if unzip.eof:  # another member may follow
            unzip = zlib.decompressobj(31)
            fed = fed or stream.read(_READ_BYTES).lstrip(b"\0")
            if not fed:
                return
    raise Damaged("the gzip stream ends early")


def _up_to_damage(unzip: Any, data: bytes) -> Iterator[bytes]:
    """Yield what is readable of data in which there's damage: zlib gives nothing at all of it."""
    for size in (4096, 1):
        for at in range(0, len(data), size):
            before = unzip.copy()
            try:
                text = unzip.decompress(data[at : at + size])
            except zlib.error:
                unzip, data = before, data[at : at + size]
                break
            if text:
                yield text


def _unzip(source: Watched) -> Iterator[bytes]:
    """Yield the text of the files in a zip archive, one behind the other."""
    try:
        with zipfile.ZipFile(source) as archive:
            for info in archive.infolist():
                if info.is_dir() or info.filename.startswith("__MACOSX/"):
                    continue
                last = b""
                with archive.open(info) as text:
                    while data := text.read(65536):
                        yield data
                        last = data
                if last and not last.endswith(b"\n"):
                    yield b"\n"
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as exc:
        if source.failure is not None:
            raise source.failure from None
        raise Damaged(f"the zip archive is damaged, or encrypted: {exc}") from exc


def _utf_8(stream: Any, encoding: str) -> Iterator[bytes]:
    """Yield text that is UTF-16 as UTF-8; what isn't a character is replaced."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    first = True
    while data := stream.read(_READ_BYTES):
        text = decoder.decode(data)
        yield (text.removeprefix("\ufeff") if first else text).encode("utf-8", "replace")
        first = False
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _unxz(stream: Any) -> Iterator[bytes]:
    """Yield the text of an xz file, or an .lzma one."""
    unpack, fed = lzma.LZMADecompressor(), b""
    while data := fed or stream.read(_READ_BYTES):
        for at in range(0, len(data), _LZMA_FED_BYTES):
            try:
                text = unpack.decompress(data[at : at + _LZMA_FED_BYTES])
            except lzma.LZMAError as exc:
                raise Damaged(f"the xz stream is damaged: {exc}") from exc
            if text:
                yield text
            if unpack.eof:
                data = unpack.unused_data + data[at + _LZMA_FED_BYTES :]
                break
        fed = b""
        if unpack.eof:  # another stream may follow
            unpack = lzma.LZMADecompressor()
            fed = data.lstrip(b"\0") or stream.read(_READ_BYTES).lstrip(b"\0")
            if not fed:
                return
    raise Damaged("the xz stream ends early")
