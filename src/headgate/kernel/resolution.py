"""
Which quota-id and bound each event has, for whole arrays of (user, client-id) codes.

The same two steps as :class:`headgate.throttle.overrides.Overrides`, over tables indexed by code.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headgate.kernel.codes import UNLIMITED
from headgate.kernel.compiled import compiled
from headgate.kernel.rate import Floats, Ints
from headgate.quota.entity import DEFAULT
from headgate.quota.key import PRODUCER_IDS, QuotaKey
from headgate.quota.table import QuotaTable
from headgate.throttle.overrides import KAFKA_4, USER_FLAG, Rules, Tags, flag_of

_NO_TAG = -1


@dataclass(frozen=True)
class CompiledQuotas:
    """
    One key's quotas as arrays; NaN where there is none.

    Attributes:
        flags: levels in use (1 client-id, 2 user, 4 both).
        num_clients: how many distinct client-ids the codes index.
        pair_codes: user code x num_clients + client code of named pairs, sorted.
        scalars: quotas of default/default, default user, default client-id, and the static one.
    """

    flags: int
    num_clients: int
    pair_codes: Ints
    pair_values: Floats
    user_default: Floats
    user_only: Floats
    default_client: Floats
    client_only: Floats
    scalars: Floats
    has_user: NDArray[np.bool_]
    has_client: NDArray[np.bool_]


def compile_quotas(
    table: QuotaTable,
    key: QuotaKey,
    users: Sequence[str],
    client_ids: Sequence[str],
    *,
    rules: Rules = KAFKA_4,
    flags: int | None = None,
) -> CompiledQuotas:
    """
    Turn a table's quotas of one key into arrays over the names that occur.

    Args:
        table: the quotas.
        key: type and unit.
        users: distinct raw names; user codes index them.
        client_ids: distinct raw names; client codes index them.
        rules: with 3.9's, levels once touched stay in use, which a table can't know: give flags.
        flags: levels in use, None: those that have a quota (4.x).
    """
    user_codes = {name: code for code, name in enumerate(users)}
    client_codes = {name: code for code, name in enumerate(client_ids)}
    nan = float("nan")
    user_default = np.full(len(users), nan)
    user_only = np.full(len(users), nan)
    default_client = np.full(len(client_ids), nan)
    client_only = np.full(len(client_ids), nan)
    scalars = np.full(4, nan)
    static = table.static_defaults.get(key)
    in_use = 0
    if static is not None and static < UNLIMITED:
        scalars[3] = static
        in_use = 1
    pairs: dict[int, float] = {}
    for entity, value in table.for_key(key).items():
        user, client = entity.user, entity.client_id
        in_use |= flag_of(user, client)
        if user is DEFAULT:
            if client is DEFAULT:
                scalars[0] = value
            elif client is None:
                scalars[1] = value
            elif client in client_codes:
                default_client[client_codes[client]] = value
        elif user is None:
            if client is DEFAULT:
                scalars[2] = value
            elif client in client_codes:
                client_only[client_codes[client]] = value
        elif user in user_codes:
            code = user_codes[user]
            if client is DEFAULT:
                user_default[code] = value
            elif client is None:
                user_only[code] = value
            elif client in client_codes:
                pairs[code * len(client_ids) + client_codes[client]] = value
    if key == PRODUCER_IDS:  # users only (KIP-936, P2)
        in_use = USER_FLAG
    ordered = sorted(pairs)
    return CompiledQuotas(
        flags=in_use if flags is None else flags,
        num_clients=len(client_ids),
        pair_codes=np.array(ordered, np.int64),
        pair_values=np.array([pairs[code] for code in ordered], np.float64),
        user_default=user_default,
        user_only=user_only,
        default_client=default_client,
        client_only=client_only,
        scalars=scalars,
        has_user=np.array([bool(name) for name in users], np.bool_),
        has_client=np.array([bool(name) for name in client_ids], np.bool_),
    )


def resolve_codes(
    compiled_quotas: CompiledQuotas, user_code: ArrayLike, client_code: ArrayLike
) -> tuple[Ints, Ints, Floats]:
    """
    Return each event's tags, as codes, and its bound.

    Returns:
        User codes and client codes (-1: the name isn't part of the quota-id), and the bound
        (2^63 - 1 as a double: no limit).
    """
    q = compiled_quotas
    users = np.ascontiguousarray(user_code, np.int64)
    clients = np.ascontiguousarray(client_code, np.int64)
    tag_user = np.empty(len(users), np.int64)
    tag_client = np.empty(len(users), np.int64)
    bound = np.empty(len(users), np.float64)
    _resolve(
        q.flags,
        q.num_clients,
        q.pair_codes,
        q.pair_values,
        q.user_default,
        q.user_only,
        q.default_client,
        q.client_only,
        q.scalars,
        q.has_user,
        q.has_client,
        users,
        clients,
        tag_user,
        tag_client,
        bound,
    )
    return tag_user, tag_client, bound


@dataclass(frozen=True)
class ResolvedPairs:
    """
    Distinct (user, client-id) pairs resolved.

    Attributes:
        key: per pair, the dense code of its quota-id.
        bound: per pair, its bound.
        tags: per code, the raw tags.
        bound_per_key: per code, the bound.
    """

    key: NDArray[np.int32]
    bound: Floats
    tags: list[Tags]
    bound_per_key: Floats


def resolve_pairs(
    table: QuotaTable,
    key: QuotaKey,
    pairs: Sequence[Tags],
    *,
    rules: Rules = KAFKA_4,
    flags: int | None = None,
) -> ResolvedPairs:
    """Resolve a list of distinct (user, client-id) to dense quota-id codes, tags and bounds."""
    users = list(dict.fromkeys(user for user, _ in pairs))
    clients = list(dict.fromkeys(client for _, client in pairs))
    user_codes = {name: code for code, name in enumerate(users)}
    client_codes = {name: code for code, name in enumerate(clients)}
    compiled_quotas = compile_quotas(table, key, users, clients, rules=rules, flags=flags)
    tag_user, tag_client, bound = resolve_codes(
        compiled_quotas,
        [user_codes[user] for user, _ in pairs],
        [client_codes[client] for _, client in pairs],
    )
    codes: dict[Tags, int] = {}
    keys = np.empty(len(pairs), np.int32)
    per_key: list[float] = []
    for i, (u, c) in enumerate(zip(tag_user.tolist(), tag_client.tolist(), strict=True)):
        tags = (users[u] if u >= 0 else "", clients[c] if c >= 0 else "")
        code = codes.setdefault(tags, len(codes))
        if code == len(per_key):
            per_key.append(float(bound[i]))
        keys[i] = code
    return ResolvedPairs(keys, bound, list(codes), np.array(per_key, np.float64))


@compiled
def _find(codes, code):
    at = np.searchsorted(codes, code)
    return at if at < len(codes) and codes[at] == code else -1


@compiled
def _resolve(
    flags,
    num_clients,
    pair_codes,
    pair_values,
    user_default,
    user_only,
    default_client,
    client_only,
    scalars,
    has_user,
    has_client,
    users,
    clients,
    tag_user,
    tag_client,
    bounds,
):
    for i in range(len(users)):
        u = users[i]
        c = clients[i]
        pair = _find(pair_codes, u * num_clients + c)
        with_user = True
        with_client = True
        if flags <= 1:
            with_user = False
        elif flags == 2:
            with_client = False
        elif flags != 4:
            if pair >= 0 or not np.isnan(user_default[u]):
                pass
            elif not np.isnan(user_only[u]):
                with_client = False
            elif not np.isnan(default_client[c]) or not np.isnan(scalars[0]):
                pass
            elif not np.isnan(scalars[1]):
                with_client = False
            else:
                with_user = False
        tag_user[i] = u if with_user else _NO_TAG
        tag_client[i] = c if with_client else _NO_TAG
        by_user = with_user and has_user[u]
        by_client = with_client and has_client[c]
        bound = np.nan
        if by_user and by_client:
            if pair >= 0:
                bound = pair_values[pair]
            if np.isnan(bound):
                bound = user_default[u]
            if np.isnan(bound):
                bound = default_client[c]
            if np.isnan(bound):
                bound = scalars[0]
        elif by_user:
            bound = user_only[u]
            if np.isnan(bound):
                bound = scalars[1]
        elif by_client:
            bound = client_only[c]
            if np.isnan(bound):
                bound = scalars[2]
            if np.isnan(bound):
                bound = scalars[3]
        bounds[i] = UNLIMITED if np.isnan(bound) else bound
