"""
Predict how real clients fare under another quota, then run them and see.

``python bench/pipeline/predict.py [--quota BYTES_PER_S] [--seconds N] [--json FILE]``; run it alone
on the machine. Every kind of client runs at quota A through ``headgate serve`` in front of an
embedded Kafka, all kinds at once, each with a client-id and a quota of its own. From the gateway's
journal alone ``headgate.demand`` says what rate, throttle time and finish each will have at A/2,
2 A, 8 A and without a quota. Then they run there. What is printed: each prediction beside the run,
the errors of all figures, and the share of intervals that hold the run.

Kinds that never wait aren't run without a quota beside the others: they'd take the machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from headgate.demand.forecast import forecast, infer  # noqa: E402
from headgate.demand.rhythm import Charge  # noqa: E402
from headgate.embedded import EmbeddedKafka  # noqa: E402
from headgate.quota.alteration import Op, QuotaAlteration  # noqa: E402
from headgate.quota.entity import QuotaEntity  # noqa: E402
from headgate.quota.key import CONSUMER, PRODUCER  # noqa: E402
from headgate.store import open_store  # noqa: E402
from kit import driven_clients as driven  # noqa: E402

LEAD_S = 8
LEAST = 0.93  # of the seconds observed that a client must have run
FETCH, PRODUCE = "consumer_byte_rate", "producer_byte_rate"
LEVELS: dict[str, float | None] = {"A": 1, "A/2": 0.5, "2A": 2, "8A": 8, "none": None}
Start = Callable[[str, str, str], Any]


class Kind(NamedTuple):
    """
    A kind of client.

    Attributes:
        start: starts one, given servers, client-id and topic.
        quota_type: what it is charged to.
        ends: it has work of a fixed size.
        alone: it isn't run without a quota.
        idle_s: how long it sends nothing at times.
    """

    start: Start
    quota_type: str = PRODUCE
    ends: bool = False
    alone: bool = False
    idle_s: float = 0.0


def kinds(a: float, java: bool) -> dict[str, Kind]:
    """Return the kinds of clients, for a quota A in bytes per second."""
    many = 10_000_000

    def at(times: float) -> Kind:
        return Kind(lambda s, c, t: driven.paced(s, c, t, times * a))

    found = {
        "saturating": Kind(driven.saturating, alone=True),
        "one request at a time": Kind(
            lambda s, c, t: driven.one_at_a_time(s, c, t, int(a / 15), 0.02)
        ),
        **{f"rate-bound, {times} A": at(times) for times in (0.5, 1.0, 1.5, 2.0, 4.0)},
        "bursty, 0.5 A": Kind(lambda s, c, t: driven.bursts(s, c, t, int(2.5 * a), 5), idle_s=5),
        "bursty, 0.9 A": Kind(lambda s, c, t: driven.bursts(s, c, t, int(5.4 * a), 6), idle_s=6),
        "job of 24 s at A": Kind(lambda s, c, t: driven.job(s, c, t, int(24 * a)), ends=True),
        "catching up": Kind(driven.reader, FETCH),
        "ten at 0.2 A, one quota": Kind(lambda s, c, t: driven.paced(s, c, t, 0.2 * a, 10)),
    }
    if java:
        found |= {
            "Java, saturating": Kind(
                lambda s, c, t: driven.java_producer(s, c, t, many), alone=True
            ),
            "Java, rate-bound, 2 A": Kind(
                lambda s, c, t: driven.java_producer(s, c, t, many, 2 * a)
            ),
            "Java, job of 20 s at A": Kind(
                lambda s, c, t: driven.java_producer(s, c, t, int(20 * a / 1_000)), ends=True
            ),
            "Java, reads 15 s at A": Kind(
                lambda s, c, t: driven.java_consumer(s, c, t, int(15 * a / 1_000)), FETCH, True
            ),
        }
    return found


class Field:
    """A broker, a gateway in front of it, a quota for each kind and level."""

    def __init__(self, folder: Path, a: float, names: dict[str, Kind]) -> None:
        self.folder, self.a, self.kinds = folder, a, names
        self.kafka = EmbeddedKafka(
            folder / "kafka",
            extra_properties={"log.retention.bytes": "300000000", "log.segment.bytes": "50000000"},
        )

    def client(self, kind: str, level: str) -> str:
        return f"{kind}-{level}".replace(" ", "_").replace(",", "").replace("/", ":")

    def topic(self, kind: str, level: str) -> str:
        return f"t{list(self.kinds).index(kind)}-{list(LEVELS).index(level)}"

    def __enter__(self) -> Field:
        self.kafka.__enter__()
        servers = self.kafka.bootstrap("PLAINTEXT")
        admin = AdminClient({"bootstrap.servers": servers})
        topics = [NewTopic(self.topic(k, v), 1, 1) for k in self.kinds for v in LEVELS]
        for made in admin.create_topics(topics).values():
            made.result(60)
        for kind, of in self.kinds.items():
            if of.quota_type == FETCH:
                for level in LEVELS:  # what waits for the readers
                    filled = driven.job(servers, "fill", self.topic(kind, level), int(18 * self.a))
                    while filled.running:
                        time.sleep(0.1)
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]
        lines = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "headgate.upstream": servers,
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "1",
            "headgate.store": f"sqlite:{self.folder}/quotas.db",
            "headgate.usage": f"files:{self.folder}/usage",
            "headgate.data.dir": str(self.folder),
            "super.users": "User:ANONYMOUS",
        }
        config = self.folder / "headgate.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
        self._set_quotas(lines["headgate.store"])
        self.gateway = subprocess.Popen(
            [Path(sys.executable).parent / "headgate", "serve", "--config", config],
            stderr=(self.folder / "log").open("wb"),
        )
        self.servers = f"127.0.0.1:{port}"
        self.direct = servers
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return self
            except OSError:
                if time.monotonic() > until or self.gateway.poll() is not None:
                    raise
                time.sleep(0.2)

    def _set_quotas(self, url: str) -> None:
        store = open_store(url)
        alterations = [
            QuotaAlteration.of(
                QuotaEntity.of(client_id=self.client(kind, level)),
                (Op(key, times * self.a) for key in (PRODUCER, CONSUMER)),
            )
            for kind in self.kinds
            for level, times in LEVELS.items()
            if times is not None
        ]
        assert not [r for r in store.alter(alterations) if r.error]
        store.close()

    def run(self, level: str, seconds: float) -> None:
        """Run all kinds at a level; jobs until they are done, three times as long at most."""
        none = LEVELS[level] is None
        running = []
        # A virtual machine takes seconds to start on a busy machine.
        java_first = sorted(self.kinds.items(), key=lambda item: not item[0].startswith("Java"))
        leads = any(kind.startswith("Java") for kind in self.kinds)
        for kind, of in java_first:
            if of.alone and none:
                continue
            if leads and not kind.startswith("Java"):
                time.sleep(LEAD_S)
                leads = False
            topic = self.topic(kind, level)
            running.append((of, of.start(self.servers, self.client(kind, level), topic)))
            if of.quota_type == FETCH and not of.ends:
                fed = driven.paced(self.direct, "feed", topic, 0.2 * self.a)
                running.append((of, fed))
        time.sleep(seconds)
        until = time.monotonic() + 2 * seconds
        while any(of.ends and load.running for of, load in running) and time.monotonic() < until:
            time.sleep(0.2)
        for _, load in running:
            load.stop()

    def __exit__(self, *_: object) -> None:
        self.close_gateway()
        self.kafka.__exit__(None, None, None)

    def close_gateway(self) -> None:
        """Stop the gateway, which closes its journal."""
        self.gateway.terminate()
        self.gateway.wait(30)


def until(charges: list[Charge], seconds: float) -> list[Charge]:
    """Return the charges of a client's first seconds."""
    return [c for c in charges if c.t_ms <= charges[0].t_ms + seconds * 1000]


def ran(charges: list[Charge], of: Kind, seconds: float) -> bool:
    """Say whether a client ran for nearly as long as it is observed."""
    ready_ms = charges[-1].t_ms + charges[-1].told_ms + of.idle_s * 1000
    return ready_ms - charges[0].t_ms >= LEAST * seconds * 1000


def seen(charges: list[Charge], seconds: float, ends: bool) -> tuple[float, float, float]:
    """Return rate, throttle time and finish of a run."""
    last = charges[-1].t_ms - charges[0].t_ms
    span = max(last, 1.0) if ends else seconds * 1000
    return (
        sum(c.amount for c in charges) / span * 1000,
        sum(c.throttle_ms for c in charges),
        last,
    )


def compare(field: Field, seconds: float) -> list[dict[str, Any]]:
    """Predict every level of every kind from A's charges; put what happened beside it."""
    rows = []
    by_type = {t: driven.charges_of(field.folder / "usage", t) for t in (PRODUCE, FETCH)}
    for kind, of in field.kinds.items():
        charges = by_type[of.quota_type]
        gated = of.quota_type == FETCH
        first = charges[field.client(kind, "A")]
        if not of.ends:
            if not ran(first, of, seconds):
                print(f"{kind} was stopped too early at A", file=sys.stderr)
                continue
            first = until(first, seconds)
        observed = 3 * seconds if of.ends else seconds
        demand = infer(first, first[0].t_ms + observed * 1000, gated=gated)
        for level, times in LEVELS.items():
            then = charges.get(field.client(kind, level))
            if not then:
                continue
            if not of.ends and not ran(then, of, seconds):
                print(f"{kind} was stopped too early at {level}", file=sys.stderr)
                continue
            then = then if of.ends else until(then, seconds)
            bound = None if times is None else times * field.a
            said = forecast(demand, bound, gated=gated)
            rate, throttle, finish = seen(then, seconds, of.ends)
            row = {
                "kind": kind,
                "inferred": demand.kind,
                "level": level,
                "rate": (rate, *said.rate),
                "throttle_ms": (throttle, *said.throttle_ms),
                "reason": said.reason,
            }
            if of.ends and said.finish_ms is not None:
                row["finish_ms"] = (finish, *said.finish_ms)
            rows.append(row)
    return rows


def holds(of: tuple[float, ...]) -> bool:
    return of[2] <= of[0] <= of[3]


def show(rows: list[dict[str, Any]], a: float) -> None:
    """Print the table for bench/pipeline.md, and what it comes to."""
    print("| client at A | is taken for | at | rate, run | predicted | error | throttled s, run |"
          " predicted | finish s, run | predicted |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        rate, throttle = row["rate"], row["throttle_ms"]
        error = "" if rate[1] is None else f"{(rate[1] - rate[0]) / rate[0]:+.1%}"
        finish = row.get("finish_ms")
        ended = (f"{finish[0] / 1000:.1f}", told(finish[1:], 1000)) if finish else ("", "")
        cells = (
            *(row["kind"], row["inferred"], row["level"]),
            *(f"{rate[0] / a:.2f} A", told(rate[1:], a), error),
            *(f"{throttle[0] / 1000:.1f}", told(throttle[1:], 1000)),
            *ended,
        )
        print("| " + " | ".join(cells) + " |")
    others = [row for row in rows if row["level"] != "A"]
    for name in ("rate", "throttle_ms", "finish_ms"):
        all_of = [row[name] for row in others if name in row]
        told_of = [of for of in all_of if of[1] is not None and of[0] > 0]
        errors = sorted(abs(of[1] - of[0]) / of[0] for of in told_of)
        outside = [(r["kind"], r["level"]) for r in others if name in r and not holds(r[name])]
        if errors:
            print(f"\n{name}: {len(errors)} figures of {len(all_of)}; error: median "
                  f"{statistics.median(errors):.1%}, worst {errors[-1]:.1%}", end="")  # fmt: skip
        print(f"; intervals hold {len(all_of) - len(outside)} of {len(all_of)}; not {outside}")


def told(span: tuple[float | None, ...], divisor: float) -> str:
    """Return a figure with its interval, or that alone."""
    figure, least, most = span
    assert least is not None
    assert most is not None
    between = f"{least / divisor:.2f} to " + ("∞" if most == inf else f"{most / divisor:,.2f}")
    return between if figure is None else f"{figure / divisor:.2f} ({between})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quota", type=float, default=150_000, help="A, bytes per second")
    parser.add_argument("--seconds", type=float, default=27)
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="keep the journal here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        field = Field(Path(folder), given.quota, kinds(given.quota, not given.no_java))
        with field:
            for level in LEVELS:
                print(f"{level} …", file=sys.stderr, flush=True)
                field.run(level, given.seconds + 3)
            field.close_gateway()
            if given.keep:
                shutil.copytree(f"{folder}/usage", given.keep)
            rows = compare(field, given.seconds)
    show(rows, given.quota)
    if given.json:
        given.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
