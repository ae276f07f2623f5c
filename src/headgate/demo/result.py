"""
The demo's result: what each quota-id got over whole cycles, and whether the figures agree.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from rich.text import Text

from headgate.demo import sample
from headgate.demo.progress import Column, View, rate_text, table_of
from headgate.demo.quota_ids import QuotaIdLine, attained
from headgate.demo.whole_cycles import whole_cycles
from headgate.pipeline.sources.files import paths
from headgate.pipeline.tables.pointer import POINTER

NEAR = 0.05
"""How near its quota a saturated client's mean over whole cycles has to be."""
ENOUGH = 4
"""How many whole cycles that takes."""
BUSY_SHARE = 0.5
"""
Above this share of time spent waiting for a processor, the machine is too busy to judge clients.

How late a thread wakes up doesn't tell that: the scheduler prefers threads that mostly sleep. With
ten tasks for each core, a sleep of 20 ms still ended only 2 ms late (measured).
"""


@dataclass(frozen=True)
class ResultRow:
    """One quota-id at the end; rates in bytes per second, times in ms."""

    quota_id: str
    what: str
    source: str
    quota: float | None
    rate: float
    cycles: int
    saturating: bool
    requests: int
    throttled: int
    told_ms: int
    client_told_ms: int
    replay_differs: int

    @property
    def share(self) -> float | None:
        """Rate against quota; None without a quota."""
        return self.rate / self.quota if self.quota else None

    @property
    def near(self) -> bool:
        """Whether its rate is near its quota, over enough whole cycles to tell."""
        return self.cycles >= ENOUGH and abs((self.share or 0.0) - 1) <= NEAR

    @property
    def out(self) -> list[str]:
        """A sentence for each figure of the row that is out of its bounds; none if all are in."""
        said = []
        if not self.saturating and (self.throttled or self.client_told_ms):
            said.append(f"wants less than its quota, and was told to wait {self.throttled} times")
        if self.saturating and self.cycles < ENOUGH:
            said.append(f"ran for {self.cycles} whole cycles; {ENOUGH} are needed to tell")
        elif self.saturating and not self.near:
            said.append(f"got {self.share or 0.0:.1%} of its quota, not within {NEAR:.0%} of it")
        if self.replay_differs:
            said.append(
                f"was told other times than Spark replays by {self.replay_differs} of its "
                f"{self.requests} answers"
            )
        return [f"{self.quota_id} {self.what} {text}" for text in said]

    @property
    def starved(self) -> bool:
        """Whether it only used too little, as when its clients get no processor."""
        few = self.saturating and not self.near and (self.share or 0.0) < 1 + NEAR
        return few and not self.replay_differs


def out_of_bounds(
    rows: Sequence[ResultRow], lines: Sequence[QuotaIdLine], waited_share: float
) -> list[str]:
    """
    Return a sentence for each figure that is out of its bounds; none if all are within.

    Args:
        rows: of the closing table.
        lines: the quota-ids that must have a row.
        waited_share: the part of the time in which clients had work but no processor.
    """
    found = {(row.quota_id, row.what) for row in rows}
    missing = [line for line in lines if (line.quota_id, line.what) not in found]
    out = [f"{line.quota_id} {line.what} made no request" for line in missing]
    wrong = [row for row in rows if row.out]
    out += [text for row in wrong for text in row.out]
    if wrong and not missing and waited_share > BUSY_SHARE and all(row.starved for row in wrong):
        out.append(
            f"this machine was too busy to tell: clients waited for a processor {waited_share:.0%} "
            f"of the time that they had work, and may {BUSY_SHARE:.0%}, so they couldn't use what "
            "they were given; run it again when less else runs"
        )
    return out


def close(
    view: View,
    tables: Path,
    log_tables: Path,
    lines: Sequence[QuotaIdLine],
    waited_share: float,
    out: Path,
) -> list[str]:
    """
    Print the closing table and the figures beneath it; keep them as JSON.

    Args:
        view: where to print.
        tables: of the gateway's journal.
        log_tables: of the broker's log.
        lines: the clients' own figures.
        waited_share: the part of the time in which clients had work but no processor.
        out: the JSON file.

    Returns:
        Which figures aren't what they have to be, in words; none where all are.
    """
    rows = rows_of(tables, lines)
    columns: list[Column] = [
        ("quota-id", "left", lambda row: Text(row.quota_id)),
        ("", "left", lambda row: row.what),
        ("quota", "right", lambda row: rate_text(row.quota)),
        ("mean", "right", lambda row: rate_text(row.rate)),
        ("of it", "right", lambda row: "" if row.share is None else f"{row.share:.1%}"),
        ("cycles", "right", lambda row: str(row.cycles) if row.saturating else ""),
        ("throttled", "right", lambda row: f"{row.throttled}/{row.requests}"),
        ("told", "right", lambda row: f"{row.told_ms / 1000:.1f} s"),
        ("", "left", lambda row: Text("off", "red") if row.out else Text("✓", "green")),
    ]
    if view.console.width >= 124:
        columns.append(("set at", "left", lambda row: Text(row.source)))
    view.console.print(table_of("What each quota-id got", columns, rows))
    share, ack_ms = attained(lines)
    figures = {
        **agreement(rows),
        "free_share": share,
        "free_slowest_ack_ms": ack_ms,
        "waited_share": waited_share,
        **log_figures(log_tables),
    }
    for text in sentences(rows, figures):
        view.say(text)
    out.write_text(
        json.dumps({"rows": [asdict(row) | {"holds": not row.out} for row in rows],
                    "figures": figures}, indent=1),
        encoding="utf-8",
    )  # fmt: skip
    return out_of_bounds(rows, lines, waited_share)


def rows_of(tables: Path, lines: Sequence[QuotaIdLine]) -> list[ResultRow]:
    """Compute each quota-id's row from the replay table: exact times, bytes and decisions."""
    columns = ["record_ms", "amount", "quota_type", "quota_id", "broker_id", "quota_bps",
               "decided_throttle_time_ms", "replayed_throttle_time_ms",
               "throttle_time_ms", "event"]  # fmt: skip
    read = ds.dataset(paths(tables, "replay"), format="parquet").to_table(columns=columns)
    read = read.sort_by("record_ms")
    types = {"produce": sample.PRODUCE, "fetch": sample.FETCH}
    rows = []
    for line in lines:
        is_lines = (pc.field("quota_type") == types[line.what]) & (
            pc.field("quota_id") == line.quota_id
        )
        events = read.filter(is_lines)
        if events.num_rows:
            rows.append(row_of(line, events))
    return rows


def row_of(line: QuotaIdLine, events: pa.Table) -> ResultRow:
    """Compute one quota-id's row: what its charges decided, and what the answers told."""
    told = pc.max_element_wise(events["throttle_time_ms"], 0)
    # A charge tells nothing; an answer charges nothing.
    events = events.filter(pc.not_equal(events["event"], "told"))
    times, amounts = events["record_ms"].to_pylist(), events["amount"].to_pylist()
    cycles, rate = 0, sum(amounts) / max(1.0, (times[-1] - times[0]) / 1000)
    if line.saturating and line.quota:
        window_ms = sample.WINDOW_NUM * sample.WINDOW_S * 1000
        cycles, rate = whole_cycles(times, amounts, window_ms) or (cycles, rate)
    decided = pc.max_element_wise(events["decided_throttle_time_ms"], 0)
    replayed = pc.max_element_wise(events["replayed_throttle_time_ms"], 0)
    return ResultRow(
        line.quota_id, line.what, line.source, line.quota, rate, cycles, line.saturating,
        events.num_rows, pc.sum(pc.greater(told, 0)).as_py(), pc.sum(told).as_py(),
        line.seen.told_ms, pc.sum(pc.not_equal(decided, replayed)).as_py(),
    )  # fmt: skip


def agreement(rows: Sequence[ResultRow]) -> dict[str, float]:
    """Return figures of gateway, clients and replay that should agree."""
    return {
        "events": float(sum(row.requests for row in rows)),
        "replay_differs": float(sum(row.replay_differs for row in rows)),
        "told_s": sum(row.told_ms for row in rows) / 1000,
        "client_told_s": sum(row.client_told_ms for row in rows) / 1000,
        "unthrottled_told": float(sum(row.throttled for row in rows if not row.saturating)),
    }


def log_figures(tables: Path) -> dict[str, float]:
    """Return the replay's figures on the broker's log, by their names in the summary table."""
    if not (tables / POINTER).is_file():
        return {}
    read = ds.dataset(paths(tables, "summary"), format="parquet").to_table()
    return {
        f"log_{row['name']}": row["value"]
        for row in read.to_pylist()
        if row["command"] == "replay" and row["value"] is not None
    }


def sentences(rows: Sequence[ResultRow], figures: dict[str, float]) -> list[str]:
    """Return the figures as sentences."""
    saturated = [row for row in rows if row.saturating]
    near = sum(1 for row in saturated if row.near)
    said = [
        f"{near} of {len(saturated)} saturated quota-ids are within {NEAR:.0%} of their quota, "
        f"over {ENOUGH} or more whole cycles.",
        f"Clients under their quota were told to wait {figures['unthrottled_told']:.0f} times: "
        f"{figures['free_share']:.1%} of what they meant to send was acknowledged, the slowest "
        f"message after {figures['free_slowest_ack_ms']:.0f} ms.",
        f"Throttle time told: {figures['told_s']:.1f} s by the gateway, "
        f"{figures['client_told_s']:.1f} s as the clients heard it.",
        f"Replayed by Spark: {figures['events'] - figures['replay_differs']:.0f} of "
        f"{figures['events']:.0f} decisions are the gateway's to the millisecond.",
    ]
    equal = figures.get(f"log_{sample.PRODUCE}.equal_decisions_share")
    if equal is not None:
        said.append(
            f"On the real broker's log {equal:.1%} of the produce decisions are the broker's own; "
            "its times are rounded, so a log can't bring us nearer."
        )
    return said
