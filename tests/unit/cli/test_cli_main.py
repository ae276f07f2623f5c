from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from headgate.cli import exit_codes
from headgate.cli.main import COMMANDS, load, main


def test_every_command_has_one_line_of_help() -> None:
    for command in COMMANDS.values():
        assert command.help
        assert "\n" not in command.help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there(name: str) -> None:
    assert callable(load(name))


def test_no_arguments_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == exit_codes.USAGE
    printed = capsys.readouterr().out
    assert "  serve " in printed
    assert "  demo " in printed


def test_help_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == exit_codes.DONE
    printed = capsys.readouterr().out
    assert [name for name in COMMANDS if f"  {name} " not in printed] == []


def test_an_unknown_command_is_named_with_a_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sevre"]) == exit_codes.USAGE
    assert capsys.readouterr().err.startswith(
        "headgate: there is no command sevre; did you mean serve?"
    )


def test_the_table_imports_no_command() -> None:
    assert find_spec("headgate.cli.quotas.kafka_quotas") is not None
    code = (
        "import sys; import headgate.cli.main; "
        "print([m for m in sys.modules if m.startswith('headgate.') and 'cli' not in m"
        " and m not in ('headgate.build', 'headgate.words')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
