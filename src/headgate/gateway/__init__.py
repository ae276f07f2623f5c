"""
The gateway: between Kafka's clients and its brokers, with the quotas.

A map, in the order bytes meet it:

- ``acceptor`` takes connections, no faster than KIP-612's quotas allow;
- ``link`` is one connection on the event loop: two transports, one read buffer, backpressure;
- ``session`` decides, without sockets: what passes, what is held, what is answered, when the
  client waits (``mute``), by a plan per API and version (``plans``); it says what is to be done as
  data (``commands``) and charges through the rules (``context``);
- ``enforcement`` is the rules: a broker's managers, fed from the quota table; ``journal`` writes
  down every charge;
- ``identity`` says who a client is; ``rewrite`` keeps brokers' addresses behind the gateway;
- ``answers`` replies where the gateway itself is asked (quotas, its broker settings), ``mutations``
  judges topic creations;
- ``front`` is one upstream broker with its listeners (``face``), cut into what it has
  (``front_state``) and how it takes connections over (``taking``); ``server`` the whole gateway,
  cut into what it has (``gateway_state``), opens (``opening``) and follows (``following``);
  ``upstream`` asks the cluster which brokers there are, ``topics`` how many partitions topics have;
- ``leases`` keeps two workers from fronting one broker, each under its own name (``instance``);
  under a supervisor a worker answers (``worker``) over a line (``pipe``), and all together are one
  ``fleet``, for health, metrics and splits (``supervised_splits``);
- ``log`` is how all of them speak, ``http`` where they can be looked at.
"""

from __future__ import annotations

from headgate.gateway.gateway_state import GatewayError
from headgate.gateway.server import Gateway
from headgate.gateway.thread import GatewayThread

__all__ = ["Gateway", "GatewayError", "GatewayThread"]
