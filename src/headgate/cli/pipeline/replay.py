"""
`headgate replay`: what Kafka's sensors would have decided for each request.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame

from headgate.cli.pipeline.opening import Opened
from headgate.cli.pipeline.print import closing_table, number, share
from headgate.cli.pipeline.reading import pack_once
from headgate.cli.pipeline.stream import Replays, run_answer
from headgate.cli.results import Tables
from headgate.pipeline import schema
from headgate.pipeline.answers import replay
from headgate.pipeline.replaying import replay as replaying
from headgate.pipeline.replaying.packed_format import PackOptions
from headgate.pipeline.workers.daemon import PRELOADS


def run_replay(arguments: argparse.Namespace) -> Tables:
    """Run `headgate replay`."""
    return run_answer(arguments, Replays("replay", _write, _tell, ("replay",)))


def _write(on: Opened, activity: DataFrame | None) -> DataFrame:
    """Write table ``replay`` and the figures of its agreement with the log."""
    run, options = on.run, PackOptions((on.quotas,), **on.windows)
    if run.context is not None:
        run.context.environment[PRELOADS] = replaying.__name__
    packed = pack_once(on, options)
    replayed = packed.transform(replay.replay_packed(options))
    run.write(replayed, schema.REPLAY, words="reading and replaying")
    with run.watch("comparing with the log"):
        _keep_agreement(on, replay.agreement(run.read(schema.REPLAY)))
    return packed


def _keep_agreement(on: Opened, found: Sequence[dict[str, Any]]) -> None:
    run = on.run
    for r in found:
        name = r["quota_type"]
        run.figure(f"{name}.requests", r["requests"], unit="requests", note="replayed")
        run.figure(f"{name}.both_throttled", r["both_throttled"], unit="requests")
        for which, value in _shares(r).items():
            run.figure(f"{name}.{which}", value, unit="share", note=_SHARE_NOTES[which])
        for which in ("logged", "replayed"):
            seconds = None if r[f"{which}_ms"] is None else r[f"{which}_ms"] / 1000
            run.figure(f"{name}.{which}_s", seconds, unit="s", note=_SHARE_NOTES[f"{which}_s"])


def _shares(r: Any) -> dict[str, float | None]:
    both, n = r["both_throttled"], r["requests"]
    return {
        "equal_decisions_share": r["equal_decisions"] / n,
        "exact_share": r["exact"] / both if both else None,
        "within_1_ms_share": r["within_1_ms"] / both if both else None,
    }


def _tell(on: Opened) -> None:
    """Print how well the replay agrees with the log, by quota type."""
    figures = {f.name: f.value for f in on.run.figures}
    types = [n.removesuffix(".logged_s") for n in figures if n.endswith(".logged_s")]
    closing_table(
        "Replayed against logged",
        (
            ("quota type", lambda name: name),
            ("requests", lambda name: number(figures[f"{name}.requests"])),
            ("same decision", lambda name: share(figures[f"{name}.equal_decisions_share"])),
            ("throttled in both", lambda name: number(figures[f"{name}.both_throttled"])),
            ("exact", lambda name: share(figures[f"{name}.exact_share"])),
            ("within 1 ms", lambda name: share(figures[f"{name}.within_1_ms_share"])),
            ("logged s", lambda name: number(figures[f"{name}.logged_s"])),
            ("replayed s", lambda name: number(figures[f"{name}.replayed_s"])),
        ),
        types,
    )
    print(
        "A log's time stamps are rounded, and the moment of a charge is estimated from them; "
        "a journal's are exact."
    )


_SHARE_NOTES: Final = {
    "equal_decisions_share": "requests throttled in both, or in neither, of all",
    "exact_share": "equal throttle times, of requests throttled in both",
    "within_1_ms_share": "throttle times at most 1 ms apart, of requests throttled in both",
    "logged_s": "throttled seconds that the log holds",
    "replayed_s": "throttled seconds that the replay gives",
}
