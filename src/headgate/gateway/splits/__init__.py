"""
How cluster-wide quotas are divided over brokers, by where the splits are computed.

- ``dividing``: in this process, over its own brokers, and the ``Splitter`` that a supervisor uses
  too; contested capacity by weight.
- ``supervised``: by the supervisor of several worker processes.
- ``streamed``: by ``headgate splits``, which writes them to a topic.
- ``gateway_splits``: the splits of one gateway, from whichever of them divides.
"""
