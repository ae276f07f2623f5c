"""
Read and pack the inputs of a pipeline command, and print which lines couldn't be read.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headgate.cli.output import printable
from headgate.cli.pipeline.opening import HINT, Opened
from headgate.cli.pipeline.print import closing_table, number
from headgate.errors import ConfigError
from headgate.pipeline import frames, schema
from headgate.pipeline.answers.replay import pack_logs
from headgate.pipeline.replaying.packed_format import PACKED, PackOptions
from headgate.pipeline.run import collect_stats


def pack_once(on: Opened, options: PackOptions) -> DataFrame:
    """Return PACKED rows of the run's inputs, for a replay."""
    packed = pack_logs(on.spark, on.read_options, options)
    return on.run.keep(packed, PACKED, words="reading")


def write_bad_lines(on: Opened, emitted: DataFrame) -> None:
    """Write the side table of bad lines, and keep its counts for the summary."""
    on.run.write(frames.only(emitted, "bad", schema.BAD_LINES), schema.BAD_LINES)
    stats, run = collect_stats(emitted), on.run
    run.figure("lines", stats["lines"], unit="lines", note="lines and events read")
    run.figure("input_bytes", stats["input_bytes"], unit="bytes", note="read, uncompressed")
    run.figure("bad_lines", stats["bad_lines"], unit="lines", note="kept in table bad_lines")
    run.figure("time_zone", text=on.arguments.time_zone, note="assumed where a log prints none")


def refuse_nothing(on: Opened) -> None:
    """
    Refuse logs that hold no request at all; to be called before tables are replaced.

    Raises:
        ConfigError: they hold none, and --allow-empty isn't given.
    """
    figures = {f.name: f.value or 0 for f in on.run.figures}
    if on.arguments.allow_empty or any(piece.kind != "log" for piece in on.pieces):
        return
    if figures["lines"] > figures["bad_lines"]:
        return
    if figures["bad_lines"]:
        _print_reasons(on, f"{_count(figures['bad_lines'])} couldn't be read")
    found = "there is nothing in it" if not figures["lines"] else "none of its lines is a request"
    raise ConfigError(f"no table was changed: {found}; {HINT}")


def keep_notes(on: Opened) -> None:
    """Keep what is to be known about the logs for the summary."""
    for note in on.notes:
        on.run.figure(note.name, note.value, unit=note.unit, note=note.text)


def print_notes(on: Opened) -> None:
    """Say what is to be known about the logs: it concerns every figure above."""
    for note in on.notes:
        print(printable(note.sentence))


def print_bad_lines(on: Opened) -> None:
    """Say how many lines couldn't be read, and why."""
    bad = next(f.value for f in on.run.figures if f.name == "bad_lines")
    if not bad:
        print(_all_read(on))
        return
    _print_reasons(on, f"{_count(bad)} couldn't be read, kept in {on.run.path('bad_lines')}")


def _all_read(on: Opened) -> str:
    """Say that every line was read, as far as it is so."""
    kinds = {piece.kind for piece in on.pieces}
    if any(note.name == "unlogged_share" for note in on.notes):
        return "Every line that the log holds was read; some requests have none."
    if "requests" in kinds:
        return (
            "Every row was read; the run that wrote the table `requests` said which lines of the "
            "logs couldn't be."
        )
    return "Every line was read."


def _print_reasons(on: Opened, title: str) -> None:
    """Print why lines couldn't be read."""
    reasons = on.run.counted(schema.BAD_LINES, "reason", ("file", "offset"), most=10)
    closing_table(
        title,
        (
            ("lines", lambda r: number(r["count"])),
            ("reason", "reason"),
            ("for instance", lambda r: f"{r['file']} byte {r['offset']}"),
        ),
        reasons,
    )


def _count(lines: float) -> str:
    return "1 line" if lines == 1 else f"{number(lines)} lines"
