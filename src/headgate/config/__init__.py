"""
One settings file, `headgate.properties`, read into frozen `Settings`.

- ``properties``: the syntax of Java's properties files, with line numbers.
- ``kinds``: the kinds of value: each parses a text, or says what is wrong with it.
- ``listeners``: what a listener is; addresses and security protocols.
- ``setting``: how a dataclass of settings is a table, a row for each field.
- ``security``: the rows of TLS and of credentials, which several parts have alike.
- ``console``: the rows of the console.
- ``load``: reads a file by the table; every mistake at once, with its line.
- ``store_kinds``: the kinds of stores, by the scheme of their URLs.
- ``ports``: plans which broker is found at which port.
- ``settings``: every setting with its row; `Settings`, the parsed file.
- ``reloading``: which settings a running gateway takes over on SIGHUP.
- ``wrong_protocol``: the error for a port that uses another security protocol.
"""

from __future__ import annotations

from headgate.config.kinds import INT_MAX, LONG_MAX, MOST_ADDRESSES, Password, UsageTarget
from headgate.config.listeners import Endpoint, HostPort, Listener, SecurityProtocol
from headgate.config.ports import PortPlan
from headgate.config.security import ClientSecurity, Tls, ZooKeeperSecurity
from headgate.config.settings import Settings, load_settings

__all__ = [
    "INT_MAX",
    "LONG_MAX",
    "MOST_ADDRESSES",
    "ClientSecurity",
    "Endpoint",
    "HostPort",
    "Listener",
    "Password",
    "PortPlan",
    "SecurityProtocol",
    "Settings",
    "Tls",
    "UsageTarget",
    "ZooKeeperSecurity",
    "load_settings",
]
