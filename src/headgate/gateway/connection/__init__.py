"""
A client's connection on the event loop, from the port that accepts it until it is closed.

- ``acceptor``: takes connections of a port, no faster than KIP-612's quotas allow.
- ``transports``: the two ends of a connection: reading, writing, letting buffers go.
- ``gathering``: answers to a client with many unanswered requests, read in larger pieces.
- ``link``: both ends and the session between them.
- ``timers``: its timers, which end with it.
- ``pool``: the bound for all bytes that connections hold.
- ``hangup``: notices clients that hang up while nothing is read from them.
- ``refusals``: makes refused clients wait for their answer.
- ``hosts``: looks up the hosts of brokers, and those that connection limits name.
"""
