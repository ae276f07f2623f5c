"""
`headgate COMMAND …`: finds the command in a table and imports only its module.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from headgate import __version__
from headgate.cli import exit_codes, extras
from headgate.cli.environment import TwoPlaces, placed
from headgate.cli.output import outlive_reader, printable


class Command(NamedTuple):
    """
    One row of the table.

    Args:
        target: ``module:function``; the function takes the arguments after the command's name
            and returns the exit status.
        help: one line.
    """

    target: str
    help: str


COMMANDS: Final[dict[str, Command]] = {
    "serve": Command(
        "headgate.cli.serve.serve:main",
        "run the gateway in front of Kafka (see headgate.properties)",
    ),
    "demo": Command(
        "headgate.demo.demo:main", "show everything once, with a real Kafka, ending in a report"
    ),
    "export": Command(
        "headgate.cli.quotas.as_code:main_export", "write the quotas of a store or cluster as YAML"
    ),
    "plan": Command(
        "headgate.cli.quotas.as_code:main_plan", "show what a quotas file would change; exit 3"
    ),
    "apply": Command(
        "headgate.cli.quotas.as_code:main_apply", "make a store or cluster match a quotas file"
    ),
    "history": Command(
        "headgate.cli.quotas.history:main", "list who changed which quota, and when"
    ),
    "undo": Command("headgate.cli.quotas.undo:main", "take back a change, or all since a time"),
    "store": Command(
        "headgate.cli.quotas.store:main",
        "show which store it is, accept another, copy one to another",
    ),
    "doctor": Command(
        "headgate.cli.doctor.doctor:main",
        "look for quotas that don't do what they seem to, and at a gateway's set-up",
    ),
    "usage": Command("headgate.cli.pipeline.usage:main_usage", "sum up who used what, by quota-id"),
    "effective": Command(
        "headgate.cli.pipeline.answers:main_effective",
        "show which quota applied to which client; dead quotas",
    ),
    "replay": Command(
        "headgate.cli.pipeline.replay:main_replay",
        "replay requests through Kafka's quota arithmetic",
    ),
    "what-if": Command(
        "headgate.cli.pipeline.what_if:main_what_if", "try other quotas on past requests"
    ),
    "recommend": Command(
        "headgate.cli.pipeline.recommend:main_recommend", "propose quotas from use"
    ),
    "chargeback": Command(
        "headgate.cli.pipeline.answers:main_chargeback", "price usage per tenant"
    ),
    "storms": Command(
        "headgate.cli.pipeline.answers:main_storms", "find connection and producer-id storms"
    ),
    "splits": Command(
        "headgate.cli.pipeline.splits:main_splits",
        "stream cluster-wide quotas' splits to the gateways",
    ),
    "report": Command(
        "headgate.cli.pipeline.report:main", "draw the tables of a pipeline run as one page"
    ),
    "kafka-quotas": Command(
        "headgate.cli.quotas.kafka_quotas:main", "KIP-546's tool: list, describe, alter quotas"
    ),
    "kafka-configs": Command(
        "headgate.cli.kafka_configs.kafka_configs:main",
        "Kafka's tool: users, clients, ips, brokers",
    ),
}


def usage() -> str:
    """Return the list of commands."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items())
    return f"usage: headgate COMMAND …\n\n{rows}\n\n`headgate COMMAND --help` tells more."


def load(name: str) -> Callable[[Sequence[str]], int]:
    """
    Import one command's function.

    Raises:
        KeyError: there is no such command.
    """
    module_name, _, function = COMMANDS[name].target.partition(":")
    command: Callable[[Sequence[str]], int] = getattr(
        importlib.import_module(module_name), function
    )
    return command


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run one command.

    Args:
        argv: the arguments after ``headgate``; those of the process by default.

    Returns:
        The exit status (:mod:`headgate.cli.exit_codes`).
    """
    outlive_reader()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return exit_codes.DONE if arguments else exit_codes.USAGE
    if arguments[0] in ("-V", "--version"):
        print(f"headgate {__version__}")
        return exit_codes.DONE
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        from difflib import get_close_matches

        close = get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        print(f"headgate: there is no command {printable(name)}{hint}", file=sys.stderr)
        print(usage(), file=sys.stderr)
        return exit_codes.USAGE
    try:
        return load(name)(placed(name, rest, os.environ))
    except TwoPlaces as problem:
        print(f"headgate {name}: {problem}", file=sys.stderr)
        return exit_codes.USAGE
    except ModuleNotFoundError as problem:
        shown = name if name.startswith("kafka-") else f"headgate {name}"
        line = extras.missing(shown, problem.name or "")
        if line is None:
            raise
        print(line, file=sys.stderr)
        return exit_codes.FAILED
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED


def kafka_quotas() -> int:
    """Run the program kafka-quotas."""
    return main(["kafka-quotas", *sys.argv[1:]])


def kafka_configs() -> int:
    """Run the program kafka-configs."""
    return main(["kafka-configs", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
