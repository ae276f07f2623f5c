"""
Check recorded answers of Apache Kafka against Headgate's own, event by event.

``python -m headgate.testing.golden FILE…`` prints a line per file and, last, ``N events, M
differ``; it exits with 1 if any differ. Files are JSON lines, gzip'ed or plain: a header, then
events in order, each with Kafka's answer in ``o``. Integers, text and booleans are compared
exactly, doubles bit for bit. Managers answer in unwrapped ms; Kafka's 32-bit cast is applied here.
"""

from __future__ import annotations

import gzip
import json
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headgate.errors import ApiError
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import QuotaType
from headgate.quota.sanitizer import sanitize
from headgate.throttle.connection import ConnectionQuotas
from headgate.throttle.controller_mutation import ControllerMutationQuotaManager
from headgate.throttle.java import to_int32
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.overrides import KAFKA_3_9, KAFKA_4, Rules
from headgate.throttle.request import PERCENT_PER_NS, RequestQuotaManager
from headgate.throttle.sensor import SampledRate
from headgate.throttle.token_bucket import TokenBucket

Event = dict[str, Any]
Answer = dict[str, Any]
Player = Callable[[Event], Answer]


def read_golden(path: Path) -> tuple[Event, Iterator[Event]]:
    """Return a file's header and its events, in order."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    lines = (line for line in text.split("\n") if line.strip())
    header = json.loads(next(lines))
    return header, (json.loads(line) for line in lines)


def rules_of(header: Event) -> Rules:
    """Return the rules of the Kafka that answered."""
    return KAFKA_3_9 if str(header.get("kafka", "4")).startswith("3") else KAFKA_4


def window_ms_of(header: Event) -> int:
    """Return the header's window in ms, however it is given."""
    return int(header["window_ms"]) if "window_ms" in header else int(header["window_s"]) * 1000


def entity_of(written: dict[str, str | None]) -> QuotaEntity:
    """Return the entity of a ``quota`` event; a null name is the default."""
    names = {"client-id" if k == "client" else k: v for k, v in written.items()}
    return QuotaEntity({k: DEFAULT if v is None else v for k, v in names.items()})


def same(ours: object, theirs: object) -> bool:
    """Whether two answers are equal: doubles by their bits, everything else exactly."""
    if isinstance(ours, float) or isinstance(theirs, float):
        return _bits(ours) == _bits(theirs)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return type(ours) is type(theirs) and ours == theirs


_SPELLED = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def number(value: Any) -> Any:
    """Return the number that a file gives; NaN and the infinities are text there."""
    return _SPELLED.get(value, value) if isinstance(value, str) else value


def _bits(value: object) -> bytes | None:
    value = number(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return struct.pack(">d", float(value)) if value == value else b"NaN"


# -- one player per kind


def stat_player(header: Event) -> Player:
    """Play a bare Rate or TokenBucket."""
    windows = int(header["num_samples"]), window_ms_of(header)
    stat: SampledRate | TokenBucket = SampledRate(*windows)
    if header["stat"] == "token_bucket":
        stat = TokenBucket(number(header.get("quota")), *windows)

    def play(event: Event) -> Answer:
        op, now = event["op"], event["t"]
        if op == "config":
            samples = event.get("num_samples", stat.num_samples)
            window_ms = event.get("window_ms", stat.window_ms)
            if isinstance(stat, SampledRate):
                stat.configure(samples, window_ms)
            else:
                stat.num_samples, stat.window_ms = samples, window_ms
                stat.bound = number(event.get("quota", stat.bound))
            return {}
        if op == "rec":
            stat.record(number(event["v"]), now)
            if event.get("m") is False:
                return {}
        if isinstance(stat, TokenBucket):
            return {"value": stat.measure(now)}
        value, window = stat.charge(None, now)
        return {"value": value, "win": window}

    return play


_MANAGERS: dict[str, Callable[..., ClientQuotaManager | ControllerMutationQuotaManager]] = {
    "controller_mutation": ControllerMutationQuotaManager,
    "request": RequestQuotaManager,
    "produce": partial(ClientQuotaManager, QuotaType.PRODUCER_BYTE_RATE),
    "fetch": partial(ClientQuotaManager, QuotaType.CONSUMER_BYTE_RATE),
}


def client_quota_player(header: Event) -> Player:
    """Play a client quota manager of the header's type."""
    manager = _MANAGERS[header["type"]](
        num_samples=int(header["num_samples"]),
        window_ms=window_ms_of(header),
        rules=rules_of(header),
        start_ms=int(header["start_ms"]),
    )

    def play(event: Event) -> Answer:
        op, now = event["op"], event["t"]
        if op == "quota":
            manager.update_quota(entity_of(event["entity"]), number(event["value"]), now)
            return {"flags": manager.flags}
        manager.advance(now)
        answer = {} if op == "measure" else _act(manager, event)
        if not (manager.enabled or op == "unrec"):
            return {**answer, "tu": None, "tc": None}
        tags = manager.tags(event["u"], event["c"])
        answer |= {"tu": sanitize(tags[0]), "tc": tags[1]}
        sensor = manager.sensor(tags)
        if sensor is not None:
            answer["q"] = sensor.bound
        measured = manager.measure(tags, now) if op == "measure" or event.get("m") else None
        if isinstance(measured, tuple):
            answer["rate"], answer["win"] = measured
        elif measured is not None:
            answer["rate"] = measured
        return answer

    return play


def _act(manager: Any, event: Event) -> Answer:
    """Carry an event out; return what the manager answers."""
    op, now, user, client = event["op"], event["t"], event["u"], event["c"]
    amount = event["ns"] * PERCENT_PER_NS if "ns" in event else number(event.get("v"))
    if op == "rec":
        return {"ms": to_int32(manager.record(user, client, amount, now).throttle_time_ms)}
    if op == "max":
        return {"max": manager.max_in_window(user, client, now)}
    if op in ("strict", "permissive"):
        return _mutate(manager.quota(user, client, now, strict=op == "strict"), event)
    if op == "norec":
        manager.record_no_throttle(user, client, amount, now)
    elif op == "unrec":
        manager.unrecord(user, client, amount, now)
    else:
        raise ValueError(f"unknown op {op!r}")
    return {}


def _mutate(quota: Any, event: Event) -> Answer:
    """Charge the mutations of one request; return the quota's answer."""
    now, rejected = event["t"], []
    for amount in event["vs"]:
        try:
            quota.record(number(amount), now)
            rejected.append(False)
        except ApiError:
            rejected.append(True)
    return {
        "ms": to_int32(quota.throttle_time_ms(now)),
        "exceeded": quota.is_exceeded,
        "rejected": rejected,
    }


def connection_player(header: Event) -> Player:
    """Play ConnectionQuotas: each connection is a slot event and an ip event."""
    quotas = ConnectionQuotas(
        header["listeners"],
        header.get("inter_broker_listener"),
        {key: str(value) for key, value in header.get("config", {}).items()},
        num_samples=int(header["num_samples"]),
        window_ms=window_ms_of(header),
        start_ms=int(header["start_ms"]),
    )

    def play(event: Event) -> Answer:
        op, now = event["op"], event["t"]
        if op == "slot":
            return {"ms": to_int32(quotas.reserve(event["l"], now))}
        if op == "ip":
            admission = quotas.admit(event["l"], event["ip"], now)
            return {"ms": to_int32(admission.throttle_time_ms)}
        if op == "ip_rate":
            quotas.set_ip_rate(event["ip"], event["value"])
        elif op == "broker_rate":
            quotas.set_broker_rate(event["value"])
        elif op == "listener_rate":
            quotas.set_listener_rate(event["l"], event["value"])
        else:
            raise ValueError(f"unknown op {op!r}")
        return {}

    return play


PLAYERS: dict[str, Callable[[Event], Player]] = {
    "connection": connection_player,
    "stat": stat_player,
    "client_quota": client_quota_player,
}


def describe(at: int, event: Event, theirs: Answer, ours: Answer) -> str:
    """Return one difference in words."""
    return f"  event {at}: {json.dumps(event)}\n    Kafka {theirs}\n    ours  {ours}"


def check(path: Path, shown: int = 3, tell: Callable[[str], None] = print) -> tuple[int, int]:
    """
    Check one file.

    Args:
        path: the file.
        shown: how many differences to describe.
        tell: takes each description.

    Returns:
        Events checked, and how many differ.
    """
    header, events = read_golden(path)
    play = PLAYERS[header["kind"]](header)
    count = differ = 0
    for event in events:
        theirs = event.pop("o")
        ours = play(event)
        count += 1
        if not same(ours, theirs):
            differ += 1
            if differ <= shown:
                tell(describe(count, event, theirs, ours))
    return count, differ


def main(
    arguments: Sequence[str] | None = None,
    checker: Callable[[Path], tuple[int, int]] = check,
) -> int:
    """Check the files named, each by the checker; return the exit code."""
    paths = [Path(word) for word in (sys.argv[1:] if arguments is None else arguments)]
    if not paths:
        print("usage: python -m headgate.testing.golden FILE…", file=sys.stderr)
        return 2
    events = differ = 0
    for path in paths:
        if path.name == "index.json":
            continue
        n, m = checker(path)
        events += n
        differ += m
        print(f"{path.name}: {n} events, {m} differ")
    print(f"{events} events, {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
