"""
Read the time stamp in front of a request-log line, whatever the layout's pattern.

Understood: ``yyyy-MM-dd HH:mm:ss`` with ``,`` or ``.`` and any fraction (log4j's DEFAULT, ISO8601
with ``T``, a zone such as ``Z``, ``+0200``, ``GMT+02:00``, ``CEST`` or ``Europe/Berlin`` if
printed), ``dd MMM yyyy HH:mm:ss,SSS`` (DATE), ``dd.MM.yyyy HH:mm:ss``, ``MMM dd, yyyy HH:mm:ss``,
``yyyyMMddHHmmssSSS`` (COMPACT), ``HH:mm:ss,SSS`` (ABSOLUTE, with the date from the file's name),
``MMM dd HH:mm:ss`` (syslog, with the year from there), ``AM`` and ``PM``, and epoch seconds,
milliseconds, microseconds or nanoseconds. Where several stand in a prefix, the last one with a date
is the logger's own; collectors add theirs in front.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

_MONTHS: Final = {
    name: number
    for number, name in enumerate(b"jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)
}
# Zones' names that tzdata knows, and those that only Java prints.
_NAMES: Final = (
    rb"UTC|GMT|A(?:CD|CS|D|ED|ES|KD|KS|S|WS)T|BST|CAT|C[DES]T|CEST|ChST|EAT|E[DES]T|EEST|GST|H[DKS]T"
    rb"|I[DS]T|[JK]ST|MES?T|M[DS]T|MS[DK]|N[DS]T|NZ[DS]T|P[DKS]T|SA?ST|W[AE]T|WEST|WIB|WITA?"
)
_JAVAS: Final = (
    rb"AFT|ALMT|AMT|ARS?T|AZO?S?T|BDT|BRS?T|BTT|CLS?T|COT|CVT|FJT|GFT|GYT|ICT|IR[DKS]T|IRKT|KGT"
    rb"|KRAT|MAGT|MMT|MYT|NOVT|NPT|OMST|PET|PETT|PGT|PHT|PYS?T|QYZT|SAKT|SAMT|SGT|SRT|TJT|TMT|TRT"
    rb"|ULAT|UYT|UZT|VET|VLAT|YAKT|YEKT"
)
_GAP: Final = rb"(?:[T_]|,? {1,2})"
_STAMP: Final = re.compile(
    rb"(?<!\d)(?:"
    rb"(?P<y>\d{4})(?P<sep1>[-/.])(?P<mo>\d\d?)(?P=sep1)(?P<d>\d\d?)" + _GAP + rb"|"
    rb"(?P<d3>\d\d?)(?P<sep>[./-])(?P<mo3>\d\d?)(?P=sep)(?P<y3>\d{4})" + _GAP + rb"|"
    rb"(?P<d2>\d\d?)[ /-](?P<mon>[A-Za-z]{3})[a-z]*[ /-](?P<y2>\d{4})(?::|" + _GAP + rb")|"
    rb"\b(?P<mon4>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.? {1,2}(?P<d4>\d\d?)"
    rb"(?:,? (?P<y4>\d{4}))?" + _GAP + rb"|"
    rb"(?P<cy>(?:19|20)\d\d)(?P<cmo>\d\d)(?P<cd>\d\d)T?(?=\d{6})"
    rb")?"
    rb"(?P<h>[0-2]\d|\d(?=:)):?(?P<mi>[0-5]\d):?(?P<s>[0-6]\d)(?:[.,:]?(?P<f>\d{1,9}))?"
    rb"(?!\d)(?: ?(?P<half>[AaPp])[Mm]\b)?"
    rb"(?: ?(?P<z>Z\b|[+-]\d\d:?\d\d(?!\d))| ?(?P<short>[+-]\d\d)(?![\d:])|"
    rb" ?(?:UTC|GMT)(?P<gmt>[+-]\d\d?(?::?\d\d)?)(?!\d)|"
    rb" ?\[?(?P<id>[A-Z]\w+(?:/\w[\w+-]*){1,2})|"
    rb" ?(?P<zone>" + _NAMES + rb"|" + _JAVAS + rb")\b)?"
    rb"(?: (?P<y5>(?:19|20)\d\d)(?![\w/.-]))?"
)
_SHORT_YEAR: Final = re.compile(rb"(?<![\d./-])(\d\d)([/.-])(\d\d)\2(\d\d)" + _GAP + rb"\Z")
_EPOCH: Final = re.compile(
    rb"(?<![\d.,:-])(?P<e>\d{10}|\d{13}|\d{16}|\d{19})(?:[.,](?P<f>\d{1,9}))?(?![\d:])"
)
_FILE_DATE: Final = re.compile(r"(?<!\d)(\d{4})[-_.]?(\d\d)[-_.]?(\d\d)(?!\d{3})")
# A fraction this wide can only be nanoseconds: log4j2's `n` prints them unpadded (",7142551").
_NANOS_WIDTH: Final = 7


_JAVAS_NAME: Final = re.compile(_JAVAS)


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

    An hour that a clock change repeats is taken as its first pass (a log can't tell).
    """

    def __init__(self, zone: tzinfo = UTC, *, nanos: bool = False, file: str = "") -> None:
        self._zone = zone
        self._nanos = nanos
        self._seconds: dict[bytes, float] = {}
        match = _FILE_DATE.search(file.rsplit("/", 1)[-1])
        self._file_date = (int(match[1]), int(match[2]), int(match[3])) if match else None

    def read(self, prefix: bytes) -> float:
        """
        Return the epoch milliseconds of the time stamp in ``prefix``.

        Raises:
            StampError: if it holds none, or an impossible one.
        """
        # The stock pattern, by position: "[2024-10-25 10:15:30,123] ..."; most lines end here.
        second = self._seconds.get(prefix[1:20])
        if second is not None and prefix[20:21] in (b",", b"."):
            fraction = prefix[21 : prefix.find(b"]", 21, 31)]
            if fraction.isdigit():
                if len(fraction) == 3 and not self._nanos:
                    return second + int(fraction)
                return second + self._fraction_ms(fraction)
        return self._read_any(prefix)

    def second(self, stamp: bytes) -> float | None:
        """Return the epoch ms of a stock stamp's 19 bytes (up to its second); None for others."""
        if stamp not in self._seconds:
            if stamp[13:14] != b":" or stamp[16:17] != b":":
                return None
            try:
                self._read_any(b"[" + stamp + b"]")
            except StampError:
                return None
        return self._seconds.get(stamp)

    def _read_any(self, prefix: bytes) -> float:
        found = None
        best = 0
        for each in _STAMP.finditer(prefix):
            # A date counts for more; without one, a number of six digits isn't a time.
            rank = 2 if _dated(each) else 1 if each["mon4"] else 0
            if rank >= best and (rank or b":" in each[0]):
                found, best = each, rank
        if found is None or not _dated(found):
            epoch = self._epoch(prefix)
            if epoch is not None:
                return epoch
        if found is None:
            msg = "no time stamp in front of the request"
            raise StampError(msg)
        try:
            base = self._second(found, prefix)
        except StampError:
            raise
        except (ValueError, KeyError, OverflowError) as exc:
            raise StampError(f"impossible time stamp {found[0].decode('ascii')!r}") from exc
        return base + self._fraction_ms(found["f"])

    def _fraction_ms(self, digits: bytes | None) -> float:
        if not digits:
            return 0.0
        if self._nanos or len(digits) >= _NANOS_WIDTH:
            return int(digits) / 1e6
        return int(digits) / 10.0 ** (len(digits) - 3)

    def _second(self, found: re.Match[bytes], prefix: bytes) -> float:
        """Return epoch ms of the whole second; remembered, for lines come many to a second."""
        h, mi, s = int(found["h"]), int(found["mi"]), int(found["s"])
        if found["y"]:
            date = (int(found["y"]), int(found["mo"]), int(found["d"]))
        elif found["y2"]:
            date = (int(found["y2"]), _MONTHS[found["mon"].lower()], int(found["d2"]))
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
        moment = self._in_zone(datetime(*date, h, mi, 59 if leap else s, tzinfo=self._zone), found)
        ms = moment.timestamp() * 1000.0 + (1000.0 if leap else 0.0)
        plain = not any(found[name] for name in ("z", "short", "gmt", "id", "zone", "half"))
        if found.start() == 1 and found.end("s") == 20 and found["y"] and plain and not leap:
            if len(self._seconds) > 8192:
                self._seconds.clear()
            self._seconds[prefix[1:20]] = ms
        return ms

    def _dateless(self, before: bytes) -> tuple[int, int, int]:
        """Return the date for a stamp that has only a time, or a date whose year has two digits."""
        short = _SHORT_YEAR.search(before)
        date = self._file_date
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
        month, day = _MONTHS[found["mon4"].lower()], int(found["d4"])
        year = found["y4"] or found["y5"]
        if year:
            return (int(year), month, day)
        if self._file_date is None:
            msg = "the time stamp has no year, and neither has the file's name"
            raise StampError(msg)
        own = self._file_date[0]
        turned = 12 * (own - 1) + month, 12 * own + month, 12 * (own + 1) + month
        near = 12 * own + self._file_date[1]
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
        if _JAVAS_NAME.fullmatch(found["zone"]) and own[:1] in "+-":
            return moment  # tzdata has only a number for the given zone, Java a name
        raise StampError(
            f"the time stamp's zone is {name}, which the given zone ({self._zone}) doesn't use "
            "then; give the brokers' with --time-zone"
        )

    def _existing(self, moment: datetime) -> datetime:
        """Return a moment of the given zone, unless its clocks skipped it."""
        if moment.astimezone(UTC).astimezone(self._zone).replace(tzinfo=None) != moment.replace(
            tzinfo=None
        ):
            msg = (
                f"{moment:%Y-%m-%d %H:%M} was skipped by the clocks of the given zone "
                f"({self._zone}); is --time-zone the brokers'?"
            )
            raise StampError(msg)
        return moment

    @staticmethod
    def _epoch(prefix: bytes) -> float | None:
        found = _EPOCH.search(prefix)
        if found is None:
            return None
        unit = {10: 1000.0, 13: 1.0, 16: 1e-3, 19: 1e-6}[len(found["e"])]
        value = int(found["e"]) * unit
        if found["f"]:
            value += int(found["f"]) / 10.0 ** len(found["f"]) * unit
        return value


def _offset(text: str) -> tzinfo:
    """Return the zone of ``+2``, ``+02``, ``+0200`` or ``+02:00``."""
    sign, digits = text[0], text[1:].replace(":", "")
    if len(digits) <= 2:
        digits = f"{digits:0>2}00"
    return zone_of(f"{sign}{digits:0>4}")


def _dated(found: re.Match[bytes]) -> bool:
    with_year = found["mon4"] and (found["y4"] or found["y5"])
    return bool(found["y"] or found["y2"] or found["y3"] or found["cy"] or with_year)


def _numeric_date(found: re.Match[bytes]) -> tuple[int, int, int]:
    """Return the date of ``dd.MM.yyyy``; with slashes or dashes the month may stand in front."""
    first, second, year = int(found["d3"]), int(found["mo3"]), int(found["y3"])
    if found["sep"] == b"." or first > 12 or first == second:
        return (year, second, first)
    if second > 12:
        return (year, first, second)
    text = found[0].split()[0].decode("ascii")
    raise StampError(f"{text!r} may be day or month first; let the layout print yyyy-MM-dd")


def has_stamp(text: bytes) -> bool:
    """Say whether a time stamp with a date stands in ``text``."""
    return any(_dated(found) for found in _STAMP.finditer(text))


def sniff_nanos(head: bytes) -> bool:
    """
    Say whether the fractions in ``head`` (a file's first lines) are log4j2's nanoseconds ``n``.

    Nine in ten such fractions have nine digits, so a shorter one among them isn't a decimal
    fraction; fractions that are all of three or six digits are.
    """
    for line in head.split(b"\n")[:500]:
        prefix = line.split(b"{", 1)[0]
        for found in _STAMP.finditer(prefix):
            if found["f"] and len(found["f"]) >= _NANOS_WIDTH and found["z"] is None:
                return True
    return False
