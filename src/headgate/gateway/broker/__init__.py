"""
One upstream broker as its clients see it. In the order a connection meets them:

- ``listener``: one listener of a broker: where its connections go and what its clients are told.
- ``bootstrap``: a port that leads to any live broker.
- ``clients``: the clients' connections, taken over when they are accepted, counted, closed.
- ``dialing``: the way from a client's connection to its broker.
- ``pictured``: what goes on at it, read from its connections and sensors.
- ``broker``: the broker itself; it holds its listeners, its rules and its clients.
"""
