"""Clients by their ids in the matrix."""

from __future__ import annotations

import re

from clients.aio import Aiokafka
from clients.confluent import Confluent
from clients.franz import FranzGo
from clients.interface import Client
from clients.java import PerformanceTools, Tools
from clients.pure import KafkaPython


def client(id: str, broker: str) -> Client:
    """
    Return a client.

    Args:
        id: of a row of the matrix.
        broker: the version of the broker, whose tools those without a version of their own are.
    """
    protocol = "consumer" if id.endswith("-kip-848") else "classic"
    kind = id.removesuffix("-kip-848")
    if found := re.fullmatch(r"(console|perf)(?:-([\d.]+))?", kind):
        version = found[2] or broker
        return PerformanceTools(version) if found[1] == "perf" else Tools(version, protocol)
    if kind == "confluent-kafka":
        return Confluent(protocol)
    return {"aiokafka": Aiokafka, "kafka-python": KafkaPython, "franz-go": FranzGo}[kind]()
