"""
The name in a client's certificate, as Java prints it.

Quotas and super users are written with the names a broker would print, so the text must be Java's
``X500Principal.getName()`` (RFC 2253) to the letter; a recorded table of real Java's answers is in
the tests. Read from DER here: no library prints it that way.

Source: ``sun.security.x509.AVA.toRFC2253String`` (behaviour, by the recorded table).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headgate.errors import RemoteProtocolError
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
