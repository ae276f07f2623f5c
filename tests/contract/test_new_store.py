"""
A new kind of store is a package and one row: then everything that names stores knows it.

The kind is the example of the page on architecture, put into a copy of the package.
"""

from pathlib import Path

import pytest

from kit.page_examples import Example, examples, follow_all

[NEW_STORE] = (example for example in examples() if example.title == "A new store")

OPENED = """
from headgate.config import Settings
from headgate.store import open_store
from headgate.store.memory import MemoryStore

settings = Settings.from_properties(
    {"headgate.upstream": "embedded", "headgate.store": "memory:example"}
)
with open_store(settings.store, settings) as store:
    assert isinstance(store, MemoryStore)
    assert store.url == "memory:example"
"""

REFUSED = """
from headgate.config import Settings
from headgate.errors import ConfigError
from headgate.store import open_store

for url in ("memory:", "memory:/", "redis://h:1", "kafka://h:1/path", "nothing"):
    for asked in (
        lambda: open_store(url),
        lambda: Settings.from_properties({"headgate.upstream": "h:1", "headgate.store": url}),
    ):
        try:
            asked()
        except ConfigError as exc:
            assert "memory:NAME" in str(exc), exc
        else:
            raise AssertionError(url)
"""

HELP = """
import contextlib, io, re
from headgate.cli.main import COMMANDS, load

knowing = set()
for command in COMMANDS:
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        with contextlib.suppress(SystemExit):
            load(command)(["--help"])
    text = " ".join(told.getvalue().split())
    if re.search(r"--store <?(URL|String)", text):
        assert ("memory:NAME" in text) == ("sqlite:PATH" in text), (command, text)
        if "memory:NAME" in text:
            knowing.add(command)
assert {"apply", "doctor", "history", "kafka-configs", "kafka-quotas", "chargeback"} <= knowing
"""

COMMANDS = """
import contextlib, io
from headgate.cli.main import load
from headgate.store.memory import MemoryHome

def said(command, *arguments):
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        code = load(command)([*arguments, "--store", "memory:example"])
    return code, told.getvalue()

alice = ["--entity-type", "users", "--entity-name", "alice"]
added = said("kafka-configs", "--alter", *alice, "--add-config", "producer_byte_rate=7")
assert added[0] == 0 and "Completed updating" in added[1], added
assert said("kafka-quotas", "--list")[0] == 0
assert said("doctor") == (0, "0 entities looked at; nothing found.\\n"), said("doctor")
MemoryHome.oddities = lambda self: ["a page of the memory can't be read"]
assert said("doctor") == (3, "a page of the memory can't be read\\n"), said("doctor")
"""

PAGE = """
from headgate.config import kinds
assert "memory:NAME" in kinds.STORE.valid
"""


def test_it_takes_a_package_and_a_row() -> None:
    package, row = NEW_STORE.edits
    assert package.file == "store/memory/__init__.py"
    assert (row.file, len(row.lines.splitlines())) == ("config/store_kinds.py", 1)


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(OPENED, id="settings take it, and it is opened"),
        pytest.param(REFUSED, id="messages about other URLs name it"),
        pytest.param(HELP, id="help names it wherever it names stores"),
        pytest.param(COMMANDS, id="commands work on it, doctor too"),
        pytest.param(PAGE, id="the reference of settings names it"),
    ],
)
def test_whatever_names_stores_knows_it(check: str, tmp_path: Path) -> None:
    follow_all(Example(NEW_STORE.title, NEW_STORE.edits, check, needs_spark=False), tmp_path)
