"""
One client's conversation with one broker: bytes and times come in, bytes and commands go out.

No clock, socket or log is used here. In the order that bytes meet them:

- ``session``: what the shell calls: who is charged, what is in flight, why the client waits.
- ``commands``: what a session and its shell say to each other.
- ``waits``: why a client's next request or a broker's next answer isn't taken.
- ``requests``: finds requests in the client's bytes and calls their handlers; holds bytes.
- ``relay``: an unanswered request; passes on and charges those that nothing is special about.
- ``produce``: Produce, both ways.
- ``fetch``: Fetch and ShareFetch, both ways.
- ``authentication``: SASL, both ways.
- ``questions``: requests that the gateway answers itself.
- ``answers``: matches the broker's answers to requests, has them charged and passes them on.
- ``rewrite``: which answers name brokers, and what replaces their addresses.
"""
