"""
`headgate recommend`: quotas from use.
"""

from __future__ import annotations

import argparse
from functools import partial

from pyspark.sql import DataFrame, Row

from headgate.cli.contract import BadUsage
from headgate.cli.pipeline.opening import Opened
from headgate.cli.pipeline.print import closing_table, number, sized
from headgate.cli.pipeline.stream import Replays, run_answer
from headgate.cli.results import Tables
from headgate.pipeline import schema
from headgate.pipeline.answers import recommend
from headgate.pipeline.answers.advice import HIDING_SHARE, NO_LONGER, TYPES, Advice
from headgate.pipeline.answers.demand import charged_of
from headgate.pipeline.answers.replay import pack_logs


def run_recommend(arguments: argparse.Namespace) -> Tables:
    """Run `headgate recommend`."""
    if not 0 < arguments.percentile <= 100:
        raise BadUsage("--percentile is between 0 and 100")
    if arguments.headroom <= 0:
        raise BadUsage("--headroom is a factor above 0")
    for flag in ("max_request_bytes", "min_history_s", "min_active_s"):
        if getattr(arguments, flag) < 0:
            raise BadUsage(f"--{flag.replace('_', '-')} is 0 or more")
    types = tuple(t for t in arguments.quota_types.split(",") if t)
    if not types or not set(types) <= set(TYPES):
        raise BadUsage(f"--quota-types {arguments.quota_types}: choose of {', '.join(TYPES)}")
    advice = Advice(
        percentile=arguments.percentile / 100,
        headroom=arguments.headroom,
        horizon_days=arguments.horizon_days,
        types=types,
        window_s=max(1, (arguments.quota_window_num - 1) * arguments.quota_window_size_seconds),
        max_request_bytes=arguments.max_request_bytes,
        min_history_s=arguments.min_history_s,
        min_active_s=arguments.min_active_s,
    )

    def write(on: Opened, activity: DataFrame | None) -> DataFrame:
        assert activity is not None
        transform = recommend.recommend(
            on.quotas,
            partial(pack_logs, on.spark, on.read_options),
            advice,
            requests=partial(charged_of, on.spark, on.read_options),
            **on.windows,
        )
        with on.run.watch("reading, adding up, replaying"):
            frame = activity.transform(transform)
        on.run.write(frame, schema.RECOMMEND)
        count = on.run.read(schema.RECOMMEND).count()
        on.run.figure("recommendations", count, note="rows of table recommend")
        return activity

    return run_answer(arguments, Replays("recommend", write, _tell, ("recommend",), activity=True))


def _tell(on: Opened) -> None:
    """Print what is recommended, the first fifty."""
    rows = on.run.read(schema.RECOMMEND).orderBy("quota_type", "action", "entity").collect()
    rows.sort(key=lambda r: r["action"] == "wait")  # what can be done comes first
    closing_table(
        f"{len(rows)} recommendations",
        (
            ("quota type", "quota_type"),
            ("entity", "entity"),
            ("action", "action"),
            ("current", lambda r: sized(r["current"], r["quota_type"])),
            ("recommended", _recommended),
            ("throttled s", lambda r: _seconds(r["throttle_time_ms_current"])),
            ("then", lambda r: _seconds(r["throttle_time_ms_recommended"], r["held_share"])),
            ("why", "reason"),
        ),
        rows,
        most=50,
        table="recommend",
    )
    if rows:
        print(
            "throttled s: of all clients that a row concerns, in this data, by the quotas in force;"
            " then: with the recommended ones (each kind of action tried alone), in a closed loop: "
            "a client that waits sends later (-: that can't be known). Of fetches a broker's log "
            "holds only those that were let through: what-if gives bounds."
        )
    changed = sum(NO_LONGER in r["reason"] for r in rows)
    if changed:
        print(
            f"{changed} of them had another limit for a part of the time. Proposals are against "
            "the quotas in force; quota-ids whose quota is gone are left out."
        )
    if any(r["held_share"] > HIDING_SHARE for r in rows):
        print(
            "not seen: the client was told to wait most of the time (held_share), so the data "
            "doesn't hold what it would have sent. Raise its limit, and look again."
        )
    saturated = sum(r["demand"] == "saturated" for r in rows)
    if saturated:
        print(
            f"saturated: {saturated} always sent as soon as they might. Their figure is what the "
            "quota made unless the reason says what they want; what-if --closed-loop says more."
        )
    waiting = sum(r["action"] == "wait" for r in rows)
    if waiting:
        print(
            f"wait: of {waiting} too little was seen. Give logs of a longer time, or take less: "
            "--min-history-s, --min-active-s."
        )


def _recommended(row: Row) -> str:
    value = row["recommended"]
    return "-" if value is None else sized(value, row["quota_type"])


def _seconds(ms: int | None, held: float = 0.0) -> str:
    if ms is None:
        return "not seen" if held > HIDING_SHARE else "-"
    return number(ms / 1000)
