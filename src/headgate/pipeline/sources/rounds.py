"""
Follow directories, patterns and files round by round, and keep what was read exactly once.

A round reads what is new by the memory of the rounds before it, writes its parts and commits its
number. One that was killed is read again, whatever its files are called by then: its parts are
replaced.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from headgate.errors import ConfigError
from headgate.pipeline.sources.pieces import find_files
from headgate.pipeline.sources.rotation import INPUTS, FilesOfRound, Input, RolledFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.pipeline.streaming import Parts, Round

_MOST_TRIES: Final = 5


class Query(Protocol):
    """What follows an input, in a thread of its own; Spark's own queries are such."""

    @property
    def isActive(self) -> bool:
        """Say whether it goes on."""

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Wait for its end, so many seconds at most."""

    def stop(self) -> None:
        """End it, in the middle of a round if need be."""

    def exception(self) -> Exception | None:
        """Return what it ended by, if by that."""


class Paths:
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
        self._given = [str(Path(path).absolute()) for path in given]

    def files(self, known: set[tuple[int, int]]) -> list[str]:
        """
        Return the files that are there.

        Args:
            known: device and inode of files that were followed, whatever they're called now.
        """
        found: set[str] = set()
        folders: set[Path] = set()
        for path in self._given:
            with contextlib.suppress(ConfigError):  # nothing is there at the moment
                found.update(name for name, _ in find_files([path]))
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


class Rounds(threading.Thread):
    """
    Reads what is new, round by round.

    Args:
        spark: the session.
        paths: what is followed.
        rolled: tells which pieces a round reads.
        round_of: makes a round of them.
        parts: where to.
        after: called with a round's number when its parts are there, before it is committed.
        once: end when there is nothing new.
        every_s: seconds between rounds.
    """

    def __init__(
        self,
        spark: SparkSession,
        paths: Paths,
        rolled: RolledFiles,
        round_of: Callable[[FilesOfRound], Round],
        parts: Parts,
        after: Callable[[int], None],
        *,
        once: bool,
        every_s: float,
    ) -> None:
        super().__init__(name="rounds", daemon=True)
        self._spark = spark
        self._paths = paths
        self._rolled = rolled
        self._round_of = round_of
        self._parts = parts
        self._after = after
        self._once = once
        self._every_s = every_s
        self._stop_it = threading.Event()
        self._failure: Exception | None = None

    def run(self) -> None:
        """Go round by round, until told to stop."""
        try:
            number = self._parts.last() + 1
            rows = self._parts.read(INPUTS.name, number - 1).collect()
            self._rolled.remember(Input(*row) for row in rows)
            while not self._stop_it.is_set():
                if self._round(number):
                    number += 1
                elif self._once:
                    return
                else:
                    self._stop_it.wait(self._every_s)
        except Exception as exc:
            if not self._stop_it.is_set():
                self._failure = exc

    def _round(self, number: int) -> bool:
        """Read what is new; say whether there was anything."""
        tries = 0
        while True:
            tries += 1
            found = self._rolled.take(self._paths.files(self._rolled.places))
            if not found.splits and not found.inputs:
                return False
            try:
                self._parts.write(self._round_of(found), number)
            except Exception:
                # A file may have got another name since it was found: its reader saw another's.
                if found.still_there() or tries == _MOST_TRIES:
                    raise
                continue
            if found.still_there():
                break
            if tries == _MOST_TRIES:
                raise ConfigError("files are renamed while they are read, again and again")
        self._rolled.remember(found.inputs)
        self._after(number)
        self._parts.commit(number)
        return True

    @property
    def isActive(self) -> bool:
        """Say whether it goes on."""
        return self.is_alive()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Wait for its end, so many seconds at most."""
        self.join(timeout)
        return not self.is_alive()

    def stop(self) -> None:
        """End it, in the middle of a round if need be."""
        self._stop_it.set()
        while self.is_alive():  # a round has several jobs, one after another
            self._spark.sparkContext.cancelAllJobs()
            self.join(0.2)

    def exception(self) -> Exception | None:
        """Return what it ended by, if by that."""
        return self._failure
