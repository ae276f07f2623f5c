"""
Certificates in lives: who is shown which, who is refused, and what a reload leaves alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from simulation import doors
from simulation.certificates import BROKEN, serial_of
from simulation.conversations import Conversation
from simulation.laws import Law
from simulation.life import Life
from simulation.run import live_all
from simulation.story import GATE, Action, Story, draw

NEW, OLD = ("ab", False), ("a", True)


class Handshakes(Law):
    """Not a law: it writes down what clients were shown."""

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self.seen: list[tuple[str, int | str]] = []

    def shaken(self, line: Conversation, error: str) -> None:
        self.seen.append((line.client.name, error or line.certificate))


def lived(story: Story) -> list[tuple[str, int | str]]:
    with doors.opened():
        life = Life(story)
        notes = Handshakes(life)
        life.laws.append(notes)
        assert life.live().broken == ("", "")
    return notes.seen


def told(*actions: tuple[int, str, str, str | None], brokers_tls: bool = False) -> Story:
    """Return a story of two clients: c0 trusts both authorities, c1 speaks TLS 1.2 and trusts a."""
    given = {"chat": (3, 1), "hang up": ("close",), "crash": (5, 2_000)}
    made = [
        Action(t_ms, who, what, given[what] if more is None else (more,))
        for t_ms, who, what, more in actions
    ]
    return replace(
        draw(3), people=draw(3).people[:2], actions=tuple(made), settings=(),
        secured=(("c0", NEW), ("c1", OLD)), brokers_tls=brokers_tls,
    )  # fmt: skip


def test_who_is_there_stays_and_who_comes_sees_the_new_certificate() -> None:
    seen = lived(
        told(
            (3_000, "c0", "chat", None), (3_000, "c1", "chat", None),
            (6_000, GATE, "certificate", "b1"),
            (7_000, "c0", "chat", None), (7_000, "c1", "chat", None),
            (20_000, "c0", "hang up", None), (20_000, "c1", "hang up", None),
            (22_000, "c0", "chat", None), (23_000, "c1", "chat", None),
            (30_000, GATE, "certificate", "a2"),
            (32_000, "c1", "chat", None),
        )
    )  # fmt: skip
    assert sorted(seen[:2]) == [("c0", serial_of("a1")), ("c1", serial_of("a1"))]
    assert seen[2:] == [
        ("c0", serial_of("b1")),
        ("c1", "CERTIFICATE_VERIFY_FAILED"),
        ("c1", serial_of("a2")),
    ]


def test_a_key_store_that_cannot_be_used_changes_nothing() -> None:
    for broken in BROKEN:
        seen = lived(
            told(
                (5_000, GATE, "certificate", broken),
                (7_000, "c0", "chat", None), (7_000, "c1", "chat", None),
                brokers_tls=True,
            )
        )  # fmt: skip
        assert sorted(seen) == [("c0", serial_of("a1")), ("c1", serial_of("a1"))], broken


def test_a_restart_reads_the_certificate_that_is_there() -> None:
    seen = lived(
        told(
            (5_000, GATE, "certificate", "a2"),
            (8_000, GATE, "crash", None),
            (20_000, "c0", "chat", None),
        )
    )
    assert seen == [("c0", serial_of("a2"))]


def test_lives_over_tls_have_what_can_happen_to_it() -> None:
    seeds = [seed for seed in range(60) if draw(seed).secured]
    assert 8 <= len(seeds) <= 25
    counts: Counter[str] = Counter()
    for outcome in live_all((7, 20, 22)):  # short ones, and each thing happens in one of them
        assert outcome.story.seed in seeds
        counts += outcome.counts
    assert counts["handshakes: done"] > 20
    assert counts["handshakes: CERTIFICATE_VERIFY_FAILED"] > 3
    assert counts["deed certificate"] > 3
    assert counts["deed shake"] > 1
