"""SASL, certificates and the rules for their names: a name only after a yes, and never two."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from fuzzing.target import Target, outcome
from headgate.errors import RemoteProtocolError
from headgate.gateway.identity.sasl import OBSERVABLE, SaslObserver, SaslRefusal
from headgate.gateway.identity.ssl_names import dn_text, subject_of
from headgate.quota.principal_rules import PrincipalMapper

_MECHANISMS = sorted(OBSERVABLE)
_NAMES = Path(__file__).parents[2] / "tests/data/dn"


def sasl(data: bytes) -> None:
    """Any handshakes, tokens and answers in any order."""
    if not data:
        return
    observer = SaslObserver(owner_of=lambda token: "owner" if token == "t" else None)
    mechanism = _MECHANISMS[data[0] % len(_MECHANISMS)]
    names = set()
    confirmed = False
    for part in data[1:].split(b"\xfe"):
        if not part:
            continue
        action, rest = part[0] % 6, part[1:]
        before = observer.name
        try:
            if action == 0:
                observer.handshake(mechanism, rest[0] & 1 if rest else 1)
            elif action == 1:
                observer.handshake_answered(rest[0] & 1 if rest else 0)
            elif action == 2:
                observer.token(rest)
            elif action == 3:
                observer.answered(0, rest)
                confirmed = True
            elif action == 4:
                observer.answered(58, rest)
            else:
                mechanism = _MECHANISMS[len(rest) % len(_MECHANISMS)]
                observer.unknown_token(rest)
        except RemoteProtocolError as error:
            assert str(error)
        except SaslRefusal as refusal:
            assert refusal.message
        assert before is None or observer.name == before
        if observer.name is not None:
            assert confirmed
            names.add(observer.name)
            assert observer.name
    assert len(names) <= 1


def certificate(data: bytes) -> None:
    """Any DER: a name that can be written down, or a reason."""
    for read in (lambda: dn_text(data), lambda: dn_text(subject_of(data))):
        how, name = outcome(read)
        if how == "read":
            assert isinstance(name, str)
            name.encode()


def mapping(data: bytes) -> None:
    """
    Any rules over a short name, or rules of Kafka's own tests over any name: one principal.

    A rule is its operator's: one that takes exponential time takes it in Java as well.
    """
    if not data:
        return
    rules, _, name = data[1:].decode("utf-8", "replace").partition("\0")
    if data[0] & 1:
        every = sorted({case["rules"] for case in _cases()})
        rules = every[len(rules) % len(every)]
    else:
        rules, name = rules[:100], name[:8]
    how, mapper = outcome(lambda: PrincipalMapper(rules), "ssl.principal.mapping.rules")
    if how == "read":
        assert mapper is not None
        first = outcome(lambda: mapper.principal(name))
        assert outcome(lambda: mapper.principal(name)) == first


@functools.cache
def _cases() -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads((_NAMES / "rules.json").read_text())["cases"]
    return found


def _sasl() -> list[bytes]:
    parts = (b"\x00\x01", b"\x01\x00")
    again = (b"\x00\x01", b"\x01\x00", b"\x02\0alice\0pw", b"\x03")
    plain = (*parts, b"\x02\0alice\0pw", b"\x03", *again)
    scram = (*parts, b"\x02n,,n=alice,r=x", b"\x03r=x,s=c2FsdA==,i=4096", b"\x02c=biws", b"\x03v=x")
    token = (*parts, b"\x02n,,n=t,r=x,tokenauth=true", b"\x03r=x", b"\x02c=biws", b"\x03v=x")
    bearer = (*parts, b"\x02n,,\x01auth=Bearer YQ.eyJzdWIiOiJhbGljZSJ9.Yw\x01\x01", b"\x03")
    return [
        bytes([index]) + b"\xfe".join(steps)
        for index, steps in enumerate((bearer, plain, scram, token, token, plain, bearer))
    ]


def _certificates() -> list[bytes]:
    names = json.loads((_NAMES / "names.json").read_text())["names"]
    return [bytes.fromhex(name["der"]) for name in names]


def _mappings() -> list[bytes]:
    texts = [f"{case['rules']}\0{case['name']}".encode() for case in _cases()]
    return [start + text for start in (b"\0", b"\1") for text in texts]


TARGETS = {
    "sasl": Target(
        sasl,
        _sasl,
        (b"\xfe", b"n,,n=", b",tokenauth=true", b"=2C", b"=3D", b"\x01auth=Bearer ", b"a=alice"),
    ),
    "certificates": Target(certificate, _certificates),
    "mapping rules": Target(
        mapping,
        _mappings,
        (b"RULE:", b"DEFAULT", b"/L", b"/U", b"$1", b"${", b"\\", b"(?<", b"^", b"(.*?)", b","),
    ),
}
