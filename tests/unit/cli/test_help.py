"""What `--help` says: an example that the command takes, jobs, no colour; and what it loads."""

from __future__ import annotations

import argparse
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.cli.completion import _parser
from headgate.cli.main import COMMANDS, JOBS, main
from headgate.cli.quotas import kafka_quotas

HEADGATE = [sys.executable, "-m", "headgate.cli.main"]


@pytest.mark.parametrize("name", [name for name in COMMANDS if not name.startswith("kafka-")])
def test_help_ends_with_an_example_that_the_command_takes(name: str) -> None:
    made = _parser(name)
    below = [
        (f"{name} {action}", parser)
        for found in made._actions
        if isinstance(found, argparse._SubParsersAction)
        for action, parser in found.choices.items()
    ]
    for called, parser in [(name, made), *below]:
        *_, before, example = parser.format_help().splitlines()
        assert before == "example:"
        words = shlex.split(example.partition(" > ")[0])
        assert " ".join(words).startswith(f"headgate {called} ")
        made.parse_args(words[2:])


def test_kafka_quotas_help_ends_with_an_example_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka-quotas", "--help"]) == 0
    *_, before, example = capsys.readouterr().out.splitlines()
    assert before == "example:"
    program, *words = shlex.split(example)
    assert program == "kafka-quotas"
    assert kafka_quotas.check(kafka_quotas.parse(kafka_quotas.OPTIONS, words)) == "describe"


def test_the_list_of_commands_is_grouped_by_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line.removesuffix(":") for line in lines if line.endswith(":") and line[0] != " "]
    assert [head for head in heads if head in JOBS] == list(JOBS)
    assert lines[-1].startswith("  headgate ")


LOADED = "import sys; from headgate.cli.main import main; main(['--help']); print(*sys.modules)"


def test_the_list_of_commands_loads_next_to_nothing() -> None:
    """It is there within 100 ms (bench/cli_start.py): no command, no parser, no library."""
    ran = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.splitlines()[-1].split())
    slow = {"argparse", "json", "msgspec", "rich", "yaml", "shtab", "subprocess", "socket"}
    assert not loaded & {*slow, "asyncio", "logging", "inspect", "ssl", "email"}
    ours = {name for name in loaded if name.startswith("headgate.") and ".cli" not in name}
    assert ours <= {"headgate.words"}


HELPS = """
import contextlib, io, sys
from headgate.cli.main import COMMANDS, main
slow = {"asyncio", "confluent_kafka", "numpy", "pyarrow", "pyspark", "rich", "ssl", "starlette"}
slow |= {"uvloop", "yaml"}
for name in COMMANDS:
    sys.stdout = sys.stderr = out = io.StringIO()  # as Kafka's, kafka-configs helps on stderr
    with contextlib.suppress(SystemExit):
        main([name, "--help"])
    sys.stdout = sys.__stdout__
    print(name, len(out.getvalue().splitlines()), *sorted(slow & sys.modules.keys()))
"""


def test_no_commands_help_loads_what_only_its_action_needs() -> None:
    """Each is there within 100 ms (bench/cli_start.py); the first line with a library names it."""
    ran = subprocess.run([sys.executable, "-c", HELPS], capture_output=True, text=True, check=True)
    rows = [line.split() for line in ran.stdout.splitlines()]
    assert [row[0] for row in rows] == list(COMMANDS)
    assert [row for row in rows if int(row[1]) < 5 or len(row) > 2] == []


def on_a_terminal(words: list[str], **environment: str) -> str:
    """What a command prints where stdout is a terminal."""
    outer, inner = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    env = {**kept, "TERM": "xterm-256color", **environment}
    with subprocess.Popen([*HEADGATE, *words], stdout=inner, env=env) as process:
        os.close(inner)
        found = b""
        while True:
            try:
                piece = os.read(outer, 4096)
            except OSError:  # how Linux says that nobody writes any more
                break
            if not piece:
                break
            found += piece
        process.wait(60)
    os.close(outer)
    return found.decode()


def test_colour_is_for_terminals_only_and_not_where_no_color_is_set(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text("quotas: [{entity: {user: alice}, producer_byte_rate: 10MB/s}]")
    words = ["plan", "--store", f"sqlite:{tmp_path / 'q.db'}", str(file)]
    green = "\x1b[32m"
    assert green in on_a_terminal(words)
    assert "\x1b[3" not in on_a_terminal(words, NO_COLOR="1")
    piped = subprocess.run([*HEADGATE, *words], capture_output=True, text=True, check=False)
    assert piped.returncode == 3
    assert "\x1b" not in piped.stdout
