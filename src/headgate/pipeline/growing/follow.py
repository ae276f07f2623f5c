"""
Follow a growing input, and keep a command's tables up to date with what was read of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headgate.errors import ConfigError, HeadgateError
from headgate.pipeline import schema
from headgate.pipeline.growing.parts import Following, Parts, Source
from headgate.pipeline.run import Run
from headgate.pipeline.tables.publish import can_swap, swap_in


class GrowingTables:
    """
    Makes the tables of all parts so far, and swaps them in.

    Args:
        run: the command's run.
        parts: what was read.
        write: writes the tables of all parts up to a batch.
        names: of these tables.
        time_zone: assumed where a log prints none.
    """

    def __init__(
        self,
        run: Run,
        parts: Parts,
        write: Callable[[int], None],
        names: tuple[str, ...],
        time_zone: str,
    ) -> None:
        self.run = run
        self.parts = parts
        self._write = write
        self._names = (*names, schema.BAD_LINES.name)
        self._time_zone = time_zone
        self._busy = threading.Lock()
        self._made = False

    def make(self, upto: int) -> None:
        """Make them of the parts up to a batch; all of them, or (told to stop) none."""
        with self._busy:
            before, self.run.figures = self.run.figures, []
            try:
                self._make(upto)
            except BaseException:
                self.run.figures = before
                raise
            self._made = True

    def make_last(self) -> None:
        """Make them of all parts, unless they were made before."""
        with self._busy:  # a round that was told to stop may still be on its way out
            made = self._made
        if not made:
            self.make(self.parts.last())

    def _make(self, upto: int) -> None:
        run = self.run
        swaps = can_swap(run.out) and run.format == "parquet"
        aside = f"{self.parts.root}/tables/{time.time_ns():020d}"
        run.aside = aside if swaps else None
        try:
            self._write(upto)
            run.write(self.parts.read(schema.BAD_LINES.name, upto), schema.BAD_LINES)
            bad = run.read(schema.BAD_LINES).count()
        finally:
            run.drop_kept()
            run.aside = None
        if swaps:
            swap_in(run.out, aside, self._names)
        run.figure("bad_lines", bad, unit="lines", note="kept in table bad_lines")
        run.figure("time_zone", text=self._time_zone, note="assumed where a log prints none")
        run.write_summary()


def follow(
    source: Source,
    tables: GrowingTables,
    stop: threading.Event,
    say: Callable[[str], None],
    *,
    once: bool,
    every_s: float,
) -> None:
    """
    Read what is new round by round, and make the tables after each round; or do one round.

    Args:
        source: where rounds come from.
        tables: what to make.
        stop: ends it.
        say: gets a sentence about each round.
        once: take what is there now, make the tables and end.
        every_s: seconds between rounds.

    Raises:
        ConfigError: it ended because of an error.
    """

    def after(number: int) -> None:
        if not once:
            began = time.monotonic()
            tables.make(number)
            say(f"round {number}: tables are made, in {time.monotonic() - began:.1f} s")

    query = source.start(Following(tables.run.spark, tables.parts, after, once, every_s))
    try:
        while query.isActive and not stop.is_set():
            query.awaitTermination(1)
    except KeyboardInterrupt:
        pass
    finally:
        query.stop()
    failure = query.exception()
    if isinstance(failure, HeadgateError):
        raise failure
    if failure is not None:
        raise ConfigError(f"the stream ended: {failure}")
