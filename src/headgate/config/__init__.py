"""
One settings file, `headgate.properties`, read into frozen `Settings`.

`table.py` is the list of settings; `properties.py` reads the syntax, `kinds.py` the values,
`load.py` the whole, with every mistake reported at once; `ports.py` plans which broker is found at
which port; `reference.py` writes the reference page.
"""

from __future__ import annotations

from headgate.config.kinds import INT_MAX, LONG_MAX, Password, UsageTarget
from headgate.config.listeners import Endpoint, HostPort, Listener, SecurityProtocol
from headgate.config.load import load_settings
from headgate.config.ports import PortPlan
from headgate.config.settings import ClientSecurity, Settings, Tls, ZooKeeperSecurity

__all__ = [
    "INT_MAX",
    "LONG_MAX",
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
