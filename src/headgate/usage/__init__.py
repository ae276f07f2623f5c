"""
The usage journal, the record of all charges, written without delaying traffic.

- ``format``: the journal's columns, and what an event is.
- ``packing``: the layout of an event in memory.
- ``rows``: events packed as they come, and made into Arrow columns many at a time.
- ``writer``: writes events to files on a thread of its own.
- ``disk``: files written batch by batch, closed by a rename, recovered after a kill.
- ``files``: names and bytes of journal files.
- ``retention``: keeps a folder within its bound.
- ``numbering``: finds the number with which a run begins.
- ``topic``: keeps the journal in a Kafka topic, and reads it back.
- ``reader``: reads journals of any kind in order, with the gaps that losses left.
- ``sums``: who used how much in a period, and waited how long.
- ``splits``: the messages that carry splits from ``headgate splits`` to gateways.
"""
