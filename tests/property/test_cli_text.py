"""Laws of what the tools read and print."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.contract import BadUsage
from headgate.cli.joptsimple import Option, parse
from headgate.cli.output import printable
from headgate.cli.quotas.kafka_quotas import OPTIONS, read_pairs, split_list
from headgate.java_text import java_double, to_double

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.floats(allow_nan=False))
def test_a_double_reads_back_as_itself(value: float) -> None:
    assert to_double(java_double(value)) == value


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_a_double_is_printed_with_the_fewest_digits(value: float) -> None:
    digits = java_double(value).partition("E")[0].replace(".", "").strip("0")
    shortest = repr(value).partition("e")[0].replace(".", "").strip("0")
    assert len(digits) == len(shortest)


@given(st.lists(st.tuples(st.sampled_from(["user", "client-id", "ip"]), NAMES), min_size=1))
def test_546_23_any_name_passes_through_the_command_line(pairs: list[tuple[str, str]]) -> None:
    text = ",".join(f"{kind}={name}".replace(",", "\\,") for kind, name in pairs)
    # A backslash before a comma of the name's own would be read as an escape: the one exception.
    wanted = list(pairs)
    if any("\\," in name or name.endswith("\\") for _, name in pairs):
        return
    assert read_pairs(parse(OPTIONS, [f"--names={text}"]), "names") == wanted


@given(st.text())
def test_lists_have_no_empty_parts(text: str) -> None:
    try:
        parts = split_list(text)
    except BadUsage:
        return
    assert all(parts)
    assert ",".join(part.replace(",", "\\,") for part in parts) == text


@given(st.text())
def test_nothing_printed_can_steer_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in shown)
    assert "\u202e" not in shown
    assert shown.encode().decode() == shown


@given(NAMES)
def test_an_options_argument_arrives_as_it_was_typed(name: str) -> None:
    option = Option("entity-name", "", "String")
    assert parse([option], ["--entity-name", name]).value("entity-name") == name
