"""
Kafka's own command line tools, run from the same jars as the brokers.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from headgate.embedded import class_data
from headgate.embedded.jars import KAFKA_4, classpath
from headgate.embedded.java import find_java
from headgate.embedded.process import EmbeddedError
from headgate.embedded.properties import logging_option

CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERF = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERF = "org.apache.kafka.tools.ConsumerPerformance"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

TIMEOUT_S = 180.0
"""A tool takes seconds, but more on a very loaded machine."""

_LOGGING = Path(__file__).parent / "logging"


def java_command(
    main_class: str, *args: str, version: str, heap: str, options: Sequence[str]
) -> list[str]:
    """
    Return the command line of a program in a Kafka's jars, in a Java that starts soon.

    Args:
        main_class: the program's.
        args: its arguments.
        version: the Kafka that it is of.
        heap: the most memory that its objects take, as Java writes it.
        options: further ones for Java.
    """
    quick = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
    archive = class_data.options(version)
    java = (str(find_java().executable), f"-Xmx{heap}", *quick, *archive, *options)
    return [*java, "-cp", classpath(version), main_class, *args]


def tool_command(
    main_class: str,
    args: Sequence[str],
    *,
    version: str = KAFKA_4,
    java_options: Sequence[str] = (),
) -> list[str]:
    """
    Return the command line that runs a tool, for callers that need a running process.

    Args:
        main_class: the tool's main class, such as ``kafka.admin.ConfigCommand``.
        args: its arguments.
        version: the Kafka whose tool it is.
        java_options: further options for its Java.
    """
    logging = _LOGGING / ("tools-log4j.properties" if version < "4" else "tools-log4j2.xml")
    options = (logging_option(logging), *java_options)
    return java_command(main_class, *args, version=version, heap="256m", options=options)


def run_tool(
    main_class: str,
    args: Sequence[str],
    *,
    version: str = KAFKA_4,
    timeout_s: float = TIMEOUT_S,
    input: str = "",
) -> subprocess.CompletedProcess[str]:
    """
    Run one of Kafka's tools to its end.

    Args:
        main_class: such as ``kafka.admin.ConfigCommand`` (constants above).
        args: its arguments.
        version: the Kafka whose tool it is.
        timeout_s: seconds it may take.
        input: what it reads from stdin.

    Returns:
        Its exit code, stdout and stderr.

    Raises:
        EmbeddedError: it took too long.
    """
    try:
        return subprocess.run(
            tool_command(main_class, args, version=version),
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        shown = (late.stderr or b"")[-1_000:]
        text = shown.decode(errors="replace") if isinstance(shown, bytes) else shown
        raise EmbeddedError(f"{main_class} took more than {timeout_s:.0f} s\n{text}") from late
