"""
Make a run's tables appear all at once, or none of them.

A run writes its tables to a folder of its own, ``DIR/run-ID``. (Spark would make a column ``run``
of a folder ``run=ID`` above a table.) When all are whole it replaces the pointer (``pointer``), a
small file, in one step: a kill at any moment leaves the tables of one run.
To append is to name more parts, to merge is to name a day's new part in place of its old ones.
What a run replaced stays until the next run ends, so that a reader that opened it reads it to its
end.

A run's folder has a file ``_unfinished`` from its first moment until the pointer names it. Of
folders that the pointer doesn't name only such ones are removed, once their writer is dead; so a
pointer that is lost or older loses no tables.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable
from typing import Final

from headgate.errors import ConfigError
from headgate.pipeline.schema import TABLES
from headgate.pipeline.table import DAY, time_of
from headgate.pipeline.tables.folders import Folder
from headgate.pipeline.tables.pointer import (
    POINTER,
    UNFINISHED,
    Pointer,
    earlier_tables,
    is_run,
    lost_pointer,
    parse_pointer,
)

# What the mark says once all tables are written: the pointer may name them from now on.
_WHOLE: Final = b"whole"
# Tables about the last run, whatever becomes of the others.
_LAST: Final = ("bad_lines", "summary")


class Staged:
    """
    A run's tables, until the pointer names them.

    Args:
        folder: the directory of all runs.
        command: the run's.
        mode: what becomes of older tables, of ``by_day.MODES``.

    Raises:
        ConfigError: the directory has tables that lie in it without a run.
    """

    def __init__(self, folder: Folder, command: str, mode: str = "overwrite") -> None:
        self._folder = folder
        self._mode = mode
        self._may_be_named = False
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self.name = f"run-{stamp}-{command}-{uuid.uuid4().hex[:8]}"
        _tidy(folder)
        self._hold = folder.hold(self.name)

    @property
    def path(self) -> str:
        """Where the run writes its tables."""
        return f"{self._folder.root}/{self.name}"

    @property
    def tables(self) -> list[str]:
        """Names of the tables that were written."""
        return [name for name in self._folder.names(self.name) if name[0] not in "._"]

    def publish(self, written: Iterable[str] = ()) -> None:
        """
        Have the pointer name the tables that were written, and remove what nobody reads.

        Args:
            written: tables that must be there.

        Raises:
            ConfigError: something of this run was removed meanwhile, or another run divided a
                table otherwise that this one adds to; the pointer stays as it was.
        """
        folder, mark = self._folder, f"{self.name}/{UNFINISHED}"
        with folder.alone():
            self._refuse_gone(written)
            old = pointer_in(folder)
            while True:
                new = self._pointer(old)
                # Before the pointer is replaced: it says what to remove, should this run be killed.
                _remove(folder, old)
                now = pointer_in(folder)
                if now == old:
                    break
                old = now  # of another run, where nothing locks
            folder.write(mark, _WHOLE)
            self._may_be_named = True
            folder.write(POINTER, new.written())
            folder.remove(mark)
        self._hold.close()

    def _refuse_gone(self, written: Iterable[str]) -> None:
        lost = sorted(set(written) - set(self.tables))
        if not self._folder.exists(f"{self.name}/{UNFINISHED}"):
            lost = [UNFINISHED, *lost]
        if lost:
            raise ConfigError(
                f"{self.path}: {', '.join(lost)} was written and isn't there any more: somebody "
                "removed it while the run went on. No table was changed; run the command again"
            )

    def _pointer(self, old: Pointer) -> Pointer:
        """Return the pointer that names this run's tables beside those of an older one."""
        tables = dict(old.tables)
        for table in self.tables:
            tables[table] = self._parts(table, tables.get(table, []))
        kept = {part for parts in tables.values() for part in parts}
        gone = [p for parts in old.tables.values() for p in parts if p not in kept]
        return Pointer(tables, sorted(gone))

    def _parts(self, table: str, older: list[str]) -> list[str]:
        """Return the parts of a table, now that this run has made some."""
        place = f"{self.name}/{table}"
        made = [f"{place}/{name}" for name in self._folder.names(place)]
        if table == "summary":  # each command has a file of its own
            made = [part for part in made if part.endswith(".parquet")]
        elif any(_last(part).startswith("part-") for part in made):
            made = [place]
        else:  # by day, and where there are no rows there is no day
            made = [part for part in made if _last(part).startswith(f"{DAY}=")]
        if made and self._mode != "overwrite" and table not in _LAST:
            by_day = _last(made[0]).startswith(f"{DAY}=")
            if wrong := _other_layout(self._folder, table, older, by_day=by_day):
                raise ConfigError(wrong)
        if table == "summary" or (self._mode == "merge" and table not in _LAST):
            again = {_last(part) for part in made}
            return [*(part for part in older if _last(part) not in again), *made]
        return [*older, *made] if self._mode == "append" and table not in _LAST else made

    def discard(self) -> None:
        """Remove what was written, unless the pointer may name it."""
        if not self._may_be_named:
            self._folder.remove(self.name)
        self._hold.close()


def pointer_in(folder: Folder) -> Pointer:
    """Return what the pointer of a directory says; where there is none, that it has no tables."""
    if not folder.exists(POINTER):
        return Pointer()
    return parse_pointer(folder.read(POINTER), folder.root)


def refuse_earlier(folder: Folder, *, lake: bool) -> None:
    """
    Refuse a directory whose tables a run would neither replace nor name.

    Args:
        folder: the directory.
        lake: whether the run writes Delta or Iceberg tables there.

    Raises:
        ConfigError: names what is there; or a run ended there, and the pointer is lost.
    """
    if not folder.exists(POINTER):
        for name in filter(is_run, folder.names()):
            if not _is_unfinished(folder, name):
                raise lost_pointer(f"--out {folder.root}", name)
    if lake and folder.exists(POINTER):
        raise ConfigError(f"--out {folder.root} holds Parquet tables; give another for this format")
    places = {name: folder.names(name) if name in TABLES else [] for name in folder.names()}
    found = [] if lake else earlier_tables(places, TABLES)
    if found:
        raise ConfigError(
            f"--out {folder.root}: {', '.join(found)} lie there without a run, as an earlier "
            "Headgate, Delta or Iceberg writes them, and this run would write others beside them; "
            "move them away, or give another --out"
        )


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
    pointer = pointer_in(folder)
    for table in set(tables) - set(_LAST):
        parts = pointer.tables.get(table, [])
        timed = time_of(TABLES[table].names) is not None  # others are never divided
        wrong += _other_layout(folder, table, parts, by_day=by_day and timed)
    if wrong:
        raise ConfigError(sorted(wrong))


def _other_layout(folder: Folder, table: str, parts: list[str], *, by_day: bool) -> list[str]:
    """Say that a table's parts are divided otherwise, if they are."""
    if all(_last(part).startswith(f"{DAY}=") == by_day for part in parts):
        return []
    how = "isn't divided by day" if by_day else "is divided by day"
    return [f"--out {folder.root}: {table} {how}; write it once with --mode overwrite"]


def _is_unfinished(folder: Folder, name: str) -> bool:
    """Say whether a run's folder says that it isn't finished, or has nothing in it yet."""
    return folder.exists(f"{name}/{UNFINISHED}") or not folder.names(name)


def _tidy(folder: Folder) -> None:
    """Remove what killed runs left, and nothing else."""
    for name in filter(is_run, folder.names()):
        with contextlib.suppress(FileNotFoundError), folder.alone():
            if folder.held(name) or not _is_unfinished(folder, name):
                continue
            mark = f"{name}/{UNFINISHED}"
            if name in map(_run, _counted(pointer_in(folder))):
                folder.remove(mark)  # it was killed right after it replaced the pointer
            elif folder.exists(POINTER) or not folder.names(name) or folder.read(mark) != _WHOLE:
                folder.remove(name)


def _remove(folder: Folder, old: Pointer) -> None:
    """Remove what the last run replaced, and runs of which nothing else counts."""
    still = set(map(_run, old.parts))
    for part in old.before:
        folder.remove(part if _run(part) in still else _run(part))


def _counted(pointer: Pointer) -> list[str]:
    return [*pointer.parts, *pointer.before]


def _run(part: str) -> str:
    return part.partition("/")[0]


def _last(part: str) -> str:
    return part.rpartition("/")[2]
