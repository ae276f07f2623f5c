"""Request logs: single lines of any layout, and whole files, compressed and damaged."""

from __future__ import annotations

import bz2
import functools
import gzip
import itertools
import json
import lzma
import math
import zlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from fuzzing.quotas import ROOT, folder
from fuzzing.target import Target
from headgate.pipeline.logs.joining import Joiner
from headgate.pipeline.logs.line_parser import BadLine, LineParser, LogRow
from headgate.pipeline.logs.scan.scanner import LineScanner
from headgate.pipeline.logs.time_stamps import StampError, StampReader, sniff_nanos, zone_of
from headgate.pipeline.sources.chunks import PADDING, read_lines
from headgate.pipeline.sources.compressed import Damaged
from headgate.pipeline.sources.pieces import FilePiece, pieces_of
from headgate.pipeline.workers.log_reader import ReadOptions, RequestsOfLogs
from kit.layouts import LAYOUTS, rewrapped

_SAMPLES = ROOT / "tests" / "data" / "pipeline"
_ZONE = zone_of("Europe/Berlin")
MOST_TEXT = 1 << 22
"""A compressed input may unpack to more; reading it is stopped there."""


@functools.cache
def _scanner() -> LineScanner:
    return LineScanner(_ZONE, connections=True)


def scan(data: bytes, stamps: StampReader) -> tuple[dict[int, LogRow], int, int]:
    """Return (rows by offset, lines given back, lines in all) of a buffer."""
    scanner = _scanner()
    text = np.frombuffer(data + b"{" * PADDING, np.uint8)
    rows: dict[int, LogRow] = {}
    back = total = 0
    for taken, given_back, lines in scanner.scan(text, len(data), stamps):
        if not lines:
            scanner.forget()
            continue
        total += lines
        back += len(given_back)
        columns = scanner.columns(taken, 0)
        values = [columns[name].to_pylist() for name in ("seq", *LogRow._fields)]
        rows |= {seq: LogRow(*row) for seq, *row in zip(*values, strict=True)}
    return rows, back, total


def lines(data: bytes) -> None:
    """Any lines: a row or a reason for each; the scan in machine code reads the same."""
    text = data if data.endswith(b"\n") else data + b"\n"
    nanos = sniff_nanos(text)
    file = "server-2026-11-22.log"
    scanned, back, total = scan(text, StampReader(_ZONE, nanos=nanos, file=file))
    assert len(scanned) + back == total
    parser = LineParser(_ZONE, nanos=nanos, file=file)
    offset = 0
    for line in text.split(b"\n")[:-1]:
        rows = parser.rows(line)
        assert bool(rows) == bool(line.strip())
        for bad in rows:
            assert not isinstance(bad, BadLine) or str(bad)
        row = rows[0] if len(rows) == 1 and isinstance(rows[0], LogRow) else None
        if row is not None:
            assert row.bytes_charged >= 0
            assert math.isfinite(row.record_ms)
            assert math.isfinite(row.amount)
            for text_field in (row.listener, row.connection, row.principal, row.client_id):
                text_field.encode()
        if offset in scanned:
            assert scanned[offset] == row
        offset += len(line) + 1
    _joined(text, LineParser(_ZONE, nanos=nanos, file=file))


def _joined(text: bytes, parser: LineParser) -> None:
    """Lines put together: where none of them gives a request, each is a bad one, once."""
    joiner, offset = Joiner(parser), 0
    read, offsets = [], []
    for line in text.split(b"\n"):
        if line.strip():
            offsets.append(offset)
            read += joiner.take(offset, line)
        offset += len(line) + 1
    read += joiner.end()
    assert all(str(row) for _, row, _ in read)
    if not any(isinstance(row, LogRow) for _, row, _ in read):
        assert set(offsets) <= {at for at, _, _ in read}


def stamps(data: bytes) -> None:
    """Any text in front of a line: a moment, or a reason; in a reader that has seen others."""
    reader = StampReader(_ZONE, nanos=bool(data[:1] > b"\x7f"), file="x-2026-11-22.log")
    for prefix in data[1:].split(b"\n")[:8]:
        try:
            at = reader.read(prefix)
        except StampError as error:
            assert str(error)
        else:
            assert isinstance(at, float)
            assert not math.isnan(at)


def files(data: bytes) -> None:
    """Any bytes as a file of a log: its lines up to where it is damaged."""
    path = str(folder() / "server.log")
    (folder() / "server.log").write_bytes(data)
    for piece in pieces_of([(path, len(data))], broker_id=1):
        if not piece.unread:
            _read(piece)


def _read(piece: FilePiece) -> None:
    size = 0
    parser = LineParser(_ZONE, nanos=piece.nanos, file=piece.path)
    try:
        for offset, found in read_lines(piece):
            assert offset >= 0
            size += sum(map(len, found))
            for line in found[:50]:
                assert all(str(row) for row in parser.rows(line))
            if size > MOST_TEXT:
                return
    except Damaged as error:
        assert str(error)


def logs(data: bytes) -> None:
    """Any lines of a file, in pieces of any size: each is a row or a bad line, as in one piece."""
    log = folder() / "kafka.log"
    log.write_bytes(data[1:])
    size = 200 + 20 * data[0] if data else 200
    found = []
    for piece_bytes in (1 << 30, size):
        pieces = tuple(pieces_of([(str(log), len(data) - 1)], piece_bytes=piece_bytes))
        told = ReadOptions(pieces, scan=False)
        rows = [r for p in pieces for b in RequestsOfLogs(told).read(p) for r in b.to_pylist()]
        lines = sum(row["lines"] or 0 for row in rows if row["kind"] == "stat")
        rows = [row for row in rows if row["kind"] != "stat"]
        assert lines == len(rows)
        found.append(sorted(map(str, rows)))
    assert found[0] == found[1]


def _logs() -> list[bytes]:
    """Return small logs of each layout, whole and split by runtimes and shippers."""
    text = gzip.decompress((_SAMPLES / "public.log.gz").read_bytes())
    short = b"\n".join(line for line in text.split(b"\n") if len(line) < 900)
    made = [b"\n".join(itertools.islice(rewrapped(short, layout), 4)) for layout in LAYOUTS]
    for n, line in enumerate(short.split(b"\n")[:8]):
        parts = line[:400].decode(), line[400:].decode()
        made.append(
            "\n".join(
                f"2024-10-25T10:15:30.{i}Z stdout {'PF'[i]} {part}" for i, part in enumerate(parts)
            ).encode()
        )
        made.append(
            "\n".join(json.dumps({"host": n, "message": part}) for part in parts * 2).encode()
        )
    return [b"\x20" + each for each in made]


def _lines() -> list[bytes]:
    found = []
    for name in ("public", "precise"):
        text = gzip.decompress((_SAMPLES / f"{name}.log.gz").read_bytes())
        seen = set()
        for line in text.split(b"\n"):
            api = line.partition(b'"requestApiKeyName":"')[2][:12]
            if api not in seen and len(line) < 3000:
                seen.add(api)
                found.append(line)
    others = gzip.decompress((_SAMPLES / "others.jsonl.gz").read_bytes()).splitlines()
    every = max(1, len(others) // 150)
    found += [json.loads(line)["line"].encode() for line in others[::every]]
    short = b"\n".join(line for line in found if line.startswith(b"[") and len(line) < 900)
    for layout in LAYOUTS:
        found += itertools.islice(rewrapped(short, layout), 2)
    field = ROOT / "tests" / "data" / "field"
    for path in sorted(field.glob("F*/*.json")) + sorted(field.glob("F*/*.csv")):
        found.append(path.read_bytes()[:2900])
    return [line for line in found if len(line) < 3000]


def _stamps() -> list[bytes]:
    return [b"\0" + line.partition(b"{")[0][:100] for line in _lines()] + [
        b"\0[2026-11-22 10:00:00,123] ",
        b"\0" + b"2026-11-22T10:00:00.123456789Z ",
        b"\0Nov 22 10:00:00 host kafka[1]: ",
        b"\0" + b"1795261549304 ",
        b"\xff22/Nov/2026:10:00:00 +0100 ",
    ]


def _files() -> list[bytes]:
    text = b"\n".join(_lines()[:6])
    pack: list[Callable[[bytes], bytes]] = [
        gzip.compress,
        bz2.compress,
        lzma.compress,
        functools.partial(lzma.compress, format=lzma.FORMAT_ALONE),
        *(lambda t, c=c: pa.compress(t, codec=c, asbytes=True) for c in ("zstd",)),  # type: ignore[misc]
        _lz4_frame,
    ]
    packed = [each(text) for each in pack]
    twice = gzip.compress(text[:500]) + gzip.compress(text[500:900])
    bomb = gzip.compress(bytes(1 << 20))
    raw = zlib.compressobj(wbits=31)
    unfinished = raw.compress(text) + raw.flush(zlib.Z_SYNC_FLUSH)
    return [text, *packed, twice, bomb, unfinished, b"PK\3\4" + text[:50], b"\xff\xfe" + text[:50]]


def _lz4_frame(text: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as out:
        out.write(text)
    return bytes(sink.getvalue())


_WORDS = (
    b'"requestHeader":{', b'"clientId":', b"null", b"[", b"{", b"}", b"]", b'\\"', b"\\u", b"1e999",
    b"NaN", b"Infinity", b"-1", b"9223372036854775807", b"User:", b'"topics":[',
    b"recordsSizeInBytes",
    b"Completed request:", b"\n",
)  # fmt: skip
TARGETS = {
    "log lines": Target(lines, _lines, _WORDS),
    "split logs": Target(logs, _logs, _WORDS),
    "time stamps": Target(
        stamps,
        _stamps,
        (
            b"2026-11-22",
            b"T",
            b":",
            b",",
            b".",
            b"+01:00",
            b"Z",
            b"Nov",
            b"60",
            b"0",
            b"1795261549",
        ),
    ),
    "log files": Target(files, _files, (b"\x1f\x8b", b"\n")),
}
