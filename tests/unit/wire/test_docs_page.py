"""
The table in docs/reference/wire.md is the table in code.

To write it again: ``python tests/unit/wire/test_docs_page.py``.
"""

from pathlib import Path

from headgate.usage.format import KINDS, SCHEMA
from headgate.wire.apis import API, Api

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "wire.md"
BEGIN, END = "<!-- table of apis -->\n", "<!-- end of table -->\n"


def _does(api: Api) -> str:
    if not api.proxied:
        return "hidden: for controllers only"
    done = []
    if api.has_addresses:
        done.append("addresses rewritten")
    if api.charged:
        done.append("counted" if api.key == 22 else "charged")
    if api.key in (17, 36):
        done.append("observed")
    if api.key == 18:
        done.append("narrowed")
    if api.key in (32, 33, 44):
        done.append("answered for brokers' own keys of ours, else passed")
    if api.key in (48, 49):
        done.append("answered")
    return ", ".join(done) or "passed"


def table() -> str:
    rows = ["| key | API | passes | flexible | throttle told | clients pause | the gateway |"]
    rows.append("|---|---|---|---|---|---|---|")
    for api in API.values():
        passes = "-" if not api.proxied else "all" if api.passes_until is None else ""
        if not passes:
            passes = f"{api.min_version}-{api.passes_until}"
        flexible = "never" if api.flexible_since > 1000 else f"{api.flexible_since}+"
        told = "-" if api.throttle_since is None else f"{api.throttle_since}+"
        pause = "-" if api.client_throttles_since is None else f"{api.client_throttles_since}+"
        rows.append(
            f"| {api.key} | {api.name} | {passes} | {flexible} | {told} | {pause} | {_does(api)} |"
        )
    return "\n".join(rows) + "\n"


def page() -> str:
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


def test_the_page_has_the_table_of_the_code() -> None:
    assert PAGE.read_text("utf-8") == page()


def test_the_page_has_every_column_and_kind_of_the_journal() -> None:
    text = PAGE.read_text("utf-8")
    for name in (*SCHEMA.names, *KINDS):
        assert f"`{name}`" in text, name


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
