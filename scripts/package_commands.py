"""
Every command with arguments that it works with, and the extra that brings all it needs.

`make package` runs each in the environment of its extra, where it has to work, and in those that
lack something, where it has to say so in one line. A test compares the table with the list of all
commands.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """
    One command line.

    Args:
        line: the command and its arguments, with places in braces.
        extra: the extra that it needs, or several with commas; empty: none.
        status: the exit status that it must have.
        waits: what a server prints when it serves, after which it is stopped; empty: no server.
        long: whether it takes too long for every push, and runs only nightly.
    """

    line: str
    extra: str = ""
    status: int = 0
    waits: str = ""
    long: bool = False

    @property
    def command(self) -> str:
        """The command's name."""
        return self.line.partition(" ")[0]

    def words(self, places: dict[str, str]) -> list[str]:
        """
        Return the arguments.

        Args:
            places: what stands for each name in braces.
        """
        return [word.format_map(places) for word in self.line.split()[1:]]


ALICE = "--entity-type users --entity-name alice"
LOG = "--requests {log} --quotas {quotas} --broker-id 1"
STORES = (("--store {sqlite}", ""), ("--store kafka://{kafka}", "admin"))
CASES = (
    *(
        case
        for store, extra in STORES
        for case in (
            Case(f"kafka-configs {store} --alter --add-config consumer_byte_rate=9 {ALICE}", extra),
            Case(f"kafka-quotas {store} --describe --names user=alice", extra),
            Case(f"plan {store} {{quotas}}", extra, status=3),
            Case(f"apply {store} {{quotas}}", extra),
            Case(f"export {store}", extra),
            Case(f"quotas {store}", extra),
            Case(f"history {store}", extra),
            Case(f"undo {store} --since 2020-01-01T00:00:00Z --max-removals 99", extra),
            Case(f"doctor {store}", extra),
            Case(f"store show {store}", extra),
        )
    ),
    Case("import {described}"),
    Case("store copy --from {sqlite} --to {copy}"),
    Case("monitoring {out}/monitoring"),
    Case("completion bash"),
    Case("kafka-configs --bootstrap-server {kafka} --describe --entity-type users"),
    Case("kafka-quotas --bootstrap-server {kafka} --list"),
    Case("top --bootstrap-server {kafka} --once", status=1),
    Case("serve --config {gateway} --check", "gateway"),
    Case("serve --config {gateway}", "gateway", waits=" ready logger=headgate.serve"),
    Case("console user list --data {out}/console", "console"),
    Case(
        f"kafka-configs --store {{sqlite}} --alter --add-config consumer_byte_rate=9 {ALICE}",
        "console",
    ),
    Case("console --store {sqlite} --listen 127.0.0.1:0", "console", waits="http://127.0.0.1:"),
    Case(f"why --user alice {LOG}", "pipeline"),
    Case(f"usage --out {{tables}} {LOG}", "pipeline"),
    Case("report --tables {tables}", "pipeline"),
    Case(f"requests --out {{tables}} {LOG}", "pipeline", long=True),
    Case(f"effective --out {{tables}} {LOG}", "pipeline", long=True),
    Case(f"replay --out {{tables}} {LOG}", "pipeline", long=True),
    Case(f"what-if --out {{tables}} {LOG} --plan {{quotas}}", "pipeline", long=True),
    Case(f"recommend --out {{tables}} {LOG}", "pipeline", long=True),
    Case(f"chargeback --out {{tables}} {LOG} --prices {{prices}}", "pipeline", long=True),
    Case(f"storms --out {{tables}} {LOG}", "pipeline", long=True),
    Case("demo --dir {out}/demo", "all", long=True),
    Case(
        "splits --journals {out} --quotas {quotas} --rounds 1 "
        "--kafka-config bootstrap.servers={kafka}",
        "pipeline,admin",
        long=True,
    ),
)
