"""
Answers to operators' questions: each is a function of Spark frames.

- ``usage``: who used what, by second, hour and day.
- ``effective``: which quota applied to which client; quotas that matched no client.
- ``replay``: what Kafka's sensors would have decided for each request.
- ``what_if``: the same requests under other quotas.
- ``demand``: what throttled clients want, and how they'd fare in a closed loop.
- ``bounds``: what a plan's throttling is at least and at most, where limits overlap.
- ``advice``, ``proposals``, ``recommend``: how a figure is made, what to propose, and the table.
- ``trial``: what proposals would throttle.
- ``chargeback``: what each principal used in a period, and its price.
- ``bill``, ``focus``: a bill and the owners file, and the bill shared out as FOCUS 1.2.
- ``storms``: runs of seconds in which something came too fast.
- ``past_logs``: what a client waited for at a time, from request logs; without Spark.
"""
