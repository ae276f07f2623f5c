"""Tables of a pipeline run that never was, by arithmetic: for tests, the browser and a look."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.pipeline.schema import TABLES

T0 = 1_795_262_069_000


def _row(name: str, /, **values: Any) -> dict[str, Any]:
    unknown = set(values) - set(TABLES[name].names)
    assert not unknown, unknown
    return {column: values.get(column) for column in TABLES[name].names}


def usage_row(second: int, **values: Any) -> dict[str, Any]:
    """One second of one quota-id; whole bytes, nothing throttled unless said."""
    amount = values.pop("amount")
    fields: dict[str, Any] = {
        "quota_type": "producer_byte_rate", "quota_id": "user1:", "quota_user": "user1",
        "quota_client_id": "", "broker_id": 1, "second_ms": T0 + second * 1000, "requests": 1,
        "bytes": int(amount), "bytes_estimated": 0, "amount": float(amount), "handler_ms": 0.1,
        "throttle_time_ms": 0, "throttled_requests": 0, "max_throttle_time_ms": 0, "quota": None,
        "quota_source": None,
    }  # fmt: skip
    return _row("usage", **{**fields, **values})


def tooth(second: int, quota: float, phase: int) -> tuple[float, int]:
    """A saturated client's second: ten seconds' worth at once, then a trickle (bytes, told ms)."""
    at = (second + phase) % 11
    if at == 0:
        return quota * 10.2, 900
    return quota * 0.08, 9_800 - at * 900


def tenants(count: int, seconds: int = 120, seed: int = 1) -> list[dict[str, Any]]:
    """Usage of ``count`` quota-ids, some saturated, some calm, some without a quota."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        user = f"user{number + 1}" if number else "CN=a b,O=*"
        who = f"user{number + 1}:" if number else "CN%3Da%20b%2CO%3D%2A:"
        kind = "consumer_byte_rate" if number % 3 == 2 else "producer_byte_rate"
        quota = float(rng.choice((50_000, 100_000, 400_000, 1_048_576)))
        manner = ("saturated", "calm", "free", "calm", "calm")[number % 5]
        phase = rng.randrange(11)
        for second in range(seconds):
            told = 0
            if manner == "saturated":
                amount, told = tooth(second, quota, phase)
            elif manner == "calm":
                amount = quota * (0.35 + 0.2 * rng.random())
                if rng.random() < 0.3:
                    continue
            else:
                amount = 2_000_000 * (0.8 + 0.4 * rng.random())
            rows.append(
                usage_row(
                    second, amount=int(amount), quota_type=kind, quota_id=who, quota_user=user,
                    broker_id=1 + number % 2, requests=max(1, int(amount // 16_384)),
                    throttle_time_ms=told, throttled_requests=int(told > 0),
                    max_throttle_time_ms=told, quota=None if manner == "free" else quota,
                    quota_source=None if manner == "free" else f"{{user={who[:-1]}}}",
                )
            )  # fmt: skip
    return rows


def write(place: Path, **rows: list[dict[str, Any]]) -> Path:
    """Write tables as Parquet folders under ``place``."""
    for name, found in rows.items():
        (place / name).mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pylist(found, schema=TABLES[name].arrow)
        pq.write_table(table, place / name / "part-0.parquet")
    return place


def _wish(kind: str, who: str, of: dict[str, Any], plan: str, quota: float) -> dict[str, Any]:
    """A row of `demand`: users are saturated, and what they do under more isn't known."""
    is_open = plan == "double" and who.startswith("user")
    rate = None if is_open else quota
    return _row("demand", plan=plan, quota_type=kind, quota_id=who, quota_user=of["quota_user"],
                quota_client_id="", broker_id=of["broker_id"], quota=quota, connections=1,
                kind="saturated" if who.startswith("user") else "rate-bound", first_ms=T0,
                span_s=120.0, seen_per_s=of["quota"], seen_throttle_time_ms=60_000,
                wanted_per_s=None if who.startswith("user") else 2 * of["quota"],
                wanted_least_per_s=of["quota"], wanted_most_per_s=None, rate_per_s=rate,
                rate_least_per_s=0.9 * of["quota"] if is_open else 0.97 * quota,
                rate_most_per_s=None if is_open else 1.02 * quota, throttle_s=0.5 * quota / 1000,
                throttle_least_s=0.0, throttle_most_s=900.0,
                reason="it always waited" if is_open else None)  # fmt: skip


def everything(place: Path, count: int = 20, seconds: int = 120) -> Path:
    """Write every table the report draws, for ``count`` quota-ids."""
    usage = tenants(count, seconds)
    by_id: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in usage:
        by_id.setdefault((row["quota_type"], row["quota_id"]), []).append(row)
    what_if, effective, recommend, chargeback, demand = [], [], [], [], []
    for (kind, who), rows in by_id.items():
        total = sum(r["bytes"] for r in rows)
        requests = sum(r["requests"] for r in rows)
        told = sum(r["throttle_time_ms"] for r in rows)
        throttled = sum(r["throttled_requests"] for r in rows)
        user, quota, source = rows[0]["quota_user"], rows[0]["quota"], rows[0]["quota_source"]
        for share, client in ((0.7, "etl"), (0.3, "web")):
            effective.append(
                _row("effective", kind="applied", quota_key=f"{kind}:broker_bps", principal=user,
                     client_id=client, quota_id=who, value=quota, source=source,
                     requests=int(requests * share), bytes=int(total * share))
            )  # fmt: skip
        for plan, factor in (("logged", 1.0), ("half", 1.9), ("double", 0.2)):
            held = told if kind.startswith("consumer") else 0
            least = max(int(told * factor), held if factor > 1 else 0)
            what_if.append(
                _row("what_if", plan=plan, quota_type=kind, quota_id=who, quota_user=user,
                     quota_client_id="", broker_id=rows[0]["broker_id"], principal=user,
                     client_id="etl", quota=quota and quota / factor, quota_source=source,
                     requests=requests, bytes=total, throttled_requests=int(throttled * factor),
                     throttle_time_ms=int(told * factor), max_throttle_time_ms=9_800,
                     delayed_bytes=int(total * min(1.0, 0.3 * factor)) if told else 0,
                     delayed_share=0.3 * factor if told else 0.0, first_ms=T0, last_ms=T0,
                     withheld_requests=throttled if held else 0,
                     least_throttle_time_ms=least,
                     most_throttle_time_ms=None if held and factor > 1 else max(least, held))
            )  # fmt: skip
            if plan != "logged" and told:
                demand.append(_wish(kind, who, rows[0], plan, (quota or 0) / factor))
        recommend.append(
            _row("recommend", quota_type=kind, entity=source or f"{{user={who[:-1]}}}", user=user,
                 is_default_user=False, is_default_client_id=False,
                 action="set" if told or quota is None else "keep", current=quota,
                 recommended=(quota or 2_000_000) * (1.5 if told else 1.2),
                 observed_percentile=(quota or 2_000_000) * 0.9, observed_peak=quota or 2_400_000,
                 growth_per_day=0.01, headroom=1.2, throttled_requests_current=throttled,
                 throttle_time_ms_current=told, held_share=float(told > 0),
                 throttled_requests_recommended=None if told else 0,
                 throttle_time_ms_recommended=None if told else 0,
                 reason="p99 of the window rate x 1.2 headroom, rounded to two figures")
        )  # fmt: skip
        chargeback.append(
            _row("chargeback", principal=user, period="day", period_ms=T0, requests=requests,
                 bytes_in=total if kind.startswith("prod") else 0,
                 bytes_out=0 if kind.startswith("prod") else total, throttle_time_ms=told,
                 throttled_requests=throttled, peak_in_quota_share=quota and 1.02,
                 currency="EUR")
        )  # fmt: skip
    storms = [
        _row("storms", kind="connection", client_ip="10.0.0.7", listener="PLAINTEXT", broker_id=1,
             start_ms=T0, end_ms=T0 + 9_000, count=812, peak_per_s=140.0, mean_per_s=90.2,
             usual_per_s=2.0, quota_type="connection_creation_rate", entity="{ip=10.0.0.7}",
             quota=5.0, reason="2.5 x its usual 2.0/s")
    ]  # fmt: skip
    effective.append(
        _row("effective", kind="dead", quota_key="producer_byte_rate:broker_bps", value=10.0,
             source="{user=nobody}", requests=0, bytes=0, note="nobody with this name was seen")
    )  # fmt: skip
    bad = [
        _row("bad_lines", file="request.log", offset=number * 100,
             reason="not JSON" if number % 3 else "cut off", line='{"requestHeader": …')
        for number in range(7)
    ]  # fmt: skip
    summary = [
        _row("summary", command="usage", name="lines", value=12_000.0, unit="lines", note="read"),
        _row("summary", command="usage", name="bad_lines", value=7.0, unit="lines",
             note="kept aside in bad_lines"),
        _row("summary", command="usage", name="time_zone", text="UTC", note="of the log's stamps"),
        *(
            _row("summary", command="replay", name=f"producer_byte_rate.{name}", value=value,
                 unit=unit, note="as the pipeline words it")
            for name, value, unit in (
                ("equal_decisions_share", 0.984, "share"), ("exact_share", 0.435, "share"),
                ("within_1_ms_share", 0.838, "share"), ("logged_s", 704.2, "s"),
                ("replayed_s", 743.9, "s"),
            )
        ),
    ]  # fmt: skip
    topics = [
        _row("usage_by_topic_day", quota_type=kind, quota_id=who, broker_id=1, period_ms=T0,
             topic=topic, requests=9, bytes=number * size)
        for number, (kind, who) in enumerate(by_id, 1)
        for topic, size in (("orders", 7_000), (f"topic-{number % 7}", 900), ("", 50), (None, 5))
    ]  # fmt: skip
    return write(
        place, usage=usage, usage_by_topic_day=topics, what_if=what_if, demand=demand,
        effective=effective, recommend=recommend, chargeback=chargeback, storms=storms,
        bad_lines=bad, summary=summary,
    )  # fmt: skip
