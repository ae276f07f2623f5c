"""
Read the user's name off a principal, as a log prints it.

Kafka prints ``Type:name``. Managed clouds and other principal builders print forms of their own,
some with parts that differ by connection: those of ``FORMS``, a row each. For others there are a
pattern (``--principal-pattern``) whose first group is the name, or rules as in
``ssl.principal.mapping.rules``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from headgate.errors import BAD_PATTERN, ConfigError, RemoteProtocolError
from headgate.quota.principal_rules import PrincipalMapper


class Form(NamedTuple):
    """
    A form of principals.

    Attributes:
        what: whose it is.
        sample: one.
        name: the name in the sample.
        pattern: matches it from its beginning; group ``name`` is the user's name.
    """

    what: str
    sample: str
    name: str
    pattern: re.Pattern[str]


_TYPE: Final = r"(?:\w+:)?"
_FIELDS: Final = r"(?:(?:[^()\[\]{}]|\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\})*?, *)?"
"""The fields of a class in front of one, which may be in brackets themselves."""
_DN: Final = "CN|OU|O|C|L|ST|STREET|DC|UID"
_FIELD: Final = rf"'?(?P<name>.+?)'?(?:, *(?!(?:{_DN})=)[a-z][\w-]*=|[)\]}}]$)"
"""A field's value: up to the next field, which isn't a part of a DN, or the last bracket."""
FORMS: Final = (
    Form(
        "Amazon MSK, IAM: the ARN; the address and the id behind it differ by connection",
        "[IAM]:[arn:aws:sts::111122223333:assumed-role/etl/i-0abc]:[INTERNAL_IP-10.0.0.9:30000]:[8f14e45f]",
        "arn:aws:sts::111122223333:assumed-role/etl/i-0abc",
        re.compile(_TYPE + r"\[[A-Z_-]+\]:\[(?P<name>[^\[\]]+)\](?::\[[^\[\]]*\])*$"),
    ),
    Form(
        "Confluent's multi-tenant principals: the user, without its tenant",
        "MultiTenantPrincipal(tenantMetadata=TenantMetadata(tenantName=lkc-1, clusterId=lkc-1), "
        "user=sa-123)",
        "sa-123",
        re.compile(_TYPE + r"\w*Principal\(" + _FIELDS + "user=" + _FIELD),
    ),
    Form(
        "a principal class printed with its fields, as Java records and Lombok do",
        "CustomPrincipal(type=User, name=alice, session=42)",
        "alice",
        re.compile(_TYPE + r"\w*Principal[(\[{]" + _FIELDS + "name=" + _FIELD),
    ),
    Form(
        "a SPIFFE id: all of it",
        "spiffe://example.org/ns/pay/sa/etl",
        "spiffe://example.org/ns/pay/sa/etl",
        re.compile(_TYPE + r"(?P<name>spiffe://\S+)$"),
    ),
    Form(
        "an ARN alone: all of it",
        "arn:aws:iam::111122223333:user/etl",
        "arn:aws:iam::111122223333:user/etl",
        re.compile(_TYPE + r"(?P<name>arn:aws[\w-]*:\S+)$"),
    ),
    Form(
        "a certificate's name (DN): all of it",
        "CN=etl,OU=Payments,O=Example",
        "CN=etl,OU=Payments,O=Example",
        re.compile(_TYPE + r"(?P<name>(?:" + _DN + r")=.+)$"),
    ),
    Form(
        "Kerberos, where no rule makes it shorter: all of it",
        "etl/host1.example.org@EXAMPLE.ORG",
        "etl/host1.example.org@EXAMPLE.ORG",
        re.compile(_TYPE + r"(?P<name>[\w.$-]+(?:/[\w.-]+)?@[A-Z0-9][A-Z0-9.-]*)$"),
    ),
    Form(
        "an account of Confluent Cloud: its id",
        "sa-123abc",
        "sa-123abc",
        re.compile(_TYPE + r"(?P<name>(?:sa|u|pool)-[a-z0-9]+)$"),
    ),
)
"""Known forms, with or without a type in front."""
OWN: Final = Form(
    "Kafka's own, and Aiven's: the name behind the type",
    "User:avnadmin",
    "avnadmin",
    re.compile(r"(?:User:(?=$)|[^:]*:(?=.))(?P<name>.*)$", re.DOTALL),
)
"""The form of all others, which stays as it is to the last blank."""


class Principals:
    """
    Finds the names of principals.

    Args:
        pattern: a regex, searched in the name; what its first group matches is the user. Or rules
            as in ``ssl.principal.mapping.rules``, the first that matches the name. "" = none.
            Where none matches, the name stays as it is.

    Raises:
        ConfigError: it is neither a regex with a group, nor rules.
    """

    def __init__(self, pattern: str = "") -> None:
        is_rules = _IS_RULES(pattern) is not None
        self._rules = PrincipalMapper(pattern, "--principal-pattern") if is_rules else None
        self._pattern = pattern_of(pattern) if pattern and not is_rules else None
        self._names: dict[str, str | None] = {}

    def name_of(self, principal: str) -> str | None:
        """Return the name in a principal as logged; None where it is of no form known."""
        if principal not in self._names:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            self._names[principal] = self._read(principal)
        return self._names[principal]

    def _read(self, principal: str) -> str | None:
        name: str | None = None
        for form in FORMS:
            match = form.pattern.match(principal)
            if match:
                name = match["name"]
                break
        else:
            own = OWN.pattern.match(principal)
            name = own and own["name"]
        if self._rules is not None:
            try:
                return self._rules.principal(principal if name is None else name)
            except RemoteProtocolError:  # none matches, or one can't be filled in
                return name
        if self._pattern is None:
            return name
        found = self._pattern.search(principal if name is None else name)
        return name if found is None else found[1]


_IS_RULES: Final = re.compile(r"\s*(?:RULE:|DEFAULT\s*(?:,|$))").match
_MOST_NAMES: Final = 200_000


def pattern_of(text: str) -> re.Pattern[str]:
    """
    Return a pattern that users gave.

    Raises:
        ConfigError: it isn't a regex with a group.
    """
    try:
        pattern = re.compile(text)
    except BAD_PATTERN as exc:
        raise ConfigError(f"--principal-pattern {text!r} isn't a regex: {exc}") from exc
    if pattern.groups < 1:
        raise ConfigError(f"--principal-pattern {text!r} has no group; write e.g. '^CN=([^,]+)'")
    return pattern
