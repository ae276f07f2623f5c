"""
The gateway: a proxy between Kafka's clients and its brokers that enforces quotas.

A client's bytes pass through the first three of its packages:

- ``connection``: a client's connection on the event loop: two transports and a session.
- ``session``: decides, without sockets, what is passed on, what is held, and when the client waits.
- ``charging``: a broker's quotas; every request is charged here.
- ``identity``: who a client is, and the credentials for its connection to the broker.
- ``answered_here``: what the gateway answers itself: quotas, its broker settings, topic changes.
- ``broker``: one upstream broker with its listeners and its clients' connections.
- ``cluster``: all brokers; which of them are fronted here, and the quotas in force on them.
- ``upstream``: the gateway's own questions to the cluster.
- ``store_link``: the store, and the copy of its quotas on disk.
- ``splits``: divides cluster-wide quotas over brokers.
- ``usage_journal``: the usage journal, the record of every charge.
- ``fleet``: several workers of one gateway, and their supervisor's view of them.
- ``background``: the gateway's own work on its event loop.
- ``periodic_work``: what a running gateway does again and again.
- ``health_and_metrics``: a gateway's health and metrics, and their HTTP listener.
- ``server``: the gateway itself; it makes these objects and gives each what it uses.
- ``running``: a gateway on a loop and thread of its own, or in a supervisor's worker process.
- ``log``: how all of them write to the log.
"""

from __future__ import annotations

from headgate.gateway.cluster.discovery import GatewayError
from headgate.gateway.running import GatewayThread
from headgate.gateway.server import Gateway

__all__ = ["Gateway", "GatewayError", "GatewayThread"]
