"""
Say which folders the tables of a directory consist of, by its pointer; one place for all readers.

A run writes ``DIR/run-ID/TABLE/…``, and then replaces ``DIR/_tables.json``, the pointer. It names
the parts of each table, as paths in DIR: a folder, or the folders of days, or files (``summary``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from headgate.errors import MALFORMED, ConfigError

POINTER: Final = "_tables.json"
UNFINISHED: Final = "_unfinished"
"""The file in a run's folder that says it isn't finished; only such folders are ever removed."""
_RUN: Final = r"run-\d{8}T\d{6}-[a-z-]+-[0-9a-f]{8}"
# What is in a table's folder that Spark, Delta, Iceberg or an earlier Headgate wrote.
_WRITTEN: Final = re.compile(r"part-.*|day=.*|_SUCCESS|_delta_log|metadata|.*\.parquet")
# What a pointer may name: nothing outside of a run.
_RUN_PART: Final = re.compile(_RUN + r"(/(?!\.\.?(/|$))[^/]+)+")
_EARLIER_RUN: Final = ".headgate-"


@dataclass(frozen=True)
class Pointer:
    """
    What a pointer says.

    Args:
        tables: the parts of each table.
        before: parts that the last run replaced; they stay until the next, for their readers.
    """

    tables: Mapping[str, list[str]] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)

    @cached_property
    def parts(self) -> frozenset[str]:
        """The parts of all tables."""
        return frozenset(part for parts in self.tables.values() for part in parts)

    def counts(self, path: str) -> bool:
        """Say whether a path in the directory is a part of a table, or in one."""
        names = path.split("/")
        return any("/".join(names[:n]) in self.parts for n in range(1, len(names) + 1))

    def written(self) -> bytes:
        """Return it as the file's text."""
        return json.dumps({"tables": self.tables, "before": self.before}, indent=1).encode()


def lost_pointer(place: str, run: str) -> ConfigError:
    """
    Return the error of a directory that has a finished run, and no pointer that names its tables.

    Args:
        place: the directory.
        run: the name of the run's folder.
    """
    return ConfigError(
        f"{place}: {POINTER} isn't there, and {run} is: nothing says which tables count (was "
        f"{POINTER} left out of a copy?). Put it back; or write it by hand, "
        f'{{"tables": {{"usage": ["{run}/usage"]}}, "before": []}} and so on; or move the folders '
        "run-… away, or give another --out"
    )


def is_run(name: str) -> bool:
    """Say whether a folder is a run's by its name; what else begins with ``run-`` is a user's."""
    return re.fullmatch(_RUN, name) is not None


def parse_pointer(data: bytes, place: str) -> Pointer:
    """
    Return what a pointer's file says.

    Args:
        data: of the file.
        place: the directory that it is in.

    Raises:
        ConfigError: it is none, or names what is outside of the directory.
    """
    try:
        found = json.loads(data)
        pointer = Pointer({str(t): list(map(str, p)) for t, p in found["tables"].items()},
                          list(map(str, found["before"])))  # fmt: skip
        parts = [*(part for parts in pointer.tables.values() for part in parts), *pointer.before]
        if wrong := [part for part in parts if not _RUN_PART.fullmatch(part)]:
            raise ValueError(f"{wrong[0]!r} is no part of a run")
    except MALFORMED as exc:
        raise ConfigError(
            f"{place}/{POINTER} can't be read ({exc}); it names the tables' folders: put it back, "
            "or run the commands again with another --out"
        ) from exc
    return pointer


def read_pointer(system: Any, folder: str) -> Pointer | None:
    """
    Return the pointer of a directory; None: it has none.

    Args:
        system: pyarrow's file system.
        folder: the directory on it.

    Raises:
        ConfigError: what is called so is no pointer.
    """
    if not system.get_file_info(f"{folder}/{POINTER}").is_file:
        return None
    with system.open_input_stream(f"{folder}/{POINTER}") as file:
        return parse_pointer(file.read(), folder)


def earlier_tables(listed: Mapping[str, Iterable[str]], tables: Iterable[str]) -> list[str]:
    """
    Return the tables that lie in a directory without a run: as Headgate wrote them earlier, or
    Delta's and Iceberg's.

    Args:
        listed: what each folder of the directory holds.
        tables: names that tables have.

    Raises:
        ConfigError: an earlier Headgate was killed there, and its tables may be half replaced.
    """
    killed = [name for name in listed if name.startswith(_EARLIER_RUN)]
    if killed:
        raise ConfigError(
            f"{killed[0]} is of a run that an earlier Headgate began and didn't end, so the tables "
            "beside it may be of two runs; run the command again with another --out"
        )
    return sorted(
        name for name in set(tables) & set(listed) if any(map(_WRITTEN.fullmatch, listed[name]))
    )
