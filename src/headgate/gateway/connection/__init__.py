"""
A client's connection on the event loop, from the port that accepts it until it is closed.

- ``acceptor``: takes connections of a port, no faster than KIP-612's quotas allow.
- ``transports``: the two ends of a connection: reading, writing, letting buffers go.
- ``gathering``: answers to a client with many unanswered requests, read in larger pieces.
- ``link``: both ends and the session between them; notices clients that hang up.
- ``refusals``: makes refused clients wait for their answer.
- ``pool``: the bound for all bytes that connections hold, and the buffer they are read into.
- ``hosts``: looks up the hosts of brokers, and those that connection limits name.
"""
