"""
`headgate COMMAND …`: finds the command in a table and imports only its module.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from headgate.cli import exit_codes
from headgate.cli.environment import TwoPlaces, placed
from headgate.cli.output import outlive_reader


class Command(NamedTuple):
    """
    One row of the table.

    Args:
        target: ``module:function``; the function takes the arguments after the command's name
            and returns the exit status. Beside ``main_x`` is ``x_parser``, beside ``main`` is
            ``parser``: it takes nothing and returns the command's parser.
        help: one line.
    """

    target: str
    help: str


_AS_CODE: Final = "headgate.cli.quotas.as_code"
_PIPELINE: Final = "headgate.cli.pipeline"
JOBS: Final[dict[str, dict[str, Command]]] = {
    "Run": {
        "serve": Command("headgate.cli.serve.serve:main", "run the gateway in front of Kafka"),
        "demo": Command(
            "headgate.demo.demo:main", "show everything once, with a real Kafka, ending in a report"
        ),
        "console": Command(
            "headgate.cli.console:main",
            "serve the web page that says who is throttled now, and why",
        ),
        "splits": Command(
            f"{_PIPELINE}.splits:main_splits", "stream cluster-wide quotas' splits to the gateways"
        ),
        "monitoring": Command(
            "headgate.cli.monitoring:main", "write dashboards for Grafana, alerts for Prometheus"
        ),
        "doctor": Command(
            "headgate.cli.doctor.doctor:main", "look for what is wrong with quotas or a set-up"
        ),
    },
    "Set quotas": {
        "export": Command(f"{_AS_CODE}:main_export", "write all quotas as YAML"),
        "plan": Command(f"{_AS_CODE}:main_plan", "show what a quotas file would change"),
        "apply": Command(f"{_AS_CODE}:main_apply", "make quotas match a quotas file or a plan"),
        "undo": Command("headgate.cli.quotas.undo:main", "undo a change, or all since a time"),
        "store": Command(
            "headgate.cli.quotas.store:main",
            "show a store's id, accept another store, copy a store",
        ),
        "kafka-quotas": Command(
            "headgate.cli.quotas.kafka_quotas:main", "KIP-546's tool: list, describe, alter quotas"
        ),
        "kafka-configs": Command(
            "headgate.cli.kafka_configs.kafka_configs:main",
            "Kafka's tool: users, clients, ips, brokers",
        ),
    },
    "Ask": {
        "why": Command(
            "headgate.cli.why:main", "say why a client waits, by which quota, what would free it"
        ),
        "history": Command(
            "headgate.cli.quotas.history:main", "list who changed which quota, and when"
        ),
        "effective": Command(
            f"{_PIPELINE}.answers:main_effective",
            "show which quota applied to which client, and quotas that match none",
        ),
        "what-if": Command(
            f"{_PIPELINE}.what_if:main_what_if", "try other quotas on past requests"
        ),
        "recommend": Command(f"{_PIPELINE}.recommend:main_recommend", "propose quotas from use"),
        "storms": Command(
            f"{_PIPELINE}.answers:main_storms", "find connection and producer-id storms"
        ),
    },
    "Account": {
        "usage": Command(f"{_PIPELINE}.usage:main_usage", "sum up who used what, by quota-id"),
        "requests": Command(
            f"{_PIPELINE}.requests:main_requests", "write request logs as a table, a row each"
        ),
        "replay": Command(
            f"{_PIPELINE}.replay:main_replay", "replay requests through Kafka's quota arithmetic"
        ),
        "chargeback": Command(f"{_PIPELINE}.answers:main_chargeback", "price usage per tenant"),
        "report": Command(
            f"{_PIPELINE}.report:main", "draw the tables of a pipeline run as one page"
        ),
    },
    "Other": {
        "completion": Command(
            "headgate.cli.completion:main", "print the completion script of bash, zsh or fish"
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
