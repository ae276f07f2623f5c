"""
How long to wait: every quota's arithmetic, pure. Time is an argument, the answer a value.

- ``java``: Java's rounding and casts.
- ``overrides``: which quota-id a request is charged to, which bound it has.
- ``registry``: what managers share: quotas, sensors, idle expiry.
- ``sensor``: the sampled rate and its throttle time.
- ``token_bucket``: the token bucket and its throttle time.
- ``manager``: produce and fetch bytes.
- ``request``: request percentage.
- ``controller_mutation``: partition mutations, strict and permissive.
- ``connection``: connection rates and counts: broker, listener, ip.
- ``bloom``: Bloom filters of producer ids that grow with them.
- ``producer_id``: new producer ids per user, by timed bloom filters.
- ``observation``: what a period showed of a quota-id, for splits and shares.
- ``pacing``: token buckets in place of the sampled rate: smooth pacing, bounds that are assigned.
- ``shares``: contested capacity divided by weight.
- ``bps``: one broker's part in a cluster-wide quota.
- ``cluster``: a cluster-wide quota split over brokers.

Nothing here knows a clock, a socket or a log. Managers aren't thread-safe: one event loop, or one
lock, per broker. Their answers equal Apache Kafka's to the last bit; where they don't, a comment
marked "Differs" says why.
"""
