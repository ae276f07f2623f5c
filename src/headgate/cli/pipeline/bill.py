"""
`headgate chargeback --bill`: a bill shared out, as FOCUS 1.2.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from headgate.cli.connecting import load_properties
from headgate.cli.contract import BadUsage
from headgate.cli.pipeline.opening import Opened
from headgate.cli.pipeline.print import closing_table
from headgate.client.log_dirs import log_dirs
from headgate.clock import now_ms
from headgate.errors import ConfigError
from headgate.pipeline import bill_tables, frames, schema
from headgate.pipeline.answers import focus
from headgate.pipeline.answers.bill import Bill, Owners, load_bill, load_owners
from headgate.pipeline.table import frame_of

_MOST_ROWS: Final = 50
_WITH_BILL: Final = ("owners", "focus", "log_dirs", "bootstrap_server")


@dataclass(frozen=True)
class BillInputs:
    """A bill, and what it is shared by besides use."""

    bill: Bill
    owners: Owners | None
    snapshot: pa.Table | None

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables written."""
        return ("focus",) if self.snapshot is None else ("focus", "log_dirs")


def read_bill(arguments: argparse.Namespace) -> BillInputs | None:
    """
    Read what the flags name, and ask brokers; None without ``--bill``.

    Raises:
        BadUsage: flags that make no sense together.
        ConfigError: the bill or a file can't be used.
        StoreError, ApiError: a broker can't be asked.
    """
    if not arguments.bill:
        for name in _WITH_BILL:
            if getattr(arguments, name):
                raise BadUsage(f"--{name.replace('_', '-')} needs --bill FILE")
        return None
    if arguments.incremental or arguments.follow:
        raise BadUsage("--bill is for a period that is over, not for a growing input")
    bill = load_bill(arguments.bill)
    owners = load_owners(arguments.owners) if arguments.owners else None
    focus.check(bill, arguments.period)
    if arguments.focus:
        focus.check_file(arguments.focus)
    weighed = bill.by("topic")
    if weighed and not (arguments.log_dirs or arguments.bootstrap_server):
        raise ConfigError(
            f"--bill {arguments.bill} weighs {' and '.join(weighed)}: give --bootstrap-server to "
            "ask the brokers what their disks hold, or --log-dirs of an earlier run"
        )
    snapshot = None
    if arguments.bootstrap_server:
        file = arguments.command_config
        config = load_properties(file) if file else {}
        found = asyncio.run(log_dirs(arguments.bootstrap_server, config))
        taken_ms = now_ms()
        rows = [{"taken_ms": taken_ms, **replica._asdict()} for replica in found]
        snapshot = bill_tables.LOG_DIRS.from_rows(rows)
    return BillInputs(bill, owners, snapshot)


def write_bill(on: Opened, given: BillInputs) -> None:
    """Write table `focus`, and `log_dirs` if brokers were asked; `chargeback` is written."""
    log_dirs = None
    if given.snapshot is not None:
        log_dirs = frame_of(on.spark, given.snapshot)
        on.run.write(log_dirs, bill_tables.LOG_DIRS)
    elif on.arguments.log_dirs:
        log_dirs = on.spark.read.parquet(*on.arguments.log_dirs)
    seen = None
    if "connections" in given.bill.by("principal"):
        emitted = frames.emit_requests(on.spark, on.read_options)
        requests = frames.only(emitted, "request", schema.REQUESTS)
        seen = requests.transform(focus.connections(on.arguments.period))
    with on.run.watch("sharing the bill out"):
        rows = focus.share_bill(
            given.bill,
            on.run.read(schema.CHARGEBACK),
            period=on.arguments.period,
            owners=given.owners,
            connections=seen,
            log_dirs=log_dirs,
        )
    on.run.write(frame_of(on.spark, rows), bill_tables.FOCUS)
    if on.arguments.focus:
        focus.write_file(rows, on.arguments.focus, given.bill.decimals)
    lost = rows.filter(pc.invert(rows["x_IsAttributed"]))["BilledCost"]
    words = {"unit": given.bill.currency}
    on.run.figure("billed", pc.sum(rows["BilledCost"]).as_py(), **words, note="sum of table focus")
    note = "of it, what has no owner, or nobody was seen to use"
    on.run.figure("not_attributed", pc.sum(lost).as_py() or 0, **words, note=note)


def tell_bill(on: Opened, given: BillInputs) -> None:
    """Print who pays how much, the largest first, and what couldn't be attributed."""
    table = on.run.read(bill_tables.FOCUS)
    named = ("SubAccountName", "ResourceName") if given.owners is None else ("SubAccountName",)
    who = F.when(F.col("x_IsAttributed"), F.coalesce(*named))
    paid = (
        table.groupBy(who.alias("who"))
        .agg(F.sum("BilledCost").alias("cost"), F.count(F.lit(1)).alias("rows"))
        .orderBy(F.desc(F.abs("cost")), "who")
        .collect()
    )
    digits = given.bill.decimals
    lost = [row for row in paid if row["who"] is None]
    owned = [row for row in paid if row["who"] is not None]
    closing_table(
        f"Bill of {given.bill.amount} {given.bill.currency}",
        (
            (
                "owner" if given.owners is not None else "principal or topic",
                lambda r: r["who"] or "(not attributed)",
            ),
            ("rows", "rows"),
            ("cost", lambda r: f"{r['cost']:,.{digits}f}"),
        ),
        [*owned[:_MOST_ROWS], *lost, *owned[_MOST_ROWS:]],
        most=_MOST_ROWS + len(lost),
        table="focus",
    )
    if lost:
        why = table.where(~F.col("x_IsAttributed")).groupBy("ChargeDescription").agg(
            F.sum("BilledCost").alias("cost")
        ).orderBy(F.desc(F.abs("cost")), "ChargeDescription").limit(5).collect()  # fmt: skip
        for row in why:
            print(f"Not attributed: {row['cost']:,.{digits}f} for {row['ChargeDescription']}.")
