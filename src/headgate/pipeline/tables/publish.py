"""
Make a run's tables appear all at once, or none of them.

A batch run writes them aside, in a hidden folder beside the older ones; when all are whole it says
so in a file, and then renames each into its place. A run that is killed before leaves the older
tables. One that is killed between two renames leaves a folder that says so, and the next run, or
the report, does the other renames. What is renamed is a table, a day of it (``merge``) or a file
(``append``). An object store renames a folder file by file, so a rename too may be done in part.

A stream's tables are links into ``DIR/_stream``, replaced by one rename each. The version before
the newest is kept, so that a reader that opened it can read it to its end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headgate.errors import ConfigError
from headgate.pipeline.tables.by_day import DAY
from headgate.pipeline.tables.folders import Folder

_KEPT: Final = 2
_ASIDE: Final = ".headgate-"
_WHOLE: Final = "_WHOLE"
"""Names, in a run's folder, what is to be put in place, when all of it is there."""
# What Spark, Delta and we write to a table's folder; whatever else is in it is somebody's.
_OURS: Final = re.compile(
    rf"part-.*|{DAY}=.*|_SUCCESS|\..*\.crc|_temporary|_delta_log|\.spark-staging.*"
)
# Tables about the last run, whatever becomes of the others.
_LAST: Final = ("bad_lines", "summary")


class Staged:
    """
    A batch run's tables, until they take the places of the older ones.

    Args:
        folder: where the older ones are.
        command: the run's.
        mode: what becomes of the older ones, of ``by_day.MODES``.
    """

    def __init__(self, folder: Folder, command: str, mode: str = "overwrite") -> None:
        self._folder = folder
        self._mode = mode
        self._name = f"{_ASIDE}{command}-{uuid.uuid4().hex[:12]}"
        finish(folder)
        self._hold = folder.hold(self._name)

    @property
    def path(self) -> str:
        """Where the run writes its tables."""
        return f"{self._folder.root}/{self._name}"

    def publish(self) -> None:
        """
        Put the tables that were written in the places of the older ones.

        Raises:
            ConfigError: a file has a table's name; nothing was changed.
        """
        folder = self._folder
        tables = [name for name in folder.names(self._name) if not name.startswith("_")]
        for table in tables:
            if folder.is_file(table):
                raise ConfigError(
                    f"{folder.root}/{table} is a file; move it, or give another --out"
                )
        with folder.alone():
            moved = [name for table in tables for name in self._moved(table)]
            folder.write(f"{self._name}/{_WHOLE}", json.dumps(moved).encode())
            _move_in(folder, self._name)
        self._hold.close()

    def _moved(self, table: str) -> list[str]:
        """Return the parts of a table that are to be put in place, by path."""
        if table == "summary":  # each command has a file of its own
            return self._inside(table)
        if self._mode == "overwrite" or table in _LAST or not self._folder.exists(table):
            return [table]
        days = [name for name in self._inside(table) if f"/{DAY}=" in name]
        if self._mode == "merge":
            return days
        files = [name for day in days or [table] for name in self._inside(day)]
        return [name for name in files if name.rpartition("/")[2].startswith("part-")]

    def _inside(self, place: str) -> list[str]:
        return [f"{place}/{name}" for name in self._folder.names(f"{self._name}/{place}")]

    def discard(self) -> None:
        """Remove what was written, if it wasn't published."""
        if self._folder.exists(self._name):
            self._folder.remove(self._name)
        self._hold.close()


def refuse_other_layout(folder: Folder, tables: Iterable[str], *, by_day: bool) -> None:
    """
    Refuse to add to tables that are divided otherwise.

    Args:
        folder: where they are.
        tables: their names.
        by_day: whether what is to be added is divided by day.

    Raises:
        ConfigError: names each table that is divided otherwise.
    """
    wrong = []
    for table in set(tables) - set(_LAST):
        files = [name for name in folder.names(table) if name.startswith(("part-", f"{DAY}="))]
        if any(name.startswith(f"{DAY}=") != by_day for name in files):
            how = "isn't divided by day" if by_day else "is divided by day"
            wrong.append(f"--out {folder.root}/{table} {how}; write it once with --mode overwrite")
    if wrong:
        raise ConfigError(sorted(wrong))


def finish(folder: Folder) -> None:
    """Put a killed run's tables in place if they are complete; else remove them."""
    for name in folder.names():
        if not name.startswith(_ASIDE):
            continue
        with folder.alone():
            if folder.exists(f"{name}/{_WHOLE}"):
                _move_in(folder, name)
            elif folder.exists(name) and not folder.held(name):
                folder.remove(name)


def _move_in(folder: Folder, name: str) -> None:
    """Move what a run made into its place; after a kill, move what is left."""
    for place in json.loads(folder.read(f"{name}/{_WHOLE}")):
        made, gone = f"{name}/{place}", f"{name}/.gone/{place}"
        if not folder.exists(made):
            continue
        if folder.is_folder(made) and not folder.exists(gone):
            for file in folder.names(place):
                if not _OURS.fullmatch(file) and not folder.exists(f"{made}/{file}"):
                    folder.move(f"{place}/{file}", f"{made}/{file}")
            if folder.is_folder(place):
                _move(folder, place, f"{name}/.old/{place}")
            folder.write(gone, b"")
        _move(folder, made, place)
    folder.remove(name)


def _move(folder: Folder, made: str, to: str) -> None:
    """Move a file or a folder; if a folder's move was cut off, move what is left."""
    if folder.is_folder(made) and folder.is_folder(to):
        for name in folder.names(made):
            _move(folder, f"{made}/{name}", f"{to}/{name}")
    else:
        folder.move(made, to)


def can_swap(out: str) -> bool:
    """Say whether tables under a directory can be swapped: it is a local path, not a URI."""
    return "://" not in out


def swap_in(out: str, made: str, names: Iterable[str]) -> None:
    """
    Put a stream's tables in place of those that are there.

    Args:
        out: the run's directory.
        made: where the tables were written, below ``out``; its siblings are older ones, and their
            names sort by age.
        names: of the tables.
    """
    root, versions = Path(out), Path(made).parent
    for name in names:
        target = Path(made) / name
        if not target.is_dir():
            continue
        place = root / name
        link = versions / f".{name}"
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(target, root))
        if place.is_dir():
            _keep_foreign(place, target)
        if place.is_dir() and not place.is_symlink():
            aside = versions / f".old-{name}"
            shutil.rmtree(aside, ignore_errors=True)
            place.rename(aside)  # a table of an ordinary run: the one time a reader may miss it
            link.replace(place)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            link.replace(place)
    older = sorted(p for p in versions.iterdir() if p.is_dir() and not p.name.startswith("."))
    for gone in older[:-_KEPT]:
        shutil.rmtree(gone, ignore_errors=True)


def _keep_foreign(place: Path, target: Path) -> None:
    """Move files that don't belong to the table from its old folder to its new one."""
    for file in place.iterdir():
        if not _OURS.fullmatch(file.name) and not (target / file.name).exists():
            file.rename(target / file.name)
