"""
Read the time stamp in front of a request-log line, whatever the layout's pattern.

Understood: ``yyyy-MM-dd HH:mm:ss`` with ``,`` or ``.`` and any fraction (log4j's DEFAULT, ISO8601
with ``T``, a zone such as ``Z``, ``+0200``, ``GMT+02:00``, ``CEST`` or ``Europe/Berlin`` if
printed), ``dd MMM yyyy HH:mm:ss,SSS`` (DATE), ``dd.MM.yyyy HH:mm:ss``, ``MMM dd, yyyy HH:mm:ss``,
``yyyyMMddHHmmssSSS`` (COMPACT), ``HH:mm:ss,SSS`` (ABSOLUTE, with the date from the file's name),
``MMM dd HH:mm:ss`` (syslog, with the year from there), ``AM`` and ``PM``, and epoch seconds,
milliseconds, microseconds or nanoseconds.

Where several stand in a prefix, collectors have added theirs in front: the last one with a date is
the logger's own, of those before the level (``DEBUG``), where there are any, and of those that
stand alone: a number in a word (``trace=20201015123456789``) or behind words in brackets is none.
Where the logger's is coarse (whole seconds), another of the same second is taken for it. Where it
prints no zone and a wrapper's differs by whole quarters of an hour, the wrapper's zone counts, if
the file says so (``shifts_ms``): what one line tells is no zone, for a wrapper may lag.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from headgate.pipeline.logs.stamp_forms import (
    EPOCH,
    FILE_DATE,
    JAVAS_NAME,
    LEVEL,
    MONTHS,
    NANOS_WIDTH,
    SHORT_YEAR,
    STAMP,
    is_dated,
    stands_alone,
)

_QUARTER_MS: Final = 900_000.0
# How far a wrapper's stamp may be off whole quarters of an hour: before, and behind the logger's.
OFF_MS: Final = (-1000.0, 5000.0)
_MOST_SHIFT_MS: Final = 15 * 3_600_000.0
LATE_MS: Final = 100.0
_COLONS: Final = 3
"""In the text before a request, of one time and of `Completed request:`."""
"""How much later than its second a wrapper may have seen a line, and still be nearest to it."""


class Stamp(NamedTuple):
    """
    A time stamp.

    Attributes:
        ms: epoch ms.
        grain_ms: what it is rounded down to, ms.
        zoned: it prints its zone, or is an epoch number.
    """

    ms: float
    grain_ms: float
    zoned: bool


class StampError(ValueError):
    """A prefix without a time stamp that we can read; the text says why."""


def zone_of(name: str) -> tzinfo:
    """
    Return the time zone called ``name``: an IANA name, ``UTC``, or an offset such as ``+02:00``.

    Raises:
        ValueError: if there is no such zone; the text names the way out.
    """
    match = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d\d):?(\d\d)", name)
    if match:
        sign = -1 if match[1] == "-" else 1
        return timezone(sign * timedelta(hours=int(match[2]), minutes=int(match[3])))
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as exc:
        msg = f"{name!r} isn't a time zone; give a name such as Europe/Berlin, or +02:00"
        raise ValueError(msg) from exc


class StampReader:
    """
    Turn prefixes into epoch milliseconds, for one file.

    Args:
        zone: the broker's time zone, used where the stamp prints none.
        nanos: fractions are log4j2's unpadded nanoseconds (see ``sniff_nanos``).
        file: the file's name, which gives the date where the pattern has none.
        shifts_ms: a wrapper's zone counts: by which quarters of an hour stamps that print no zone
            are before UTC, in order; several in a file in which clocks change. Of these a line has
            the largest that leaves its wrapper's stamp behind its own.
        watching: keep ``shifts``.

    Attributes:
        nanos, shifts_ms: as given.
        zone: of stamps that print none, before they are shifted.
        file_date: (year, month, day) in the file's name, if it has them.
        grain_ms: what the last moment read is rounded down to, ms.
        zoned: whether its stamp prints a zone.
        unread: how many stamps couldn't be read.
        shifts: by which whole quarters of an hour wrappers' stamps differed from the logger's, and
            how often; None: by some other time.

    An hour that a clock change repeats is taken as its first pass (a log can't tell).
    """

    def __init__(
        self,
        zone: tzinfo = UTC,
        *,
        nanos: bool = False,
        file: str = "",
        shifts_ms: tuple[float, ...] = (),
        watching: bool = False,
    ) -> None:
        self.zone = UTC if shifts_ms else zone
        self.nanos = nanos
        self.shifts_ms = shifts_ms
        self.watching = watching
        self.grain_ms = 1.0
        self.zoned = False
        self.unread = 0
        self.shifts: Counter[float | None] = Counter()
        self._seconds: dict[bytes, float] = {}
        match = FILE_DATE.search(file.rsplit("/", 1)[-1])
        self.file_date = (int(match[1]), int(match[2]), int(match[3])) if match else None

    def read(self, prefix: bytes) -> float:
        """
        Return the epoch milliseconds of the time stamp in ``prefix``.

        Raises:
            StampError: if it holds none, or an impossible one.
        """
        # The stock pattern, by position: "[2024-10-25 10:15:30,123] ..."; most lines end here.
        second = self._seconds.get(prefix[1:20])
        end = prefix.find(b"]", 21, 31)
        # Where it may not be the only stamp, all are looked at: no answer depends on lines before.
        alone = prefix.count(b":") <= _COLONS and not self.shifts_ms
        if second is not None and prefix[20:21] in (b",", b".") and end > 0 and alone:
            fraction = prefix[21:end]
            if fraction.isdigit():
                self.zoned = False
                if len(fraction) == 3 and not self.nanos:
                    self.grain_ms = 1.0
                    return second + int(fraction)
                self.grain_ms = self._grain_of(fraction)
                return second + self._fraction_ms(fraction)
        return self.agreed(*self.stamps(prefix))

    def stamps(self, prefix: bytes) -> tuple[Stamp, list[Stamp]]:
        """
        Return the logger's time stamp in ``prefix``, and those of others in it.

        Raises:
            StampError: if it holds none, or an impossible one.
        """
        found, epoch = self._logger_stamp(prefix)
        if found is None or (epoch is not None and not is_dated(found)):
            if epoch is None:
                msg = "no time stamp in front of the request"
                raise StampError(msg)
            return epoch, []
        own = self._stamp(found, prefix)
        others: list[Stamp] = []
        if not self.asks_others(own):
            return own, others
        for each in STAMP.finditer(prefix):
            if each.start() != found.start() and is_dated(each) and stands_alone(each, prefix):
                try:
                    others.append(self._stamp(each, prefix))
                except StampError:
                    continue
        number = self._epoch(prefix) if own.grain_ms > 1.0 else None
        return own, others if number is None else [*others, number]

    def asks_others(self, own: Stamp) -> bool:
        """Say whether a wrapper's stamp can tell more than the logger's."""
        return own.grain_ms > 1.0 or (not own.zoned and (bool(self.shifts_ms) or self.watching))

    def agreed(self, own: Stamp, others: Iterable[Stamp]) -> float:
        """
        Return the epoch ms that the logger's stamp and a wrapper's give together.

        Args:
            own: the logger's.
            others: those beside it.

        ``grain_ms`` is then what the moment is rounded down to, ms.
        """
        ms, self.grain_ms, self.zoned = own.ms, own.grain_ms, own.zoned
        others = list(others)
        zoned = next((other for other in others if other.zoned), None)
        if zoned is not None and not own.zoned and self.watching:
            self.shifts[shift_ms(own, zoned)] += 1
        if self.shifts_ms and not own.zoned:
            apart = -math.inf if zoned is None else zoned.ms - own.ms
            fitting = [each for each in self.shifts_ms if apart - each >= OFF_MS[0]]
            ms += max(fitting, default=self.shifts_ms[0])
        if self.grain_ms > 1.0:
            for other in sorted(others, key=lambda other: other.grain_ms):
                late = other.ms - ms
                if other.grain_ms < own.grain_ms and 0.0 <= late < own.grain_ms + LATE_MS:
                    self.grain_ms = max(other.grain_ms, 1.0)
                    return ms + min(late, own.grain_ms - 1.0)
        return ms

    def second(self, stamp: bytes) -> float | None:
        """Return the epoch ms of a stock stamp's 19 bytes (up to its second); None for others."""
        if stamp not in self._seconds:
            if stamp[13:14] != b":" or stamp[16:17] != b":":
                return None
            try:
                self.stamps(b"[" + stamp + b"]")
            except StampError:
                return None
        return self._seconds.get(stamp)

    def _logger_stamp(self, prefix: bytes) -> tuple[re.Match[bytes] | None, Stamp | None]:
        """Return the logger's own stamp, and an epoch number that counts where that has no date."""
        level = LEVEL.search(prefix)
        before = len(prefix) if level is None else level.start()
        found = None
        best = (False, False, False, False, 0)
        for each in STAMP.finditer(prefix):
            # A date counts for more; without one, a number of six digits isn't a time.
            dated = 2 if is_dated(each) else 1 if each["mon4"] else 0
            if not dated and b":" not in each[0]:
                continue
            readable = dated == 2 or self.file_date is not None
            alone = stands_alone(each, prefix)
            rank = (alone, readable, not each["cy"], each.start() < before, dated)
            if found is None or rank >= best:
                found, best = each, rank
        if found is None:
            return None, self._epoch(prefix)
        return found, self._epoch(prefix[:before], alone=best[0] and best[1])

    def _stamp(self, found: re.Match[bytes], prefix: bytes) -> Stamp:
        try:
            base = self._second(found, prefix)
        except StampError:
            self.unread += 1
            raise
        except (ValueError, KeyError, OverflowError) as exc:
            self.unread += 1
            raise StampError(f"impossible time stamp {found[0].decode('ascii')!r}") from exc
        zoned = any(found[name] for name in ("z", "short", "gmt", "id", "zone"))
        ms = base + self._fraction_ms(found["f"])
        return Stamp(ms, self._grain_of(found["f"]), zoned)

    def _grain_of(self, digits: bytes | None) -> float:
        if not digits:
            return 1000.0
        if self.nanos or len(digits) >= NANOS_WIDTH:
            return 1e-6
        return float(10.0 ** (3 - len(digits)))

    def _fraction_ms(self, digits: bytes | None) -> float:
        if not digits:
            return 0.0
        if self.nanos or len(digits) >= NANOS_WIDTH:
            return int(digits) / 1e6
        return int(digits) / 10.0 ** (len(digits) - 3)

    def _second(self, found: re.Match[bytes], prefix: bytes) -> float:
        """Return epoch ms of the whole second; remembered, for lines come many to a second."""
        h, mi, s = int(found["h"]), int(found["mi"]), int(found["s"])
        if found["y"]:
            date = (int(found["y"]), int(found["mo"]), int(found["d"]))
        elif found["y2"]:
            date = (int(found["y2"]), MONTHS[found["mon"].lower()], int(found["d2"]))
        elif found["y3"]:
            date = _numeric_date(found)
        elif found["cy"]:
            date = (int(found["cy"]), int(found["cmo"]), int(found["cd"]))
        elif found["mon4"]:
            date = self._month_first(found)
        else:
            date = self._dateless(prefix[: found.start()])
        if found["half"]:
            if not 1 <= h <= 12:
                raise ValueError
            h = h % 12 + (12 if found["half"] in b"pP" else 0)
        if date[0] < 1970:
            raise ValueError
        leap = s == 60
        moment = self._in_zone(datetime(*date, h, mi, 59 if leap else s, tzinfo=self.zone), found)
        ms = moment.timestamp() * 1000.0 + (1000.0 if leap else 0.0)
        plain = not any(found[name] for name in ("z", "short", "gmt", "id", "zone", "half"))
        if found.start() == 1 and found.end("s") == 20 and found["y"] and plain and not leap:
            if len(self._seconds) > 8192:
                self._seconds.clear()
            self._seconds[prefix[1:20]] = ms
        return ms

    def _dateless(self, before: bytes) -> tuple[int, int, int]:
        """Return the date for a stamp that has only a time, or a date whose year has two digits."""
        short = SHORT_YEAR.search(before)
        date = self.file_date
        if short:
            told = sorted(int(short[n]) for n in (1, 3, 4))
            if date is None or told != sorted((date[0] % 100, date[1], date[2])):
                text = short[0].rstrip(b" ,T_").decode("ascii")
                msg = f"the year in {text!r} has two digits; let the layout print yyyy-MM-dd"
                raise StampError(msg)
        if date is None:
            msg = "the time stamp has no date, and neither has the file's name"
            raise StampError(msg)
        return date

    def _month_first(self, found: re.Match[bytes]) -> tuple[int, int, int]:
        """Return the date of ``MMM dd yyyy``; without a year, the one nearest to the file's."""
        month, day = MONTHS[found["mon4"].lower()], int(found["d4"])
        year = found["y4"] or found["y5"]
        if year:
            return (int(year), month, day)
        if self.file_date is None:
            msg = "the time stamp has no year, and neither has the file's name"
            raise StampError(msg)
        own = self.file_date[0]
        turned = 12 * (own - 1) + month, 12 * own + month, 12 * (own + 1) + month
        near = 12 * own + self.file_date[1]
        year_of = min(turned, key=lambda months: abs(months - near))
        return ((year_of - month) // 12, month, day)

    def _in_zone(self, moment: datetime, found: re.Match[bytes]) -> datetime:
        """Return a moment in the zone that its stamp prints; the broker's where it prints none."""
        offset = found["z"] or found["short"] or found["gmt"]
        if offset:
            text = offset.decode("ascii")
            return moment.replace(tzinfo=UTC if text == "Z" else _offset(text))
        if found["id"]:
            try:
                return moment.replace(tzinfo=ZoneInfo(found["id"].decode("ascii")))
            except (KeyError, ValueError, OSError):  # two words with a slash between them
                return self._existing(moment)
        if not found["zone"]:
            return self._existing(moment)
        name = found["zone"].decode("ascii")
        if name in ("UTC", "GMT"):
            return moment.replace(tzinfo=UTC)
        for fold in (0, 1):  # the name tells the two passes of a repeated hour apart
            if moment.replace(fold=fold).tzname() == name:
                return moment.replace(fold=fold)
        own = moment.tzname() or ""
        if JAVAS_NAME.fullmatch(found["zone"]) and own[:1] in "+-":
            return moment  # tzdata has only a number for the given zone, Java a name
        raise StampError(
            f"the time stamp's zone is {name}, which the given zone ({self.zone}) doesn't use "
            "then; give the brokers' with --time-zone"
        )

    def _existing(self, moment: datetime) -> datetime:
        """Return a moment of the given zone, unless its clocks skipped it."""
        if moment.astimezone(UTC).astimezone(self.zone).replace(tzinfo=None) != moment.replace(
            tzinfo=None
        ):
            msg = (
                f"{moment:%Y-%m-%d %H:%M} was skipped by the clocks of the given zone "
                f"({self.zone}); is --time-zone the brokers'?"
            )
            raise StampError(msg)
        return moment

    @staticmethod
    def _epoch(prefix: bytes, *, alone: bool = False) -> Stamp | None:
        """Return the first epoch number; one that stands alone before others, or instead."""
        every = list(EPOCH.finditer(prefix))
        first = None if alone or not every else every[0]
        found = next((each for each in every if stands_alone(each, prefix)), first)
        if found is None:
            return None
        unit = {10: 1000.0, 13: 1.0, 16: 1e-3, 19: 1e-6}[len(found["e"])]
        value, grain = int(found["e"]) * unit, unit
        if found["f"]:
            grain = unit / 10.0 ** len(found["f"])
            value += int(found["f"]) * grain
        return Stamp(value, grain, True)


def shift_ms(own: Stamp, zoned: Stamp) -> float | None:
    """Return by which whole quarters of an hour two stamps of one line differ; None: by others."""
    apart = zoned.ms - own.ms
    if not math.isfinite(apart):
        return None
    quarters = round(apart / _QUARTER_MS) * _QUARTER_MS
    near = OFF_MS[0] <= apart - quarters <= OFF_MS[1]
    return quarters if near and abs(quarters) <= _MOST_SHIFT_MS else None


def _offset(text: str) -> tzinfo:
    """Return the zone of ``+2``, ``+02``, ``+0200`` or ``+02:00``."""
    sign, digits = text[0], text[1:].replace(":", "")
    if len(digits) <= 2:
        digits = f"{digits:0>2}00"
    return zone_of(f"{sign}{digits:0>4}")


def _numeric_date(found: re.Match[bytes]) -> tuple[int, int, int]:
    """Return the date of ``dd.MM.yyyy``; with slashes or dashes the month may stand in front."""
    first, second, year = int(found["d3"]), int(found["mo3"]), int(found["y3"])
    if found["sep"] == b"." or first > 12 or first == second:
        return (year, second, first)
    if second > 12:
        return (year, first, second)
    text = found[0].split()[0].decode("ascii")
    raise StampError(f"{text!r} may be day or month first; let the layout print yyyy-MM-dd")


def sniff_nanos(head: bytes) -> bool:
    """
    Say whether the fractions in ``head`` (a file's first lines) are log4j2's nanoseconds ``n``.

    Nine in ten such fractions have nine digits, so a shorter one among them isn't a decimal
    fraction; fractions that are all of three or six digits are.
    """
    for line in head.split(b"\n")[:500]:
        prefix = line.split(b"{", 1)[0]
        for found in STAMP.finditer(prefix):
            if found["f"] is None or len(found["f"]) < NANOS_WIDTH or found["z"] is not None:
                continue
            if b":" in found[0] or (is_dated(found) and stands_alone(found, prefix)):
                return True
    return False
