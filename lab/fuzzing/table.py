"""Which targets there are, in which module each is, and whose lines a fuzzer watches."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fuzzing.target import Target


class Row(NamedTuple):
    """
    One target.

    Args:
        module: of this package; imported when the target is wanted, and no other.
        watched: modules of the product whose lines tell which inputs reach something new.
    """

    module: str
    watched: tuple[str, ...]


_SESSION = ("headgate.gateway.session", "headgate.gateway.charging", "headgate.gateway.identity")
_SSL = ("headgate.gateway.identity.ssl_names", "headgate.quota.principal_rules")
_PAST = ("headgate.usage", "headgate.pipeline.sources")
TABLE = {
    "messages": Row("messages", ("headgate.wire", "headgate.gateway.session.rewrite")),
    "sasl": Row("identity", ("headgate.gateway.identity.sasl",)),
    "certificates": Row("identity", _SSL),
    "mapping rules": Row("identity", _SSL),
    "conversation": Row("conversation", _SESSION),
    "crowd": Row("crowd", _SESSION),
    "quotas files": Row("quotas", ("headgate.quota",)),
    "values": Row("quotas", ("headgate.quota.human",)),
    "names": Row("quotas", ("headgate.quota",)),
    "plans": Row("quotas", ("headgate.cli.quotas.plan_file",)),
    "properties": Row("settings", ("headgate.config",)),
    "listings": Row("settings", ("headgate.console.access", "headgate.gateway.identity.lending",
                                 "headgate.cli.quotas.flags", "headgate.quota.file")),
    "zookeeper nodes": Row("stores", ("headgate.store.zookeeper",)),
    "topic records": Row("stores", ("headgate.store.kafka.state",)),
    "splits": Row("stores", ("headgate.usage.splits",)),
    "kept files": Row(
        "stores", ("headgate.gateway.store_link", "headgate.gateway.fleet.worker_name")
    ),
    "sqlite files": Row("stores", ("headgate.store.sqlite",)),
    "log lines": Row("logs", ("headgate.pipeline.logs.line", "headgate.pipeline.logs.fi",
                              "headgate.pipeline.logs.charged", "headgate.pipeline.logs.time")),
    "time stamps": Row("logs", ("headgate.pipeline.logs.time_stamps",)),
    "split logs": Row("logs", ("headgate.pipeline.logs", "headgate.pipeline.sources.chunks")),
    "log files": Row("logs", ("headgate.pipeline.sources",)),
    "journal files": Row("journals", _PAST),
    "journal messages": Row("journals", ("headgate.usage",)),
    "journal names": Row("journals", ("headgate.usage.files",)),
    "command lines": Row("commands", ("headgate.cli",)),
    "commands": Row("commands", ("headgate.cli", "headgate.admin")),
    "console pages": Row("pages", ("headgate.console",)),
    "gateway http": Row("pages", ("headgate.gateway.health_and_metrics",)),
}  # fmt: skip


def load(name: str) -> Target:
    """Import a target."""
    targets: dict[str, Target] = importlib.import_module(f"fuzzing.{TABLE[name].module}").TARGETS
    return targets[name]
