"""
Patterns for the forms of time stamps, and checks of what these match.
"""

from __future__ import annotations

import re
from typing import Final

MONTHS: Final = {
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
STAMP: Final = re.compile(
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
SHORT_YEAR: Final = re.compile(rb"(?<![\d./-])(\d\d)([/.-])(\d\d)\2(\d\d)" + _GAP + rb"\Z")
EPOCH: Final = re.compile(
    rb"(?<![\d.,:-])(?P<e>\d{10}|\d{13}|\d{16}|\d{19})(?:[.,](?P<f>\d{1,9}))?(?![\d:])"
)
FILE_DATE: Final = re.compile(r"(?<!\d)(\d{4})[-_.]?(\d\d)[-_.]?(\d\d)(?!\d{3})")
# A fraction this wide can only be nanoseconds: log4j2's `n` prints them unpadded (",7142551").
NANOS_WIDTH: Final = 7


JAVAS_NAME: Final = re.compile(_JAVAS)
LEVEL: Final = re.compile(rb"(?<![\w-])(?:DEBUG|TRACE|INFO)(?![\w-])", re.IGNORECASE)
_BEFORE: Final = b" \t[({<>\"',;|:"
_BEHIND: Final = b" \t])}<>\"',;|:-"


def is_dated(found: re.Match[bytes]) -> bool:
    """Say whether a stamp has a whole date."""
    with_year = found["mon4"] and (found["y4"] or found["y5"])
    return bool(found["y"] or found["y2"] or found["y3"] or found["cy"] or with_year)


def stands_alone(found: re.Match[bytes], prefix: bytes) -> bool:
    """Say whether what was found is no part of a word, and stands behind no words in brackets."""
    start, end = found.span()
    before, behind = prefix[start - 1 : start], prefix[end : end + 1]
    if (before and before not in _BEFORE) or (behind and behind not in _BEHIND):
        return False
    opened = max(prefix.rfind(b"[", 0, start), prefix.rfind(b"(", 0, start))
    closed = max(prefix.rfind(b"]", 0, start), prefix.rfind(b")", 0, start))
    return opened <= closed or not prefix[opened + 1 : start].strip(b" \t\"'")
