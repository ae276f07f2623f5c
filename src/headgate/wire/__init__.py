"""
Bytes to messages and back, without sockets, clock or log.

Nothing here raises anything but ``RemoteProtocolError``, for what a peer sent, and
``LocalProtocolError``, for what we would send; ``dialogue`` also raises a broker's ``ApiError``.

A *frame* is one Kafka message with its 4-byte length prefix. Every offset in this package counts
from the first byte of that prefix. A function that changes a frame returns the new one. Given a
``bytearray`` and a change that keeps the size, it writes in place and returns the same object.

- ``apis``: every Kafka API as data: versions, where the throttle is, what the gateway must read.
- ``fields``: Kafka's primitive fields.
- ``header``: the headers of requests and responses.
- ``layout``: steps over what nobody looks at, by a table of how it is laid out.
- ``throttle``: ``throttle_time_ms`` in a response: found, read, patched.
- ``skim``: reads a message that passes in pieces, without ever holding it.
- ``schema``: messages as data, for what is off the hot path.
- ``messages``: the messages themselves, a module for each group of APIs.
- ``scram``: SCRAM's arithmetic, and a credential as Kafka keeps it.
- ``sasl_client``: SASL as a client speaks it.
- ``dialogue``: a client's side of a conversation: requests numbered, answers checked and read.
"""
