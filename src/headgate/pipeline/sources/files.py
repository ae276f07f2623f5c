"""
Find the files behind ``--requests``, on whatever file system they lie.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from pyarrow import fs

from headgate.errors import ConfigError
from headgate.pipeline.tables.folders import local_path
from headgate.pipeline.tables.pointer import (
    POINTER,
    UNFINISHED,
    is_run,
    lost_pointer,
    read_pointer,
)


def filesystem(path: str) -> tuple[Any, str]:
    """
    Return (pyarrow filesystem, path on it) of a local path or a URI.

    Each character of a URI stands for itself, as Hadoop has it: ``%20`` is no blank. What follows a
    ``?`` is Arrow's options.
    """
    local = local_path(path)
    if local is not None:
        return fs.LocalFileSystem(), str(Path(local).absolute())
    scheme, _, rest = path.partition("://")
    host, slash, rest = rest.partition("/")
    inner, mark, options = rest.partition("?")
    # What Hadoop calls s3a is s3 to everybody else.
    scheme = "s3" if scheme == "s3a" else scheme
    return fs.FileSystem.from_uri(f"{scheme}://{host}{slash}{quote(inner)}{mark}{options}")


class GivenPath(NamedTuple):
    """
    A path that was given, and where it leads.

    Args:
        given: as it is written.
        system: pyarrow's file system.
        inner: the path on it.
    """

    given: str
    system: Any
    inner: str

    @classmethod
    def of(cls, given: str) -> GivenPath:
        """
        Find out where a path leads.

        Raises:
            OSError: the file system can't be reached.
            ValueError: no file system is known of that scheme.
        """
        system, inner = filesystem(given)
        return cls(given.rstrip("/") or given, system, inner.rstrip("/") or inner)

    def name(self, path: str) -> str:
        """Return the name of a path in this place, as the place was given."""
        if isinstance(self.system, fs.LocalFileSystem):
            return os.path.normpath(path)
        return f"{self.given}{path[len(self.inner) :]}"  # with the host, the container's account …

    def infos(self, folder: str = "") -> list[Any]:
        """Return what is in this folder, or in a folder inside, at any depth."""
        place = f"{self.inner}/{folder}" if folder else self.inner
        wanted = fs.FileSelector(place, allow_not_found=True, recursive=True)
        return list(self.system.get_file_info(wanted))


class WrittenTables:
    """
    The tables that commands wrote to a directory, by its pointer, which is read once: now.

    Args:
        place: the directory, or its URI.

    Raises:
        ConfigError: the pointer can't be read.
        OSError: the file system can't be reached.
        ValueError: no file system is known of that scheme.
    """

    def __init__(self, place: str) -> None:
        self.place = GivenPath.of(place)
        self.pointer = read_pointer(self.place.system, self.place.inner)

    def refuse_lost(self) -> None:
        """
        Refuse a directory that has finished runs, and no pointer that names their tables.

        Raises:
            ConfigError: names a run.
        """
        system, inner = self.place.system, self.place.inner
        if self.pointer is not None:
            return
        for info in system.get_file_info(fs.FileSelector(inner, allow_not_found=True)):
            if is_run(info.base_name) and not _is_unfinished(system, info.path):
                raise lost_pointer(self.place.given, info.base_name)

    def infos(self, table: str) -> list[Any]:
        """
        Return the files of a table; none where nobody wrote it.

        Raises:
            ConfigError: the pointer names what isn't there; or the table lies there without a run
                as well, and nothing tells which counts.
        """
        here = [i for i in self.place.infos(table) if _is_table_file(i, self.place.inner)]
        if self.pointer is None or table not in self.pointer.tables:
            return here
        if here:
            raise ConfigError(
                f"{self.place.given}: {table} lies there without a run, beside one that {POINTER} "
                "names; move away the one that doesn't count"
            )
        return _listed(self.place, self.pointer.tables[table])

    def files(self, table: str) -> list[str]:
        """
        Return the names of a table's files, in order; none where nobody wrote it.

        Raises:
            ConfigError: as ``infos``.
        """
        infos = [i for i in self.infos(table) if _is_table_file(i, self.place.inner)]
        return sorted(self.place.name(info.path) for info in infos)


def find_files(paths: Iterable[str], *, may_lack: bool = False) -> list[tuple[str, int]]:
    """
    List the files under ``paths``, each once, with their sizes in bytes, in order of name.

    Directories are walked; hidden files, ``_SUCCESS`` and the like are left out, and a pattern
    with ``*`` is expanded for local paths. Of tables that commands wrote (``DIR/TABLE``, all in
    DIR, what a pattern matches) these are the files of the last runs. A file that only links lead
    to has the first one's name.

    Args:
        paths: directories, patterns, files, URIs.
        may_lack: a path that doesn't exist or holds no file is no error.

    Raises:
        ConfigError: for each path that doesn't exist, holds no file or can't be listed, at once;
            or the tables' pointer names what isn't there, or is lost.
    """
    found: dict[str, tuple[str, int]] = {}
    wrong: list[str] = []
    for given in paths:
        if local_path(given) is None and "?" in given:
            said = "leave out what follows ?; variables such as AWS_REGION say it to workers too"
            wrong.append(f"--requests {given}: {said}")
            continue
        try:
            files = _found(given, may_lack=may_lack)
        except (OSError, ValueError) as exc:
            if may_lack and isinstance(exc, FileNotFoundError):
                continue
            known = "; give a path, file://, s3://, gs:// or hdfs://"
            unknown = isinstance(exc, ValueError) and "Unrecognized" in str(exc)
            wrong.append(f"--requests {given}: {exc}{known if unknown else ''}")
            continue
        except _Lacking as lacking:
            wrong.append(f"--requests {lacking}")
            continue
        for place, i in files:
            name = real = place.name(i.path)
            if isinstance(place.system, fs.LocalFileSystem):
                real = str(Path(i.path).resolve())
            if real not in found or name == real:
                found[real] = name, int(i.size)
    if wrong:
        raise ConfigError("\n".join(wrong))
    return sorted(found.values())


class _Lacking(Exception):
    """A path isn't there, or holds no file; says which."""


def _found(given: str, *, may_lack: bool) -> list[tuple[GivenPath, Any]]:
    """
    Return the files of what was given: a file, a directory, a table, or a pattern.

    Raises:
        _Lacking: there is none, though there must be.
    """
    place = GivenPath.of(given)
    info = place.system.get_file_info(place.inner)
    if info.is_file:
        return _shown(place, [info], may_lack=may_lack)
    written = _beside(place, may_be_closed=info.type == fs.FileType.Directory)
    table = place.inner.rpartition("/")[2]
    if written and written.pointer and table in written.pointer.tables:
        return _shown(written.place, written.infos(table), may_lack=may_lack)
    if info.type == fs.FileType.Directory:
        return _shown(place, _counted(place, place.inner, place.infos()), may_lack=may_lack)
    anchor, expanded = _expanded(given)
    files = []
    for path in expanded:
        one = GivenPath.of(path)
        info = one.system.get_file_info(one.inner)
        infos = [info] if info.is_file else one.infos()
        counted = _counted(one, anchor, infos)
        # A run that does not count has nothing to read, which is no mistake.
        files += _shown(one, counted, may_lack=may_lack or len(counted) < len(infos))
    if not files and not may_lack:
        if written:
            written.refuse_lost()
        is_pattern = any(c in given for c in "*?[")
        what = "file: nothing matches the pattern" if is_pattern else "file or directory"
        raise _Lacking(f"{given}: there is no such {what}")
    return files


def _beside(place: GivenPath, *, may_be_closed: bool) -> WrittenTables | None:
    """
    Return the tables of the directory that a place is in; None: it is in none.

    Args:
        place: a path.
        may_be_closed: the place is there, so it doesn't matter if what it is in can't be read.
    """
    parent = place.given.rpartition("/")[0]
    if isinstance(place.system, fs.LocalFileSystem):
        parent = str(Path(place.inner).parent)
    elif not parent.partition("://")[2]:
        return None
    try:
        return WrittenTables(parent)
    except OSError:
        if may_be_closed:
            return None
        raise


def _expanded(given: str) -> tuple[str, list[str]]:
    """Return what a local pattern matches, and the directory above which nothing is a pattern."""
    if local_path(given) != given or not any(c in given for c in "*?["):
        return "", []
    anchor, *names = Path(given).absolute().parts
    # A file's own name may have brackets: kafka-request.[1].log.zip.
    while names and (Path(anchor, names[0]).exists() or not any(c in names[0] for c in "*?[")):
        anchor = str(Path(anchor, names.pop(0)))
    matched = sorted(str(path) for path in Path(anchor).glob("/".join(names))) if names else []
    return anchor, [path for path in matched if not _hidden(path, path)]


def _shown(place: GivenPath, infos: list[Any], *, may_lack: bool) -> list[tuple[GivenPath, Any]]:
    """
    Leave out hidden files.

    Raises:
        _Lacking: there is no other file, though there must be.
    """
    files = [(place, i) for i in infos if i.is_file and not _hidden(i.path, place.inner)]
    if not files and not may_lack:
        raise _Lacking(f"{place.given}: holds no file; give where logs or journals are")
    return files


def paths(place: str | os.PathLike[str], table: str) -> list[str]:
    """
    Return the files of a table that commands wrote, for whatever reads Parquet.

    Args:
        place: the ``--out`` of the commands: a directory, or its URI.
        table: its name.

    Raises:
        ConfigError: no run wrote the table there, or what it wrote isn't there any more; or the
            directory has runs and no pointer.
    """
    where = os.fspath(place).rstrip("/")
    try:
        written = WrittenTables(where)
        written.refuse_lost()
        found = written.files(table)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{where}: {exc}") from exc
    if not found:
        raise ConfigError(
            f"{where}: no run of a command wrote a table {table} there, or only one by day without "
            "rows"
        )
    return found


class GrowingPaths:
    """
    What is followed.

    Args:
        given: directories, patterns and files, local; a file is followed when it's renamed within
            its directory.

    Raises:
        ConfigError: one is a URI, or isn't there.
    """

    def __init__(self, given: Sequence[str]) -> None:
        wrong = []
        for path in given:
            if "://" in path:
                wrong.append(f"--requests {path}: --incremental and --follow take local paths")
            elif not any(c in path for c in "*?[") and not Path(path).exists():
                wrong.append(f"--requests {path}: there is no such file or directory")
        if wrong:
            raise ConfigError(wrong)
        self.given = [str(Path(path).absolute()) for path in given]

    def files(self, known: set[tuple[int, int]]) -> list[str]:
        """
        Return the files that are there.

        Args:
            known: device and inode of files that were followed, whatever they're called now.
        """
        found: set[str] = set()
        folders: set[Path] = set()
        for path in self.given:
            found.update(name for name, _ in find_files([path], may_lack=True))
            if not Path(path).is_dir():
                folders.add(Path(path).parent)
        for folder in folders if known else ():
            for file in folder.iterdir() if folder.is_dir() else ():
                try:
                    place = file.stat()
                except FileNotFoundError:
                    continue
                if (place.st_dev, place.st_ino) in known:
                    found.add(str(file))
        return sorted(found)


def _listed(place: GivenPath, parts: Iterable[str]) -> list[Any]:
    """
    Return the files of a table's parts.

    Raises:
        ConfigError: a part isn't there.
    """
    found: list[Any] = []
    system, named = place.system, list(parts)
    infos = system.get_file_info([f"{place.inner}/{part}" for part in named])
    for part, info in zip(named, infos, strict=True):
        if info.is_file:
            found.append(info)
            continue
        try:
            found += system.get_file_info(fs.FileSelector(info.path, recursive=True))
        except FileNotFoundError:
            raise ConfigError(
                f"{place.given}/{POINTER} names {part}, which isn't there: it was removed, or not "
                "copied. Put it back, or write the table again (--mode overwrite)"
            ) from None
    return found


def _is_unfinished(system: Any, run: str) -> bool:
    """Say whether a run's folder says that it isn't finished, or has nothing in it yet."""
    if system.get_file_info(f"{run}/{UNFINISHED}").is_file:
        return True
    return not system.get_file_info(fs.FileSelector(run, allow_not_found=True))


def _counted(place: GivenPath, anchor: str, infos: list[Any]) -> list[Any]:
    """
    Leave out what runs left that other runs replaced, or never finished.

    Args:
        place: where they were found.
        anchor: the directory below which a folder may be a run's; one above was given by name.
        infos: what was found.

    Raises:
        ConfigError: a pointer names what isn't there, or is lost.
    """
    system = place.system
    seen = {i.path.rpartition("/")[0] for i in infos if i.base_name == POINTER}
    pointers = {folder: read_pointer(system, folder) for folder in seen}
    unfinished: set[str] = set()
    kept = []
    for info in infos:
        folder, run, inside = _run_of(info.path, anchor)
        if not run:
            kept.append(info)
            continue
        if folder not in pointers:
            pointers[folder] = read_pointer(system, folder)
        if pointers[folder] is None and f"{folder}/{run}" not in unfinished:
            if _is_unfinished(system, f"{folder}/{run}"):
                unfinished.add(f"{folder}/{run}")
                continue
            pointers[folder] = read_pointer(system, folder)  # the first run may have ended since
            if pointers[folder] is None:
                raise lost_pointer(folder, run)
        pointer = pointers[folder]
        if pointer is not None and pointer.counts(f"{run}/{inside}"):
            kept.append(info)
    # A store of objects may list files alone; and a run may have ended since the listing.
    there = {path for i in kept for path in (i.path, i.path.rpartition("/")[0])}
    for folder, pointer in pointers.items():
        if folder in seen and pointer is not None:
            absent = [part for part in pointer.parts if f"{folder}/{part}" not in there]
            above = place._replace(given=place.name(folder), inner=folder)
            kept += _listed(above, sorted(absent))
    return kept


def _run_of(path: str, anchor: str) -> tuple[str, str, str]:
    """Return the directory of runs, the run and what is inside; "" where it is of no run."""
    names = path[len(anchor) :].split("/")
    at = next((n for n, name in enumerate(names) if is_run(name)), None)
    if at is None:
        return "", "", ""
    return anchor + "/".join(names[:at]).rstrip("/"), names[at], "/".join(names[at + 1 :])


def _is_table_file(info: Any, root: str) -> bool:
    return info.is_file and info.path.endswith(".parquet") and not _hidden(info.path, root)


def _hidden(path: str, root: str) -> bool:
    inside = path[len(root) :] if path != root else path.rsplit("/", 1)[-1]
    return any(part.startswith((".", "_")) for part in inside.split("/"))
