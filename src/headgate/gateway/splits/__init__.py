"""
How cluster-wide quotas are divided over brokers, by where the splits are computed.

- ``dividing``: in this process, over its own brokers; contested capacity by weight too.
- ``supervised``: by the supervisor of several worker processes.
- ``streamed``: by ``headgate splits``, which writes them to a topic.
- ``gateway_splits``: the splits of one gateway, from whichever of them divides.
"""
