"""
Say how far a log can be trusted: resolution, lost lines, brokers, principals, zones.

A sample of the logs is read, some stretches of each file, in this process. Small logs are read
whole. What is found is said in words (``Quality.notes``) and kept as figures of the run.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from headgate.pipeline.logs.joining import Joiner, Read
from headgate.pipeline.logs.line_parser import FETCH, PRODUCE, LineParser, LogRow
from headgate.pipeline.sources.chunks import read_lines
from headgate.pipeline.sources.compressed import Damaged, ReadError
from headgate.pipeline.sources.pieces import FilePiece

MOST_BYTES: Final = 4 << 20
"""Bytes of a sample, of all logs together; a second of work."""
_LEAST_BYTES: Final = 64 << 10
"""Bytes of a stretch at least: a line may have some."""
_COMPRESSED_BYTES: Final = 1 << 20
"""Bytes of text of a compressed file's stretch at least."""
_CORRELATION: Final = re.compile(rb"correlationId\W{1,16}?(-?\d{1,10})")
_LOCAL: Final = re.compile(r"(.*?):\d+-(.*):\d+(?:-\d+){1,2}")
_LEAST_LOST: Final = 10
_LEAST_LOST_SHARE: Final = 0.02
_LEAST_CONNECTIONS: Final = 5
_MOST_NAMED: Final = 3

Parsers = Callable[[FilePiece], LineParser]
"""Gives what parses the lines of a piece."""


class Note(NamedTuple):
    """
    One thing to know about the logs.

    Attributes:
        name: of a figure in ``summary``.
        value: the figure.
        unit: of it.
        text: a sentence.
        of_moments: it is about moments: it matters where requests are replayed.
    """

    name: str
    value: float
    unit: str
    text: str
    of_moments: bool = False

    @property
    def sentence(self) -> str:
        """The text with a capital letter and a full stop; a file's name stays as it is."""
        text = self.text if self.text.startswith("/") else self.text[:1].upper() + self.text[1:]
        return f"{text}."


@dataclass
class Quality:
    """
    What a sample of logs shows.

    Attributes:
        requests: how many requests it holds.
        coarse: of these, how many have a moment that is known no better than to ``grain_ms``.
        grain_ms: the coarsest resolution, ms.
        seen, expected: requests that follow others of the same client, and how many their
            correlation ids say there were.
        gapped, whole: connections of some length with gaps in these ids, and without.
        brokers: by file, addresses at which one listener was reached.
        connections, principals: how many there are.
        shifts: by file, what the wrapper's zone shifted its stamps by, ms.
        sized, unsized: produce requests and fetches whose line holds sizes, and doesn't.
        zoned: requests whose stamp prints its zone.
        bad: lines without a request, by reason.
        is_sample: whether lines were left out.
    """

    requests: int = 0
    coarse: int = 0
    grain_ms: float = 1.0
    seen: int = 0
    expected: int = 0
    gapped: int = 0
    whole: int = 0
    brokers: dict[str, list[str]] = field(default_factory=dict)
    connections: set[str] = field(default_factory=set)
    principals: set[str] = field(default_factory=set)
    shifts: dict[str, float] = field(default_factory=dict)
    sized: int = 0
    unsized: int = 0
    zoned: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    is_sample: bool = False

    @property
    def lost_share(self) -> float:
        """Share of requests, 0..1, that connections sent and the log doesn't hold."""
        lost = self.expected - self.seen
        if lost < max(_LEAST_LOST, _LEAST_LOST_SHARE * self.expected):
            return 0.0
        return lost / self.expected

    @property
    def is_coarse(self) -> bool:
        """Whether moments are too coarse for a replay."""
        return self.coarse * 2 > self.requests and self.grain_ms > 1.0

    def notes(self) -> list[Note]:
        """Return what is to be known, in sentences; nothing where all is well."""
        made = (
            self._resolution(),
            self._lost(),
            self._several(),
            self._names(),
            self._zone(),
            self._sizes(),
        )
        return [note for note in made if note is not None]

    def _resolution(self) -> Note | None:
        if not self.is_coarse:
            return None
        text = (
            f"the log's resolution is too coarse to replay decisions: its time stamps are rounded "
            f"to {self.grain_ms:,.0f} ms, a replay needs 1 ms. Moments are up to "
            f"{self.grain_ms:,.0f} ms off, and so may each throttle time be; let the layout print "
            "milliseconds (%d{ISO8601})"
        )
        return Note("log_resolution_ms", self.grain_ms, "ms", text, of_moments=True)

    def _lost(self) -> Note | None:
        share = self.lost_share
        if not share:
            return None
        text = f"about {share:.0%} of these connections' requests aren't in the log"
        if self.whole * 4 > self.gapped:
            text += (
                f" (gaps in the correlation ids of {self.gapped} of "
                f"{self.gapped + self.whole} connections): lines were lost, or clients sent them "
                "to brokers whose logs weren't given"
            )
        else:
            text += " (gaps in their correlation ids): what is counted here is the rest"
        return Note("unlogged_share", share, "share", text, of_moments=True)

    def _several(self) -> Note | None:
        if not self.brokers:
            return None
        path, hosts = next(iter(self.brokers.items()))
        more = f" and {len(self.brokers) - 1} other files" if len(self.brokers) > 1 else ""
        text = (
            f"{path}{more}: this isn't one broker's log, but holds requests to "
            f"{len(hosts)} addresses ({_some(hosts)}). They count as one broker's, though quotas "
            "hold per broker: give a file for each, and --broker-id-pattern"
        )
        return Note("brokers_in_one_file", len(hosts), "brokers", text)

    def _names(self) -> Note | None:
        names, connections = len(self.principals), len(self.connections)
        if connections < _LEAST_CONNECTIONS or names < 0.8 * connections:
            return None
        text = (
            f"there are about as many principals ({names:,}) as connections ({connections:,}): is "
            f"a part of each name the connection's ({_some(sorted(self.principals)[:1])})? Then "
            "--principal-pattern says which part is the user"
        )
        return Note("principals_per_connection", names / connections, "", text)

    def _sizes(self) -> Note | None:
        if self.unsized <= self.sized:
            return None
        share = self.unsized / (self.unsized + self.sized)
        text = (
            f"the sizes of {share:.0%} of produce requests and fetches aren't in this log: Kafka "
            "before 2.8 doesn't write them. Requests, times and throttle times count, bytes don't"
        )
        return Note("unsized_share", share, "share", text, of_moments=True)

    def _zone(self) -> Note | None:
        shifted = {path: ms for path, ms in self.shifts.items() if ms}
        if not shifted:
            return None
        path, ms = next(iter(shifted.items()))
        more = f" and {len(shifted) - 1} other files" if len(shifted) > 1 else ""
        hours = f"{abs(ms) / 3_600_000:g} h {'later' if ms > 0 else 'earlier'}"
        text = (
            f"{path}{more}: stamps print no zone, and the wrapper's are {hours}: the wrapper's "
            "zone is used"
        )
        return Note("wrapper_zone_shift_ms", ms, "ms", text)


def _some(names: Sequence[str]) -> str:
    """Return the first of some names."""
    said = ", ".join(names[:_MOST_NAMED])
    return f"{said}, …" if len(names) > _MOST_NAMED else said


def look(pieces: Iterable[FilePiece], parser_of: Parsers, most: int = MOST_BYTES) -> Quality:
    """
    Read a sample of logs.

    Args:
        pieces: what is read; journals and tables are passed over.
        parser_of: gives the parser of a piece.
        most: bytes of the sample.
    """
    logs = [piece for piece in pieces if piece.kind == "log" and not piece.unread]
    found = Quality()
    each = max(most // max(len(logs), 1), _LEAST_BYTES)
    step = max(len(logs) * each // most, 1)
    found.is_sample = step > 1
    hosts: dict[str, dict[tuple[str, bool], set[str]]] = defaultdict(lambda: defaultdict(set))
    ids: dict[tuple[str, str], dict[str, set[int]]]
    for piece in logs[::step]:
        room = max(each, _COMPRESSED_BYTES) if piece.compression else each
        ids = defaultdict(lambda: defaultdict(set))
        parser = parser_of(piece)
        for number, row in _rows(piece, parser, room, found):
            found.requests += 1
            found.zoned += parser.stamps.zoned
            if parser.stamps.grain_ms > 1.0:
                found.coarse += 1
                found.grain_ms = max(found.grain_ms, parser.stamps.grain_ms)
            _take(found, row, number, hosts[piece.path], ids)
        if piece.shifts_ms:
            found.shifts[piece.path] = piece.shifts_ms[0]
        _add_ids(found, ids)
    for path, listeners in hosts.items():
        most_hosts = max(listeners.values(), key=len, default=set())
        if len(most_hosts) > 1:
            found.brokers[path] = sorted(most_hosts)
    return found


def _rows(
    piece: FilePiece, parser: LineParser, room: int, found: Quality
) -> Iterator[tuple[int | None, LogRow]]:
    """Yield the requests of a piece's first bytes, and their correlation ids."""
    end = piece.end if piece.compression else min(piece.end, piece.start + room)
    found.is_sample |= not piece.compression and end < piece.end
    size = 0
    joiner = Joiner(parser, is_document=piece.is_document)
    try:
        for _, lines in read_lines(replace(piece, end=end)):
            for line in lines:
                yield from _told(joiner.take(size, line) if line else (), line, found)
                size += len(line) + 1
            if size >= room:
                found.is_sample |= bool(piece.compression)
                break
    except (Damaged, ReadError):
        pass  # the run itself says so
    yield from _told(joiner.end(), b"", found)


def _told(
    given: Iterable[Read], line: bytes, found: Quality
) -> Iterator[tuple[int | None, LogRow]]:
    """Yield the requests among what was read, and their correlation ids; count bad lines."""
    read = list(given)
    numbers = [int(n) for n in _CORRELATION.findall(line)] if read else []
    told = numbers if len(numbers) == len(read) else [None] * len(read)
    for number, (_, row, _) in zip(told, read, strict=True):
        if isinstance(row, LogRow):
            yield number, row
        else:
            found.bad[str(row)] += 1


def _take(
    found: Quality,
    row: LogRow,
    number: int | None,
    hosts: dict[tuple[str, bool], set[str]],
    ids: dict[tuple[str, str], dict[str, set[int]]],
) -> None:
    """Count a request's connection, principal, address and correlation id."""
    if row.is_forwarded:
        return
    if row.quota_type in (PRODUCE, FETCH) and not row.throttle_time_ms:
        unsized = not row.bytes_exact and not row.bytes_charged
        found.unsized += unsized
        found.sized += not unsized
    found.connections.add(row.connection)
    found.principals.add(row.principal)
    match = _LOCAL.fullmatch(row.connection)
    local, remote = (match[1], match[2]) if match else ("", row.connection)
    if local and not local.startswith(("127.", "[::1]", "::1", "localhost")):
        hosts[row.listener, ":" in local].add(local)
    if number is not None:
        ids[remote, row.client_id][row.connection].add(number)


def _add_ids(found: Quality, ids: dict[tuple[str, str], dict[str, set[int]]]) -> None:
    """
    Add the gaps in a stretch's correlation ids.

    A client counts its requests: a Java client over all its connections, librdkafka each
    connection's own. So of the two ways to look for gaps the one with fewer counts.
    """
    for connections in ids.values():
        every = set().union(*connections.values())
        # What was lost before the first and behind the last of them doesn't show.
        apart = sum(max(own) - min(own) + 1 - len(own) for own in connections.values())
        following = sum(len(own) - 1 for own in connections.values())
        together = max(every) - min(every) + 1 - len(every)
        lost = min(apart, together)
        seen = following if apart <= together else len(every) - 1
        found.seen += seen
        found.expected += seen + lost
        if seen + lost >= _LEAST_LOST:
            found.gapped += lost > 0
            found.whole += not lost
