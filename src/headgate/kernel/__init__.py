"""
Whole arrays of charges replayed at once: the managers' arithmetic in Numba, bit for bit.

One call replays a batch; state carries over to the next, so a stream can be fed in pieces of any
size. Within a key (a quota-id) events must be in order; keys may be interleaved or grouped,
grouped is faster. Nothing here knows quotas' names: keys are dense codes 0 … K-1.

Rates (produce, fetch, request percentage)::

    state = rate.RateState(num_keys, num_samples=11, window_ms=1000, start_ms=0)
    throttle_ms = rate.replay_rate(state, key, t_ms, amount, bound=bound)

* ``key``: int array, one code per event; ``state.grow(num_keys)`` makes room for more keys.
* ``t_ms``: whole ms since the epoch, ints or floats. ``amount``: bytes, or percent seconds.
* ``bound``: the limit in force, one per event (a journal's ``bound`` column); left out: each key's,
  as ``OP_BOUND`` events last set it. inf, NaN or 2^63 - 1: no limit.
* ``op`` (uint8 array of ``codes``; left out: all ``OP_RECORD``):

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

    state = bucket.BucketState(num_keys, num_samples=11, window_ms=1000)
    throttle_ms = bucket.replay_bucket(state, key, t_ms, amount, bound=bound, op=op)

and the buckets of smooth pacing, splits and shares, whose bounds move::

    state = paced.PacedState(num_keys, num_samples=1, window_ms=1000)   # together the burst
    throttle_ms = paced.replay_paced(state, key, t_ms, amount, bound=bound, op=op)

Several limits in one pass, decisions added up by group (what-if)::

    sums = plans.PlanSums(2)
    plans.replay_plans(state, sums, head, t_ms, amount, key=key, group=group, bounds=bounds,
                       plans=[0, 1])

Idle keys lose their state as in Kafka: at ticks every 30 s from ``start_ms`` on, after an hour
without a record. States are plain arrays: they pickle.
The first call compiles (0.5–1 s, then cached on disk); set NUMBA_CACHE_DIR where the package's
directory can't be written. Numba itself is loaded with the kernels' modules, which take half a
second: a driver, which only plans, imports none but ``codes``.

Modules:

- ``codes``: the codes of operations.
- ``compiled``: Numba's settings; Java's rounding and expiry compiled.
- ``states``: what keys hold, and a batch of events.
- ``rate_loop``: the sampled rate's loop.
- ``rate``: the sampled rate over whole arrays.
- ``bucket``: token buckets over whole arrays.
- ``paced``: pacing buckets over whole arrays.
- ``plans``: the sampled rate under several limits at once.
- ``grouping``: numbering, adding up and sorting of events by code.
"""
