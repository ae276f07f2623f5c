"""Logs as disks, collectors and crashes leave them: a line is a request's or a bad one, always."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.errors import ConfigError
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import pieces_of
from headgate.pipeline.workers.log_reader import ActivityOfLogs, ReadOptions, RequestsOfLogs
from headgate.usage.format import SCHEMA

DATA = Path(__file__).parents[2] / "data/pipeline"
LOG = gzip.decompress((DATA / "public.log.gz").read_bytes()).splitlines()
LINES = LOG[200:230]
FETCH = next(line for line in LOG if b'"FETCH"' in line and b'"responses":[{' in line)
BODY = FETCH[FETCH.find(b"{") : FETCH.rfind(b"}") + 1].decode()
MESSAGE = json.dumps(f"Completed request:{BODY}")
WHOLE = b"".join(line + b"\n" for line in LINES)

NOT_OURS = "not a request line"
CUT = "cut off: N braces of its JSON are open at the end"
ODD = "not the JSON of a request: "
FURTHER = "the file can't be read further: "
UNREAD = "the file isn't read: "


def with_value(key: str, value: str) -> bytes:
    """Return the fetch with another value of a top-level number."""
    old = f'"{key}":'.encode()
    assert FETCH.count(old) >= 1
    at = FETCH.rfind(old) + len(old)
    end = min(FETCH.find(b",", at), FETCH.find(b"}", at))
    return FETCH[:at] + value.encode() + FETCH[end:]


def wrapped(template: str) -> bytes:
    """Return the fetch inside a JSON layout, %s in place of the message."""
    return (template % MESSAGE).encode()


def docker(*pieces: bytes) -> bytes:
    return b"".join(
        json.dumps(
            {"log": piece.decode(), "stream": "stdout", "time": "2024-10-25T11:00:00Z"}
        ).encode()
        + b"\n"
        for piece in pieces
    )


def zipped(*files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, text in enumerate(files):
            archive.writestr(f"kafka-request-{number}.log", text)
    return packed.getvalue()


def tar_gz() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        info = tarfile.TarInfo("kafka-request.log")
        info.size, info.mtime = len(WHOLE), 1729851330
        tar.addfile(info, io.BytesIO(WHOLE))
    return packed.getvalue()


# Behind three good lines: what follows, how many more are good, and why others are bad.
FOLLOWED: dict[str, tuple[bytes, int, tuple[str, ...]]] = {
    "carriage returns": (LINES[5] + b"\r\n" + LINES[6] + b"\r\n", 2, ()),
    "empty lines": (b"\n\r\n  \n\n" + LINES[5] + b"\n", 1, ()),
    "no newline at the end": (LINES[5], 1, ()),
    "cut off at the end": (LINES[5][:400], 0, (CUT,)),
    "cut off in the prefix": (LINES[5][:20], 0, (NOT_OURS,)),
    "two halves": (LINES[5][:300] + b"\n" + LINES[5][300:] + b"\n", 0, (CUT, NOT_OURS)),
    "two lines in one": (LINES[5] + LINES[6] + b"\n", 2, ()),
    "cut off, then another": (LINES[5][:300] + LINES[6] + b"\n", 1, (CUT,)),
    "zeros of a crashed disk": (b"\0" * 5000 + LINES[5] + b"\n", 1, ()),
    "a line of zeros": (b"\0" * 5000 + b"\n" + LINES[5] + b"\n", 1, (NOT_OURS,)),
    "a stack trace": (b"java.lang.X: null\n\tat a.b(C.scala:1)\n", 0, (NOT_OURS, NOT_OURS)),
    "a long line of noise": (b"x" * 300_000 + b"\n", 0, (NOT_OURS,)),
    "a long request": (FETCH.replace(b'"rackId":"', b'"rackId":"' + b"r" * 300_000) + b"\n", 1, ()),
    "not UTF-8": (
        FETCH.replace(b'"FETCH"', b'"FET\xffCH"'),
        0,
        ("not UTF-8 at byte N of the JSON",),
    ),
    "half a character": (FETCH.replace(b'"FETCH"', b'"\\ud83d"'), 0, (ODD,)),
    "an arrival": (
        b"%b}\n"
        % FETCH[: FETCH.find(b',"response":{')].replace(
            b"Completed request:", b"Processor 1 received request: "
        ),
        0,
        ("a request's arrival (logged at TRACE); its completion has a line of its own",),
    ),
    "an endless time": (with_value("sendTimeMs", "1e300"), 0, (ODD,)),
    "a time too long": (with_value("sendTimeMs", "99999999999999"), 0, (ODD,)),
    "a negative time": (with_value("localTimeMs", "-1.0"), 0, (ODD,)),
    "no number": (with_value("localTimeMs", "NaN"), 0, (ODD,)),
    "a throttle time too long": (with_value("throttleTimeMs", "9223372036854775808"), 0, (ODD,)),
    "a throttle time of 33 bits": (with_value("throttleTimeMs", "4294967296"), 0, (ODD,)),
    "a size too large": (with_value("recordsSizeInBytes", "4294967296"), 0, (ODD,)),
    "a version too large": (with_value("requestApiVersion", "70000"), 0, (ODD,)),
    "before its time": (
        b"[1970-01-01" + with_value("sendTimeMs", "99999999")[11:],
        0,
        ("impossible time: -N ms since N",),
    ),
    "a year too early": (b"[0017" + FETCH[5:], 0, ("impossible time stamp 'N-N-N N:N:N,N'",)),
    "too deep": (with_value("sendTimeMs", "[" * 100_000), 0, ("nested too deep",)),
    "docker": (docker(FETCH + b"\n"), 1, ()),
    "docker's pieces": (docker(FETCH[:400], FETCH[400:] + b"\n"), 1, ()),
    "docker's first piece": (docker(FETCH[:400]) + LINES[5], 1, (CUT,)),
    "docker's last piece": (docker(FETCH[400:] + b"\n") + LINES[5], 1, (NOT_OURS,)),
    "CRI": (b"2024-10-25T10:15:30.123456789Z stdout F " + FETCH, 1, ()),
    "CRI's pieces": (
        b"2024-10-25T10:15:30.1Z stdout P %b\n2024-10-25T10:15:30.1Z stdout F %b"
        % (FETCH[:400], FETCH[400:]),
        1,
        (),
    ),
    "JSON over several lines": (
        wrapped('{\n  "timeMillis" : 1729851330123,\n  "message" : %s\n}'),
        1,
        (),
    ),
    "JSON of an array": (wrapped(', {"timeMillis":1729851330123,"message":%s}'), 1, ()),
    "braces in front of JSON": (wrapped('2024-10-25 10:15:30,123 {t-1} {"message":%s}'), 1, ()),
    "JSON's time as text": (wrapped('{"timestamp":"1729851330123","message":%s}'), 1, ()),
    "JSON's time of text": (
        wrapped('{"instant":{"epochSecond":"x"},"message":%s}'),
        0,
        ("no time in the JSON layout's fields",),
    ),
    "JSON's time is no number": (
        wrapped('{"timeMillis":NaN,"message":%s}'),
        0,
        ("no time in the JSON layout's fields",),
    ),
    "JSON's time is too large": (
        wrapped('{"timeMillis":1' + "0" * 400 + ',"message":%s}'),
        0,
        ("no time in the JSON layout's fields",),
    ),
    "JSON too deep": (
        wrapped('{"x":' + "[" * 50_000 + "]" * 50_000 + ',"message":%s}'),
        0,
        ("nested too deep",),
    ),
    "half a character in JSON": (
        wrapped('{"timeMillis":1729851330123,"message":%s}').replace(b"FETCH", b"\\ud83d"),
        0,
        (ODD,),
    ),
}


def general(reason: str) -> str:
    """Return a reason without its numbers, and without the JSON decoder's own words."""
    return re.sub(r"\d[\d.]*", "N", ODD if reason.startswith(ODD) else reason)


def read(path: Path, *, scan: bool, piece_bytes: int) -> tuple[Any, ...]:
    """Return (lines, requests, bytes, reasons) of a file, and check that two ways agree on them."""
    pieces = tuple(pieces_of(find_files([str(path)]), piece_bytes=piece_bytes))
    plan = ReadOptions(pieces, scan=scan, connections=True)
    requests, activity = RequestsOfLogs(plan), ActivityOfLogs(plan)
    rows = [row for piece in pieces for b in requests.read(piece) for row in b.to_pylist()]
    sums = [row for piece in pieces for b in activity.add(piece) for row in b.to_pylist()]
    sums += [row for b in activity.take() for row in b.to_pylist()]

    def of(rows: list[dict[str, Any]], kind: str, column: str) -> list[Any]:
        return [row[column] for row in rows if row["kind"] == kind]

    lines = sum(of(rows, "stat", "lines"))
    sizes = of(rows, "request", "bytes_charged")
    reasons = Counter(general(reason) for reason in of(rows, "bad", "reason"))
    assert lines == len(sizes) + reasons.total()
    assert lines == sum(of(sums, "stat", "lines"))
    assert len(sizes) == sum(of(sums, "activity", "requests"))
    assert sum(sizes) == sum(of(sums, "activity", "bytes"))
    assert reasons == Counter(general(reason) for reason in of(sums, "bad", "reason"))
    return lines, len(sizes), sum(sizes), reasons


def read_all_ways(path: Path) -> tuple[int, Counter[str]]:
    """Return (requests, reasons) of a file, the same whatever reads it and however it's cut."""
    ways = [
        read(path, scan=scan, piece_bytes=piece_bytes)
        for scan in (False, True)
        for piece_bytes in (1 << 30, 1_777)
    ]
    assert all(way == ways[0] for way in ways)
    return ways[0][1], ways[0][3]


@pytest.mark.parametrize("case", FOLLOWED)
def test_no_line_is_lost_and_none_stops_the_rest(case: str, tmp_path: Path) -> None:
    data, good, why = FOLLOWED[case]
    (tmp_path / "kafka-request.log").write_bytes(b"\n".join(LINES[:3]) + b"\n" + data)
    assert read_all_ways(tmp_path) == (3 + good, Counter(map(general, why)))


FILES: dict[str, tuple[Callable[[], bytes], int, tuple[str, ...]]] = {
    "nothing": (lambda: b"", 0, ()),
    "a byte order mark": (lambda: b"\xef\xbb\xbf" + WHOLE, 30, ()),
    "UTF-16": (lambda: WHOLE.decode().encode("utf-16"), 30, ()),
    "UTF-16 without a mark": (lambda: WHOLE.decode().encode("utf-16-le"), 30, ()),
    "UTF-16, the other way": (lambda: WHOLE.decode().encode("utf-16-be"), 30, ()),
    "zip": (lambda: zipped(WHOLE), 30, ()),
    "zip of two, one without its newline": (lambda: zipped(WHOLE[:-1], WHOLE), 60, ()),
    "zip, cut off": (lambda: zipped(WHOLE)[:-30], 0, (FURTHER + "the zip archive is damaged",)),
    "7-zip": (lambda: b"7z\xbc\xaf\x27\x1c" + WHOLE, 0, (UNREAD + "it is N-zip; make it text",)),
    "xz": (lambda: lzma.compress(WHOLE), 30, ()),
    "xz, cut off": (
        lambda: lzma.compress(WHOLE) + lzma.compress(WHOLE)[:20],
        30,
        (FURTHER + "the xz stream ends early",),
    ),
    "lz4 as it was once": (
        lambda: b"\x02\x21\x4c\x18" + WHOLE,
        0,
        (UNREAD + "it is lzN's legacy format; make it text",),
    ),
    "two gzip members": (lambda: gzip.compress(WHOLE) * 2, 60, ()),
    "gzip, then something else": (
        lambda: gzip.compress(WHOLE) + b"junk",
        30,
        (FURTHER + "the gzip stream is damaged: Error -N while decompressing data",),
    ),
    "bzip2, cut off": (lambda: bz2.compress(WHOLE)[:-50], 0, (FURTHER + "Truncated compressed",)),
    "an archive": (tar_gz, 30, (NOT_OURS,)),
}


@pytest.mark.parametrize("case", FILES)
def test_whatever_a_file_is_it_is_read_or_said_why_not(case: str, tmp_path: Path) -> None:
    make, good, why = FILES[case]
    (tmp_path / "kafka-request.log").write_bytes(make())
    requests, reasons = read_all_ways(tmp_path)
    assert requests == good
    assert reasons.total() == len(why)
    assert all(found.startswith(said) for found, said in zip(reasons, why, strict=True))


def test_a_log_that_is_being_compressed_counts_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(WHOLE)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(WHOLE)[:-900])
    assert read_all_ways(tmp_path) == (
        30,
        Counter(
            {f"{UNREAD}it is {general(str(tmp_path / 'a.log'))}, compressed, which is read": 1}
        ),
    )


def test_a_log_under_another_name_is_a_question(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(WHOLE[:-100])
    (tmp_path / "b.log").write_bytes(WHOLE)
    (tmp_path / "c.log").write_bytes(b"no request\n")
    (tmp_path / "d.log").write_bytes(b"no request\n")
    (tmp_path / "e.gz").write_bytes(gzip.compress(WHOLE))
    files = find_files([str(tmp_path)])
    with pytest.raises(ConfigError) as said:
        pieces_of(files, copies="refuse")
    assert said.value.problems[:-1] == tuple(
        f"--requests {tmp_path}/{name} begins with what {tmp_path}/b.log begins with"
        for name in ("a.log", "e.gz")
    )
    assert "--copies once" in said.value.problems[-1]
    once = [piece.path.rpartition("/")[2] for piece in pieces_of(files, copies="once")]
    assert [s for s in once if s not in "c.log d.log"] == ["a.log", "b.log", "e.gz"]
    unread = [s.path[-5:] for s in pieces_of(files, copies="once") if s.unread]
    assert unread == ["a.log", "/e.gz"]
    assert not [s.path for s in pieces_of(files, copies="count") if s.unread]


def test_a_journal_in_another_folder_is_a_question_and_another_workers_isnt(
    tmp_path: Path,
) -> None:
    for folder, worker, seq in (("a", "w", 1), ("b", "w", 1), ("c", "v", 1), ("d", "w", 2)):
        (tmp_path / folder).mkdir()
        name = tmp_path / folder / f"{worker}-{seq:016d}.arrow"
        with pa.ipc.new_file(str(name), SCHEMA) as writer:
            event = {"seq": seq, "worker_id": worker, "t_ms": 1.0, "kind": "record"}
            writer.write_batch(pa.RecordBatch.from_pylist([event], schema=SCHEMA))
    for folder in "ef":  # without events all are the same
        (tmp_path / folder).mkdir()
        with pa.ipc.new_file(str(tmp_path / folder / "w-0000000000000009.arrow"), SCHEMA):
            pass
    files = find_files([str(tmp_path)])
    with pytest.raises(ConfigError, match=r"b/w-0000000000000001\.arrow begins with what") as said:
        pieces_of(files, copies="refuse")
    assert len(said.value.problems) == 2
    assert len(pieces_of(files, copies="once")) == len(pieces_of(files)) - 1 == 5


def test_a_file_that_has_gone_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(WHOLE)
    gone = tmp_path / "gone.log"
    with pytest.raises(ConfigError, match=f"{gone} can't be read: .*No such file"):
        pieces_of([(str(gone), 100), *find_files([str(tmp_path)])])
