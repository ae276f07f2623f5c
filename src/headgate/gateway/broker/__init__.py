"""
One upstream broker as its clients see it. In the order a connection meets them:

- ``clients``: the clients' connections, taken over when they are accepted, counted, closed.
- ``dialing``: a broker's listener, and the way from a client's connection to the broker.
- ``live_view``: what goes on at it, read from its connections and sensors.
- ``broker``: the broker itself; it holds its listeners, its rules and its clients.
"""
