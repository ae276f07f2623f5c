"""Write the settings' reference page from the table: `python -m headgate.config.reference FILE`."""

# ruff: noqa: E501 - the page wraps where its readers do

from __future__ import annotations

import sys
from pathlib import Path

from headgate.config.reloading import is_taken
from headgate.config.table import GROUPS, Setting

_HEAD = """\
# Settings

Everything `headgate.properties` may say. The file is written as Kafka's `server.properties`: `name=value`, `#` comments,
a backslash continues a line; UTF-8. Names that Kafka has mean what they mean in Kafka. Every mistake in the file is
reported at once, with its line, and `headgate serve` exits 2.

Settings marked **L** can be given for one listener: `listener.name.<name>.<setting>`, the name in lower case.
SIGHUP has the file read again and puts those marked **R** in force, for new connections where they are about connections;
the files that they name (certificates, credentials) are read again too. Of the others the log says which have changed and
need a restart.

This page is generated from `headgate.config.table` (`python -m headgate.config.reference docs/reference/settings.md`).
"""


def settings_page() -> str:
    """Return the reference page as Markdown."""
    parts = [_HEAD]
    for group in GROUPS:
        parts.append(f"## {group.title}\n\n{group.intro}\n")
        parts.append("| setting | | default | allowed | meaning |\n|---|---|---|---|---|")
        parts.extend(_row(setting) for setting in group.settings)
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _row(setting: Setting) -> str:
    default = setting.default_text
    if "`" not in default and default not in ("not set", "none"):
        default = f"`{default}`"
    cells = (
        f"`{setting.name}`",
        " ".join(
            mark
            for mark, on in (("**L**", setting.per_listener), ("**R**", is_taken(setting)))
            if on
        ),
        default,
        f"{setting.kind.name}: {setting.kind.valid}" if setting.kind.valid else setting.kind.name,
        f"{setting.doc} *{setting.source}*",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(settings_page(), encoding="utf-8")
