"""
The name in a client's certificate, as Java prints it, and the principal that rules make of it.

Quotas and super users are written with the names a broker would print, so the text must be Java's
``X500Principal.getName()`` (RFC 2253) to the letter; a recorded table of real Java's answers is in
the tests. Read from DER here: no library prints it that way.

Source: ``sun.security.x509.AVA.toRFC2253String`` (behaviour, by the recorded table); Apache Kafka's
``SslPrincipalMapper``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from headgate.errors import BAD_PATTERN, ConfigError, RemoteProtocolError
from headgate.wire.fields import java_text

# The attribute types that RFC 2253 names; Java prints every other by number and in hexadecimal.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_VERSION: Final = 0xA0
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java takes the bytes
# of all of them for UTF-8, also where they aren't (T61String, BMPString).
_STRINGS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class _Value(NamedTuple):
    tag: int
    start: int  # of the content
    end: int


def _read(der: bytes, at: int, end: int) -> _Value:
    """Read one tag and length; only what DER allows in certificates."""
    if at + 2 > end:
        raise RemoteProtocolError("the certificate's DER ends early", reason="certificate")
    tag, size = der[at], der[at + 1]
    at += 2
    if size & 0x80:
        count = size & 0x7F
        if not 1 <= count <= 4 or at + count > end:
            raise RemoteProtocolError("a length in the certificate can't be", reason="certificate")
        size = int.from_bytes(der[at : at + count], "big")
        at += count
    if at + size > end:
        raise RemoteProtocolError("the certificate's DER ends early", reason="certificate")
    return _Value(tag, at, at + size)


def _children(der: bytes, value: _Value) -> list[_Value]:
    found = []
    at = value.start
    while at < value.end:
        child = _read(der, at, value.end)
        found.append(child)
        at = child.end
    return found


def subject_of(certificate: bytes) -> bytes:
    """
    Return the subject of a certificate.

    Args:
        certificate: DER, as ``SSLObject.getpeercert(binary_form=True)`` returns it.

    Returns:
        The subject's DER, for ``dn_text``.

    Raises:
        RemoteProtocolError: it doesn't parse.
    """
    outer = _read(certificate, 0, len(certificate))
    body = _read(certificate, outer.start, outer.end)
    fields = _children(certificate, body)
    # version (optional), serial number, signature, issuer, validity, subject
    index = 5 if fields and fields[0].tag == _VERSION else 4
    if len(fields) <= index or fields[index].tag != _SEQUENCE:
        raise RemoteProtocolError("the certificate has no subject", reason="certificate")
    begin = fields[index - 1].end
    return certificate[begin : fields[index].end]


def dn_text(name: bytes) -> str:
    """
    Print a distinguished name as Java does.

    Args:
        name: DER of an X.501 Name.

    Returns:
        The text of ``X500Principal.getName()``: last part first, ``,`` between parts and ``+``
        within one. Empty for an empty name.
    """
    parts = []
    for relative in _children(name, _read(name, 0, len(name))):
        if relative.tag != _SET:
            raise RemoteProtocolError("a name's part isn't a set", reason="certificate")
        parts.append("+".join(_attribute(name, pair) for pair in _children(name, relative)))
    return ",".join(reversed(parts))


def _attribute(name: bytes, pair: _Value) -> str:
    fields = _children(name, pair)
    if len(fields) != 2 or fields[0].tag != _OID:
        raise RemoteProtocolError("a name's attribute isn't a pair", reason="certificate")
    oid, value = fields
    number = _oid(name[oid.start : oid.end])
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or number}=#{name[oid.end : value.end].hex()}"
    return f"{keyword}={_escape(java_text(name[value.start : value.end]))}"


def _oid(raw: bytes) -> str:
    numbers: list[int] = []
    value = 0
    for byte in raw:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        return ""
    first = min(numbers[0] // 40, 2)
    return ".".join(str(number) for number in (first, numbers[0] - 40 * first, *numbers[1:]))


def _escape(text: str) -> str:
    out = "".join(
        "\\" + char if char in _ESCAPED else "\\00" if char == "\0" else char for char in text
    )
    body = out.lstrip(" \r")
    lead = len(out) - len(body)
    core = body.rstrip(" \r")
    trail = body[len(core) :]
    return "".join("\\" + char for char in out[:lead]) + core + "".join("\\" + c for c in trail)


# --- from a name to a principal ---------------------------------------------------------------

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_BACK_REFERENCE: Final = re.compile(r"\$(\d+)", re.ASCII)
# Java's (?<name>...) is Python's (?P<name>...); look-behinds stay.
_NAMED_GROUP: Final = re.compile(r"\(\?<(?![=!])")


class NoMatchingRule(RemoteProtocolError):
    """No rule applies to a certificate's name; a broker refuses such a client too."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no rule applies to {name}", reason="principal")


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None  # None: DEFAULT
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        template = _literal_back_references(self.replacement, self.pattern.groups)
        result = self.pattern.sub(lambda match: _expand(template, match), name)
        return {"L": result.lower, "U": result.upper}.get(self.case, lambda: result)()


class PrincipalMapper:
    """
    ``ssl.principal.mapping.rules``: from a certificate's name to a principal.

    Args:
        rules: the setting's text, or its rules one by one.

    Raises:
        ConfigError: a rule isn't ``DEFAULT`` or ``RULE:pattern/replacement/[LU]``.
    """

    def __init__(self, rules: str | Sequence[str] = "DEFAULT") -> None:
        text = rules if isinstance(rules, str) else ",".join(rules)
        self._rules: list[_Rule] = []
        problems: list[str] = []
        for found in _SPLITTER.finditer(text.strip()):
            rule = found.group(1)
            try:
                parsed = _parse(rule)
            except ConfigError as exc:
                problems.extend(exc.problems)
            else:
                if parsed is not None:
                    self._rules.append(parsed)
        if problems:
            raise ConfigError(problems)

    def principal(self, name: str) -> str:
        """
        Return the principal for a certificate's name.

        Raises:
            NoMatchingRule: no rule applies.
        """
        for rule in self._rules:
            principal = rule.apply(name)
            if principal is not None:
                return principal
        raise NoMatchingRule(name)


def _parse(rule: str) -> _Rule | None:
    match = _PARSER.match(rule)
    if match is None or match.end() != len(rule):
        raise ConfigError(
            f"ssl.principal.mapping.rules: {rule!r} isn't DEFAULT or RULE:pattern/replacement/[LU]"
        )
    if match.group(1) is not None:
        return _Rule(None, "", "")
    if match.group(2) is None:
        return None  # an empty rule
    try:
        # Differs: patterns are Python's; Java's \p{...} classes are refused at the start.
        pattern = re.compile(_NAMED_GROUP.sub("(?P<", match.group(2)), re.ASCII)
    except BAD_PATTERN as exc:
        raise ConfigError(f"ssl.principal.mapping.rules: {rule!r}: {exc}") from exc
    return _Rule(pattern, match.group(3), match.group(4))


def _literal_back_references(template: str, groups: int) -> str:
    """Escape references to groups that aren't there, so that they stay as they are written."""
    if groups == 0:
        return template
    value = template
    for match in _BACK_REFERENCE.finditer(template):
        number = match.group(1)
        if number.startswith("0"):
            continue
        index = int(number)
        while index > groups and index >= 10:
            index //= 10
        if index > groups:
            # As Kafka does it, at the place in the original text.
            at = match.start(1) - 1
            value = value[:at] + "\\" + value[at:]
    return value


def _expand(template: str, match: re.Match[str]) -> str:
    """
    Fill in a replacement as ``Matcher.appendReplacement`` does.

    Raises:
        RemoteProtocolError: it names a group that isn't there, or ends in the middle; Java throws,
            and a broker refuses the client.
    """
    out: list[str] = []
    at, groups = 0, match.re.groups
    while at < len(template):
        char = template[at]
        at += 1
        if char not in "\\$":
            out.append(char)
        elif at == len(template):
            raise _bad_replacement(template)
        elif char == "\\":
            out.append(template[at])
            at += 1
        elif template[at] == "{":
            name, brace, _ = template[at + 1 :].partition("}")
            if not brace or name not in match.re.groupindex:
                raise _bad_replacement(template)
            out.append(match.group(name) or "")
            at += len(name) + 2
        elif template[at] in "0123456789":
            index = int(template[at])
            at += 1
            while template[at : at + 1].isdecimal() and index * 10 + int(template[at]) <= groups:
                index = index * 10 + int(template[at])
                at += 1
            if index > groups:
                raise _bad_replacement(template)
            out.append(match.group(index) or "")
        else:
            raise _bad_replacement(template)
    return "".join(out)


def _bad_replacement(template: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"ssl.principal.mapping.rules: the replacement {template!r} can't be filled in",
        reason="principal",
    )
