"""
Whether a KRaft controller has taken a cluster over: then Kafka's znodes mustn't be changed.

In a migration to KRaft the new controller reads ZooKeeper once. From then on it writes what is
changed in the cluster to ZooKeeper as well, and reads nothing there: what others write under
``/config`` doesn't get into the cluster, and is overwritten when a controller starts.

The controller in charge is in ``/controller``, where KRaft's has an epoch of its own. Whether one
takes over between a look and a transaction isn't told by that znode's version: it is deleted and
made again, with version 0. But ``/controller_epoch`` is set in the same transaction, each time.

Source: KafkaZkClient.tryRegisterKRaftControllerAsActiveController and ControllerZNode in Apache
Kafka 3.9; tried with a migration of 3.9.2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headgate.errors import MALFORMED, ApiError, KafkaError
from headgate.store.zookeeper.layout import KAFKA_HOME
from headgate.store.zookeeper.znodes import TransactionStep, Znode

CONTROLLER = "/controller"
EPOCH = "/controller_epoch"
#: What a look reads, in this order: a controller that takes over in between is seen.
PATHS = (EPOCH, CONTROLLER)


class InCharge(NamedTuple):
    """
    Who is in charge of a cluster.

    Args:
        why: why Kafka's znodes mustn't be changed; None: they may.
        check: the step that fails if another controller has taken over since; none where there
            never was a controller, since KRaft's takes over from one only.
    """

    why: str | None
    check: tuple[TransactionStep, ...]

    def refusal(self) -> ApiError | None:
        """Return the error of a change of Kafka's znodes; None: it may be made."""
        # A policy, as clients know them: trying again doesn't help.
        return None if self.why is None else ApiError(KafkaError.POLICY_VIOLATION, self.why)


def in_charge(url: str, nodes: Mapping[str, Znode | None]) -> InCharge:
    """
    Say who is in charge.

    Args:
        url: what errors call the store.
        nodes: the znodes of ``PATHS``, read in that order.
    """
    epoch, controller = nodes[EPOCH], nodes[CONTROLLER]
    check = () if epoch is None else (TransactionStep("check", EPOCH, None, epoch.version),)
    try:
        told = json.loads((controller.data if controller else None) or b"{}")
        kraft, broker = int(told.get("kraftControllerEpoch", -1)), int(told.get("brokerid", -1))
    except MALFORMED:
        return InCharge(None, check)
    if kraft < 0:
        return InCharge(None, check)
    return InCharge(
        f"{url}: KRaft controller {broker} has taken this cluster over ({CONTROLLER}, epoch "
        f"{kraft}), so what is written to ZooKeeper of quotas that Kafka knows, of brokers' "
        "settings and of SCRAM credentials gets lost. Change them in the cluster: "
        "--bootstrap-server of its brokers, or a store kafka://HOST:PORT of them (headgate store "
        "copy); quotas that only Headgate knows may still be changed here",
        check,
    )


def is_kafkas(steps: Sequence[TransactionStep]) -> bool:
    """Return whether a transaction changes what Kafka has in ZooKeeper."""
    return any(step.path.startswith(f"{KAFKA_HOME}/") for step in steps)
