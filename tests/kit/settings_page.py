"""Write the settings' reference page from the table: `python tests/kit/settings_page.py FILE`."""

# ruff: noqa: E501 - the page wraps where its readers do

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headgate.config.reloading import is_taken
from headgate.config.setting import Setting
from headgate.config.settings import SETTINGS

_HEAD = """\
# Settings

Everything `headgate.properties` may say. The file is written as Kafka's `server.properties`: `name=value`, `#` comments,
a backslash continues a line; UTF-8. Names that Kafka has mean what they mean in Kafka. Every mistake in the file is
reported at once, with its line, and `headgate serve` exits 1.

Settings marked **L** can be given for one listener: `listener.name.<name>.<setting>`, the name in lower case.
SIGHUP has the file read again and puts those marked **R** in force, for new connections where they are about connections;
the files that they name (certificates, credentials) are read again too. Of the others the log says which have changed and
need a restart.

This page is generated from `headgate.config.settings` (`make docs`).
"""


_HEADINGS: Final[Mapping[str, tuple[str, str]]] = {
    "listeners": ("Listeners",
        "One port per broker and listener: broker *id* is at the listener's port + id - `headgate.broker.id.min`."),
    "upstream": ("Upstream",
        "The cluster in front of which the gateway stands."),
    "upstream_admin": ("Upstream: the gateway's own work",
        "Credentials for what the gateway does for itself (discovery, the Kafka store, journal topics). Never lent to a client."),
    "upstream_shared_enable": ("Upstream: shared credentials",
        "How clients that authenticate by mTLS go upstream when nothing is mapped to their principal. Unset: they are refused."),
    "embedded_brokers": ("Embedded Kafka",
        "The upstream `embedded`: for trying things, tests and the demo."),
    "quota_window_num": ("Quota windows",
        "Samples and their length, as on a broker: `num` samples of `size` seconds, the newest of them running."),
    "quota_producer_default": ("Quota defaults",
        "KIP-55's static defaults, removed from Kafka in 3.0: they limit client-ids that no other quota matches."),
    "enforce": ("Enforcement",
        "What the gateway does about a violated quota."),
    "max_connections": ("Connections",
        "Limits on connections (KIP-402, KIP-612). All but the three last also change while it runs, through "
        "`kafka-configs --entity-type brokers`. Like Kafka, a broker-wide value is also the limit of every listener "
        "without its own."),
    "super_users": ("Identity",
        "Who a client is: what quotas are looked up by."),
    "ssl": ("TLS for clients",
        "The gateway's side of encrypted listeners."),
    "store": ("Store",
        "Where quotas are kept."),
    "lease_ttl_ms": ("Leases",
        "Each broker is fronted by exactly one live worker."),
    "log_format": ("Logs",
        "The gateway's log. Connection closes are logged ten a minute for each reason, refusals for each principal and API; another line says how many weren't logged, and metrics count all."),
    "usage": ("Usage journal",
        "Every charge, for the pipeline."),
    "console": ("Console",
        "The web page that says who is throttled now, and why: [set it up](../howto/console.md). `headgate console --config FILE` reads these settings too."),
}  # fmt: skip
"""Title and introduction of each group of the reference, by the field that it begins with."""


def settings_page() -> str:
    """Return the reference page as Markdown."""
    lines = [_HEAD.rstrip()]
    begun = set()
    for setting in SETTINGS:
        field = setting.path[0]
        if field in _HEADINGS and field not in begun:
            begun.add(field)
            title, intro = _HEADINGS[field]
            lines += [f"\n## {title}\n\n{intro}\n"]
            lines += ["| setting | | default | allowed | meaning |\n|---|---|---|---|---|"]
        lines.append(_row(setting))
    return "\n".join(lines) + "\n"


def _row(setting: Setting) -> str:
    default = _default_of(setting)
    if "`" not in default and default not in ("not set", "none"):
        default = f"`{default}`"
    cells = (
        f"`{setting.name}`",
        " ".join(
            mark
            for mark, on in (("**L**", setting.per_listener), ("**R**", is_taken(setting)))
            if on
        ),
        default,
        f"{setting.kind.name}: {setting.kind.valid}" if setting.kind.valid else setting.kind.name,
        f"{setting.doc} *{setting.source}*",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default_of(setting: Setting) -> str:
    default = setting.default
    if setting.shown:
        return setting.shown
    if default is None:
        return "not set"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, dict):
        return ",".join(f"{key}:{value}" for key, value in default.items()) or "none"
    if isinstance(default, tuple | frozenset):
        return ",".join(str(item) for item in default) or "none"
    return str(default)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(settings_page(), encoding="utf-8")
