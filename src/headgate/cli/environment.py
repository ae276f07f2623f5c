"""
Environment variables that say where quotas are, in place of flags on every command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

SERVERS: Final = "HEADGATE_BOOTSTRAP_SERVER"
STORE: Final = "HEADGATE_STORE"
CONFIG: Final = "HEADGATE_COMMAND_CONFIG"
PLACED: Final = frozenset(
    {
        "export",
        "plan",
        "apply",
        "quotas",
        "history",
        "undo",
        "doctor",
        "why",
        "kafka-quotas",
        "kafka-configs",
    }
)
"""Commands that take ``--bootstrap-server`` or ``--store``."""
_PLACES: Final = frozenset(
    {"bootstrap-server", "bootstrap-controller", "store", "zookeeper", "requests"}
)
_ALONE: Final = frozenset({"help", "h", "version", "schema", "config"})
"""Flags with which a command needs no place."""


class TwoPlaces(ValueError):
    """The environment names servers and a store."""


def placed(command: str, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """
    Return a command's words; if they don't say where quotas are, with the environment's flags.

    The variable of ``--command-config`` goes with the place: credentials meant for one cluster are
    never sent to another that a flag names.

    Args:
        command: its name.
        words: what follows it.
        environment: the process's.

    Raises:
        TwoPlaces: the environment names both servers and a store.
    """
    flags = {word.lstrip("-").partition("=")[0] for word in words if word.startswith("-")}
    servers, store = environment.get(SERVERS, ""), environment.get(STORE, "")
    bare = not words and command.startswith("kafka-")  # these two print their usage then
    if command not in PLACED or bare or flags & (_PLACES | _ALONE):
        return list(words)
    if servers and store:
        raise TwoPlaces(f"{SERVERS} and {STORE} are both set; unset one, or give a flag")
    found: list[str] = []
    if servers:
        found = ["--bootstrap-server", servers]
    elif store:
        found = ["--store", store]
    config = environment.get(CONFIG, "")
    if found and config and "command-config" not in flags:
        found += ["--command-config", config]
    return [*found, *words]
