"""
Make a failing story as short as it can be, while the same law stays broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from simulation.story import LEAST_MS, Action, Story

T = TypeVar("T")
Fails = Callable[[Story], bool]


def shrink(story: Story, fails: Fails, most: int = 400) -> tuple[Story, int]:
    """
    Shorten a story.

    Args:
        story: one that fails.
        fails: whether a story breaks the same law.
        most: lives that may be lived for it.

    Returns:
        The shortest story that was found, and how many lives it took.
    """
    left = [most]

    def still(candidate: Story) -> bool:
        if left[0] <= 0:
            return False
        left[0] -= 1
        return fails(candidate)

    before: Story | None = None
    while story != before and left[0] > 0:
        before = story
        story = _fewer_actions(story, still)
        busy = {name for action in story.actions for name in (action.who, *action.args)}
        without = replace(story, people=tuple(p for p in story.people if p.name in busy))
        if without != story and still(without):
            story = without
        for candidate in _simpler(story):
            if candidate != story and still(candidate):
                story = candidate
        for at in range(len(story.actions)):
            story = _simplest_action(story, at, still)
    return story, most - left[0]


def fewer(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Remove what isn't needed, halves first (Zeller's ddmin)."""
    kept, parts = list(items), 2
    while len(kept) > 1:
        size = max(len(kept) // parts, 1)
        for at in range(0, len(kept), size):
            rest = kept[:at] + kept[at + size :]
            if fails(rest):
                kept, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(kept))
    return kept


def _fewer_actions(story: Story, still: Fails) -> Story:
    def fails(actions: Sequence[Action]) -> bool:
        return still(replace(story, actions=tuple(actions)))

    return replace(story, actions=tuple(fewer(story.actions, fails)))


def _simpler(story: Story) -> Iterator[Story]:
    """Yield stories with one thing less each, besides actions."""
    calm = (0.05, 0.3, 0.0, 0.0, 131_072)
    yield replace(story, network=calm)
    yield replace(story, secured=(), brokers_tls=False)
    yield replace(story, brokers_tls=False)
    for at in range(len(story.secured)):
        yield replace(story, secured=story.secured[:at] + story.secured[at + 1 :])
    yield replace(story, length_ms=max(LEAST_MS, *(a.t_ms + 15_000 for a in story.actions), 0))
    yield replace(story, brokers=1)
    for at in range(len(story.settings)):
        yield replace(story, settings=story.settings[:at] + story.settings[at + 1 :])
    for at in range(len(story.quotas)):
        yield replace(story, quotas=story.quotas[:at] + story.quotas[at + 1 :])


def _simplest_action(story: Story, at: int, still: Fails) -> Story:
    """Make the numbers of one action small."""
    action = story.actions[at]
    for place, value in enumerate(action.args):
        for simple in _smaller(value):
            args = (*action.args[:place], simple, *action.args[place + 1 :])
            changed = replace(action, args=args)
            actions = (*story.actions[:at], changed, *story.actions[at + 1 :])
            candidate = replace(story, actions=actions)
            if still(candidate):
                story, action = candidate, changed
                break
    return story


def _smaller(value: Any) -> list[Any]:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 1:
        return []
    found = [1, value // 10, value // 2]
    if value > 1_000:
        found += [round(value, -3)]
    return [one for one in dict.fromkeys(found) if 0 < one < value]
