from __future__ import annotations

import pytest

from headgate.cli.joptsimple import Option, OptionError, parse, usage, words_of

OPTIONS = (Option("alter", "x"), Option("name", "y", "String"), Option("keys", "z", "String", ","))


def test_single_dashes_are_taken_for_long_options() -> None:
    found = parse(OPTIONS, ["-alter", "-name", "a", "-name=b"])
    assert found.has("alter")
    assert found.values("name") == ["a", "b"]


def test_an_argument_may_begin_with_dashes() -> None:
    assert parse(OPTIONS, ["--name", "--alter"]).values("name") == ["--alter"]


def test_an_empty_argument_after_equals_takes_the_next_word() -> None:
    assert parse(OPTIONS, ["--name=", "next"]).values("name") == ["next"]


def test_an_empty_word_is_an_argument() -> None:
    assert parse(OPTIONS, ["--name", ""]).values("name") == [""]


def test_words_of_no_option_are_kept_apart_and_options_go_on_after_them() -> None:
    found = parse(OPTIONS, ["word", "--alter", "-", "--", "--name"])
    assert found.words == ("word", "-", "--name")
    assert found.has("alter")


def test_a_separator_splits_and_drops_empty_parts() -> None:
    assert parse(OPTIONS, ["--keys", "a,,b,"]).values("keys") == ["a", "b"]
    assert parse(OPTIONS, ["--keys", ","]).values("keys") == [","]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--nope"], "nope is not a recognized option"),
        (["--nope=1"], "nope is not a recognized option"),
        (["-nope"], "n is not a recognized option"),
        (["--name"], "Option name requires an argument"),
        (["--alter", "--name="], "Option name requires an argument"),
    ],
)
def test_mistakes_have_joptsimples_texts(argv: list[str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(OPTIONS, argv)
    assert str(caught.value) == message


def test_asking_for_one_argument_of_several_is_a_mistake() -> None:
    found = parse(OPTIONS, ["--name", "a", "--name", "b"])
    with pytest.raises(OptionError) as caught:
        found.value("name")
    assert str(caught.value) == (
        "Found multiple arguments for option name, but you asked for only one"
    )


def test_usage_lists_every_option_sorted() -> None:
    lines = usage(OPTIONS).splitlines()
    assert lines[0].split() == ["Option", "Description"]
    assert [line.split()[0] for line in lines[2:]] == ["--alter", "--keys", "--name"]


def test_bytes_that_are_no_text_are_replaced() -> None:
    raw = b"a\xffb".decode("utf-8", "surrogateescape")
    assert words_of([raw, "\u00fcrs\u00fcla"]) == ["a\ufffdb", "\u00fcrs\u00fcla"]
