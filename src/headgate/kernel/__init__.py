"""
Whole arrays of charges replayed at once: the managers' arithmetic in Numba, bit for bit.

One call replays a batch; state carries over to the next, so a stream can be fed in pieces of any
size. Within a key (a quota-id) events must be in order; keys may be interleaved or grouped,
grouped is faster. Nothing here knows quotas' names: keys are dense codes 0 … K-1.

Rates (produce, fetch, request percentage)::

    state = RateState(num_keys, num_samples=11, window_ms=1000, start_ms=0)
    throttle_ms = replay_rate(state, key, t_ms, amount, bound=bound)

* ``key``: int array, one code per event; ``state.grow(num_keys)`` makes room for more keys.
* ``t_ms``: whole ms since the epoch, ints or floats. ``amount``: bytes, or percent seconds.
* ``bound``: the limit in force, one per event (a journal's ``bound`` column), or one per key
  (``bound_per_key=``), or neither: ``state.bound`` as ``OP_BOUND`` events last set it.
  inf, NaN or 2^63 - 1: no limit.
* ``op`` (uint8 array; left out: all ``OP_RECORD``):

  ==============  ==================================================================
  OP_RECORD       charge and check: produce, fetch, handler time
  OP_NO_CHECK     charge only: network thread time (recordNoThrottle)
  OP_UNRECORD     take ``amount`` back, no check: an emptied fetch
  OP_MEASURE      nothing charged; empties old samples as reading Kafka's metric does
  OP_BOUND        from here on the key's bound is ``amount`` (NaN: none)
  OP_STRICT       buckets only: check, then charge unless tokens are below zero
  ==============  ==================================================================

* ``cap_ms``: the longest throttle (request percentage: one window); None: uncapped (bytes).
* ``rates=True`` also returns ``(throttle_ms, rate, window_ms)`` per event.
* returns int64 ms per event, unwrapped; 0 where nothing is checked or within the bound.

Token buckets (controller mutations, producer ids, splits) alike::

    state = BucketState(num_keys, num_samples=11, window_ms=1000)
    throttle_ms = replay_bucket(state, key, t_ms, amount, bound=bound, op=op)

and the buckets of smooth pacing, splits and shares, whose bounds move::

    state = PacedState(num_keys, num_samples=1, window_ms=1000)   # together the burst
    throttle_ms = replay_paced(state, key, t_ms, amount, bound=bound, op=op, cap_ms=cap_ms)

Several limits in one pass, decisions added up by group (what-if)::

    sums = PlanSums(plans)
    replay_plans(state, sums, head, t_ms, amount, key=key, group=group, bounds=bounds,
                 plans=range(plans))

Which key and which bound an event has::

    compiled = compile_quotas(table, PRODUCER, users, client_ids, rules=KAFKA_4)
    tag_user, tag_client, bound = resolve_codes(compiled, user_code, client_code)

where ``users`` and ``client_ids`` are the distinct raw names and the codes index them; a tag of -1
isn't part of the quota-id. ``resolve_pairs(table, PRODUCER, pairs)`` does the same for a list of
distinct (user, client-id) and returns dense key codes, tags and bounds ready for ``replay_rate``::

    resolved = resolve_pairs(table, PRODUCER, pairs)   # .key int32[], .bound float64[], .tags list
    # .bound_per_key float64[], for replay_rate(..., bound_per_key=resolved.bound_per_key)

Idle keys lose their state as in Kafka: at ticks every 30 s from ``start_ms`` on, after an hour
without a record. States are plain arrays: they pickle, and ``state.nbytes`` says their size.
The first call compiles (0.5–1 s, then cached on disk); set NUMBA_CACHE_DIR where the package's
directory can't be written. Numba itself is loaded at the first use of a kernel, not before: half
a second that a driver, which only plans, needn't wait.

Modules:

- ``codes``: the codes of operations, and limits that all kernels share.
- ``compiled``: Numba's settings, and Java's rounding compiled.
- ``rate_loop``: the sampled rate's loop.
- ``rate``: the sampled rate over whole arrays.
- ``bucket``: token buckets over whole arrays.
- ``paced``: pacing buckets over whole arrays.
- ``plans``: the sampled rate under several limits at once.
- ``grouping``: numbering, adding up and sorting of events by code.
- ``resolution``: which quota-id and bound each event has.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from headgate.kernel.codes import (
    OP_BOUND,
    OP_MEASURE,
    OP_NO_CHECK,
    OP_RECORD,
    OP_STRICT,
    OP_TOUCH,
    OP_UNRECORD,
)

if TYPE_CHECKING:
    from headgate.kernel.bucket import BucketState, replay_bucket
    from headgate.kernel.paced import PacedState, replay_paced
    from headgate.kernel.plans import PlanSums, replay_plans
    from headgate.kernel.rate import RateState, replay_rate
    from headgate.kernel.resolution import (
        CompiledQuotas,
        ResolvedPairs,
        compile_quotas,
        resolve_codes,
        resolve_pairs,
    )

_ROOMS: Final = {
    "BucketState": "bucket",
    "CompiledQuotas": "resolution",
    "PacedState": "paced",
    "PlanSums": "plans",
    "RateState": "rate",
    "ResolvedPairs": "resolution",
    "compile_quotas": "resolution",
    "replay_bucket": "bucket",
    "replay_paced": "paced",
    "replay_plans": "plans",
    "replay_rate": "rate",
    "resolve_codes": "resolution",
    "resolve_pairs": "resolution",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    found = getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)
    globals()[name] = found
    return found


__all__ = [
    "OP_BOUND",
    "OP_MEASURE",
    "OP_NO_CHECK",
    "OP_RECORD",
    "OP_STRICT",
    "OP_TOUCH",
    "OP_UNRECORD",
    "BucketState",
    "CompiledQuotas",
    "PacedState",
    "PlanSums",
    "RateState",
    "ResolvedPairs",
    "compile_quotas",
    "replay_bucket",
    "replay_paced",
    "replay_plans",
    "replay_rate",
    "resolve_codes",
    "resolve_pairs",
]
