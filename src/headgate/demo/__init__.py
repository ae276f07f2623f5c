"""
`headgate demo`: everything once, with a real Kafka, ending in a report.

- ``sample``: the quotas and clients of the demo, as data.
- ``demo``: the command and its five steps.
- ``load``: the clients, in a process of their own.
- ``quota_ids``: which quota-ids the clients count against, and what they have used.
- ``progress``: what is shown while it runs.
- ``whole_cycles``: the mean rate of a saturated client over whole cycles.
- ``result``: the closing table, and which figures are out of bounds.
"""
