"""A read that fails is an error that names the file; damage in a file is a row of bad_lines."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.errors import ConfigError
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.packed_format import PackOptions
from headgate.pipeline.replaying.packer import PackRequests
from headgate.pipeline.sources import compressed
from headgate.pipeline.sources.chunks import read_lines
from headgate.pipeline.sources.compressed import Damaged, ReadError, decompressed
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.journal_files import batches_of
from headgate.pipeline.sources.pieces import FilePiece, pieces_of
from headgate.pipeline.workers.emit import EmitActivity, EmitRequests
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.quota.table import QuotaTable
from headgate.usage.format import SCHEMA

DATA = Path(__file__).parents[2] / "data" / "pipeline"
LOG = gzip.decompress((DATA / "public.log.gz").read_bytes())
WORKERS: list[Callable[[ReadOptions], Any]] = [
    EmitRequests,
    EmitActivity,
    lambda plan: PackRequests(PackOptions((Quotas.of(QuotaTable()),), False), plan),
    lambda plan: PackRequests(PackOptions((Quotas.of(QuotaTable()),), True), plan),
]
TABLE = pa.table({"record_ms": pa.array([1.0])})


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize("name", ["a.log", "a.log.gz", "w-0000000000000001.arrow", "t.parquet"])
def test_a_worker_that_hasnt_the_file_fails_and_names_it(
    worker: Callable[[ReadOptions], Any], name: str
) -> None:
    path = f"/nowhere/{name}"
    kind = {".arrow": "journal", ".parquet": "requests"}.get(Path(name).suffix, "log")
    piece = FilePiece(
        path, 0, 1 if kind == "requests" else -1, kind, "gzip" if "gz" in name else ""
    )
    task = worker(ReadOptions((piece,)))
    with pytest.raises(ReadError, match=f"{path} can't be read: .*No such file"):
        list(task(iter([pa.record_batch({"id": [0]})])))


def test_a_file_that_can_be_opened_and_not_read_is_an_error() -> None:
    with pytest.raises(ReadError, match=r"/proc/self/mem can't be read: .*Input/output"):
        list(read_lines(FilePiece("/proc/self/mem", 0, 100)))


def test_a_file_that_cant_be_read_is_told_of_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "a.log").symlink_to("/proc/self/mem")
    (tmp_path / "b.log").symlink_to("/proc/self/mem")
    found = [(str(tmp_path / "a.log"), 10), (str(tmp_path / "b.log"), 10)]
    with pytest.raises(ConfigError) as said:
        pieces_of(found)
    assert [p.split(":")[0] for p in said.value.problems] == [
        f"--requests {tmp_path}/{name}.log can't be read" for name in "ab"
    ]


@pytest.mark.parametrize("piece_bytes", [100_000, 1 << 20, 1 << 30])
def test_a_file_that_is_shorter_than_it_was_is_an_error(tmp_path: Path, piece_bytes: int) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(LOG)
    pieces = pieces_of(find_files([str(log)]), piece_bytes=piece_bytes)
    log.write_bytes(LOG[: len(LOG) // 2])
    with pytest.raises(ReadError, match=r"a\.log can't be read: it ends at byte \d+, before"):
        for piece in pieces:
            list(read_lines(piece))
    # One that grew is read as far as it was.
    log.write_bytes(LOG * 2)
    assert sum(len(lines) for s in pieces for _, lines in read_lines(s)) == LOG.count(b"\n")


def zstd(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    packed: bytes = out.getvalue().to_pybytes()
    return packed


class Disk:
    """A file system whose one file can be read up to a byte."""

    def __init__(self, data: bytes, fails_at: int) -> None:
        self._data = io.BytesIO(data)
        self._left = fails_at

    def open_input_stream(self, path: str, compression: None) -> Disk:
        return self

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, count: int | None = None) -> bytes:
        if self._left <= 0:
            raise OSError("the network is gone")
        data = self._data.read(min(count or 65536, self._left))
        self._left -= len(data)
        return data


@pytest.mark.parametrize(
    ("compression", "pack"),
    [("gzip", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress), ("zstd", zstd)],
)
def test_a_failing_disk_isnt_taken_for_damage_nor_damage_for_a_failing_disk(
    compression: str, pack: Callable[[bytes], bytes]
) -> None:
    text = LOG[:2_000_000] if compression in ("xz", "bz2") else LOG  # the slow ones
    data = pack(text)
    whole = b"".join(decompressed(Disk(data, len(data) + 1), "x", compression))
    assert whole == text
    with pytest.raises(OSError, match="the network is gone"):
        list(decompressed(Disk(data, len(data) // 2), "x", compression))
    broken = bytearray(data)
    broken[len(data) // 2 : len(data) // 2 + 2000] = b"\xff" * 2000
    got = 0
    with pytest.raises(Damaged):
        for part in decompressed(Disk(bytes(broken), len(data) + 1), "x", compression):
            got += len(part)
    if compression in ("gzip", "zstd"):
        assert got > len(text) // 4


def test_a_gzip_is_read_up_to_the_damage_as_zcat_reads_it(tmp_path: Path) -> None:
    lines = b"".join(b"%d some words and %d\n" % (n * 7919, n) for n in range(2_000))
    data = bytearray(gzip.compress(lines, 9))
    data[-4000] ^= 0x10
    got = b""
    with pytest.raises(Damaged, match="the gzip stream is damaged"):
        for text in compressed._gunzip(io.BytesIO(bytes(data))):
            got += text
    import zlib

    unzip, want = zlib.decompressobj(31), b""
    with pytest.raises(zlib.error):
        for n in range(len(data)):
            want += unzip.decompress(bytes(data[n : n + 1]))
    assert got == want
    assert got.count(b"\n") > 1000


def test_a_journals_disk_that_fails_isnt_the_end_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w-0000000000000001.open"
    batch = pa.RecordBatch.from_pylist([{"seq": 1}], schema=SCHEMA)
    with pa.ipc.new_file(str(path), SCHEMA) as writer:
        writer.write_batch(batch)
    assert len(list(batches_of(str(path)))) == 1
    assert len(list(batches_of(f"file://{path}"))) == 1

    class Failing(io.FileIO):
        def read(self, count: int | None = -1) -> bytes:  # type: ignore[override]
            if self.tell() > 8:
                raise OSError(5, "Input/output error")
            return super().read(-1 if count is None else count)

    monkeypatch.setattr("pyarrow.OSFile", lambda name, mode: pa.PythonFile(Failing(name), "r"))
    with pytest.raises(ReadError, match="Input/output error"):
        list(batches_of(str(path)))
