"""
Command lines: a status and lines on stderr, or help; never a traceback, never an unknown status.

Every command's line is parsed. Those that need no server are run as well, in a folder of their own
over an SQLite store: no word of theirs leads out of it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
from collections.abc import Iterator
from pathlib import Path

from fuzzing.quotas import folder
from fuzzing.target import Target
from headgate.cli import exit_codes
from headgate.cli.completion import _parser
from headgate.cli.contract import BadUsage
from headgate.cli.joptsimple import OptionError, words_of
from headgate.cli.kafka_configs.options import ConfigsOptions, IllegalArgument
from headgate.cli.kafka_configs.options import RefusedOptions as ConfigsUsage
from headgate.cli.main import COMMANDS, main
from headgate.errors import HeadgateError
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store.sqlite.store import SqliteStore

PARSED = sorted(set(COMMANDS) - {"kafka-configs", "kafka-quotas"})
RUN = ("kafka-configs", "kafka-quotas", "export", "plan", "apply", "undo", "history", "store")
_STATUS = {exit_codes.DONE, exit_codes.FAILED, exit_codes.USAGE, exit_codes.FOUND}
_OUTSIDE = ("bootstrap", "zookeeper", "kafka:", "controller", "://", "..", "/", "~", "\0")
"""Words that would lead out of the folder, or to a server."""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


@functools.cache
def _parser_of(name: str) -> object:
    return _parser(name)


def _words(data: bytes) -> list[str]:
    return [os.fsdecode(word) for word in data.split(b"\0")[:24]]


def parsed(data: bytes) -> None:
    """Any words for any command's parser."""
    if not data:
        return
    words = _words(data[1:])
    number = data[0] % (len(PARSED) + 1)
    with _quiet():
        try:
            if number == len(PARSED):
                ConfigsOptions(words_of(words)).check(lambda _: True)
            else:
                _parser_of(PARSED[number]).parse_args(words)  # type: ignore[attr-defined]
        except (BadUsage, ConfigsUsage, IllegalArgument, OptionError, HeadgateError) as error:
            assert str(error)
        except SystemExit as exit_:
            assert exit_.code in (0, None)  # --help


@functools.cache
def _place() -> Path:
    place = folder() / "commands"
    place.mkdir()
    return place


def _prepare() -> Path:
    place = _place()
    for old in place.iterdir():
        if old.is_file():
            old.unlink()
    (place / "quotas.yaml").write_text(
        "quotas:\n- entity: {user: alice}\n  producer_byte_rate: 5\n"
    )
    (place / "broken.yaml").write_text("quotas: [{}]\n")
    (place / "client.properties").write_text("client.id=x\n")
    (place / "q.db").write_bytes(_store())
    return place


@functools.cache
def _store() -> bytes:
    path = folder() / "made.db"
    store = SqliteStore(path)
    store.alter([QuotaAlteration(QuotaEntity.of(user="alice"), (Op(PRODUCER, 9.0),))], who="a")
    store.close()
    return path.read_bytes()


def run(data: bytes) -> None:
    """Any words for a command that runs on a store."""
    if not data:
        return
    words = _words(data[1:])
    if any(part in word for word in words for part in _OUTSIDE):
        return
    name = RUN[data[0] % len(RUN)]
    before = Path.cwd()
    try:
        os.chdir(_prepare())
        with _quiet():
            try:
                status = main([name, *words])
            except SystemExit as exit_:
                status = exit_.code or 0  # type: ignore[assignment]
        assert status in _STATUS, f"{name} ends with {status}"
    finally:
        os.chdir(before)


_PARSED = (
    "--help", "--json --quiet", "--requests x --quotas y --out z",
    "quotas.yaml --bootstrap-server b:1",
    "--user alice --client-id etl --at 2026-11-22T10:00:00Z", "--config headgate.properties",
    "--bootstrap-server b:1 --entity-type users --entity-name a --alter --add-config x=1",
    "--zookeeper z:1 --describe --entity-type users --entity-default",
)  # fmt: skip
_RUN = {
    "kafka-configs": (
        "--describe --entity-type users --entity-name alice",
        "--alter --entity-type users --entity-name alice --add-config producer_byte_rate=5",
        "--alter --entity-type users --entity-default --delete-config producer_byte_rate",
        "--alter --entity-type clients --entity-name c --add-config [a=1,b=2],x=[3]",
        "--describe --user alice --client c", "--describe --ip 1.2.3.4",
        "--alter --entity-type brokers --entity-name 1 --add-config max.connections=5",
    ),
    "kafka-quotas": (
        "--list --names user=alice", "--describe --names user=alice,client-id=x --json",
        "--alter --defaults user --add producer_byte_rate:bps=10MB/s",
        "--alter --names user=a\\,b --delete producer_byte_rate --validate-only",
        "--list --prefix user=a", "--describe --names user=a --include-overrides",
    ),
    "export": ("--json", "--out o.yaml", "--format json"),
    "plan": ("quotas.yaml", "broken.yaml --json", "quotas.yaml --prune --out p.json"),
    "apply": ("quotas.yaml --message why", "quotas.yaml --prune --yes --json"),
    "undo": ("--since 2026-11-22T10:00:00Z", "--last 1 --json"),
    "history": ("--user alice --limit 3", "--json --format quotas"),
    "store": ("show --store sqlite:q.db", "copy --from sqlite:q.db --to sqlite:n.db"),
}  # fmt: skip


def _parses() -> list[bytes]:
    return [
        bytes([n]) + line.encode().replace(b" ", b"\0")
        for n in range(len(PARSED) + 1)
        for line in _PARSED
    ]


def _runs() -> list[bytes]:
    made = []
    for number, name in enumerate(RUN):
        for line in _RUN[name]:
            where = "" if name == "store" else " --store sqlite:q.db"
            made.append(bytes([number]) + (line + where).encode().replace(b" ", b"\0"))
    return made


_FLAGS = (
    "--entity-type", "--entity-name", "--entity-default", "--add-config", "--describe", "--alter",
    "--json", "--names", "--add", "--delete", "--out", "--help", "--", "-", "=", ",", "[", "]",
    "\\,",
    "user=", "producer_byte_rate=", "users", "1e999", "nan", "-1", "--message", "--since",
)  # fmt: skip
_WORDS = tuple(flag.encode() for flag in _FLAGS)
TARGETS = {
    "command lines": Target(parsed, _parses, _WORDS),
    "commands": Target(run, _runs, _WORDS),
}
