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
- ``front`` is one upstream broker with its listeners; ``server`` the whole gateway, cut into what
  it has (``gateway_state``), opens (``opening``) and follows (``following``); ``upstream`` asks the
  cluster which brokers there are, ``leases`` keeps two workers from fronting one.
"""

from __future__ import annotations

from headgate.gateway.gateway_state import GatewayError
from headgate.gateway.server import Gateway
from headgate.gateway.thread import GatewayThread

__all__ = ["Gateway", "GatewayError", "GatewayThread"]
