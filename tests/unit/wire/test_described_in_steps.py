"""Long answers about settings are searched and changed a little at a time; none of it is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.errors import RemoteProtocolError
from headgate.steps import FEW, finish
from headgate.wire.apis import DESCRIBE_CONFIGS
from headgate.wire.messages import configs, decode_response, encode_response
from kit.stepping import most_alive

MANY = 10 * FEW


def described(count: int, kind: int = configs.TOPIC) -> bytes:
    value = configs.ConfigValue(
        "listeners", "x", synonyms=(configs.ResourceSynonym("listeners", "x", 5),)
    )
    results = tuple(configs.DescribeResult(kind, f"r{n}", (value,) * 3) for n in range(count))
    return encode_response(DESCRIBE_CONFIGS, 4, 7, configs.DescribeConfigsResponse(results, 5))


KINDS = configs.DescribeResult, configs.ConfigValue, configs.ResourceSynonym


def test_an_answer_about_settings_is_looked_at_result_by_result() -> None:
    frame = described(MANY)
    steps, most, same = most_alive(configs.change_results(4, frame, lambda result: result), *KINDS)
    assert same is frame
    assert steps >= MANY
    assert most <= 2 * 7


@pytest.mark.parametrize("changed", [{0}, {5}, {9}, {0, 1, 8, 9}, set(range(10))])
def test_results_that_change_stand_between_the_others(changed: set[int]) -> None:
    names = {f"r{n}" for n in changed}

    def change(result: configs.DescribeResult) -> configs.DescribeResult:
        return replace(result, configs=()) if result.resource_name in names else result

    frame = described(10)
    told = decode_response(DESCRIBE_CONFIGS, 4, finish(configs.change_results(4, frame, change)))
    before = decode_response(DESCRIBE_CONFIGS, 4, frame)
    assert told == replace(before, results=tuple(map(change, before.results)))


def test_what_changes_is_not_kept() -> None:
    frame = described(MANY)
    work = configs.change_results(4, frame, lambda result: replace(result, configs=()))
    _, most, told = most_alive(work, *KINDS)
    assert most <= 2 * 7
    assert int.from_bytes(told[:4], "big") == len(told) - 4


@pytest.mark.parametrize("end", [-1, 1])
def test_an_answer_about_settings_that_is_too_long_or_short_is_refused(end: int) -> None:
    frame = described(3)
    frame = frame[:end] if end < 0 else frame + bytes(end)
    with pytest.raises(RemoteProtocolError):
        finish(configs.change_results(4, frame, lambda result: result))


def test_words_are_found_wherever_they_stand() -> None:
    words = (b"listeners", b"zookeeper.connect")
    for word in words:
        for at in range(configs.WINDOW - len(word) - 1, configs.WINDOW + 2):
            frame = bytes(at) + word + bytes(configs.WINDOW)
            assert finish(configs.names_any(frame, words))
            assert not finish(configs.names_any(frame.replace(word, word[1:]), words))


def test_a_long_message_is_searched_in_windows() -> None:
    assert len(list(configs.names_any(bytes(20 * configs.WINDOW), (b"listeners",)))) == 20
