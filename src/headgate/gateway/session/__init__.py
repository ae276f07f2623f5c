"""
One client's conversation with one broker: bytes and times come in, bytes and commands go out.

No clock, socket or log is used here. In the order that bytes meet them:

- ``session``: what the shell calls: who is charged, what is in flight, why the client waits.
- ``commands``: what a session asks its shell to do.
- ``interfaces``: what the shell gives a session: who the client is, which brokers it may see.
- ``in_flight``: an unanswered request, and one whose rest is still to come.
- ``mute``: Kafka's mute states of a connection.
- ``held_bytes``: bytes of a client that wait for their turn.
- ``requests``: finds requests in the client's bytes and calls the handler of their kind.
- ``relay``: passes requests on, and charges those that nothing is special about.
- ``produce``: Produce, both ways.
- ``fetch``: Fetch and ShareFetch, both ways.
- ``authentication``: SASL, both ways.
- ``questions``: requests that the gateway answers itself.
- ``answers``: matches the broker's answers to requests, has them charged and passes them on.
- ``rewrite``: which answers name brokers, and what replaces their addresses.
"""
