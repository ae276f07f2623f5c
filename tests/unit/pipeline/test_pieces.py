"""Every line has exactly one owner, whatever the cuts and the compression."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.pipeline.sources.chunks import read_lines
from headgate.pipeline.sources.compressed import Damaged
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.pieces import FilePiece, pieces_of

LOG = b"".join(b"[2024-10-25 10:15:30,%03d] line %d\n" % (i % 1000, i) for i in range(500))


def lines_of(pieces: list[FilePiece]) -> list[bytes]:
    return [line for s in pieces for _, lines in read_lines(s) for line in lines if line]


@pytest.mark.parametrize("piece_bytes", [1, 7, 33, 34, 35, 1000, 10**6])
def test_every_line_once_whatever_the_cut(tmp_path: Path, piece_bytes: int) -> None:
    (tmp_path / "a.log").write_bytes(LOG)
    pieces = pieces_of(find_files([str(tmp_path)]), piece_bytes=piece_bytes)
    assert lines_of(pieces) == LOG.split(b"\n")[:-1]


@given(
    body=st.lists(st.binary(max_size=40).filter(lambda b: b"\n" not in b), max_size=20),
    piece_bytes=st.integers(1, 100),
    ends=st.booleans(),
)
def test_any_lines_any_cut(
    tmp_path_factory: pytest.TempPathFactory, body: list[bytes], piece_bytes: int, ends: bool
) -> None:
    path = tmp_path_factory.mktemp("cut") / "x.log"
    path.write_bytes(b"x" + b"\n".join(body) + (b"\n" if ends else b""))
    pieces = [
        FilePiece(str(path), start, min(start + piece_bytes, path.stat().st_size))
        for start in range(0, path.stat().st_size, piece_bytes)
    ]
    want = [line for line in path.read_bytes().split(b"\n") if line]
    assert lines_of(pieces) == want
    for piece in pieces:  # offsets point at the lines
        for base, lines in read_lines(piece):
            offset = base
            for line in lines:
                assert path.read_bytes()[offset : offset + len(line)] == line
                offset += len(line) + 1


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.gz", gzip.compress),
        ("a.zst", zstd),
        ("a.bz2", bz2.compress),
        ("a.xz", lzma.compress),
        ("a.lzma", lambda data: lzma.compress(data, lzma.FORMAT_ALONE)),
        ("a.pzst", lambda data: b"\x50\x2a\x4d\x18\4\0\0\0size" + zstd(data)),
        ("a", gzip.compress),
    ],
)
def test_compressed_files_are_one_piece(tmp_path: Path, name: str, pack: object) -> None:
    assert callable(pack)
    (tmp_path / name).write_bytes(pack(LOG))
    pieces = pieces_of(find_files([str(tmp_path)]), piece_bytes=100)
    assert len(pieces) == 1
    assert lines_of(pieces) == LOG.split(b"\n")[:-1]


@pytest.mark.parametrize("pack", [gzip.compress, zstd, bz2.compress, lzma.compress])
def test_streams_of_several_members_are_read_to_the_end(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    (tmp_path / "a.gz").write_bytes(pack(LOG[:5000]) + pack(LOG[5000:]))
    assert lines_of(pieces_of(find_files([str(tmp_path)]))) == LOG.split(b"\n")[:-1]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_truncated_stream_gives_its_lines_and_then_fails(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    whole = pack(b"".join(b"%d %b" % (n, LOG) for n in range(200)))
    (tmp_path / "a.gz").write_bytes(whole[: len(whole) // 2])
    got = []
    with pytest.raises(Damaged, match="ends early"):
        for _, lines in read_lines(pieces_of(find_files([str(tmp_path)]))[0]):
            got += lines
    assert len(got) > 10


def test_files_are_listed_once_and_hidden_ones_left_out(tmp_path: Path) -> None:
    (tmp_path / "2024").mkdir()
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "2024" / "b.log").write_bytes(b"b\n")
    (tmp_path / "a.log").write_bytes(b"a\n")
    (tmp_path / "link.log").symlink_to(tmp_path / "a.log")
    found = find_files([str(tmp_path), str(tmp_path / "a.log"), f"{tmp_path}/*.log"])
    assert [p.removeprefix(str(tmp_path)) for p, _ in found] == ["/2024/b.log", "/a.log"]
    assert find_files([f"file://{tmp_path}"]) == found


def test_all_missing_paths_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        find_files([f"{tmp_path}/x", f"{tmp_path}/y", f"{tmp_path}"])
    assert f"{tmp_path}/x" in str(error.value)
    assert f"{tmp_path}/y" in str(error.value)
    assert "holds no file; give where logs or journals are" in str(error.value)
    with pytest.raises(ConfigError, match="there is no such file: nothing matches the pattern"):
        find_files([f"{tmp_path}/*.log"])


def test_broker_ids_come_from_the_path_or_the_flag(tmp_path: Path) -> None:
    for n in (1, 22):
        (tmp_path / f"broker-{n}").mkdir()
        (tmp_path / f"broker-{n}" / "a.log").write_bytes(b"a\n")
    (tmp_path / "a.log").write_bytes(b"a\n")
    pieces = pieces_of(
        find_files([str(tmp_path)]), broker_id=7, broker_id_pattern=r"broker-(\d+)/[^/]*$"
    )
    assert [s.broker_id for s in pieces] == [7, 1, 22]
    assert [s.broker_id for s in pieces_of(find_files([str(tmp_path)]))] == [-1, -1, -1]


def test_a_link_may_name_the_broker_and_so_may_what_it_leads_to(tmp_path: Path) -> None:
    logs, pods = tmp_path / "logs", tmp_path / "pods" / "broker-9"
    logs.mkdir()
    pods.mkdir(parents=True)
    for name in ("0.log", "1.log"):
        (pods / name).write_bytes(b"a\n")
    (logs / "kafka-3.log").symlink_to(pods / "0.log")
    (logs / "other.log").symlink_to(pods / "1.log")
    pieces = pieces_of(find_files([str(logs)]), broker_id_pattern=r"(?:kafka|broker)-(\d+)")
    assert [(Path(s.path).name, s.broker_id) for s in pieces] == [
        ("kafka-3.log", 3),
        ("other.log", 9),
    ]
    both = find_files([str(logs), str(pods)])
    assert both == find_files([str(pods), str(logs)]) == find_files([str(pods)])


def test_logs_of_unknown_brokers_are_told_of(tmp_path: Path) -> None:
    for name in ("broker-1.log", "x.log", "y.log"):
        (tmp_path / name).write_bytes(b"a\n")
    notes: list[str] = []
    files = find_files([str(tmp_path)])
    pieces_of(files, broker_id_pattern=r"broker-(\d+)", notes=notes)
    pieces_of(files, notes=notes)
    pieces_of(files, broker_id=1, notes=notes)
    pieces_of(files[:1], notes=notes)
    assert notes == [
        f"--broker-id-pattern isn't in the path of 2 logs ({tmp_path}/x.log): their broker is "
        "unknown",
        "3 logs count as one broker's; give --broker-id-pattern if several wrote them",
    ]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "isn't a regex"),
        ("(a{" + "9" * 40 + "})", "isn't a regex"),
        ("broker", "no group"),
        ("([a-z]+)", "a number"),
    ],
)
def test_bad_broker_patterns_say_why(tmp_path: Path, pattern: str, words: str) -> None:
    (tmp_path / "a.log").write_bytes(b"a\n")
    with pytest.raises(ConfigError, match=words):
        pieces_of(find_files([str(tmp_path)]), broker_id_pattern=pattern)


def test_nanoseconds_are_found_at_the_head_and_in_the_neighbours(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"[2024-10-25 10:15:30,123456789] {\n" * 3)
    (tmp_path / "b.log").write_bytes(b"[2024-10-25 10:15:30,123] {\n")
    assert [s.nanos for s in pieces_of(find_files([str(tmp_path)]))] == [True, True]
