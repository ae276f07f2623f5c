"""
Start embedded brokers that ended again: one that ran out of memory ends, and clients wait for it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

from headgate.embedded.kafka import EmbeddedKafka
from headgate.embedded.process import EmbeddedError

LOOK_S: Final = 1.0
"""Seconds between two looks whether all run."""
AGAIN_S: Final = 10.0
"""Seconds until the next try, where one couldn't be started."""
_LAST_S: Final = 5.0


@contextlib.contextmanager
def keeping(kafka: EmbeddedKafka, say: Callable[[str], None]) -> Iterator[None]:
    """
    Have brokers that end started again, on their ports and data, until the block is left.

    Args:
        kafka: which has been started.
        say: takes a line for each broker that ended, and for each that is there again.
    """
    over = threading.Event()

    def keep() -> None:
        wait_s = LOOK_S
        while not over.wait(wait_s):
            wait_s = LOOK_S
            for broker in kafka.broker_ids:
                if over.is_set() or kafka.running(broker):
                    continue
                say(f"broker {broker} of the embedded Kafka ended; it is started again")
                try:
                    kafka.start(broker)
                except EmbeddedError as error:
                    say(f"broker {broker} of the embedded Kafka couldn't be started: {error}")
                    wait_s = AGAIN_S
                else:
                    say(f"broker {broker} of the embedded Kafka serves again")

    thread = threading.Thread(target=keep, name="headgate-embedded", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_LAST_S)  # a start that takes longer ends when the broker is stopped
