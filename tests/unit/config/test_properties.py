"""The syntax of properties files, case by case as java.util.Properties reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config.properties import parse_properties


def read(text: str) -> list[tuple[str, str, int]]:
    found, bad = parse_properties(text)
    assert bad == []
    return [(item.key, item.value, item.line) for item in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", [("a", "1", 1)]),
        ("a = 1", [("a", "1", 1)]),
        ("a:1", [("a", "1", 1)]),
        ("a 1", [("a", "1", 1)]),
        ("a\t=\t1", [("a", "1", 1)]),
        ("  a=1", [("a", "1", 1)]),
        ("a", [("a", "", 1)]),
        ("a=", [("a", "", 1)]),
        ("a==1", [("a", "=1", 1)]),
        ("a=b=c", [("a", "b=c", 1)]),
        ("a=1  ", [("a", "1  ", 1)]),
        ("# c\n! d\n\na=1", [("a", "1", 4)]),
        ("  # c\na=1", [("a", "1", 2)]),
        ("a=1 # not a comment", [("a", "1 # not a comment", 1)]),
        ("a=1,\\\n   2,\\\n\t3\nb=4", [("a", "1,2,3", 1), ("b", "4", 4)]),
        ("a=1\\\\\nb=2", [("a", "1\\", 1), ("b", "2", 2)]),
        ("a=1\\\n# still the value", [("a", "1# still the value", 1)]),
        ("# c \\\na=1", [("a", "1", 2)]),
        ("a\\ b=1", [("a b", "1", 1)]),
        ("a\\=b=1", [("a=b", "1", 1)]),
        ("a\\:b:1", [("a:b", "1", 1)]),
        ("a=C:\\\\x\\ty", [("a", "C:\\x\ty", 1)]),
        ("a=\\u00e9\\u20AC", [("a", "é€", 1)]),
        ("a=\\uD83D\\uDE00", [("a", "😀", 1)]),
        ("a=\\z", [("a", "z", 1)]),
        ("a=1\r\nb=2\rc=3", [("a", "1", 1), ("b", "2", 2), ("c", "3", 3)]),
        ("a=1\na=2", [("a", "1", 1), ("a", "2", 2)]),
        ("a=1\\", [("a", "1", 1)]),
        ("", []),
    ],
)
def test_reads_as_java_does(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert read(text) == expected


def test_a_broken_escape_is_reported_with_its_line_and_the_rest_is_read() -> None:
    found, bad = parse_properties("a=1\nb=\\u12G4\nc=3")
    assert [item.key for item in found] == ["a", "c"]
    assert bad == [(2, "a \\u that isn't an escape: \\u takes four hexadecimal digits")]


def java_store(key: str, value: str) -> str:
    """Write a property as java.util.Properties.store does."""

    def escape(text: str, blanks: str) -> str:
        out = []
        for place, char in enumerate(text):
            if char == " " and (blanks == "all" or place == 0):
                out.append("\\ ")
            elif char in "\t\n\r\f":
                out.append("\\" + "tnrf"["\t\n\r\f".index(char)])
            elif char in "=:#!\\":
                out.append("\\" + char)
            elif " " <= char <= "~":
                out.append(char)
            else:
                units = char.encode("utf-16-be", "surrogatepass").hex()
                out.extend("\\u" + units[i : i + 4].upper() for i in range(0, len(units), 4))
        return "".join(out)

    return f"{escape(key, 'all')}={escape(value, 'first')}"


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.lists(st.tuples(TEXT, TEXT), max_size=5))
def test_what_java_stores_is_read_back(pairs: list[tuple[str, str]]) -> None:
    text = "\n".join(java_store(key, value) for key, value in pairs)
    assert [(key, value) for key, value, _ in read(text)] == pairs


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    found, bad = parse_properties(text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    assert all(1 <= item.line <= lines for item in found)
    assert all(1 <= line <= lines for line, _ in bad)
