"""
Split cluster-wide quotas over brokers by the demand that journals show.

- ``cluster_splits``: demand seen, and the splits of a round.
- ``split_topic``: the topic that gateways follow: one writer, and reading it back.
- ``split_stream``: the stream that writes a round at every trigger.
"""
