"""
Rules that make a user's name of a longer one, as ``ssl.principal.mapping.rules`` has them.

The gateway makes principals of certificates' names by them, the pipeline users of principals.

Source: Apache Kafka's ``SslPrincipalMapper``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from headgate.errors import BAD_PATTERN, ConfigError, RemoteProtocolError

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
        setting: its name, for messages.

    Raises:
        ConfigError: a rule isn't ``DEFAULT`` or ``RULE:pattern/replacement/[LU]``.
    """

    def __init__(
        self, rules: str | Sequence[str] = "DEFAULT", setting: str = "ssl.principal.mapping.rules"
    ) -> None:
        text = rules if isinstance(rules, str) else ",".join(rules)
        self._rules: list[_Rule] = []
        problems: list[str] = []
        for found in _SPLITTER.finditer(text.strip()):
            rule = found.group(1)
            try:
                parsed = _parse(rule, setting)
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


def _parse(rule: str, setting: str) -> _Rule | None:
    match = _PARSER.match(rule)
    if match is None or match.end() != len(rule):
        raise ConfigError(f"{setting}: {rule!r} isn't DEFAULT or RULE:pattern/replacement/[LU]")
    if match.group(1) is not None:
        return _Rule(None, "", "")
    if match.group(2) is None:
        return None  # an empty rule
    try:
        # Differs: patterns are Python's; Java's \p{...} classes are refused at the start.
        pattern = re.compile(_NAMED_GROUP.sub("(?P<", match.group(2)), re.ASCII)
    except BAD_PATTERN as exc:
        raise ConfigError(f"{setting}: {rule!r}: {exc}") from exc
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
        f"principal mapping rules: the replacement {template!r} can't be filled in",
        reason="principal",
    )
