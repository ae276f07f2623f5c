"""
`headgate recommend`: quotas from use.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from headgate.cli.pipeline_options import (
    add_windows,
    closing_table,
    command,
    number,
    opened,
    parser,
)
from headgate.cli.pipeline_reading import (
    activity_of,
    pack,
    print_bad_lines,
    read_activity,
    write_bad_lines,
)
from headgate.errors import ConfigError
from headgate.pipeline.advice import BYTES, TYPES, Advice


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
    group.add_argument(
        "--quota-types",
        metavar="TYPES",
        default=",".join(BYTES),
        help=f"comma-separated, of {', '.join(TYPES)}; default: the two byte rates. Of a broker's "
        "log the others are lower bounds, and can't be replayed",
    )
    add_windows(made)
    return command("recommend", _recommend, argv, made)


def _recommend(arguments: argparse.Namespace) -> None:
    from headgate.pipeline import recommend, schema

    if not 0 < arguments.percentile <= 100:
        raise ConfigError("--percentile is between 0 and 100")
    if arguments.headroom <= 0:
        raise ConfigError("--headroom is a factor above 0")
    types = tuple(t for t in arguments.quota_types.split(",") if t)
    if not types or not set(types) <= set(TYPES):
        raise ConfigError(f"--quota-types {arguments.quota_types}: choose of {', '.join(TYPES)}")
    with opened(arguments, "recommend") as on:
        run = on.run
        advice = Advice(
            percentile=arguments.percentile / 100,
            headroom=arguments.headroom,
            horizon_days=arguments.horizon_days,
            types=types,
            window_s=max(1, (arguments.quota_window_num - 1) * arguments.quota_window_size_seconds),
        )
        emitted = read_activity(on).persist()
        transform = recommend.recommend(
            on.quotas,
            lambda options: pack(on, options),
            advice,
            num_samples=arguments.quota_window_num,
            window_ms=arguments.quota_window_size_seconds * 1000,
        )
        with run.watch("reading, adding up, replaying"):
            frame = activity_of(emitted).transform(transform)
        run.write(frame, schema.RECOMMEND)
        write_bad_lines(on, emitted)
        rows = run.read(schema.RECOMMEND).orderBy("quota_type", "action", "entity").collect()
        run.figure("recommendations", len(rows), note="rows of table recommend")
        run.write_summary()
        closing_table(
            f"{len(rows)} recommendations",
            (
                "quota type",
                "entity",
                "action",
                "current",
                "recommended",
                "throttled s",
                "then",
                "why",
            ),
            [
                (
                    r["quota_type"],
                    r["entity"],
                    r["action"],
                    number(r["current"]),
                    "-" if r["recommended"] is None else number(r["recommended"]),
                    _seconds(r["throttle_time_ms_current"]),
                    _seconds(r["throttle_time_ms_recommended"]),
                    r["reason"],
                )
                for r in rows[:50]
            ],
        )
        if len(rows) > 50:
            print(f"{len(rows) - 50} more are in table recommend.")
        if rows:
            print(
                "throttled s: of all whom a row concerns, in this data, by the current quotas; "
                "then: with the recommended ones (each kind of action tried by itself)."
            )
        print_bad_lines(on)


def _seconds(ms: int | None) -> str:
    return "-" if ms is None else number(ms / 1000)
