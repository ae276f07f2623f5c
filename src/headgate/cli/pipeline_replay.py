"""
`headgate replay`: what Kafka's sensors would have decided for each request.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from headgate.cli.pipeline_options import (
    add_windows,
    closing_table,
    command,
    number,
    opened,
    parser,
    share,
)
from headgate.cli.pipeline_reading import pack, print_bad_lines, write_bad_lines


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
        packed = pack(on, options).persist()
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


_SHARE_NOTES: Final = {
    "equal_decisions_share": "requests throttled in both, or in neither, of all",
    "exact_share": "equal throttle times, of requests throttled in both",
    "within_1_ms_share": "throttle times at most 1 ms apart, of requests throttled in both",
    "logged_s": "throttled seconds that the log holds",
    "replayed_s": "throttled seconds that the replay gives",
}
