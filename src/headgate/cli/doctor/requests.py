"""
`headgate doctor --requests`: what request logs are, and what can be answered from them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final

from headgate.cli.output import printable, say

if TYPE_CHECKING:
    from headgate.cli.results import Examined
    from headgate.pipeline.logs.shapes import Shape
    from headgate.pipeline.sources.quality import Quality

_SUMS: Final = "usage, chargeback, storms, effective"
_DECISIONS: Final = "replay, what-if, recommend, why"


def look_at_requests(arguments: argparse.Namespace, report: Examined) -> None:
    """
    Look at request logs, and print what each is.

    Args:
        arguments: ``requests``, ``time_zone`` and ``principal_pattern``.
        report: where findings are added.

    Raises:
        ConfigError: a path isn't there, or holds no file.
        BadUsage: the time zone is none.
    """
    from headgate.cli.pipeline.opening import check_time_zone
    from headgate.pipeline.logs.shapes import shape_of
    from headgate.pipeline.sources.files import find_files
    from headgate.pipeline.sources.heads import head_of
    from headgate.pipeline.sources.pieces import pieces_of
    from headgate.pipeline.sources.quality import look
    from headgate.pipeline.workers.log_reader import ReadOptions

    zone = arguments.time_zone or "UTC"
    check_time_zone(zone)
    options = ReadOptions((), zone, principal_pattern=arguments.principal_pattern)
    pieces = pieces_of(find_files(arguments.requests), copies="once")
    logs = 0
    for path, group in groupby(pieces, key=lambda piece: piece.path):
        several = list(group)
        if several[0].kind != "log":
            report.seen.append(f"{path} (no request log)")
            continue
        logs += 1
        if several[0].unread:
            report.found.append(f"{path} isn't read: {several[0].unread}")
            continue
        found = look(several, options.parser_of)
        say(printable(path))
        for name, text in told(found, shape_of(head_of(path)[0]), zone):
            say(printable(f"  {name:<10}{text}"))
        if not found.requests:
            report.found.append(f"{path} holds no request that can be read")
        report.found += [f"{path}: {note.text.removeprefix(f'{path}: ')}" for note in found.notes()]
    report.seen.append(f"{logs} {'log' if logs == 1 else 'logs'}")


def told(found: Quality, shape: Shape, zone: str) -> Iterator[tuple[str, str]]:
    """
    Yield what a log is: (of what, text).

    Args:
        found: what a sample of it shows.
        shape: of the log.
        zone: in which stamps are read that print none.
    """
    yield "shape", shape.name
    more = " in a sample" if found.is_sample else ""
    yield "requests", f"{found.requests:,}{more}"
    for reason, count in found.bad.most_common(3):
        yield "bad lines", f"{count:,}: {reason}"
    if not found.requests:
        return
    printed = "they print their zone" if found.zoned * 2 > found.requests else f"read as {zone}"
    printed = "the wrapper's zone is used" if any(found.shifts.values()) else printed
    yield "time", f"{shape.time}; rounded to {found.grain_ms:,.0f} ms; {printed}"
    hosts = next(iter(found.brokers.values()), [])
    yield "brokers", f"{len(hosts)}: {', '.join(hosts[:3])}" if hosts else "one"
    share = found.lost_share
    yield "gaps", f"about {share:.0%} of requests aren't in it" if share else "none found"
    names = {note.name for note in found.notes()}
    against = {
        "log_resolution_ms": "moments are too coarse",
        "unlogged_share": "requests are missing",
        "brokers_in_one_file": "several brokers count as one",
        "unsized_share": "sizes are missing",
    }
    why = [text for name, text in against.items() if name in names]
    if why:
        yield "answers", _SUMS + (" (of what was logged)" if share else "")
        yield "not", f"{_DECISIONS}: {', '.join(why)}"
    else:
        yield "answers", f"{_SUMS}, {_DECISIONS}"
