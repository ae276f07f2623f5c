"""
Read a command line exactly as joptsimple 5 does, the parser of Kafka's Java tools.

Its ways differ from getopt's: single-dash long options are taken, an option's argument may begin
with dashes, an empty ``--flag=`` takes the next word, words that belong to no option are ignored.

Source: joptsimple 5.0.4, ``OptionParserState``, ``ArgumentAcceptingOptionSpec``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class OptionError(ValueError):
    """joptsimple's OptionException, with its text."""


class Option(NamedTuple):
    """
    One option the tool knows.

    Args:
        name: without dashes.
        help: what it is for.
        argument: what usage calls its argument; None if it takes none.
        separator: a character that splits its argument into several.
    """

    name: str
    help: str
    argument: str | None = None
    separator: str = ""


class Detected(NamedTuple):
    """One occurrence on the command line; ``value`` is None for an option without argument."""

    name: str
    value: str | None


class OptionSet:
    """
    What was on a command line.

    Args:
        detected: the occurrences in order; an argument that was split counts several times.
        words: words that belong to no option.
    """

    def __init__(self, detected: Sequence[Detected], words: Sequence[str]) -> None:
        self.detected = tuple(detected)
        self.words = tuple(words)
        self._names = {d.name for d in self.detected}

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return name in self._names

    def values(self, name: str) -> list[str]:
        """Return every argument of the option, in order."""
        return [d.value for d in self.detected if d.name == name and d.value is not None]

    def value(self, name: str) -> str | None:
        """
        Return the option's only argument, or None.

        Raises:
            OptionError: it was given more than once.
        """
        values = self.values(name)
        if len(values) > 1:
            raise OptionError(
                f"Found multiple arguments for option {name}, but you asked for only one"
            )
        return values[0] if values else None


def parse(options: Iterable[Option], argv: Sequence[str]) -> OptionSet:
    """
    Read a command line.

    Args:
        options: those the tool knows.
        argv: the words.

    Raises:
        OptionError: an option is unknown or lacks its argument.
    """
    known = {option.name: option for option in options}
    detected: list[Detected] = []
    words: list[str] = []
    rest = list(argv)
    rest.reverse()
    while rest:
        word = rest.pop()
        if word == "--":
            words.extend(reversed(rest))
            break
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        name, _, value = word.removeprefix("-").removeprefix("-").partition("=")
        option = known.get(name)
        if option is None:
            # After one dash it is a cluster of one-letter options, of which the tools have none.
            told = name if word.startswith("--") else word[1]
            raise OptionError(f"{told} is not a recognized option")
        if option.argument is None:
            detected.append(Detected(name, None))
            continue
        if not value:
            if not rest:
                raise OptionError(f"Option {name} requires an argument")
            value = rest.pop()
        parts = [p for p in value.split(option.separator) if p] if option.separator else [value]
        detected.extend(Detected(name, part) for part in parts or [value])
    return OptionSet(detected, words)


def words_of(argv: Sequence[str]) -> list[str]:
    """Return a command line's words; bytes that aren't UTF-8 become U+FFFD, as in Java."""
    return [word.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for word in argv]


def usage(options: Iterable[Option], width: int = 80) -> str:
    """Return the two columns of options and help that joptsimple prints, sorted by name."""
    import textwrap

    rows = [
        (
            f"--{option.name}" + (f" <{option.argument}>" if option.argument is not None else ""),
            option.help,
        )
        for option in sorted(options, key=lambda option: option.name)
    ]
    left = min(max(len(row[0]) for row in rows), width // 2)
    lines = [f"{'Option':<{left}}  Description", f"{'------':<{left}}  -----------"]
    for name, text in rows:
        wrapped = [
            piece
            for paragraph in text.split("\n")
            for piece in textwrap.wrap(paragraph, width - left - 2) or [""]
        ]
        lines.append(f"{name:<{left}}  {wrapped[0]}".rstrip())
        lines.extend(f"{'':<{left}}  {piece}".rstrip() for piece in wrapped[1:])
    return "\n".join(lines)
