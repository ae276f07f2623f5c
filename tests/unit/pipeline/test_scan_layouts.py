"""Every layout that people have is scanned, and read as the parser of all lines reads it."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.pipeline.emitted import EMITTED_REQUESTS, Columns
from headgate.pipeline.logs.line_parser import LogRow
from headgate.pipeline.logs.scan import scanner
from headgate.pipeline.logs.time_stamps import StampReader
from headgate.pipeline.sources import chunks
from headgate.pipeline.sources.pieces import FilePiece, pieces_of
from headgate.pipeline.workers.log_reader import LogReader, ReadOptions
from kit import layouts
from kit.layouts import LAYOUTS, rewrapped

DATA = Path(__file__).parents[2] / "data"
_LOG = gzip.decompress((DATA / "pipeline/public.log.gz").read_bytes())
# A log is many chunks, of which the first may be the parser's. At night a chunk is as long as it is
# elsewhere, and logs are as many times longer; otherwise both are short.
_SHORTER = 1 if settings.get_current_profile_name() == "nightly" else 5
_COUNT = 4_000 // _SHORTER
STOCK = b"\n".join(_LOG.split(b"\n")[:_COUNT])
# Left to the parser: the month is a name.
SLOW = {"log4j's DATE"}


@pytest.fixture(scope="module", autouse=True)
def _chunks() -> Iterator[None]:
    """Have logs read in chunks that fit their lengths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", chunks.CHUNK_BYTES // _SHORTER)
        yield


def read(piece: FilePiece, zone: str, *, scan: bool) -> tuple[list[Any], list[Any], int]:
    """Return (rows by offset, bad lines, lines scanned) of a piece."""
    side = Columns(EMITTED_REQUESTS)
    options = ReadOptions((piece,), zone, connections=True, scan=scan)
    reader = LogReader(options, side, connections=True)
    rows: dict[int, LogRow] = {}
    scanned = 0
    for base, taken, others in reader.read(piece):
        rows |= dict(others)
        if taken < 0 and reader.scanner is not None:
            reader.scanner.forget()
        if taken > 0:
            assert reader.scanner is not None
            columns = reader.scanner.columns(taken, base)
            values = [columns[name].to_pylist() for name in ("seq", *LogRow._fields)]
            rows |= {seq: LogRow(*row) for seq, *row in zip(*values, strict=True)}
            scanned += taken
    reader.close()
    bad = [x for x in side.take().to_pylist() if x["kind"] == "bad"]
    return sorted(rows.items()), sorted((x["offset"], x["reason"]) for x in bad), scanned


def both(path: Path, data: bytes, zone: str = "UTC", **given: Any) -> tuple[int, int]:
    """Read a log with the scan and without, compare, and return (lines scanned, rows)."""
    path.write_bytes(data)
    piece = pieces_of([(str(path), len(data))], broker_id=1)[0]
    if not piece.compression:
        piece = dataclasses.replace(piece, end=len(data), **given)
    rows, bad, scanned = read(piece, zone, scan=True)
    expected, expected_bad, none = read(piece, zone, scan=False)
    assert none == 0
    for row, other in itertools.zip_longest(rows, expected):
        assert row == other
    assert bad == expected_bad
    return scanned, len(rows)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_layout_is_scanned_and_read_as_the_parser_reads_it(
    layout: str, zone: str, tmp_path: Path
) -> None:
    lines = list(rewrapped(STOCK, layout))
    data = b"\n".join(lines) + b"\n"
    assert len(data * 2) > 4 * chunks.CHUNK_BYTES
    scanned, rows = both(tmp_path / "kafka-2026-11-21.log", data * 2, zone)
    assert rows == 2 * len(lines)
    if layout in SLOW:
        assert scanned < rows // 2
    elif zone == "UTC" or layout == "stock":
        assert scanned > 0.98 * rows
    else:  # the wrapper's zone counts
        assert scanned > 0.98 * rows


FIELD = [p for p in sorted((DATA / "field").rglob("*.*")) if p.suffix in (".log", ".gz", ".json")]


@pytest.mark.parametrize("path", FIELD, ids=lambda p: p.name)
def test_inputs_from_the_field_are_read_the_same_both_ways(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    both(tmp_path / path.name.removesuffix(".gz"), data, "Europe/Berlin")


@pytest.mark.parametrize("shifts", [(0.0,), (-3_600_000.0,), (-3_600_000.0, 0.0)])
@pytest.mark.parametrize("layout", ["CRI, stock inside", "docker json-file, stock inside"])
def test_a_wrapper_that_lags_or_another_hour_is_read_the_same(
    layout: str, shifts: tuple[float, ...], tmp_path: Path
) -> None:
    lines = list(rewrapped(STOCK, layout))
    half, later = len(lines) // 2, len(lines) * 3 // 5
    zone = "Europe/Berlin"
    assert b"T11:" in lines[0]
    lags = [line.replace(b"T11:", b"T10:", 1) for line in lines[:half]]
    lags += [line.replace(b"T11:4", b"T11:1", 1) for line in lines[half:later]] + lines[later:]
    scanned, rows = both(tmp_path / "a.log", b"\n".join(lags) + b"\n", zone, shifts_ms=shifts)
    assert rows == len(lags)
    assert scanned > 0.98 * rows


def test_text_that_varies_from_line_to_line_is_left_to_the_parser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1 << 20)  # it's found out within a chunk
    lines = list(rewrapped(STOCK, "Strimzi, on stdout"))
    lines = [
        line.replace(b"DEBUG", b"DEBUG id=%x" % (n * 7919))
        for n, line in enumerate(lines * _SHORTER)
    ]
    scanned, rows = both(tmp_path / "a.log", b"\n".join(lines) + b"\n")
    assert rows == len(lines)
    assert scanned < rows // 2


def test_a_frame_means_in_each_file_what_it_means_there(tmp_path: Path) -> None:
    data = b"\n".join(rewrapped(STOCK, "CRI, stock inside")) + b"\n"
    for shifts in ((), (3_600_000.0,), ()):
        assert both(tmp_path / "a.log", data, "Europe/Berlin", shifts_ms=shifts)[0]


_ODD = st.sampled_from(
    [bytes([b]) for b in b'{}[]",:\\0-.+ TZ\n_/29\xc3']
    + [b"2026-11-21 11:45:51", b"11:45:51,5", b"+01:00", b" UTC", b'\\"', b"\\n", b"INFO", b" PM"]
    + [b"requestHeader", b'\\"requestHeader\\"', b"Completed request:", b"1763725551304"]
    + [b'\\\\\\"', b"[", b"trace=", b'{"isForwarded":', b'{\\"isForwarded\\":']
)
_SOME = [
    next(line for line in STOCK.split(b"\n") if b'"%s"' % api in line)
    for api in (b"PRODUCE", b"FETCH", b"METADATA", b"CREATE_TOPICS")
]
_WRAPPED = {name: list(rewrapped(b"\n".join(_SOME), name)) for name in LAYOUTS}


def _docker_at(line: layouts.Line, text: str, hours: int = 0, late_ms: int = 50) -> str:
    time = (line._replace(time=line.time + timedelta(hours=hours))).at(ISO, ".", late_ms) + "Z"
    return layouts._json(log=text + "\n", stream="stdout", time=time)


ISO = "%Y-%m-%dT%H:%M:%S"
HARD: dict[str, Callable[[layouts.Line], str]] = {
    "a season's zone inside docker": lambda x: _docker_at(
        x, f"[{x.at()} CEST] DEBUG {x.message}", -2
    ),
    "half a day inside docker": lambda x: _docker_at(x, f"[{x.at()} AM] DEBUG {x.message}"),
    "a season's zone beside whole seconds": lambda x: (
        f"{x.at(late_ms=50)} CEST host [{x.at(sep='')}] DEBUG {x.message}"
    ),
    "half a day beside whole seconds": lambda x: (
        f"{x.at(late_ms=50)} AM host [{x.at(sep='')}] DEBUG {x.message}"
    ),
    "two stamps, the first at Kafka's place": lambda x: (
        f"[{x.at(late_ms=40)}] [{x.at()}] DEBUG {x.message}"
    ),
    "no bracket": lambda x: f" {x.at()}4{x.body}",
    "no date, in a file of 2001": lambda x: f"x{x.at()} [{x.at('%H:%M:%S')}] DEBUG {x.message}",
    "logfmt without a marker": lambda x: (
        f'ts="{x.at()}" msg='
        + json.dumps(x.body.replace('"clientId":"', '"clientId":"2026-01-02 03:04:05,678 ', 1))
    ),
}


@pytest.mark.parametrize("what", HARD)
@pytest.mark.parametrize("mixed", [False, True])
def test_a_stamp_that_a_frame_cannot_stand_for_is_the_parsers(
    tmp_path: Path, what: str, mixed: bool
) -> None:
    found = [layouts.split(line, n) for n, line in enumerate(STOCK.splitlines()[:120])]
    found = [line._replace(time=line.time - timedelta(days=120)) for line in found]  # July
    each = [text for x in found for text in (layouts._stock(x), HARD[what](x))[not mixed :]]
    path = tmp_path / ("k-2001-01-01.log" if "2001" in what else "kafka.log")
    both(path, "\n".join(each).encode() + b"\n", "Europe/Berlin")


def test_a_wrappers_hours_are_left_alone_by_lines_that_have_no_wrapper(tmp_path: Path) -> None:
    found = [layouts.split(line, n) for n, line in enumerate(STOCK.splitlines()[:120])]

    def in_cri(x: layouts.Line, hours: int, late_ms: int = 5, *, odd: bool = False) -> str:
        body = x.body.replace('"clientId":"', '"clientId":"\\u0041', 1) if odd else x.body
        time = x._replace(time=x.time + timedelta(hours=hours)).at(ISO, ".", late_ms)
        return f"{time}Z stdout F [{x.at()}] DEBUG Completed request:{body}"

    each = [in_cri(x, 0) for x in found[:20]]
    each += [in_cri(found[20], 3, odd=True), layouts._stock(found[21])]
    each += [in_cri(found[22], 3, 60_000, odd=True)]  # it lags: the last wrapper's hours count
    each += [layouts._stock(x) for x in found[23:]] * (90 // _SHORTER)
    each += [in_cri(found[30], 3, 60_000)]
    both(tmp_path / "kafka.log", "\n".join(each).encode() + b"\n", shifts_ms=(0.0, 3_600_000.0))


def test_frames_of_earlier_files_are_understood_again_when_they_are_met_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    understood: list[bytes] = []
    real = scanner.meaning

    def counts(frame: bytes, stamps: StampReader, *, in_string: bool) -> float:
        understood.append(frame)
        return real(frame, stamps, in_string=in_string)

    monkeypatch.setattr(scanner, "meaning", counts)
    lines = [layouts.split(line, n) for n, line in enumerate(STOCK.splitlines()[:100])]
    reader = LogReader(ReadOptions(()), Columns(EMITTED_REQUESTS), connections=False)
    for day in range(1, 9):
        path = tmp_path / f"kafka-request.log.2026-10-{day:02d}"
        tag = [f"{x.at()} DEBUG [{day}{n % 7}x] {x.message}" for n, x in enumerate(lines)]
        path.write_text("\n".join(tag) + "\n")
        (piece,) = pieces_of([(str(path), path.stat().st_size)], broker_id=1)
        for _ in reader.read(piece):
            pass
    assert len(understood) == len({*understood})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_wrappers_field_may_hold_words_that_a_request_has(layout: str, tmp_path: Path) -> None:
    lines = _WRAPPED[layout]
    front = lines[0][: lines[0].index(b"isForwarded")]
    places = {m.end() for m in re.finditer(rb':"(?=[^"{]+",)|(?<=[ =])(?=[a-z])', front)}
    for at in sorted(places):
        for words in (b"requestHeader", b'\\"requestHeader\\"', b"Completed request:"):
            each = [line[:at] + words + line[at:] for line in lines]
            both(tmp_path / "a.log", b"\n".join(each) + b"\n")


def test_a_cursor_that_holds_a_requests_word_is_no_request(tmp_path: Path) -> None:
    lines = [
        line.replace(b'"__CURSOR":"', b'"__CURSOR":"s=requestHeader;', 1)
        for line in _WRAPPED["journalctl -o json"]
    ]
    scanned, rows = both(tmp_path / "a.log", b"\n".join(lines) + b"\n")
    assert (scanned > 0, rows) == (True, len(lines))


@st.composite
def mutated(draw: st.DrawFn) -> tuple[bytes, tuple[float, ...], bool]:
    """Draw lines in a layout, one changed in a few places among unchanged ones; shifts, nanos."""
    lines = _WRAPPED[draw(st.sampled_from(sorted(LAYOUTS)))]
    line = draw(st.sampled_from(lines))
    body = line.index(b"isForwarded")
    for _ in range(draw(st.integers(1, 3))):
        ends = st.one_of(st.integers(0, body), st.integers(max(0, len(line) - 160), len(line)))
        at = draw(st.one_of(ends, ends, st.integers(0, len(line))))
        n = draw(st.integers(0, 8))
        piece = draw(st.one_of(_ODD, _ODD, st.just(b""), st.just(line[at : at + n] * 2)))
        line = line[:at] + piece + line[at + (n if draw(st.booleans()) else 0) :]
    other = draw(st.sampled_from(lines))
    shifts = draw(st.sampled_from([(), (3_600_000.0,), (0.0, 3_600_000.0)]))
    return b"\n".join([other, line, line, other]) + b"\n", shifts, draw(st.booleans())


@settings(
    max_examples=2 * settings().max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(mutated())
def test_a_mutated_line_of_any_layout_is_refused_or_read_the_same(
    tmp_path: Path, drawn: tuple[bytes, tuple[float, ...], bool]
) -> None:
    data, shifts, nanos = drawn
    both(tmp_path / "kafka.log", data, "Europe/Berlin", shifts_ms=shifts, nanos=nanos)
