"""franz-go, the client in Go: a member of a group, made from ``main.go`` beside this file."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from clients.confluent import Confluent
from clients.interface import Member
from clients.java import Running
from headgate.embedded.cache import cache_dir, locked

HERE = Path(__file__).parent


class FranzGo(Confluent):
    """Members of groups are franz-go's; for all else it is librdkafka."""

    def member(self, bootstrap: str, topic: str, group: str) -> Member:
        return Running([str(built()), bootstrap, topic, group])


def built() -> Path:
    """Return the program, built where it isn't yet; Go's own checksums hold what it fetches."""
    go = os.environ.get("HEADGATE_GO") or shutil.which("go")
    if go is None:
        raise FileNotFoundError(
            "the test of franz-go needs Go 1.21 or newer: install it (Debian: golang-go), or "
            "name the program in HEADGATE_GO"
        )
    program = cache_dir() / "franz" / "member"
    program.parent.mkdir(exist_ok=True)
    with locked("franz"):
        environment = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false"}
        subprocess.run([go, "build", "-o", program, "."], cwd=HERE, env=environment, check=True)
    return program
