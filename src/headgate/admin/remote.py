"""
Connect to servers, and find out whether they have the released quota APIs or KIP-546's draft.

The draft's APIs 48 and 49 have the same keys and version 0 as the released ones. A gateway's admin
listener advertises only 17, 18, 36, 48, 49 and 50. So a peer with 48 and without Metadata (3) is an
admin listener. A KRaft controller has no Metadata either, but no 48.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.admin.backend import Backend
from headgate.client.connection import Connection
from headgate.client.nodes import Nodes, connect_first, parse_bootstrap
from headgate.client.security import Security
from headgate.wire import apis


def is_admin_listener(connection: Connection) -> bool:
    """Whether the peer is a gateway's admin listener, which speaks the draft."""
    return (
        apis.METADATA not in connection.versions
        and apis.DESCRIBE_CLIENT_QUOTAS in connection.versions
    )


async def open_remote(bootstrap: str, config: Mapping[str, str], tool: str) -> Backend:
    """
    Connect.

    Args:
        bootstrap: ``host:port,…``.
        config: Kafka's client settings.
        tool: the program, for a gateway's history.

    Raises:
        ConfigError: settings that make no sense.
        StoreError: no server can be reached.
        ApiError: the credentials were refused.
    """
    addresses = parse_bootstrap(bootstrap)
    security = Security.of(config, tool)
    first = await connect_first(addresses, security)
    if is_admin_listener(first):
        from headgate.admin.draft import DraftBackend

        return DraftBackend(Nodes(addresses, security, first), addresses, security)
    from headgate.admin.released import ReleasedBackend

    return ReleasedBackend(Nodes(addresses, security, first))
