"""
Request logs and journals made of a number: all that a pipeline must read alike on every engine.

A log holds real lines of Kafka's whose users, client-ids, topics, sizes and times are drawn, in
several layouts, with bursts, throttles, connections and lines that can't be read in between.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from kit.layouts import LAYOUTS, Line
from kit.talks import Talk, write_talk

_DATA: Final = Path(__file__).parents[1] / "data" / "pipeline"
_APIS: Final = {
    "PRODUCE": 12,
    "FETCH": 8,
    "METADATA": 2,
    "CREATE_TOPICS": 2,
    "CREATE_PARTITIONS": 1,
    "DELETE_TOPICS": 1,
    "INIT_PRODUCER_ID": 1,
    "HEARTBEAT": 2,
    "OFFSET_COMMIT": 1,
}
"""APIs of requests, and how often each is drawn."""
_USERS: Final = (
    "alice",
    "bob",
    "a b",
    "a+b*~",
    "ü/€:😀",
    "<default>",
    "ANONYMOUS",
    "%41",
    "CN=x,O=y",
)
_CLIENTS: Final = ("app", "", "reader:1", 'a\\b"c', "ünï", "<default>", "x" * 90)
_TOPICS: Final = ("orders", "events", "a.b-c_d", "é")
_IDS: Final = ("uKux5kytQzWFAS4pqbnEpQ", "AAAAAAAAAAAAAAAAAAAAAQ", "MkU3OEVBNTcwNTJENDM2Qg")
_BROKEN: Final = (b"", b"  ", b"garbled {", b'{"isForwarded":false,"requestHeader":{"requestApi')
QUOTAS: Final = {
    "quotas": [
        {"entity": {"user": "alice"}, "producer_byte_rate": 20_000, "consumer_byte_rate": 9_000},
        {"entity": {"user": "bob", "client-id": "app"}, "producer_byte_rate": 3_000},
        {"entity": {"user": "<default>"}, "request_percentage": 0.7, "producer_byte_rate": 100_000},
        {"entity": {"client-id": "reader:1"}, "consumer_byte_rate": 4_096},
        {"entity": {"user": "a b"}, "controller_mutation_rate": 0.3},
        {"entity": {"user": "nobody"}, "producer_byte_rate": 1},
    ]
}
"""Quotas for these users, one of which nobody matches."""


def write_all(folder: Path, seed: int, lines: int) -> None:
    """
    Write ``logs`` (a file in each of some layouts), ``journal`` and ``quotas.json``.

    Args:
        folder: gets them.
        seed: what is drawn depends on it alone.
        lines: of all logs together.
    """
    rng = random.Random(seed)
    logs, journal = folder / "logs", folder / "journal"
    logs.mkdir()
    journal.mkdir()
    (folder / "quotas.json").write_text(json.dumps(QUOTAS))
    layouts = ["stock", *rng.sample(sorted(LAYOUTS), 4)]
    for n, layout in enumerate(layouts):
        made = b"\n".join(_lines(rng, layout, lines // len(layouts), n)) + b"\n"
        name = logs / f"made-{n}.log"
        if rng.random() < 0.3:
            name, made = name.with_suffix(".log.gz"), gzip.compress(made)
        name.write_bytes(made)
    turns = 400
    cuts = tuple(sorted(rng.sample(range(50, turns), 2)))
    talk = Talk(rng.choice(["smooth", "kafka"]), rng.randrange(1000))
    write_talk(journal, talk, turns, cuts, cuts[0])


def _lines(rng: random.Random, layout: str, count: int, number: int) -> Iterator[bytes]:
    """Yield a log's lines."""
    known = _samples()
    names, weights = list(_APIS), list(_APIS.values())
    time = datetime(2026, 11, 30, 23, 55, tzinfo=UTC) + timedelta(hours=number % 2)
    wrap = LAYOUTS[layout]
    for n in range(count):
        # Bursts, pauses of minutes, and clocks that go back a little.
        steps = (0, 0, 0, 1, 7, 40, 900, -3) + ((90_000,) if rng.random() < 0.02 else ())
        time += timedelta(milliseconds=rng.choice(steps))
        body = json.loads(rng.choice(known[rng.choices(names, weights)[0]]))
        _draw(rng, body)
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=rng.random() < 0.1)
        yield wrap(Line(time, text, n)).encode()
        if rng.random() < 0.01:
            line = wrap(Line(time, text, n)).encode()
            odd = (*_BROKEN, line[: len(line) // 2], line.replace(b'"principal":"User', b'"no":"'))
            yield rng.choice(odd)


def _draw(rng: random.Random, body: dict[str, Any]) -> None:
    """Draw who sent a request, about what, how large it was and how long it took."""
    user, client = rng.choice(_USERS), rng.choice(_CLIENTS)
    body["principal"] = f"User:{user}"
    body["requestHeader"]["clientId"] = client
    body["isForwarded"] = rng.random() < 0.02
    body["listener"] = rng.choice(["SASL_PLAINTEXT", "PLAINTEXT"])
    port = 40_000 + 10 * _CLIENTS.index(client) + rng.choice([0, 0, 0, 0, 0, 0, 0, 0, 1, 2])
    peer = f"10.0.0.{_USERS.index(user)}:{port}"
    body["connection"] = f"127.0.0.1:19093-{peer}-{port % 4}-{rng.choice([0] * 30 + [1, 2])}"
    throttle = rng.choice([0, 0, 0, 0, rng.randrange(1, 900)])
    body["throttleTimeMs"] = throttle
    if "throttleTimeMs" in body["response"]:
        body["response"]["throttleTimeMs"] = throttle
    for name in ("requestQueueTimeMs", "localTimeMs", "responseQueueTimeMs", "sendTimeMs"):
        body[name] = round(rng.expovariate(0.5), 3)
    api = body["requestHeader"]["requestApiKeyName"]
    if api == "PRODUCE":
        body["requestHeader"]["requestApiVersion"] = rng.choice([7, 9, 11])
        topic = {"name": rng.choice(_TOPICS), "partitionData": _sizes(rng, "index")}
        body["request"]["topicData"] = [topic, *([topic] if rng.random() < 0.1 else [])]
    elif api == "FETCH":
        responses = body["response"]["responses"]
        for response in responses:
            if "topicId" in response:
                response["topicId"] = rng.choice(_IDS)
            response["partitions"] = (
                [response["partitions"][0] | size for size in _sizes(rng, "partitionIndex")]
                if response["partitions"]
                else []
            )


def _sizes(rng: random.Random, index: str) -> list[dict[str, Any]]:
    """Draw partitions of a topic and the bytes of their records."""
    return [
        {index: n, "recordsSizeInBytes": rng.choice([0, 68, rng.randrange(70_000)])}
        for n in range(rng.randrange(1, 4))
    ]


def _samples() -> dict[str, list[str]]:
    """Return requests of the sample logs by API, as JSON."""
    found: dict[str, list[str]] = {name: [] for name in _APIS}
    for line in gzip.decompress((_DATA / "public.log.gz").read_bytes()).splitlines():
        text = line.decode()
        start = text.find("{")
        api = text.partition('"requestApiKeyName":"')[2].partition('"')[0]
        if start >= 0 and len(found.get(api, range(40))) < 40:
            found[api].append(text[start : text.rindex("}") + 1])
    return found
