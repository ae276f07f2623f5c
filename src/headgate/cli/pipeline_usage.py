"""
`headgate usage`: who used what, per quota-id, broker and second.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from headgate.cli.pipeline_options import Opened, closing_table, command, number, opened, parser
from headgate.cli.pipeline_reading import (
    activity_of,
    print_bad_lines,
    read_activity,
    write_bad_lines,
)
from headgate.errors import ConfigError


def main_usage(argv: Sequence[str]) -> int:
    """`headgate usage`: who used what, per quota-id, broker and second."""
    made = parser(
        "usage",
        "Sum up bytes, requests, thread time and throttle time per quota-id, broker and second, "
        "with peaks and percentiles per hour and day.",
        topics=True,
    )
    group = made.add_argument_group("growing input (exactly once; state lies in DIR/_stream)")
    group.add_argument(
        "--incremental",
        action="store_true",
        help="read only files of the directory (or messages) that are new since the last run",
    )
    group.add_argument(
        "--follow", action="store_true", help="go on for ever; tables are made at every round"
    )
    group.add_argument("--every", type=float, default=10.0, metavar="S", help="seconds of a round")
    group.add_argument("--topic", metavar="NAME", help="follow a topic of log lines or journals")
    group.add_argument(
        "--kafka-config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="confluent-kafka's settings for --topic, such as bootstrap.servers=HOST:PORT",
    )
    group.add_argument("--files-per-round", type=int, default=64, metavar="N")
    return command("usage", _usage_command, argv, made)


def _usage_command(arguments: argparse.Namespace) -> None:
    if not (arguments.incremental or arguments.follow):
        if not arguments.requests:
            raise ConfigError("give --requests PATH; a --topic needs --incremental or --follow")
        _usage(arguments)
        return
    from headgate.cli.pipeline_stream import usage_stream

    usage_stream(arguments)


def _usage(arguments: argparse.Namespace) -> None:
    from headgate.pipeline import schema, usage

    with opened(arguments, "usage") as on:
        run = on.run
        emitted = read_activity(on).persist()
        activity = activity_of(emitted)
        run.write(
            activity.transform(usage.usage(on.quotas)), schema.USAGE, words="reading and adding up"
        )
        write_bad_lines(on, emitted)
        finish_usage(on)


def finish_usage(on: Opened) -> None:
    """Roll usage up by hour and day, and print the closing table."""
    from pyspark.sql import functions as F

    from headgate.pipeline import schema, usage

    run = on.run
    table = run.read(schema.USAGE)
    run.write(table.transform(usage.rollup(usage.HOUR_MS)), schema.USAGE_HOUR)
    run.write(table.transform(usage.rollup(usage.DAY_MS)), schema.USAGE_DAY)
    totals = table.agg(F.sum("requests"), F.sum("bytes"), F.sum("throttle_time_ms")).first()
    assert totals is not None
    run.figure("requests", totals[0] or 0, unit="requests", note="charged to a client quota")
    run.figure("bytes", totals[1] or 0, unit="bytes", note="charged to byte-rate quotas")
    run.figure("throttle_time_ms", totals[2] or 0, unit="ms", note="told to clients, summed")
    run.write_summary()
    top = (
        table.groupBy("quota_type", "quota_id")
        .agg(
            F.sum("requests").alias("requests"),
            F.sum("bytes").alias("bytes"),
            F.max("amount").alias("peak"),
            F.sum("throttled_requests").alias("throttled"),
            F.sum("throttle_time_ms").alias("throttle_ms"),
            F.max("quota").alias("quota"),
            F.max("quota_source").alias("source"),
        )
        .where(F.col("requests") > 0)
        .orderBy(F.desc("bytes"), F.desc("requests"), "quota_type", "quota_id")
        .limit(20)
        .collect()
    )
    closing_table(
        f"The {len(top)} busiest quota-ids ({number(totals[0] or 0)} requests in all)",
        (
            "quota type",
            "quota-id",
            "quota/s",
            "from",
            "requests",
            "bytes",
            "peak/s",
            "throttled",
            "throttle s",
        ),
        [
            (
                r["quota_type"],
                r["quota_id"],
                number(r["quota"]),
                r["source"] or "-",
                number(r["requests"]),
                number(r["bytes"]),
                number(r["peak"]),
                number(r["throttled"]),
                number(r["throttle_ms"] / 1000),
            )
            for r in top
        ],
    )
    print_bad_lines(on)
