"""
What clients would have sent had no quota held them, and how they would fare under another limit.

A throttled client's charges show what it was allowed. How it spends the time in which it may send
shows more. This package reads that rhythm, makes a model of each client, and plays the models in a
closed loop against Kafka's own manager: a client that is told to wait sends later. It is pure: it
reads no clock, no file and no Spark frame.

- ``rhythm``: when each client could have sent, and when it did.
- ``arrivals``: when the bytes of a client came into being.
- ``models``: a client that can be played, and which ones agree with a rhythm.
- ``play``: models in a closed loop against a manager.
- ``forecast``: rate, throttle time and finish under a limit, as a figure or an interval.
"""
