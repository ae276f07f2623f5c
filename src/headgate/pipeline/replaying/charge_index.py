"""
Find the sensors that charges go to: each distinct charge is looked up once, and remembered.

Where all plans agree on a charge's quota-id, its root is its sensor. Where they don't, every sensor
that any plan limits must find all its charges under one root. That root is the user where quotas
are of users and of users' client-ids. It is the client-id where they are of client-ids and of
users' client-ids. It is the whole broker where one plan limits users and another limits client-ids
across users. A sensor that no plan limits never throttles, so its charges may be anywhere.
"""

from __future__ import annotations

import functools
import hashlib
import math
import pickle
import zlib
from array import array
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headgate.pipeline.quotas import Quotas, TimedResolver, key_of
from headgate.pipeline.replaying.charges import array_of, codes_of
from headgate.pipeline.replaying.packed_format import (
    ABSENT,
    BOTH,
    BUCKETS,
    CLIENT,
    NOBODY,
    ROOT,
    SHARES,
    USER,
    GroupKey,
    GroupKind,
    PackOptions,
)
from headgate.quota.key import PRODUCER_IDS
from headgate.throttle.java import UNLIMITED
from headgate.throttle.overrides import (
    CLIENT_ID_FLAG,
    USER_CLIENT_ID_FLAG,
    USER_FLAG,
    Tags,
    flag_of,
)
from headgate.throttle.pacing import BURST_MS

# Distinct charges whose sensors are remembered, about 1 KB each.
MAX_KNOWN: Final = 200_000
BYTES: Final = ("producer_byte_rate", "consumer_byte_rate")
# What tells charges apart.
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
    "rule",
    "max_throttle_ms",
    "start_ms",
)


class Root(Enum):
    """What charges are packed under."""

    SENSOR = "the sensor itself"
    USER = "the user"
    CLIENT = "the client-id"
    PAIR = "the user and the client-id"
    ALL = "all there are"

    def tags(self, user: str, client_id: str, sensor: Tags) -> Tags:
        """
        Return a charge's root.

        Args:
            user: its principal.
            client_id: its own.
            sensor: tags of its sensor, if all plans agree.
        """
        if self is Root.SENSOR:
            return sensor
        return (
            user if self in (Root.USER, Root.PAIR) else "",
            client_id if self in (Root.CLIENT, Root.PAIR) else "",
        )


def root_of(plans: Sequence[Quotas], quota_type: str) -> Root:
    """
    Return what charges of a type are packed under.

    Args:
        plans: all that charge the type.
        quota_type: ``producer_byte_rate``, or with a unit that Kafka doesn't have.
    """
    key = key_of(quota_type)
    entities = [
        (
            p.starts_ms,
            tuple((frozenset(t.for_key(key)), key in t.static_defaults) for t in p.tables),
        )
        for p in plans
    ]
    if all(e == entities[0] for e in entities):
        return Root.SENSOR
    if key == PRODUCER_IDS:
        return Root.USER
    levels = {flag_of(e.user, e.client_id) for _, tables in entities for t, _ in tables for e in t}
    if any(static for _, tables in entities for _, static in tables):
        levels.add(CLIENT_ID_FLAG)
    if {USER_FLAG, CLIENT_ID_FLAG} <= levels:
        return Root.ALL
    if USER_FLAG in levels:
        return Root.USER
    if CLIENT_ID_FLAG in levels or USER_CLIENT_ID_FLAG not in levels:
        return Root.CLIENT
    return Root.PAIR


def layer_of(tags: Tags, root: Tags) -> int:
    """Return the layer of a charge's sensor: how its tags follow from the charge and its root."""
    if tags == root:
        return ROOT
    user, client_id = tags
    if user:
        return BOTH if client_id else USER
    return CLIENT if client_id else NOBODY


class Rooted(NamedTuple):
    """A root (or a sensor that is its own): its bundle, and its tags as Kafka has them."""

    bundle: GroupKey
    quota_user: str
    quota_client_id: str


class Terms(NamedTuple):
    """What a charge is under, by plan: the layer of its sensor, and the limit there."""

    layers: bytes
    limits: tuple[float, ...]  # NaN where ABSENT, infinite: none


class IndexColumns(NamedTuple):
    """What an index holds, as columns."""

    quota_user: Any  # by root
    quota_client_id: Any
    principal: Any  # by charge
    client_id: Any
    layers: Any  # by terms and plan
    limits: Any


class ChargeIndex:
    """
    The distinct charges seen so far, in numbers, and the sensors each goes to.

    A charge is packed once per kind of limit that plans have: each broker's, and those that Kafka
    doesn't have. Each (charge, root) is an entry; a charge's entries are ``start[charge]`` to
    ``start[charge + 1]``.

    Args:
        options: plans, and windows where the charges don't name theirs.

    Attributes:
        start: by charge.
        root: by entry, number of the root.
        charge: by entry, number of the charge.
        terms: by entry, number of its terms.
        bundle: by root, number of its bundle key.
        bundles: the number of each bundle key, in order.
        names: by charge, (principal, client-id).
    """

    def __init__(self, options: PackOptions) -> None:
        self.options = options
        self.resolvers = [q.resolver() for q in options.plans]
        self._with: dict[str, list[tuple[int, TimedResolver]]] = {}
        # Moments at which any plan's table changes; events between two resolve alike.
        starts = sorted({s for q in options.plans for s in q.starts_ms if s > float("-inf")})
        self._moments = np.array(starts, np.float64)
        self._codes: dict[str, dict[Any, int]] = {name: {} for name in DISTINCT}
        self._values: dict[str, list[Any]] = {name: [] for name in DISTINCT}
        # Charges by the codes of what tells them apart; the same as a table, while that's small.
        self._known: dict[tuple[int, ...], int] = {}
        self._shape = (0,) * (len(DISTINCT) + 1)
        self._space = 0
        self._table = np.empty(0, np.int32)
        self._columns: IndexColumns | None = None
        self.start = array("q", [0])
        self.root = array("q")
        self.charge = array("q")
        self.terms = array("q")
        self.names: list[tuple[str | None, str | None]] = []
        self.bundle = array("q")
        self.bundles: dict[GroupKey, int] = {}
        self._roots: dict[Rooted, int] = {}
        self._terms: dict[Terms, int] = {}
        self._hows: dict[str, Root] = {}

    def __len__(self) -> int:
        return len(self.names)

    def charges_of(self, table: Any) -> Any:
        """Return the number of each row's charge, int32; columns that a table lacks are null."""
        from headgate.kernel.grouping import MOST_CODES, taken

        columns = self._columns_of(table)
        self._make_room()
        if self._space > MOST_CODES:
            return self._looked_up(columns, table.num_rows)
        at = self._place(columns)
        if not isinstance(at, np.ndarray):
            at = np.full(table.num_rows, at, np.int32)
        numbers = taken(self._table, at)
        new = numbers < 0
        if new.any():
            for place in np.unique(at[new]).tolist():
                key = tuple(int(k) for k in np.unravel_index(place, self._shape))
                self._table[place] = self._known[key] = self._add(key)
            numbers = taken(self._table, at)
        return numbers

    def _columns_of(self, table: Any) -> list[tuple[Any, Any]]:
        """Return (local code per row, the index's codes of these) per column, and of moments."""
        have = set(table.schema.names)
        columns: list[tuple[Any, Any]] = []
        for name in DISTINCT:
            codes, values = codes_of(table[name]) if name in have else (None, [None])
            columns.append((codes, np.array(self._translated(name, values), np.int32)))
        codes = None
        if len(self._moments):
            codes = np.searchsorted(self._moments, array_of(table["record_ms"]), side="right")
        columns.append((codes, np.arange(len(self._moments) + 1, dtype=np.int32)))
        return columns

    def _make_room(self) -> None:
        """Let the table of known charges have a place for all combinations of codes."""
        sizes = [len(self._values[name]) for name in DISTINCT] + [len(self._moments) + 1]
        if all(size <= room for size, room in zip(sizes, self._shape, strict=True)):
            return
        # Twice what's needed, or values that come one by one would move it each time.
        self._shape = tuple(1 if size == 1 else 1 << size.bit_length() for size in sizes)
        self._space = math.prod(self._shape)
        from headgate.kernel.grouping import MOST_CODES

        if self._space <= MOST_CODES:
            self._table = np.full(self._space, -1, np.int32)
            if self._known:
                places = np.ravel_multi_index(np.array(list(self._known)).T, self._shape)
                self._table[places] = list(self._known.values())

    def _place(self, columns: list[tuple[Any, Any]]) -> Any:
        """Return each row's place in the table, or the only one."""
        from headgate.kernel.grouping import taken

        at: Any = 0
        stride = self._space
        for (codes, known), size in zip(columns, self._shape, strict=True):
            stride //= size
            places = known * np.int32(stride)
            at = at + (int(places[0]) if len(known) == 1 else taken(places, codes))
        return at

    def _looked_up(self, columns: list[tuple[Any, Any]], rows: int) -> Any:
        """Return the charges' numbers where there are too many combinations for a table."""
        from headgate.kernel.grouping import numbered

        dense, space = np.zeros(rows, np.int32), 1
        for codes, known in columns:
            if len(known) == 1:
                continue
            if space * len(known) >= 1 << 62:
                first, dense = numbered(dense, space)
                space = len(first)
            dense = dense.astype(np.int64) * len(known) + codes
            space *= len(known)
        first, dense = numbered(dense, space)
        keys = [
            repeat(int(known[0]), len(first)) if len(known) == 1 else known[codes[first]].tolist()
            for codes, known in columns
        ]
        numbers = np.empty(len(first), np.int32)
        for i, key in enumerate(zip(*keys, strict=True)):
            number = self._known.get(key)
            if number is None:
                number = self._known[key] = self._add(key)
            numbers[i] = number
        return numbers[dense]

    def columns(self) -> IndexColumns:
        """Return what is written, as columns."""
        if self._columns is None or len(self._columns.principal) < len(self.names):
            plans = len(self.resolvers)
            layers = np.frombuffer(b"".join(t.layers for t in self._terms), np.uint8)
            limits = np.array([t.limits for t in self._terms], np.float64)
            self._columns = IndexColumns(
                pa.array([r.quota_user for r in self._roots], pa.string()),
                pa.array([r.quota_client_id for r in self._roots], pa.string()),
                pa.array([n[0] for n in self.names], pa.string()),
                pa.array([n[1] for n in self.names], pa.string()),
                layers.reshape(-1, plans),
                limits.reshape(-1, plans),
            )
        return self._columns

    def _translated(self, name: str, values: list[Any]) -> list[int]:
        """Return the index's own codes of some values."""
        codes = self._codes[name]
        out = []
        for value in values:
            code = codes.get(value)
            if code is None:
                code = codes[value] = len(codes)
                self._values[name].append(value)
            out.append(code)
        return out

    def _add(self, key: tuple[int, ...]) -> int:
        """Write a new charge down."""
        at_ms = float(self._moments[key[-1] - 1]) if key[-1] else float("-inf")
        charge = {n: self._values[n][code] for n, code in zip(DISTINCT, key, strict=False)}
        number = len(self.names)
        for root, terms in self._resolve(charge, at_ms):
            self.root.append(self._numbered(root))
            self.charge.append(number)
            self.terms.append(self._terms.setdefault(terms, len(self._terms)))
        self.start.append(len(self.root))
        self.names.append((charge["principal"], charge["client_id"]))
        return number

    def _numbered(self, root: Rooted) -> int:
        have = len(self._roots)
        code = self._roots.setdefault(root, have)
        if code == have:
            self.bundle.append(self.bundles.setdefault(root.bundle, len(self.bundles)))
        return code

    def _resolve(self, charge: dict[str, Any], at_ms: float) -> Iterator[tuple[Rooted, Terms]]:
        """Yield the roots of a charge, and its terms under each."""
        windows = (
            charge["num_samples"] or self.options.num_samples,
            charge["window_ms"] or self.options.window_ms,
            charge["rule"],
            charge["max_throttle_ms"],
        )
        plans = len(self.resolvers)
        quota_type, broker = charge["quota_type"], charge["broker_id"]
        # A bucket's arithmetic is that of a finite limit; Java's is 2^63 - 1.
        bucket = charge["rule"] == "bucket" or (charge["rule"] is None and quota_type in BUCKETS)
        unlimited = UNLIMITED if bucket else np.inf
        if self.options.own and charge["own_user"] is not None:
            user, client = charge["own_user"], charge["own_client_id"] or ""
            kind = GroupKind(quota_type, charge["worker_id"], broker, *windows, charge["start_ms"])
            bundle = GroupKey(kind, True, _share(user, client))
            quota = min(charge["own_quota"], unlimited)
            yield Rooted(bundle, user, client), Terms(bytes([ROOT] * plans), (quota,) * plans)
            return
        user, client = charge["principal"] or "", charge["client_id"] or ""
        every = list(enumerate(self.resolvers))
        found = [
            (tags, unlimited if quota is None else quota)
            for tags, quota in self._sensors(every, charge, quota_type, at_ms)
        ]
        root = self._root(every, quota_type).tags(user, client, found[0][0])
        kind = GroupKind(quota_type, None, broker, *windows, None)
        bundle = GroupKey(kind, False, _share(*root))
        yield Rooted(bundle, *root), self._terms_of(every, found, root)
        if not self.options.own and quota_type in BYTES:
            yield from self._of_cluster(charge, at_ms)
            yield from self._of_shares(charge, at_ms)

    @staticmethod
    def _sensors(
        plans: list[tuple[int, TimedResolver]],
        charge: dict[str, Any],
        quota_type: str,
        at_ms: float,
    ) -> list[tuple[Tags, float | None]]:
        """Return the tags and the limit (None: none) of a charge under some plans."""
        user, client = charge["principal"] or "", charge["client_id"] or ""
        return [resolve.sensor(user, client, quota_type, at_ms) for _, resolve in plans]

    def _root(self, plans: list[tuple[int, TimedResolver]], quota_type: str) -> Root:
        """Return what charges of a type are packed under, for some plans."""
        how = self._hows.get(quota_type)
        if how is None:
            some = [self.options.plans[i] for i, _ in plans]
            how = self._hows[quota_type] = root_of(some, quota_type)
        return how

    def _terms_of(
        self,
        plans: list[tuple[int, TimedResolver]],
        found: Sequence[tuple[Tags, float | None]],
        root: Tags,
    ) -> Terms:
        """Return the terms of a charge; ABSENT under plans that have no limit (None) there."""
        layers, limits = [ABSENT] * len(self.resolvers), [math.nan] * len(self.resolvers)
        for (i, _), (tags, limit) in zip(plans, found, strict=True):
            if limit is not None:
                layers[i], limits[i] = layer_of(tags, root), limit
        return Terms(bytes(layers), tuple(limits))

    def _of_cluster(self, charge: dict[str, Any], at_ms: float) -> Iterator[tuple[Rooted, Terms]]:
        """
        Yield the root of a charge where plans have cluster-wide rates: all brokers feed it.

        An ideal split lets through what one bucket of the whole quota does. Bursts last 1 s, and a
        throttle is at most two split periods, as with the gateway's own buckets.
        """
        quota_type = f"{charge['quota_type']}:bps"
        plans = self._configuring(quota_type)
        found = self._sensors(plans, charge, quota_type, at_ms)
        limited = [tags for tags, quota in found if quota is not None]
        if limited:
            user, client = charge["principal"] or "", charge["client_id"] or ""
            root = self._root(plans, quota_type).tags(user, client, limited[0])
            period = 2 * self.options.split_period_ms
            kind = GroupKind(quota_type, None, None, 1, BURST_MS, "paced", period, None)
            bundle = GroupKey(kind, False, _share(*root))
            yield Rooted(bundle, *root), self._terms_of(plans, found, root)

    def _of_shares(self, charge: dict[str, Any], at_ms: float) -> Iterator[tuple[Rooted, Terms]]:
        """
        Yield the root of a charge where plans weigh a broker's capacity.

        It is the root of all of a broker's charges; those without a weight have an infinite limit.
        """
        quota_type = f"{charge['quota_type']}:shares"
        plans = self._configuring(quota_type)
        if not plans or charge["quota_type"] not in dict(self.options.capacities):
            return
        found = [
            (tags, np.inf if quota is None else quota)
            for tags, quota in self._sensors(plans, charge, quota_type, at_ms)
        ]
        root = Root.ALL.tags("", "", ("", ""))
        kind = GroupKind(quota_type, None, charge["broker_id"], 1, BURST_MS, None, None, None)
        yield Rooted(GroupKey(kind, False, 0), *root), self._terms_of(plans, found, root)

    def _configuring(self, quota_type: str) -> list[tuple[int, TimedResolver]]:
        """Return the plans, by number, that have any quota of a type."""
        found = self._with.get(quota_type)
        if found is None:
            plans = enumerate(self.resolvers)
            found = self._with[quota_type] = [p for p in plans if p[1].configures(quota_type)]
        return found

    @classmethod
    def take(cls, options: PackOptions) -> ChargeIndex:
        """
        Return an index for such options, with the charges that this process's earlier tasks met.

        It is the caller's alone until `leave`: Sail runs tasks at once, as threads.
        """
        try:
            return _left(_name_of(options)).pop()
        except IndexError:
            return cls(options)

    def leave(self) -> None:
        """Leave the index to the next task, unless it has become large."""
        if len(self) <= MAX_KNOWN:
            _left(_name_of(self.options))[:] = [self]


def _share(user: str, client_id: str) -> int:
    return zlib.crc32(f"{user}\x1f{client_id}".encode()) % SHARES


@functools.lru_cache(maxsize=2)
def _left(options: bytes) -> list[ChargeIndex]:
    return []


def _name_of(options: PackOptions) -> bytes:
    return hashlib.sha256(pickle.dumps(options)).digest()
