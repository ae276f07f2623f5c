"""
`headgate COMMAND …`: finds the command in a table and imports only its module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from headgate.cli import exit_codes
from headgate.cli.environment import TwoPlaces, placed
from headgate.cli.output import outlive_reader, output_failed


class Command(NamedTuple):
    """
    One row of the table.

    Args:
        target: ``module:function``, the module below the package ``headgate``. The function returns
            the command's parser. Those of Kafka's tools, whose names begin with ``kafka-``, take
            the arguments after the command's name and return the exit status.
        help: one line.
    """

    target: str
    help: str


JOBS: Final[dict[str, dict[str, Command]]] = {
    "Run": {
        "serve": Command("cli.serve.serve:parser", "run the gateway in front of Kafka"),
        "demo": Command(
            "demo.demo:parser", "show everything once, with a real Kafka, ending in a report"
        ),
        "console": Command(
            "cli.console:parser", "serve the web page that says who is throttled now, and why"
        ),
        "splits": Command(
            "cli.pipeline.parsers:splits", "stream cluster-wide quotas' splits to the gateways"
        ),
        "monitoring": Command(
            "cli.monitoring:parser", "write dashboards for Grafana, alerts for Prometheus"
        ),
        "doctor": Command(
            "cli.doctor.doctor:parser", "look for what is wrong with quotas or a set-up"
        ),
    },
    "Set quotas": {
        "export": Command(
            "cli.quotas.elsewhere:export_parser", "write all quotas as YAML, or for another tool"
        ),
        "import": Command(
            "cli.quotas.elsewhere:import_parser", "write another tool's quotas as a quotas file"
        ),
        "plan": Command("cli.quotas.as_code:plan_parser", "show what a quotas file would change"),
        "apply": Command(
            "cli.quotas.as_code:apply_parser", "make quotas match a quotas file or a plan"
        ),
        "undo": Command("cli.quotas.undo:parser", "undo a change, or all since a time"),
        "store": Command(
            "cli.quotas.store:parser", "show a store's id, accept another store, copy a store"
        ),
        "kafka-quotas": Command(
            "cli.quotas.kafka_quotas:main", "KIP-546's tool: list, describe, alter quotas"
        ),
        "kafka-configs": Command(
            "cli.kafka_configs.kafka_configs:main", "Kafka's tool: users, clients, ips, brokers"
        ),
    },
    "Ask": {
        "top": Command("cli.top.top:parser", "show who waits and who uses most, live"),
        "why": Command(
            "cli.why:parser", "say why a client waits, by which quota, what would free it"
        ),
        "quotas": Command(
            "cli.quotas.quotas:parser", "list every quota with its use now and its last change"
        ),
        "history": Command("cli.quotas.history:parser", "list who changed which quota, and when"),
        "effective": Command(
            "cli.pipeline.parsers:effective",
            "show which quota applied to which client, and quotas that match none",
        ),
        "what-if": Command("cli.pipeline.parsers:what_if", "try other quotas on past requests"),
        "recommend": Command("cli.pipeline.parsers:recommend", "propose quotas from use"),
        "storms": Command("cli.pipeline.parsers:storms", "find connection and producer-id storms"),
    },
    "Account": {
        "usage": Command("cli.pipeline.parsers:usage", "sum up who used what, by quota-id"),
        "requests": Command(
            "cli.pipeline.parsers:requests", "write request logs as a table, a row each"
        ),
        "replay": Command(
            "cli.pipeline.parsers:replay", "replay requests through Kafka's quota arithmetic"
        ),
        "chargeback": Command("cli.pipeline.parsers:chargeback", "price usage per tenant"),
        "report": Command(
            "cli.pipeline.report:parser", "draw the tables of a pipeline run as one page"
        ),
    },
    "Other": {
        "completion": Command(
            "cli.completion:parser", "print the completion script of bash, zsh or fish"
        ),
    },
}
"""Commands by the job that they are for."""
COMMANDS: Final = {name: row for rows in JOBS.values() for name, row in rows.items()}


def usage() -> str:
    """Return the list of commands, grouped by job."""
    width = max(map(len, COMMANDS))
    groups = (
        f"{job}:\n" + "\n".join(f"  {name:<{width}}  {row.help}" for name, row in rows.items())
        for job, rows in JOBS.items()
    )
    return "\n\n".join(
        (
            "usage: headgate COMMAND …",
            *groups,
            "`headgate COMMAND --help` tells more. An example:\n"
            "  headgate plan --bootstrap-server kafka-1:9092 quotas.yaml",
        )
    )


def load(name: str) -> Callable[[Sequence[str]], int]:
    """
    Import one command: a function of the arguments after its name that returns the exit status.

    Raises:
        KeyError: there is no such command.
    """
    from pkgutil import resolve_name  # here, because the list of commands doesn't need it

    found: Any = resolve_name(f"headgate.{COMMANDS[name].target}")
    if name.startswith("kafka-"):
        return found  # type: ignore[no-any-return]
    from headgate.cli.contract import command

    made = found()
    return lambda words: command(made, words)


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run one command.

    Args:
        argv: the arguments after ``headgate``; those of the process by default.

    Returns:
        The exit status (:mod:`headgate.cli.exit_codes`).
    """
    outlive_reader()
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
    except SystemExit as end:  # argparse's, after --help
        if not end.code and output_failed():
            raise SystemExit(exit_codes.FAILED) from None
        raise
    return exit_codes.FAILED if output_failed() and status == exit_codes.DONE else status


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return exit_codes.DONE if arguments else exit_codes.USAGE
    if arguments[0] in ("-V", "--version"):
        from headgate.build import build

        print(f"headgate {build()}")
        return exit_codes.DONE
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        return _no_such_command(name, rest)
    try:
        return load(name)(placed(name, rest, os.environ))
    except (TwoPlaces, ModuleNotFoundError) as problem:
        from headgate.cli.contract import failed

        return failed(name if name.startswith("kafka-") else f"headgate {name}", rest, problem)
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED


def _no_such_command(name: str, rest: Sequence[str]) -> int:
    from difflib import get_close_matches

    from headgate.cli.contract import BadUsage, failed

    close = get_close_matches(name, COMMANDS, n=1)
    hint = f"; did you mean {close[0]}?" if close else "; `headgate --help` lists all"
    return failed("headgate", rest, BadUsage(f"there is no command {name}{hint}"))


def kafka_quotas() -> int:
    """Run the program kafka-quotas."""
    return main(["kafka-quotas", *sys.argv[1:]])


def kafka_configs() -> int:
    """Run the program kafka-configs."""
    return main(["kafka-configs", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
