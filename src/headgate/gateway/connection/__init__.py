"""
A client's connection on the event loop, from its port to its end. In the order bytes meet them:

- ``acceptor``: takes connections of a port, no faster than KIP-612's quotas allow.
- ``transports``: the two ends of a connection: reading, writing, letting buffers go.
- ``gathering``: answers to a client with many unanswered requests, read in larger pieces.
- ``link``: both ends and the session between them.
- ``pool``: the bound for all bytes that connections hold.
- ``hangup``: notices clients that hang up while nothing is read from them.
- ``refusals``: refused clients, who wait for their answer.
- ``hosts``: addresses of the hosts of brokers, and of those that connection limits name.
"""
