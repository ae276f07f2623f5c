"""
The laws of passing have two forms: what today's core keeps, and the final one.

By the final form a request is charged at one moment, which depends on nothing but the request
itself. Today's core charges some kinds of request earlier or later. A kind whose name is in
``FINAL`` is held to the final form; of all others a life counts what breaks it
(``Outcome.counts`` and ``Outcome.peaks``, told by `make simulate`).
"""

from __future__ import annotations

from typing import Final

PRODUCE: Final = "charged when passed: Produce"
REST: Final = "charged when passed: the rest"
SHARE: Final = "charged by the answer's length: ShareFetch"
TOLD: Final = "told what is left"
WHOLE: Final = "whole answers alone"

KINDS: Final[dict[str, str]] = {
    PRODUCE: "A Produce with acks is charged when its answer is told, or when another charge or a "
    "change of quotas depends on it: what is uncharged is all that the connection has in flight. "
    "With acks=0 a Produce keeps the final form.",
    REST: "Where request time is limited, whatever is no Produce, Fetch or ShareFetch is charged "
    "when its answer is told: as many requests are uncharged as are in flight, 64 at most.",
    SHARE: "A ShareFetch is charged when its whole answer has come, not at its length.",
    TOLD: "Who is throttled before the answer has come, since it takes no answers, is told the "
    "whole throttle.",
    WHOLE: "Under a request quota, Metadata and FindCoordinator go with others in flight.",
}
"""What each name stands for, and how today's core breaks it."""

FINAL: Final[set[str]] = set()
"""The kinds that are held to the final form. The step that gives the core one moment for each
charge adds them, one by one, and ends with all of ``KINDS``."""
