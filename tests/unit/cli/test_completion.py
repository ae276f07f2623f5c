"""
Completion: bash runs its script here; zsh and fish do where they are installed.

Where they aren't, only the text of their scripts is held to the parsers. scripts/README.md says
how completion was last tried in both.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from headgate.cli.completion import SHELLS, parser_of
from headgate.cli.main import COMMANDS, load

main_completion = load("completion")

# Completes each line of words on stdin, as bash does when the key is pressed.
ASK = """
source "$1"
asked=$(complete -p "$2" | sed 's/.*-F \\([^ ]*\\).*/\\1/')
while IFS= read -r COMP_LINE; do
  IFS=' ' read -ra COMP_WORDS <<< "$COMP_LINE"
  [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')
  COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )) COMP_POINT=${#COMP_LINE} COMPREPLY=()
  "$asked" "$2" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
  echo "${COMPREPLY[@]}"
done
"""


def flags_of(program: str) -> dict[str, set[str]]:
    """The long flags of each command of a program; "" is the program itself."""
    whole = parser_of(program)
    found = {
        "": whole,
        **(whole._subparsers._group_actions[0].choices if whole._subparsers else {}),
    }  # type: ignore[dict-item]
    return {
        name: {
            flag
            for action in parser._actions
            for flag in action.option_strings
            if flag.startswith("--") and action.help != "==SUPPRESS=="
        }
        for name, parser in found.items()
    }


def script(shell: str, program: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main_completion([shell, program]) == 0
    return capsys.readouterr().out


def asked(file: Path, program: str, lines: list[str]) -> list[set[str]]:
    """What bash offers for each line."""
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK, "ask", str(file), program],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_bash_completes_commands_flags_values_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "headgate.bash"
    file.write_text(script("bash", "headgate", capsys), encoding="utf-8")
    flags = flags_of("headgate")
    names = sorted(COMMANDS)
    lines = ["headgate ", "headgate pl", "headgate store ", "headgate plan --color "]
    lines.append("headgate console user ")
    lines += [f"headgate report --tables {tmp_path}/head", *(f"headgate {n} --" for n in names)]
    offered = asked(file, "headgate", lines)
    assert offered[0] >= set(names)
    assert offered[1] == {"plan"}
    assert offered[2] == {"show", "accept", "copy"}
    assert offered[3] == {"auto", "always", "never"}
    assert offered[4] == {"list", "add", "password", "role", "remove"}
    assert dict(zip(names, offered[6:], strict=True)) == {name: flags[name] for name in names}
    assert flags["plan"] >= {"--json", "--store", "--prune", "--client"}


@pytest.mark.parametrize("program", ["kafka-quotas", "kafka-configs"])
def test_bash_completes_kafkas_tools(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tool.bash"
    file.write_text(script("bash", program, capsys), encoding="utf-8")
    assert asked(file, program, [f"{program} --"]) == [flags_of(program)[""]]
    assert {"--bootstrap-server", "--alter"} <= flags_of(program)[""]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_flag_is_in_each_shells_script(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, "headgate", capsys)
    for name, flags in flags_of("headgate").items():
        assert name in text
        for flag in flags:
            assert (f"-l {flag[2:]}" if shell == "fish" else flag) in text, f"{name} {flag}"
    if shutil.which(shell):  # the shell itself reads it
        file = tmp_path / "script"
        file.write_text(text, encoding="utf-8")
        subprocess.run([shell, "-n", str(file)], check=True)


def test_no_other_shell_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_completion(["csh"]) == 2
    told = capsys.readouterr().err.replace("'", "")  # Python 3.11 quotes choices, 3.13 doesn't
    assert "bash, zsh, fish" in told
