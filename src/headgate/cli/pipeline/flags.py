"""
The flags that several pipeline commands share.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from headgate.cli.contract import Parser
from headgate.cli.pipeline.command import run_on_spark
from headgate.cli.quotas.flags import add_broker_id, add_connection
from headgate.config import store_kinds
from headgate.pipeline.table import DAY
from headgate.pipeline.tables.by_day import MODES
from headgate.pipeline.tables.lake import FORMATS


def parser(
    name: str,
    description: str,
    action: str,
    example: str,
    *,
    quotas_required: bool = False,
) -> Parser:
    """
    Return a parser with the flags that every pipeline command takes.

    Args:
        name: the command.
        description: one or two sentences, for --help.
        action: what it does, as ``run_on_spark`` takes it.
        example: flags that its example has besides --requests and --out.
        quotas_required: the command makes no sense without --quotas or --store.
    """
    made = Parser(
        f"headgate {name}",
        description,
        partial(run_on_spark, f"headgate {name}", action),
        example=f"headgate {name} --requests request.log {example} --out tables",
        progress=True,
    )
    source = made.add_argument_group("input")
    source.add_argument(
        "--requests",
        nargs="+",
        default=[],
        metavar="PATH",
        help="request logs (plain, .gz, .zst, ...) and gateway usage journals (.arrow, .parquet): "
        "files, directories, patterns, or URIs",
    )
    source.add_argument(
        "--time-zone",
        default="UTC",
        metavar="ZONE",
        help="the brokers' time zone, for logs that print none (default: UTC)",
    )
    add_broker_id(source)
    source.add_argument(
        "--default-partitions",
        type=positive,
        default=1,
        metavar="N",
        help="the cluster's num.partitions, for topics created with the default (-1) whose number "
        "a log doesn't tell (default: 1, as Kafka's)",
    )
    source.add_argument(
        "--copies",
        choices=("refuse", "once", "count"),
        default="refuse",
        help="files that begin with the same request: refuse them, read the largest once, or "
        "count them all (default: refuse; x and x.gz are one in any case)",
    )
    add_principals(source)
    source.add_argument(
        "--allow-empty",
        action="store_true",
        help="write empty tables where there is no request at all; else that is an error",
    )
    _add_quotas(made, source, required=quotas_required)
    _add_output(made)
    return made


def add_principals(made: argparse._ActionsContainer) -> None:
    """Add the flag that says where a user's name is in a principal."""
    made.add_argument(
        "--principal-pattern",
        default="",
        metavar="REGEX",
        help="for principals that hold more than the user: a regex, searched in the name as "
        "logged, whose first group is the user, e.g. '^CN=([^,]+)'; or rules as in "
        "ssl.principal.mapping.rules",
    )


def _add_quotas(made: argparse.ArgumentParser, source: Any, *, required: bool) -> None:
    limits = made.add_argument_group("quotas")
    limits = limits.add_mutually_exclusive_group(required=required)
    limits.add_argument(
        "--quotas",
        metavar="FILE",
        help="quotas file (YAML or JSON), or an export of `headgate history`",
    )
    limits.add_argument(
        "--store", metavar="URL", help=f"take the quotas from a store: {store_kinds.forms()}"
    )
    add_connection(source, " to --store or --bootstrap-server")


def _add_output(made: argparse.ArgumentParser) -> None:
    output = made.add_argument_group(
        "output",
        "Progress goes to stderr, the closing table to stdout, tables to DIR/run-<id>/<table>/; "
        "DIR/_tables.json names those that count.",
    )
    output.add_argument(
        "--out",
        required=True,
        metavar="DIR",
        help="directory for the tables; of Delta and Iceberg also a catalog's name, CATALOG.DB",
    )
    output.add_argument(
        "--format", choices=FORMATS, default="parquet", help="the tables' format (default: parquet)"
    )
    made.set_defaults(mode="overwrite", partition_by=None)
    spark = made.add_argument_group("spark")
    spark.add_argument("--master", metavar="URL", help="Spark master (default: all local cores)")
    spark.add_argument(
        "--engine",
        choices=("spark", "sail"),
        default="spark",
        help="spark, or sail: Spark's API in Rust, in this process and without a JVM, for logs on "
        "one machine (pip install 'kafka-headgate[pipeline,sail]'); the answers are the same",
    )
    spark.add_argument(
        "--remote",
        metavar="URL",
        help="a Spark Connect server, sc://HOST:PORT (default: SPARK_REMOTE, if it is set)",
    )
    spark.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting; may be repeated",
    )


def add_by_day(made: argparse.ArgumentParser) -> None:
    """Add what becomes of older tables, for commands whose tables have times."""
    group = made.add_argument_group("older tables")
    group.add_argument(
        "--partition-by", choices=(DAY,), help="divide tables by a column `day` (UTC)"
    )
    group.add_argument(
        "--mode",
        choices=MODES,
        default="overwrite",
        help="overwrite them; append to them; or merge, with --partition-by day: replace the days "
        "of which there are rows (default: overwrite)",
    )


def positive(text: str) -> int:
    """Return a whole number above 0; argparse reports other values."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, 1 or more")
    return value


def add_windows(made: argparse.ArgumentParser) -> None:
    """Add the broker's quota windows, for commands that replay."""
    group = made.add_argument_group("quota windows (the broker's settings)")
    group.add_argument(
        "--quota-window-num",
        type=positive,
        default=11,
        metavar="N",
        help="samples kept (default: 11)",
    )
    group.add_argument(
        "--quota-window-size-seconds",
        type=positive,
        default=1,
        metavar="S",
        help="length of a sample (default: 1)",
    )


def add_growing(made: argparse.ArgumentParser) -> None:
    """Add the flags of commands that can follow a growing input."""
    group = made.add_argument_group("growing input (exactly once; state lies in DIR/_stream)")
    group.add_argument(
        "--incremental",
        action="store_true",
        help="read only what is new since the last run: lines (also of a log that is being "
        "written and renamed), journals' closed files, messages",
    )
    group.add_argument(
        "--follow",
        action="store_true",
        help="keep running; each round makes the tables again and replaces them in one step",
    )
    group.add_argument("--every", type=float, default=10.0, metavar="S", help="seconds of a round")
    group.add_argument("--topic", metavar="NAME", help="follow a topic of log lines or journals")
    add_kafka_config(
        group, "confluent-kafka's settings for --topic, such as bootstrap.servers=HOST:PORT"
    )
    group.add_argument("--files-per-round", type=int, default=64, metavar="N")


def add_kafka_config(made: argparse._ActionsContainer, about: str) -> None:
    """Add --kafka-config, which may be repeated."""
    made.add_argument(
        "--kafka-config", action="append", default=[], metavar="NAME=VALUE", help=about
    )
