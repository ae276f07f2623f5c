"""
Find the files behind ``--requests`` and cut them into pieces that workers read by themselves.

A piece is (path, start, end): it owns the lines that begin in it, so every line has exactly one
owner whatever the cuts. Compressed files are one piece each. Paths are local, or any URI that
``pyarrow.fs`` reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from headgate.errors import ConfigError
from headgate.pipeline.sources.compressed import Damaged, ReadError, decompressed, reading
from headgate.pipeline.sources.copies import Beginning, unread_copies

SPLIT_BYTES: Final = 8 << 20  # 8 MB: measured best for two cores, and thousands of tasks per TB
# A request line holds names and counts, no records; the broker's own largest is far below this.
MAX_LINE_BYTES: Final = 64 << 20
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
JOURNAL_SUFFIXES: Final = (".arrow", ".open", ".parquet")


@dataclass(frozen=True, slots=True)
class Split:
    """
    One piece of work.

    ``kind`` is ``log``, ``journal``, or ``requests`` (a table written before; start and end number
    its row groups); ``end`` is -1 for "to the end"; ``broker_id`` is -1 where
    unknown; ``nanos`` as ``stamps.sniff_nanos`` found at the head of the file; ``starts`` the
    (broker, (seq, ms)) of the start events of a journal's worker before the file; ``unread`` says
    why nothing of it is read. Of a compressed file ``start`` counts bytes of text.
    """

    path: str
    start: int
    end: int
    kind: str = "log"
    compression: str = ""
    broker_id: int = -1
    nanos: bool = False
    starts: tuple[tuple[int, tuple[int, int]], ...] = ()
    unread: str = ""


def filesystem(path: str) -> tuple[Any, str]:
    """Return (pyarrow filesystem, path on it) of a local path or a URI."""
    from pyarrow import fs

    if "://" in path:
        # What Hadoop calls s3a is s3 to everybody else.
        found: tuple[Any, str] = fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
        return found
    return fs.LocalFileSystem(), str(Path(path).absolute())


def find_files(paths: Iterable[str]) -> list[tuple[str, int]]:
    """
    List the files under ``paths``, each once, with their sizes in bytes, in order of name.

    Directories are walked; hidden files, ``_SUCCESS`` and the like are left out, and a pattern
    with ``*`` is expanded for local paths. A file that only links lead to has the first one's name.

    Raises:
        ConfigError: for each path that doesn't exist or holds no file, all at once.
    """
    from pyarrow import fs

    found: dict[str, tuple[str, int]] = {}
    wrong: list[str] = []
    for given in paths:
        expanded = [given]
        if "://" not in given and any(c in given for c in "*?["):
            anchor = Path(given).anchor or "."
            relative = given[len(anchor) :] if Path(given).anchor else given
            expanded = sorted(str(p) for p in Path(anchor).glob(relative)) or [given]
        for path in expanded:
            try:
                system, inner = filesystem(path)
                info = system.get_file_info(inner)
                if info.type == fs.FileType.NotFound:
                    what = "file or directory"
                    if any(c in path for c in "*?["):
                        what = "file: nothing matches the pattern"
                    wrong.append(f"--requests {path}: there is no such {what}")
                    continue
                infos = [info]
                if info.type == fs.FileType.Directory:
                    infos = system.get_file_info(fs.FileSelector(inner, recursive=True))
            except (OSError, ValueError) as exc:
                known = "; give a path, file://, s3://, gs:// or hdfs://"
                unknown = isinstance(exc, ValueError) and "Unrecognized" in str(exc)
                wrong.append(f"--requests {path}: {exc}{known if unknown else ''}")
                continue
            scheme = path.partition("://")[0] + "://" if "://" in path else ""
            files = [i for i in infos if i.is_file and not _hidden(i.path, inner)]
            if not files:
                wrong.append(f"--requests {path}: holds no file; give where logs or journals are")
            for i in files:
                name = real = scheme + i.path
                if scheme in ("", "file://"):
                    name, real = os.path.normpath(i.path), str(Path(i.path).resolve())
                if real not in found or name == real:
                    found[real] = name, int(i.size)
    if wrong:
        raise ConfigError("\n".join(wrong))
    return sorted(found.values())


def _hidden(path: str, root: str) -> bool:
    inside = path[len(root) :] if path != root else path.rsplit("/", 1)[-1]
    return any(part.startswith((".", "_")) for part in inside.split("/"))


def cut(
    files: Sequence[tuple[str, int]],
    *,
    broker_id: int | None = None,
    broker_id_pattern: str | None = None,
    split_bytes: int = SPLIT_BYTES,
    notes: list[str] | None = None,
    copies: str = "count",
) -> list[Split]:
    """
    Cut files into splits.

    A log that is being compressed (``x`` and ``x.gz`` begin with the same request) counts once.

    Args:
        files: (path, size in bytes).
        broker_id: of all logs here; None = unknown.
        broker_id_pattern: regex on the path whose first group is the broker's id; wins over
            ``broker_id`` where it matches.
        split_bytes: size of a piece.
        notes: gets a sentence about logs of which nothing tells the broker.
        copies: of logs and journals that begin with the same request or event: ``refuse`` them,
            read the largest ``once``, or ``count`` them all.

    Raises:
        ConfigError: if the pattern isn't a regex with a group, or its group isn't a number; for
            each file that can't be read, and each that seems a copy, all at once.
    """
    pattern = _pattern(broker_id_pattern)
    splits: list[Split] = []
    sniffed: dict[str, bool] = {}
    tables = {path: _row_groups(path) for path, _ in files if path.endswith(".parquet")}
    for path, groups in tables.items():
        splits.extend(Split(path, n, n + 1, "requests") for n in range(groups))
    journals = [path for path, _ in files if path.endswith(JOURNAL_SUFFIXES)]
    try:
        splits.extend(_journals([p for p in journals if not tables.get(p)], dict(files), copies))
    except ReadError as exc:
        raise ConfigError(f"--requests {exc}") from exc
    logs = []
    unknown: list[str] = []
    unreadable: list[str] = []
    for path, size in files:  # in order of name: x before x.gz
        if path.endswith(JOURNAL_SUFFIXES):
            continue
        broker = -1 if broker_id is None else broker_id
        match = _match(pattern, path) if pattern else None
        if match:
            try:
                broker = int(match[1])
            except ValueError as exc:
                msg = f"--broker-id-pattern gives {match[1]!r} for {path}, which isn't a number"
                raise ConfigError(msg) from exc
        elif broker < 0:
            unknown.append(path)
        try:
            with reading(path):
                head, compression, unread = head_of(path)
        except ReadError as exc:
            unreadable.append(f"--requests {exc}")
            continue
        if _SET_ASIDE.search(path):
            unread = (
                "it is a journal's, damaged and set aside; what could be read is in its .parquet"
            )
        folder = path.rsplit("/", 1)[0]
        # A rolled file too short to tell is read like its neighbours.
        sniffed[folder] = nanos = _nanos(head) or sniffed.get(folder, False)
        split = Split(path, 0, -1, "log", compression, broker, nanos, unread=unread)
        logs.append((split, Beginning(path, b"" if unread else first_request(head), size)))
    if unreadable:
        raise ConfigError(unreadable)
    twice = unread_copies([beginning for _, beginning in logs], copies)
    for split, beginning in logs:
        unread = split.unread or twice.get(split.path, "")
        if split.compression or unread:
            splits.append(replace(split, unread=unread))
            continue
        splits.extend(
            replace(split, start=start, end=min(start + split_bytes, beginning.size))
            for start in range(0, beginning.size, split_bytes)
        )
    if notes is not None and (pattern or len(unknown) > 1):
        notes.extend(_of_one_broker(unknown, by_pattern=pattern is not None))
    return splits


def _of_one_broker(logs: Sequence[str], *, by_pattern: bool) -> Iterator[str]:
    """Say of logs whose broker isn't known that they count as one's."""
    if by_pattern and logs:
        count, whose = ("1 log", "its") if len(logs) == 1 else (f"{len(logs)} logs", "their")
        where = f"isn't in the path of {count} ({logs[0]})"
        yield f"--broker-id-pattern {where}: {whose} broker is unknown"
    elif logs:
        hint = "give --broker-id-pattern if several wrote them"
        yield f"{len(logs)} logs count as one broker's; {hint}"


def _match(pattern: re.Pattern[str], path: str) -> re.Match[str] | None:
    """Return where a pattern is in a path, or in that of the file a link leads to."""
    found = pattern.search(path)
    if found is None and "://" not in path:
        found = pattern.search(str(Path(path).resolve()))
    return found


# What `headgate journal compact` (``usage.reader``) calls damaged files.
_SET_ASIDE: Final = re.compile(r"-\d{16}\.bad(-?\d+)?$")


def _row_groups(path: str) -> int:
    """Return how many row groups a table ``requests`` (or ``replay``) has; 0 for a journal."""
    import pyarrow.parquet as pq

    system, inner = filesystem(path)
    try:
        with pq.ParquetFile(inner, filesystem=system) as file:
            return file.num_row_groups if "record_ms" in file.schema_arrow.names else 0
    except (OSError, ValueError) as exc:
        raise ConfigError(f"--requests {path}: {exc}") from exc


def _journals(paths: Sequence[str], sizes: Mapping[str, int], copies: str) -> Iterator[Split]:
    """Yield the splits of journal files; of a file in two forms (a compaction) one counts."""
    from headgate.pipeline.sources.journal_files import first_event, journal_file, starts_of

    best: dict[tuple[str, str, int], str] = {}
    for path in paths:
        file = journal_file(path)
        key = (path.rsplit("/", 1)[0], file.worker_id, file.first_seq)
        if not file.worker_id:
            key = (path, "", 0)
        other = best.get(key)
        rank = [".parquet", ".arrow", ".open"]
        if other is None or rank.index(file.suffix) < rank.index("." + other.rsplit(".", 1)[1]):
            best[key] = path
    starts: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    begin = [Beginning(path, first_event(path), sizes[path]) for path in sorted(best.values())]
    twice = unread_copies(begin, copies)
    for (folder, worker, _), path in sorted(best.items()):
        if path in twice:
            continue
        known = starts.setdefault((folder, worker), {})
        before = dict(known)
        known.update(starts_of(path))
        # Of a file without a worker's name nothing is known but what stands in it.
        earlier = sorted(before.items()) if worker else []
        yield Split(path, 0, -1, "journal", starts=tuple(earlier))


def _pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        pattern = re.compile(text)
    except re.error as exc:
        raise ConfigError(f"--broker-id-pattern {text!r} isn't a regex: {exc}") from exc
    if pattern.groups < 1:
        msg = f"--broker-id-pattern {text!r} has no group; write e.g. 'broker-(\\d+)/'"
        raise ConfigError(msg)
    return pattern


def _nanos(head: bytes) -> bool:
    from headgate.pipeline.logs.stamps import sniff_nanos

    return sniff_nanos(head)


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
