"""
The pipeline's commands: usage, replay, what-if, recommend, chargeback, storms, effective, splits.

Each reads request logs or journals, runs one transform on Spark, writes its tables and prints a
closing table.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.cli.pipeline_options import (
    Opened,
    add_windows,
    closing_table,
    command,
    number,
    opened,
    parser,
    share,
    utc,
)
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headgate.pipeline.pack import PackOptions
    from headgate.pipeline.quotas import Quotas


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
        emitted = _read_activity(on).persist()
        activity = _activity_of(emitted)
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


def main_replay(argv: Sequence[str]) -> int:
    """`headgate replay`: what Kafka's sensor would have decided for each request."""
    made = parser(
        "replay",
        "Replay every request through Kafka's quota arithmetic and compare with the log. Of a "
        "gateway's journal the decisions are identical; a broker's log holds estimates of the "
        "moments, so its replay is near, and the closing table says how near.",
    )
    add_windows(made)
    return command("replay", _replay, argv, made)


def _replay(arguments: argparse.Namespace) -> None:
    from headgate.pipeline import replay, schema
    from headgate.pipeline.pack import PackOptions

    with opened(arguments, "replay") as on:
        run = on.run
        options = PackOptions(
            (on.quotas,),
            True,
            arguments.quota_window_num,
            arguments.quota_window_size_seconds * 1000,
        )
        packed = _pack(on, options).persist()
        run.write(
            packed.transform(replay.replay_packed(options)),
            schema.REPLAY,
            words="reading and replaying",
        )
        write_bad_lines(on, packed)
        with run.watch("comparing with the log"):
            found = replay.agreement(run.read(schema.REPLAY)).collect()
        rows = []
        for r in found:
            both, n = r["both_throttled"], r["requests"]
            shares = {
                "equal_decisions_share": r["equal_decisions"] / n,
                "exact_share": r["exact"] / both if both else None,
                "within_1_ms_share": r["within_1_ms"] / both if both else None,
            }
            for name, value in shares.items():
                run.figure(
                    f"{r['quota_type']}.{name}", value, unit="share", note=_SHARE_NOTES[name]
                )
            for name in ("logged_s", "replayed_s"):
                run.figure(f"{r['quota_type']}.{name}", r[name], unit="s", note=_SHARE_NOTES[name])
            rows.append(
                (
                    r["quota_type"],
                    number(n),
                    share(shares["equal_decisions_share"]),
                    number(both),
                    share(shares["exact_share"]),
                    share(shares["within_1_ms_share"]),
                    number(r["logged_s"]),
                    number(r["replayed_s"]),
                )
            )
        run.write_summary()
        closing_table(
            "Replayed against logged",
            (
                "quota type",
                "requests",
                "same decision",
                "throttled in both",
                "exact",
                "within 1 ms",
                "logged s",
                "replayed s",
            ),
            rows,
        )
        print(
            "A log's time stamps are rounded, and the moment of a charge is estimated from them; "
            "a journal's are exact."
        )
        print_bad_lines(on)


_SHARE_NOTES = {
    "equal_decisions_share": "requests throttled in both, or in neither, of all",
    "exact_share": "equal throttle times, of requests throttled in both",
    "within_1_ms_share": "throttle times at most 1 ms apart, of requests throttled in both",
    "logged_s": "throttled seconds that the log holds",
    "replayed_s": "throttled seconds that the replay gives",
}


def _pack(on: Opened, options: PackOptions) -> DataFrame:
    from headgate.pipeline import replay

    return replay.pack_logs(on.spark, on.splits, options, time_zone=on.arguments.time_zone)


def main_what_if(argv: Sequence[str]) -> int:
    """`headgate what-if`: the same requests under other quotas."""
    made = parser(
        "what-if",
        "Replay the same requests under other quotas: who would be throttled, for how long, and "
        "what share of their traffic. All plans go through one pass. Open-loop: a throttled "
        "client would have sent later.",
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
    return command("what-if", _what_if, argv, made)


def _what_if(arguments: argparse.Namespace) -> None:
    from pyspark.sql import functions as F

    from headgate.pipeline import quotas, schema, what_if

    plans = [quotas.load(path) for path in arguments.plan]
    if not plans and not (arguments.quotas or arguments.store):
        raise ConfigError("give quotas to try: --plan FILE, or --quotas FILE")
    with opened(arguments, "what-if") as on:
        run = on.run
        given = arguments.quotas or arguments.store
        every = _named([*([on.quotas] if given else []), *plans])
        options = what_if.options_of(
            every,
            num_samples=arguments.quota_window_num,
            window_ms=arguments.quota_window_size_seconds * 1000,
        )
        packed = _pack(on, options).persist()
        run.write(
            packed.transform(what_if.what_if_packed(options)),
            schema.WHAT_IF,
            words=f"reading and replaying under {len(every)} plans",
        )
        write_bad_lines(on, packed)
        table = run.read(schema.WHAT_IF)
        found = (
            table.groupBy("plan")
            .agg(
                F.sum("requests").alias("requests"),
                F.sum("bytes").alias("bytes"),
                F.sum("throttled_requests").alias("throttled"),
                F.sum("throttle_time_ms").alias("ms"),
                F.sum("delayed_bytes").alias("delayed"),
                F.countDistinct(
                    F.when(F.col("throttled_requests") > 0, F.struct("principal", "client_id"))
                ).alias("who"),
            )
            .collect()
        )
        order = [what_if.LOGGED, *(p.name for p in every)]
        found.sort(key=lambda r: order.index(r["plan"]))
        for r in found:
            run.figure(f"{r['plan']}.throttled_s", r["ms"] / 1000, unit="s")
            run.figure(f"{r['plan']}.throttled_requests", r["throttled"], unit="requests")
        run.write_summary()
        closing_table(
            "What if",
            ("plan", "requests", "throttled", "throttled s", "delayed bytes", "clients throttled"),
            [
                (
                    r["plan"],
                    number(r["requests"]),
                    number(r["throttled"]),
                    number(r["ms"] / 1000),
                    share(r["delayed"] / r["bytes"] if r["bytes"] else None)
                    if r["plan"] != what_if.LOGGED
                    else "-",
                    number(r["who"]),
                )
                for r in found
            ],
        )
        print("Open-loop: a throttled client would have sent later than it did.")
        print_bad_lines(on)


def _named(plans: list[Quotas]) -> list[Quotas]:
    """Return the plans with different names: a second ``prod`` becomes ``prod-2``."""
    seen: dict[str, int] = {"logged": 1}
    out = []
    for plan in plans:
        seen[plan.name] = seen.get(plan.name, 0) + 1
        n = seen[plan.name]
        out.append(plan if n == 1 else dataclasses.replace(plan, name=f"{plan.name}-{n}"))
    return out


def main_recommend(argv: Sequence[str]) -> int:
    """`headgate recommend`: quotas from use."""
    made = parser(
        "recommend",
        "Propose a quota per entity from what was used, with what it would have throttled in the "
        "same data, and entities better merged, split, given a default, or removed.",
    )
    group = made.add_argument_group("how figures are made")
    group.add_argument("--percentile", type=float, default=95.0, metavar="P", help="default: 95")
    group.add_argument("--headroom", type=float, default=1.2, metavar="FACTOR", help="default: 1.2")
    group.add_argument(
        "--horizon-days", type=int, default=30, metavar="N", help="carry growth on; default: 30"
    )
    add_windows(made)
    return command("recommend", _recommend, argv, made)


def _recommend(arguments: argparse.Namespace) -> None:
    from headgate.pipeline import recommend, schema

    if not 0 < arguments.percentile <= 100:
        raise ConfigError("--percentile is between 0 and 100")
    if arguments.headroom <= 0:
        raise ConfigError("--headroom is a factor above 0")
    with opened(arguments, "recommend") as on:
        run = on.run
        advice = recommend.Advice(
            percentile=arguments.percentile / 100,
            headroom=arguments.headroom,
            horizon_days=arguments.horizon_days,
            window_s=max(1, (arguments.quota_window_num - 1) * arguments.quota_window_size_seconds),
        )
        emitted = _read_activity(on).persist()
        transform = recommend.recommend(
            on.quotas,
            lambda options: _pack(on, options),
            advice,
            num_samples=arguments.quota_window_num,
            window_ms=arguments.quota_window_size_seconds * 1000,
        )
        with run.watch("reading, adding up, replaying"):
            frame = _activity_of(emitted).transform(transform)
        run.write(frame, schema.RECOMMEND)
        write_bad_lines(on, emitted)
        rows = run.read(schema.RECOMMEND).orderBy("quota_type", "action", "entity").collect()
        run.figure("recommendations", len(rows), note="rows of table recommend")
        run.write_summary()
        closing_table(
            f"{len(rows)} recommendations",
            ("quota type", "entity", "action", "current", "recommended", "why"),
            [
                (
                    r["quota_type"],
                    r["entity"],
                    r["action"],
                    number(r["current"]),
                    "-" if r["recommended"] is None else number(r["recommended"]),
                    r["reason"],
                )
                for r in rows[:50]
            ],
        )
        print_bad_lines(on)


def main_chargeback(argv: Sequence[str]) -> int:
    """`headgate chargeback`: what each principal used in a period, and what it costs."""
    made = parser(
        "chargeback", "Sum up what each principal used per hour, day or month, and price it."
    )
    made.add_argument("--prices", metavar="FILE", help="price file (see docs/reference/pipeline)")
    made.add_argument("--period", choices=("hour", "day", "month"), default="day")
    return command("chargeback", _chargeback, argv, made)


def _chargeback(arguments: argparse.Namespace) -> None:
    from headgate.pipeline import chargeback, schema

    prices = chargeback.load_prices(arguments.prices) if arguments.prices else None
    with opened(arguments, "chargeback") as on:
        run = on.run
        emitted = _read_activity(on).persist()
        transform = chargeback.chargeback(on.quotas, period=arguments.period, prices=prices)
        run.write(
            _activity_of(emitted).transform(transform),
            schema.CHARGEBACK,
            words="reading and adding up",
        )
        write_bad_lines(on, emitted)
        rows = run.read(schema.CHARGEBACK).orderBy("period_ms", "principal").collect()
        run.figure("price", sum(r["price"] for r in rows), text=prices.currency if prices else None)
        run.write_summary()
        currency = f" {prices.currency}" if prices and prices.currency else ""
        closing_table(
            f"Chargeback by {arguments.period}",
            ("principal", "from (UTC)", "bytes in", "bytes out", "share", "throttle s", "price"),
            [
                (
                    r["principal"],
                    utc(r["period_ms"]),
                    number(r["bytes_in"]),
                    number(r["bytes_out"]),
                    share(r["cluster_share"]),
                    number(r["throttle_time_ms"] / 1000),
                    f"{r['price']:,.2f}{currency}" if prices else "-",
                )
                for r in rows[:100]
            ],
        )
        print_bad_lines(on)


def main_storms(argv: Sequence[str]) -> int:
    """`headgate storms`: connections, producer ids or requests that came too fast."""
    made = parser(
        "storms",
        "Find connection storms by address and listener, producer-id storms by user, request "
        "storms by client, with the quota that would have held them.",
    )
    group = made.add_argument_group("what counts as a storm")
    group.add_argument("--connections-per-second", type=float, default=10.0, metavar="N")
    group.add_argument("--producer-ids-per-second", type=float, default=10.0, metavar="N")
    group.add_argument("--requests-per-second", type=float, default=1000.0, metavar="N")
    group.add_argument(
        "--factor", type=float, default=5.0, metavar="F", help="times the usual pace; default: 5"
    )
    return command("storms", _storms, argv, made)


def _storms(arguments: argparse.Namespace) -> None:
    from headgate.pipeline import schema, sources, storms

    with opened(arguments, "storms") as on:
        run = on.run
        emitted = _read_activity(on, connections=True).persist()
        transform = storms.storms(
            storms.Thresholds(
                arguments.connections_per_second,
                arguments.producer_ids_per_second,
                arguments.requests_per_second,
                arguments.factor,
            )
        )
        seen = storms.connections_by_second(sources.connections(emitted))
        run.write(
            transform(_activity_of(emitted), seen), schema.STORMS, words="reading and adding up"
        )
        write_bad_lines(on, emitted)
        rows = run.read(schema.STORMS).orderBy("start_ms", "kind").collect()
        run.figure("storms", len(rows), note="rows of table storms")
        run.write_summary()
        closing_table(
            f"{len(rows)} storms",
            ("kind", "from (UTC)", "entity", "count", "peak/s", "quota", "why"),
            [
                (
                    r["kind"],
                    utc(r["start_ms"]),
                    r["entity"],
                    number(r["count"]),
                    number(r["peak_per_s"]),
                    "-" if r["quota"] is None else number(r["quota"]),
                    r["reason"],
                )
                for r in rows[:50]
            ],
        )
        print_bad_lines(on)


def main_effective(argv: Sequence[str]) -> int:
    """`headgate effective`: which quota applied to whom; dead quotas."""
    made = parser(
        "effective",
        "Tell which quota applied to each principal and client-id, what it overrides, and which "
        "configured quotas nobody matched.",
        quotas_required=True,
    )
    return command("effective", _effective, argv, made)


def _effective(arguments: argparse.Namespace) -> None:
    from pyspark.sql import functions as F

    from headgate.pipeline import effective, schema

    with opened(arguments, "effective") as on:
        run = on.run
        emitted = _read_activity(on).persist()
        run.write(
            _activity_of(emitted).transform(effective.effective(on.quotas)),
            schema.EFFECTIVE,
            words="reading and resolving",
        )
        write_bad_lines(on, emitted)
        table = run.read(schema.EFFECTIVE)
        rows = table.orderBy(
            F.desc("kind"), F.desc("bytes"), "quota_key", "principal", "client_id", "source"
        ).collect()
        dead = sum(r["kind"] == "dead" for r in rows)
        run.figure("dead_quotas", dead, note="configured quotas that nobody matched")
        run.write_summary()
        closing_table(
            f"{dead} dead quotas; what applied",
            ("", "quota", "principal", "client-id", "limit", "from", "instead of", "bytes"),
            [
                (
                    r["kind"],
                    r["quota_key"],
                    r["principal"] or "-",
                    r["client_id"] or "-",
                    number(r["value"]),
                    r["source"] or "-",
                    r["overridden"] or "-",
                    number(r["bytes"]),
                )
                for r in rows[:60]
            ],
        )
        print_bad_lines(on)


def main_splits(argv: Sequence[str]) -> int:
    """`headgate splits`: cluster-wide quotas split over brokers, to the topic gateways follow."""
    from headgate.cli.pipeline_stream import splits_parser, splits_stream

    return command("splits", splits_stream, argv, splits_parser())


def _read_activity(on: Opened, *, connections: bool = False) -> DataFrame:
    from headgate.pipeline import sources

    return sources.read_activity(
        on.spark, on.splits, time_zone=on.arguments.time_zone, connections=connections
    )


def _activity_of(emitted: DataFrame) -> DataFrame:
    from headgate.pipeline import sources
    from headgate.pipeline.worker import ACTIVITY

    return sources.only(emitted, "activity", ACTIVITY)


def write_bad_lines(on: Opened, emitted: DataFrame) -> None:
    """Write the side table of bad lines, and keep its counts for the summary."""
    from headgate.pipeline import schema, sources
    from headgate.pipeline.run import collect_stats

    run = on.run
    run.write(sources.only(emitted, "bad", schema.BAD_LINES), schema.BAD_LINES)
    stats = collect_stats(emitted)
    run.figure("lines", stats["lines"], unit="lines", note="lines and events read")
    run.figure("input_bytes", stats["input_bytes"], unit="bytes", note="read, uncompressed")
    run.figure("bad_lines", stats["bad_lines"], unit="lines", note="kept in table bad_lines")
    run.figure("time_zone", text=on.arguments.time_zone, note="assumed where a log prints none")


def print_bad_lines(on: Opened) -> None:
    """Say how many lines couldn't be read, and why."""
    from pyspark.sql import functions as F

    from headgate.pipeline import schema

    bad = next(f.value for f in on.run.figures if f.name == "bad_lines")
    if not bad:
        print("Every line was read.")
        return
    reasons = (
        on.run.read(schema.BAD_LINES)
        .groupBy("reason")
        .agg(F.count(F.lit(1)).alias("n"), F.min("file").alias("file"), F.min("offset").alias("at"))
        .orderBy(F.desc("n"), "reason")
        .limit(10)
        .collect()
    )
    closing_table(
        f"{number(bad)} lines couldn't be read; they are in {on.run.path('bad_lines')}",
        ("lines", "reason", "for instance"),
        [(number(r["n"]), r["reason"], f"{r['file']} byte {r['at']}") for r in reasons],
    )
