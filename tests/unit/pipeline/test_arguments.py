"""What the library is given is checked, and errors name arguments, not commands' flags."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from headgate.errors import BadArgument, ConfigError
from headgate.pipeline.library import arguments
from headgate.pipeline.library.arguments import check_session, own_words, worded
from headgate.pipeline.library.request_log import LogOptions


class Session:
    """As much of a local session as is looked at, with workers that run a program."""

    createDataFrame = range = readStream = None

    def __init__(self, program: str, master: str = "local[2]") -> None:
        self.sparkContext = self
        self.master = master
        self.pythonExec = program


def python(folder: Path, version: str) -> str:
    """Return a program that answers as a Python of a version does."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    return str(program)


def test_workers_of_another_python_are_one_sentence(tmp_path: Path) -> None:
    program = python(tmp_path, "2.7")
    with pytest.raises(BadArgument) as refused:
        check_session(Session(program))
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert str(refused.value) == (
        f"Spark's workers run Python 2.7 ({program}) and this process runs Python {ours}: set the "
        f"environment variable PYSPARK_PYTHON to {sys.executable} before the session starts"
    )
    check_session(Session(sys.executable))
    check_session(Session(str(tmp_path / "nowhere")))  # Spark names a program that it can't start
    check_session(Session(program, "spark://host:7077"))  # of other machines


@pytest.mark.parametrize(
    ("text", "wanted", "camel"),
    [
        ("--requests /a: holds no file", "/a: holds no file", "/a: holds no file"),
        ("--broker-id-pattern 'x'", "broker_id_pattern 'x'", "brokerIdPattern 'x'"),
        ("give --copies once or --copies count", "give copies once or copies count", None),
        ("a--b is a name, 2 - 1 a number", "a--b is a name, 2 - 1 a number", None),
    ],
)
def test_flags_become_the_names_of_arguments(text: str, wanted: str, camel: str | None) -> None:
    assert worded(text) == wanted
    assert worded(text, camel=True) == (camel or wanted)


def test_every_problem_is_kept() -> None:
    @own_words
    def function() -> None:
        raise ConfigError(["--period week: choose", "--requests /b: no such file"])

    with pytest.raises(
        ValueError, match=re.escape("period week: choose\n/b: no such file")
    ) as all_:
        function()
    assert isinstance(all_.value, BadArgument)
    assert all_.value.problems == ("period week: choose", "/b: no such file")
    assert arguments.own_words(len)("ab") == 2


def test_a_pattern_of_principals_is_checked_where_it_is_given() -> None:
    given = {"path": "x.log", "principalPattern": "CN=(["}
    with pytest.raises(BadArgument, match="kafka-request-log: option principalPattern 'CN=\\(\\['"):
        LogOptions.of(given)
    options = LogOptions.of(given | {"principalPattern": "CN=([^,]+)"})
    task = options.task((), None)
    assert task.options.principal_pattern == "CN=([^,]+)"
