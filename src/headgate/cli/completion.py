"""
`headgate completion`: the script with which a shell completes our commands, flags and files.

The scripts are made from the commands' own parsers and start no Python when a key is pressed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import Any, Final

import shtab

from headgate.cli.contract import Parser
from headgate.cli.joptsimple import Option
from headgate.cli.main import COMMANDS
from headgate.cli.output import say
from headgate.cli.results import Result

SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = {"FILE": shtab.FILE, "PATH": shtab.FILE, "PLAN": shtab.FILE, "DIR": shtab.DIRECTORY}
"""Metavars of arguments that are files."""

_TOOLS: Final = {
    "kafka-quotas": "cli.quotas.kafka_quotas:OPTIONS",
    "kafka-configs": "cli.kafka_configs.options:OPTIONS",
}
"""Where the flags are of tools that read theirs as Kafka's do."""


class Script(Result):
    """A completion script."""

    shell: str
    script: str


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        "headgate completion",
        "Print the script with which a shell completes commands, flags and files. For zsh, keep "
        "it as _headgate in a folder of $fpath; for fish, as "
        "~/.config/fish/completions/headgate.fish.",
        _completion,
        example="headgate completion bash > ~/.local/share/bash-completion/completions/headgate",
    )
    made.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    made.add_argument(
        "program",
        metavar="PROGRAM",
        nargs="?",
        choices=("headgate", "kafka-quotas", "kafka-configs"),
        default="headgate",
        help="headgate, kafka-quotas or kafka-configs; default: headgate",
    )
    return made


def _completion(arguments: argparse.Namespace) -> Script:
    text: str = shtab.complete(parser_of(arguments.program), shell=arguments.shell)
    say(text)
    return Script(arguments.shell, text)


def parser_of(program: str) -> argparse.ArgumentParser:
    """Return a parser of a whole program, for completion only."""
    if program != "headgate":
        parents = [_parser(program)]
        return argparse.ArgumentParser(program, parents=parents, add_help=False)
    made = argparse.ArgumentParser(program)
    made.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = made.add_subparsers()
    for name, row in COMMANDS.items():
        commands.add_parser(
            name, help=row.help, description=row.help, parents=[_parser(name)], add_help=False
        )
    return made


def _parser(name: str) -> argparse.ArgumentParser:
    """Return a command's parser; one that knows nothing where an extra's packages are missing."""
    try:
        found: Any = resolve_name(f"headgate.{_TOOLS.get(name, COMMANDS[name].target)}")
    except ModuleNotFoundError:
        return argparse.ArgumentParser()
    made: argparse.ArgumentParser = _of_options(found) if name in _TOOLS else found()
    _mark_files(made)
    return made


def _of_options(options: Sequence[Option]) -> argparse.ArgumentParser:
    """Return a parser of a tool that reads its flags as Kafka's do."""
    made = argparse.ArgumentParser(add_help=False)
    for option in options:
        about = option.help.replace("%", "%%")
        if option.argument is None:
            made.add_argument(f"--{option.name}", action="store_true", help=about)
        else:
            metavar = "FILE" if option.argument.endswith("file") else "VALUE"
            made.add_argument(f"--{option.name}", metavar=metavar, help=about)
    return made


def _mark_files(made: argparse.ArgumentParser) -> None:
    """Mark the arguments that are files, those of a command's actions too."""
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _mark_files(each)
        elif isinstance(action.metavar, str) and action.metavar in _FILES:
            action.complete = _FILES[action.metavar]  # type: ignore[attr-defined]
