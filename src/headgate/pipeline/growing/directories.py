"""
Follow directories, patterns and files round by round, and keep what was read exactly once.

A round reads what the rounds before it haven't read, writes its parts and commits its number. A
round that was killed is read again, whatever its files are called by then: its parts are replaced.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.errors import ConfigError
from headgate.pipeline import frames
from headgate.pipeline.emitted import EMITTED_ACTIVITY
from headgate.pipeline.growing.parts import Following
from headgate.pipeline.growing.rotation import FilesOfRound, RolledFiles
from headgate.pipeline.growing.rounds import INPUTS, Input, Query, Round
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.workers.emit import EmitActivity
from headgate.pipeline.workers.log_reader import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Files of one batch: bounds what a kill repeats, and a batch's memory.
FILES_PER_BATCH: Final = 64
_MOST_TRIES: Final = 5


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


class FileRounds(threading.Thread):
    """
    Reads what is new, round by round.

    Args:
        paths: what is followed.
        rolled: tells which pieces a round reads.
        round_of: makes a round of them.
        to: where to, and how.
    """

    def __init__(
        self,
        paths: Paths,
        rolled: RolledFiles,
        round_of: Callable[[FilesOfRound], Round],
        to: Following,
    ) -> None:
        super().__init__(name="rounds", daemon=True)
        self._paths = paths
        self._rolled = rolled
        self._round_of = round_of
        self._to = to
        self._stop_it = threading.Event()
        self._failure: Exception | None = None

    def run(self) -> None:
        """Read round by round until told to stop, or, if ``once``, until nothing is new."""
        try:
            number = self._to.parts.last() + 1
            rows = self._to.parts.read(INPUTS.name, number - 1).collect()
            self._rolled.remember(Input(*row) for row in rows)
            while not self._stop_it.is_set():
                if self._round(number):
                    number += 1
                elif self._to.once:
                    return
                else:
                    self._stop_it.wait(self._to.every_s)
        except Exception as exc:
            if not self._stop_it.is_set():
                self._failure = exc

    def _round(self, number: int) -> bool:
        """Read what is new; say whether there was anything."""
        tries = 0
        while True:
            tries += 1
            found = self._rolled.take(self._paths.files(self._rolled.places))
            if not found.pieces and not found.inputs:
                return False
            try:
                self._to.parts.write(self._round_of(found), number)
            except Exception:
                # A file may have been renamed since it was found: then another file was read.
                if found.still_there() or tries == _MOST_TRIES:
                    raise
                continue
            if found.still_there():
                break
            if tries == _MOST_TRIES:
                raise ConfigError("files are renamed while they are read, again and again")
        self._rolled.remember(found.inputs)
        self._to.after(number)
        self._to.parts.commit(number)
        return True

    @property
    def isActive(self) -> bool:
        """Say whether it goes on."""
        return self.is_alive()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Wait for its end, ``timeout`` seconds at most."""
        self.join(timeout)
        return not self.is_alive()

    def stop(self) -> None:
        """End it, in the middle of a round if need be."""
        self._stop_it.set()
        while self.is_alive():  # a round has several jobs, one after another
            self._to.spark.sparkContext.cancelAllJobs()
            self.join(0.2)

    def exception(self) -> Exception | None:
        """Return the exception that ended it; None: none did."""
        return self._failure


@dataclass(frozen=True)
class _RoundOfFiles:
    spark: SparkSession
    found: FilesOfRound
    options: ReadOptions

    def activity(self, *, connections: bool) -> DataFrame:
        """Return EMITTED_ACTIVITY, in rows."""
        task = EmitActivity(replace(self.options, connections=connections))
        spread = frames.spread(self.spark, self.options.pieces)
        return spread.mapInArrow(task, EMITTED_ACTIVITY.struct)

    def requests(self) -> DataFrame:
        """Return EMITTED_REQUESTS."""
        return frames.emit_requests(self.spark, self.options)

    def inputs(self) -> Sequence[Input]:
        """Return the files that were read."""
        return self.found.inputs


class Directory:
    """
    Growing directories and files.

    Args:
        paths: directories, patterns, files.
        files_per_round: at most.
        time_zone: of logs that print none.
        broker_id: of all logs; None = unknown.
        broker_id_pattern: regex on a log's path whose first group is the broker's id.
        default_partitions: the cluster's ``num.partitions``.
        principal_pattern: where a user's name is in a principal.

    Raises:
        ConfigError: a path isn't there, or isn't local.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        files_per_round: int = FILES_PER_BATCH,
        time_zone: str = "UTC",
        broker_id: int | None = None,
        broker_id_pattern: str | None = None,
        default_partitions: int = 1,
        principal_pattern: str = "",
    ) -> None:
        self._paths = Paths(paths)
        self._read = ReadOptions(
            (),
            time_zone,
            default_partitions=default_partitions,
            principal_pattern=principal_pattern,
        )
        self._rolled = RolledFiles(
            broker_id=broker_id,
            broker_id_pattern=broker_id_pattern,
            files_per_round=files_per_round,
        )

    def start(self, to: Following) -> Query:
        """Start reading what is new of the files, round by round."""

        def round_of(found: FilesOfRound) -> Round:
            options = replace(self._read, pieces=tuple(found.pieces))
            return _RoundOfFiles(to.spark, found, options)

        rounds = FileRounds(self._paths, self._rolled, round_of, to)
        rounds.start()
        return rounds
