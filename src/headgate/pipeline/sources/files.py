"""
Find the files behind ``--requests``, on whatever file system they lie.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyarrow import fs

from headgate.errors import ConfigError
from headgate.pipeline.tables.pointer import POINTER, Pointer, is_run, read_pointer


def filesystem(path: str) -> tuple[Any, str]:
    """Return (pyarrow filesystem, path on it) of a local path or a URI."""
    if "://" in path:
        # What Hadoop calls s3a is s3 to everybody else.
        return fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
    return fs.LocalFileSystem(), str(Path(path).absolute())


def find_files(paths: Iterable[str], *, may_lack: bool = False) -> list[tuple[str, int]]:
    """
    List the files under ``paths``, each once, with their sizes in bytes, in order of name.

    Directories are walked; hidden files, ``_SUCCESS`` and the like are left out, and a pattern
    with ``*`` is expanded for local paths. Of tables that commands wrote (``DIR/TABLE``, or all in
    DIR) these are the files of the last runs. A file that only links lead to has the first one's
    name.

    Args:
        paths: directories, patterns, files, URIs.
        may_lack: a path that doesn't exist or holds no file is no error.

    Raises:
        ConfigError: for each path that doesn't exist, holds no file or can't be listed, at once;
            or the tables' pointer names what isn't there.
    """
    found: dict[str, tuple[str, int]] = {}
    wrong: list[str] = []
    for given in paths:
        expanded = [given]
        # A file's own name may have brackets: kafka-request.[1].log.zip.
        if "://" not in given and any(c in given for c in "*?[") and not Path(given).exists():
            anchor = Path(given).anchor or "."
            relative = given[len(anchor) :] if Path(given).anchor else given
            expanded = sorted(str(p) for p in Path(anchor).glob(relative)) or [given]
        for path in expanded:
            if "://" in path and "?" in path:
                said = "leave out what follows ?; variables such as AWS_REGION say it to workers"
                wrong.append(f"--requests {path}: {said} too")
                continue
            try:
                system, inner = filesystem(path)
                info = system.get_file_info(inner)
                root, infos = inner, [info]
                if info.type == fs.FileType.NotFound:
                    root, infos = inner.rstrip("/").rpartition("/")[0], _table(system, inner)
                if not infos and may_lack:
                    continue
                if not infos:
                    what = "file or directory"
                    if any(c in path for c in "*?["):
                        what = "file: nothing matches the pattern"
                    wrong.append(f"--requests {path}: there is no such {what}")
                    continue
                if info.type == fs.FileType.Directory:
                    infos = system.get_file_info(fs.FileSelector(inner, recursive=True))
                    infos = _counted(system, infos)
            except (OSError, ValueError) as exc:
                if may_lack and isinstance(exc, FileNotFoundError):
                    continue
                known = "; give a path, file://, s3://, gs:// or hdfs://"
                unknown = isinstance(exc, ValueError) and "Unrecognized" in str(exc)
                wrong.append(f"--requests {path}: {exc}{known if unknown else ''}")
                continue
            scheme = path.partition("://")[0] + "://" if "://" in path else ""
            files = [i for i in infos if i.is_file and not _hidden(i.path, root)]
            if not files and not may_lack:
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


def paths(place: str | os.PathLike[str], table: str) -> list[str]:
    """
    Return the files of a table that commands wrote, for whatever reads Parquet.

    Args:
        place: the ``--out`` of the commands: a directory, or its URI.
        table: its name.

    Raises:
        ConfigError: no run wrote the table there, or what it wrote isn't there any more.
    """
    where = os.fspath(place).rstrip("/")
    found = table_files(where, table)
    if not found:
        raise ConfigError(
            f"{where}: no run of a command wrote a table {table} there, or only one by day without "
            "rows"
        )
    return found


def table_files(place: str, table: str) -> list[str]:
    """
    Return the files of a table, none where no run wrote it.

    Args:
        place: the directory of all runs, or its URI.
        table: its name.

    Raises:
        ConfigError: the directory's pointer names what isn't there.
    """
    found = find_files([f"{place}/{table}"], may_lack=True)
    return [path for path, _ in found if path.endswith(".parquet")]


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


def _table(system: Any, path: str) -> list[Any]:
    """
    Return the files of ``DIR/TABLE`` where a pointer in DIR names its parts; else nothing.

    Raises:
        ConfigError: the pointer names what isn't there.
    """
    folder, _, table = path.rstrip("/").rpartition("/")
    pointer = read_pointer(system, folder)
    found: list[Any] = []
    for part in pointer.tables.get(table, []) if pointer else []:
        info = system.get_file_info(f"{folder}/{part}")
        if info.is_file:
            found.append(info)
            continue
        try:
            found += system.get_file_info(fs.FileSelector(info.path, recursive=True))
        except FileNotFoundError:
            raise ConfigError(_gone(folder, part)) from None
    return found


def _gone(folder: str, part: str) -> str:
    """Say what to do where a pointer names what isn't there."""
    return (
        f"{folder}/{POINTER} names {part}, which isn't there: it was removed, or not copied. Put "
        "it back, or write the table again (--mode overwrite)"
    )


def _counted(system: Any, infos: list[Any]) -> list[Any]:
    """
    Leave out what runs left that other runs replaced, or never finished.

    Raises:
        ConfigError: a pointer names what isn't there.
    """
    for folder in [i.path.rpartition("/")[0] for i in infos if i.base_name == POINTER]:
        pointer = read_pointer(system, folder) or Pointer()
        parts = {f"{folder}/{part}" for found in pointer.tables.values() for part in found}
        # A store of objects may list files alone.
        there = {place for i in infos for place in (i.path, i.path.rpartition("/")[0])}
        if gone := sorted(parts - there):
            raise ConfigError(_gone(folder, gone[0].removeprefix(f"{folder}/")))
        infos = [
            info
            for info in infos
            if not info.path.startswith(f"{folder}/")
            or not is_run(info.path[len(folder) + 1 :].partition("/")[0])
            or any(f"{info.path}/".startswith(f"{part}/") for part in parts)
        ]
    return infos


def _hidden(path: str, root: str) -> bool:
    inside = path[len(root) :] if path != root else path.rsplit("/", 1)[-1]
    return any(part.startswith((".", "_")) for part in inside.split("/"))
