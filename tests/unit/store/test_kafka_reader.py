"""What librdkafka says about brokers that are away."""

from __future__ import annotations

import logging

from headgate.store.kafka.reader import FewLines


def test_a_broker_that_is_away_has_a_line_a_minute() -> None:
    now = [100.0]
    lines = FewLines(lambda: now[0])

    def passes(text: str) -> bool:
        return lines.filter(logging.LogRecord("x", logging.ERROR, "", 0, text, None, None))

    said = "FAIL [c-30] a:1: Connect failed: Connection refused (after {}ms in state CONNECT)"
    passed = 0
    for count in range(540):  # a minute's
        passed += passes(said.format(count % 7))
        now[0] += 60 / 540
    assert passed == 1
    assert passes(said.format(0))
    assert passes("FAIL [c-30] b:1: Connect failed: Connection refused (after 1ms)")
