"""
The parsers of the commands that run on Spark.

What the commands do is in modules that import Spark. The parsers are here, so that `--help` doesn't
wait for that import.
"""

from __future__ import annotations

from functools import partial

from headgate.cli.contract import Parser
from headgate.cli.pipeline.command import run_on_spark
from headgate.cli.pipeline.flags import (
    add_by_day,
    add_growing,
    add_kafka_config,
    add_windows,
    parser,
)
from headgate.cli.quotas.flags import add_connection
from headgate.pipeline.answers.advice import BYTES, MAX_REQUEST_BYTES, TYPES, Advice


def usage() -> Parser:
    """Return the parser of `headgate usage`."""
    made = parser(
        "usage",
        "Sum up bytes, requests, thread time and throttle time per quota-id, broker and second, "
        "with peaks and percentiles per hour and day.",
        "usage:run_usage",
        "--quotas quotas.yaml",
    )
    made.add_argument(
        "--by-topic",
        action="store_true",
        help="also divide bytes by topic: tables usage_by_topic, usage_by_topic_hour and "
        "usage_by_topic_day. Logs are then read by the slower of two parsers",
    )
    add_growing(made)
    add_by_day(made)
    return made


def requests() -> Parser:
    """Return the parser of `headgate requests`."""
    made = parser(
        "requests",
        "Write request logs and usage journals as a table: one row per request (of a journal, per "
        "charge). Other commands, and other programs, read it quicker than the logs.",
        "requests:run_requests",
        "",
    )
    made.add_argument(
        "--by-topic",
        action="store_true",
        help="fill column bytes_by_topic, so that headgate usage --by-topic can read the table. "
        "Logs are then read by the slower of two parsers",
    )
    add_growing(made)
    add_by_day(made)
    return made


def replay() -> Parser:
    """Return the parser of `headgate replay`."""
    made = parser(
        "replay",
        "Replay every request through Kafka's quota arithmetic and compare with the log. Of a "
        "gateway's journal the decisions are identical; a broker's log holds estimates of the "
        "moments, so its replay is near, and the closing table says how near.",
        "replay:run_replay",
        "--quotas quotas.yaml",
    )
    add_windows(made)
    add_growing(made)
    add_by_day(made)
    return made


def what_if() -> Parser:
    """Return the parser of `headgate what-if`."""
    made = parser(
        "what-if",
        "Replay the same requests under other quotas: who would be throttled, for how long, and "
        "what share of their traffic. All plans go through one pass. Open-loop: a throttled "
        "client would have sent later.",
        "what_if:run_what_if",
        "--quotas quotas.yaml --plan twice.yaml",
    )
    made.add_argument(
        "--plan",
        action="extend",
        nargs="+",
        default=[],
        metavar="FILE",
        help="quotas files to compare, beside --quotas; a plan is named after its file",
    )
    add_windows(made)
    made.add_argument(
        "--closed-loop",
        action="store_true",
        help="also say what throttled clients want, and how they would fare under each plan if a "
        "client that waits sends later: rate, throttle time and finish (table demand)",
    )
    group = made.add_argument_group("limits that Kafka doesn't have (a gateway's settings)")
    for direction in ("producer", "consumer"):
        group.add_argument(
            f"--capacity-{direction}-byte-rate",
            type=float,
            metavar="B_PER_S",
            help=f"each broker's capacity that {direction}_byte_rate:shares divide; "
            "without it they aren't tried",
        )
    group.add_argument(
        "--splits-period-ms",
        type=int,
        default=5000,
        metavar="N",
        help="headgate.splits.period.ms, for cluster-wide rates (bps); default: 5000",
    )
    add_growing(made)
    return made


def recommend() -> Parser:
    """Return the parser of `headgate recommend`."""
    made = parser(
        "recommend",
        "Propose a quota per entity from what was used, with what it would have throttled in the "
        "same data, and entities better merged, split, given a default, or removed.",
        "recommend:run_recommend",
        "--quotas quotas.yaml --headroom 1.5",
    )
    group = made.add_argument_group("how figures are made")
    group.add_argument("--percentile", type=float, default=95.0, metavar="P", help="default: 95")
    group.add_argument("--headroom", type=float, default=1.2, metavar="FACTOR", help="default: 1.2")
    group.add_argument(
        "--horizon-days", type=int, default=30, metavar="N", help="carry growth on; default: 30"
    )
    group.add_argument(
        "--max-request-bytes",
        type=int,
        default=MAX_REQUEST_BYTES,
        metavar="BYTES",
        help="no byte rate is proposed at which one request this large, alone in the quota's "
        "window, would be throttled; other types have a floor: 1 a second. 0: no floor. "
        "Default: 1048576, producers' max.request.size",
    )
    group.add_argument(
        "--min-history-s",
        type=int,
        default=Advice.min_history_s,
        metavar="S",
        help="no figure for clients seen for fewer seconds, from first to last use; default: "
        f"{Advice.min_history_s}",
    )
    group.add_argument(
        "--min-active-s",
        type=int,
        default=Advice.min_active_s,
        metavar="S",
        help=f"nor for clients that used it in fewer of them; default: {Advice.min_active_s}",
    )
    group.add_argument(
        "--quota-types",
        metavar="TYPES",
        default=",".join(BYTES),
        help=f"comma-separated, of {', '.join(TYPES)}; default: the two byte rates. Of a broker's "
        "log the others are lower bounds, and can't be replayed",
    )
    add_windows(made)
    add_growing(made)
    return made


def chargeback() -> Parser:
    """Return the parser of `headgate chargeback`."""
    made = parser(
        "chargeback",
        "Sum up what each principal used per hour, day or month, and price it.",
        "answers:run_chargeback",
        "--prices prices.yaml --period month",
    )
    made.add_argument("--prices", metavar="FILE", help="price file (see docs/reference/pipeline)")
    made.add_argument("--period", choices=("hour", "day", "month"), default="day")
    add_bill(made)
    add_growing(made)
    return made


def storms() -> Parser:
    """Return the parser of `headgate storms`."""
    made = parser(
        "storms",
        "Find connection storms by address and listener, producer-id storms by user, request "
        "storms by client, with the quota that would have held them.",
        "answers:run_storms",
        "--connections-per-second 20",
    )
    group = made.add_argument_group("what counts as a storm")
    group.add_argument("--connections-per-second", type=float, default=10.0, metavar="N")
    group.add_argument("--producer-ids-per-second", type=float, default=10.0, metavar="N")
    group.add_argument("--requests-per-second", type=float, default=1000.0, metavar="N")
    group.add_argument(
        "--factor", type=float, default=5.0, metavar="F", help="times the usual pace; default: 5"
    )
    add_growing(made)
    add_by_day(made)
    return made


def effective() -> Parser:
    """Return the parser of `headgate effective`."""
    made = parser(
        "effective",
        "Tell which quota applied to each principal and client-id, what it overrides, and which "
        "configured quotas nobody matched.",
        "answers:run_effective",
        "--quotas quotas.yaml",
        quotas_required=True,
    )
    add_growing(made)
    return made


def splits() -> Parser:
    """Return the parser of `headgate splits`."""
    made = Parser(
        "headgate splits",
        "Split cluster-wide quotas (bps), and contested capacity by shares, over brokers by the "
        "demand that the fleet's journals show, every few seconds, to the topic that gateways "
        "with headgate.splits=stream follow. If it stops, splits expire and quota / brokers "
        "counts.",
        partial(run_on_spark, "headgate splits", "splits:run_splits"),
        example="headgate splits --topic usage --kafka-config bootstrap.servers=kafka-1:9092 "
        "--store kafka://kafka-1:9092",
        progress=True,
        json="print one JSON object at the end, also for errors",
    )
    source = made.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--topic", metavar="NAME", help="the journals' topic (headgate.usage=kafka:NAME)"
    )
    source.add_argument(
        "--journals",
        nargs="+",
        metavar="DIR",
        help="journal directories of all gateways (headgate.usage=files:DIR), read as they grow",
    )
    made.add_argument(
        "--splits-topic", default="__headgate_splits", metavar="NAME", help="where splits go"
    )
    add_kafka_config(made, "confluent-kafka's settings, such as bootstrap.servers=HOST:PORT")
    limits = made.add_mutually_exclusive_group(required=True)
    limits.add_argument("--quotas", metavar="FILE", help="quotas file, read every round")
    limits.add_argument("--store", metavar="URL", help="store, asked every round")
    add_connection(made, " to --store")
    made.add_argument(
        "--period-ms",
        type=int,
        default=5000,
        metavar="N",
        help="of a round; the gateways' headgate.splits.period.ms (default: 5000)",
    )
    made.add_argument(
        "--lag-ms",
        type=int,
        default=1500,
        metavar="N",
        help="how long a journal's events may be on their way: the gateways' "
        "headgate.usage.batch.ms and half a second (default: 1500)",
    )
    for name in ("producer", "consumer"):
        made.add_argument(
            f"--capacity-{name}",
            type=float,
            metavar="BYTES",
            help=f"bytes/s that one broker can carry, divided by {name}_byte_rate:shares while "
            "contested (default: each gateway divides its own)",
        )
    made.add_argument("--brokers", metavar="IDS", help="such as 1,2,3; default: the cluster's")
    made.add_argument("--rounds", type=int, default=0, metavar="N", help="end after N rounds")
    made.add_argument("--master", metavar="URL", help="Spark master (default: all local cores)")
    made.set_defaults(format="parquet", out=".", engine="", remote=None)
    return made


def add_bill(made: Parser) -> None:
    """Add the flags of a bill."""
    group = made.add_argument_group("sharing a bill out (FOCUS 1.2)")
    group.add_argument("--bill", metavar="FILE", help="share this bill out, into table focus")
    group.add_argument("--owners", metavar="FILE", help="owners of principals and topics")
    group.add_argument(
        "--focus", metavar="FILE", help="also write the rows to a .csv or .parquet file"
    )
    disks = group.add_mutually_exclusive_group()
    disks.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="ask these brokers what their disks hold, into table log_dirs; for a bill that weighs "
        "storage or partitions",
    )
    disks.add_argument(
        "--log-dirs", nargs="+", metavar="DIR", help="tables log_dirs of earlier runs instead"
    )
