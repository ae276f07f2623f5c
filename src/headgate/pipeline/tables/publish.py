"""
Make a run's tables appear all at once, or none of them.

A batch run writes them aside, in a hidden folder beside the older ones; when all are whole it says
so in a file, and then renames each into its place. A run that is killed before leaves the older
tables. One that is killed between two renames leaves a folder that says so, and the next run, or
the report, does the other renames.

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
from headgate.pipeline.tables.folders import Folder

_KEPT: Final = 2
_ASIDE: Final = ".headgate-"
_WHOLE: Final = "_WHOLE"
"""Names a run's tables, in its folder, when all of them are there."""
# What Spark, Delta and we write to a table's folder; whatever else is in it is somebody's.
_OURS: Final = re.compile(r"part-.*|_SUCCESS|\..*\.crc|_temporary|_delta_log|\.spark-staging.*")


class Staged:
    """
    A batch run's tables, until they take the places of the older ones.

    Args:
        folder: where the older ones are.
        command: the run's.
    """

    def __init__(self, folder: Folder, command: str) -> None:
        self._folder = folder
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
        tables = folder.names(self._name)
        for table in tables:
            if folder.is_file(table):
                raise ConfigError(
                    f"{folder.root}/{table} is a file; move it, or give another --out"
                )
        with folder.alone():
            folder.write(f"{self._name}/{_WHOLE}", json.dumps(tables).encode())
            _move_in(folder, self._name)
        self._hold.close()

    def discard(self) -> None:
        """Remove what was written, if it wasn't published."""
        if self._folder.exists(self._name):
            self._folder.remove(self._name)
        self._hold.close()


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
    """Move tables from a run's folder into their places; again after a kill, what is left."""
    for table in json.loads(folder.read(f"{name}/{_WHOLE}")):
        made = f"{name}/{table}"
        if table == "summary":  # each command has a file of its own
            for file in folder.names(made):
                folder.move(f"{made}/{file}", f"{table}/{file}")
            continue
        if not folder.exists(made):
            continue
        for file in folder.names(table):
            if not _OURS.fullmatch(file) and not folder.exists(f"{made}/{file}"):
                folder.move(f"{table}/{file}", f"{made}/{file}")
        if folder.is_folder(table):
            folder.move(table, f"{name}/.old-{table}")
        folder.move(made, table)
    folder.remove(name)


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
