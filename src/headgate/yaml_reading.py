"""
YAML and JSON read within bounds: nesting is limited; values stay text, or get YAML's types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from headgate.errors import MALFORMED, ConfigError

_MOST_DEPTH: Final = 50
"""Quotas are 5 deep; a note, which Headgate keeps for others, may be deeper."""

# JSON escapes a character beyond U+FFFF as two surrogates; YAML reads them as two bad characters.
_JSON_ESCAPE: Final = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)
_NOT_PLAIN: Final = re.compile(r"[^ -~\n\r]")


def as_yaml(text: str) -> str:
    """
    Rewrite JSON so that a YAML 1.1 parser reads it, line for line; return other text unchanged.

    YAML 1.1 refuses tabs between tokens and surrogate pairs (an emoji's escapes), and takes some
    characters inside quotes for line ends.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text

    def joined(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        return (bytes.fromhex(match[1]) + bytes.fromhex(match[2])).decode("utf-16-be")

    def escaped(match: re.Match[str]) -> str:
        return " " if match[0] == "\t" else f"\\U{ord(match[0]):08x}"

    return _NOT_PLAIN.sub(escaped, _JSON_ESCAPE.sub(joined, text))


def compose_all(text: str) -> list[yaml.Node]:
    """
    Read the documents of YAML or JSON as nodes, which know their lines; none for an empty text.

    Raises:
        yaml.YAMLError: it is neither, or nested too deep.
    """
    return list(yaml.compose_all(as_yaml(text), Loader=_Loader))


def plain_yaml(text: str) -> Any:
    """
    Read YAML or JSON; every value stays text, because names such as 0123 and yes are allowed.

    Raises:
        yaml.YAMLError: it is neither, or nested too deep.
    """
    return yaml.load(as_yaml(text), Loader=_PlainLoader)


def typed_yaml(text: str) -> Any:
    """
    Read YAML or JSON; values have YAML's types, such as numbers.

    Raises:
        yaml.YAMLError: it is neither, or nested too deep, or a value doesn't fit its type.
    """
    try:
        return yaml.load(as_yaml(text), Loader=_Loader)
    except MALFORMED as exc:
        raise yaml.YAMLError(f"a value can't be read: {exc}") from exc


def read_yaml_file(
    path: str | Path, *, flag: str = "", parse: Callable[[str], Any] = plain_yaml
) -> Any:
    """
    Read a file that a flag or setting names.

    Args:
        path: the file.
        flag: what named it, for the error.
        parse: `plain_yaml` or `typed_yaml`.

    Raises:
        ConfigError: it can't be read, or isn't UTF-8, or isn't YAML: at which line, and why.
    """
    place = f"{flag} {path}".lstrip()
    try:
        return parse(Path(path).read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"{place}: can't be read: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{place}: isn't UTF-8 text") from exc
    except yaml.YAMLError as exc:
        mark, problem = getattr(exc, "problem_mark", None), getattr(exc, "problem", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        why = problem or " ".join(str(exc).split())
        raise ConfigError(f"{place}{line}: not YAML: {why}") from exc


_FastLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FastPlainLoader: type[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class _Shallow:
    """Refuses deep nesting: all loaders recurse, and those in C end the process with its stack."""

    _depth = 0

    def descend_resolver(self, parent: Any, index: Any) -> None:
        """Go into a node; both loaders call this for each."""
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise yaml.YAMLError(f"nested more than {_MOST_DEPTH} deep")

    def ascend_resolver(self) -> None:
        """Come out of a node."""
        self._depth -= 1


class _Loader(_Shallow, _FastLoader):  # type: ignore[misc]  # which of two is known at run time
    """Reads values with YAML's types."""


class _PlainLoader(_Shallow, _FastPlainLoader):  # type: ignore[misc]  # as above
    """Reads every value as text."""
