"""
Find the sensors that charges go to: each distinct charge is resolved once per group of events.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headgate.pipeline.arrays import array_of, codes_of, dense
from headgate.pipeline.packed import PackOptions

# Distinct charges whose sensors are remembered, about 500 bytes each.
MAX_KNOWN: Final = 200_000
DISTINCT: Final = (
    "quota_type",
    "broker_id",
    "principal",
    "client_id",
    "worker_id",
    "own_user",
    "own_client_id",
    "own_quota",
    "num_samples",
    "window_ms",
)
SENSOR: Final = (
    "quota_type",
    "worker_id",
    "broker_id",
    "quota_user",
    "quota_client_id",
    "num_samples",
    "window_ms",
)


@dataclass(frozen=True)
class Found:
    """
    Which sensors charges go to; a charge has several only where plans disagree on who shares.

    Attributes:
        index: row of the charge, ascending; a row occurs once per sensor it goes to.
        sensor: code of the sensor, beside ``index``.
        who: by row, number of the distinct charge it's one of.
        sensors: by code, what ``SENSOR`` names.
        samples: by number, the distinct charge.
        limits: by (sensor code, number), the limit under each plan; NaN = not its sensor.
    """

    index: Any
    sensor: Any
    who: Any
    sensors: list[tuple[Any, ...]]
    samples: list[dict[str, Any]]
    limits: dict[tuple[int, int], Any]


class Sensors:
    """
    Resolves charges under every plan.

    Args:
        options: plans, and windows where the charges don't name theirs.
    """

    def __init__(self, options: PackOptions) -> None:
        self.options = options
        self.resolvers = [q.resolver() for q in options.plans]
        # Moments at which any plan's table changes; events between two resolve alike.
        starts = sorted({s for q in options.plans for s in q.starts_ms if s > float("-inf")})
        self.starts = np.array(starts, np.float64)
        self._known = _known_under(hashlib.sha256(pickle.dumps(options)).digest())

    def of(self, table: Any) -> Found:
        """Say which sensors each charge goes to."""
        import pyarrow as pa

        combined = np.zeros(table.num_rows, np.int64)
        for name in DISTINCT:
            numbers, names = codes_of(table[name])
            if len(names) == 1:
                continue
            combined = combined * len(names) + numbers
            if combined.max() > 1 << 20:
                combined = dense(combined)[1]
        if len(self.starts):
            epoch = np.searchsorted(self.starts, array_of(table["record_ms"]), side="right")
            combined = combined * (len(self.starts) + 1) + epoch
        first, who = dense(combined)
        samples = table.select([*DISTINCT, "record_ms"]).take(pa.array(first)).to_pylist()
        codes: dict[tuple[Any, ...], int] = {}
        limits: dict[tuple[int, int], Any] = {}
        each: list[list[int]] = []
        for number, sample in enumerate(samples):
            mine = []
            for sensor, limit in self._resolved(sample):
                code = codes.setdefault(sensor, len(codes))
                limits[code, number] = limit
                mine.append(code)
            each.append(mine)
        most = max(map(len, each))
        if most == 1:
            index = np.arange(table.num_rows)
            sensor_of = np.array([m[0] for m in each])[who]
            return Found(index, sensor_of, who, list(codes), samples, limits)
        parts, sensors = [], []
        for level in range(most):
            of = np.array([m[level] if len(m) > level else -1 for m in each])[who]
            here = np.flatnonzero(of >= 0)
            parts.append(here)
            sensors.append(of[here])
        index = np.concatenate(parts)
        in_order = np.argsort(index, kind="stable")
        sensor_of = np.concatenate(sensors)[in_order]
        return Found(index[in_order], sensor_of, who, list(codes), samples, limits)

    def _resolved(self, sample: dict[str, Any]) -> list[tuple[tuple[Any, ...], Any]]:
        """Return ``_resolve``, remembered where the quotas don't change in time."""
        if len(self.starts):
            return list(self._resolve(sample))
        key = tuple(sample[n] for n in DISTINCT)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > MAX_KNOWN:
                self._known.clear()
            found = self._known[key] = list(self._resolve(sample))
        return found

    def _resolve(self, sample: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """Yield the sensors of one distinct charge, and the limit there under each plan."""
        quota_type, broker = sample["quota_type"], sample["broker_id"]
        windows = (
            sample["num_samples"] or self.options.num_samples,
            sample["window_ms"] or self.options.window_ms,
        )
        plans = len(self.resolvers)
        if self.options.own and sample["own_user"] is not None:
            tags = (sample["own_user"], sample["own_client_id"] or "")
            sensor = (quota_type, sample["worker_id"], broker, *tags, *windows)
            yield sensor, np.full(plans, sample["own_quota"], np.float64)
            return
        by_tags: dict[tuple[str, str], Any] = {}
        user, client = sample["principal"] or "", sample["client_id"] or ""
        for i, resolve in enumerate(self.resolvers):
            found = resolve(user, client, quota_type, sample["record_ms"])
            tags = (found.quota_user, found.quota_client_id)
            limits = by_tags.setdefault(tags, np.full(plans, np.nan, np.float64))
            limits[i] = np.inf if found.quota is None else found.quota
        for tags, limits in by_tags.items():
            yield (quota_type, None, broker, *tags, *windows), limits


@functools.lru_cache(maxsize=2)
def _known_under(options: bytes) -> dict[tuple[Any, ...], list[tuple[tuple[Any, ...], Any]]]:
    """Return what this worker has resolved under the same options, in earlier tasks too."""
    return {}


def sensor_columns(sensors: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Return the columns of a list of sensors, with the text that names each one."""
    out: dict[str, Any] = dict(zip(SENSOR, zip(*sensors, strict=True), strict=True))
    out["key"] = [_sensor_text(sensor) for sensor in sensors]
    return out


@functools.lru_cache(maxsize=1 << 17)
def _sensor_text(sensor: tuple[Any, ...]) -> str:
    return "\x1f".join(map(str, sensor))
