"""Docs and product say the same: differences, commands, settings, metrics, links, README blocks."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import differences

from headgate.cli.main import COMMANDS
from headgate.config.table import SETTINGS
from headgate.metrics.table import METRICS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
README = ROOT / "README.md"
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in [README, *PAGES])


def test_the_page_of_differences_is_built_from_the_marks() -> None:
    page = ROOT / "docs" / "explanation" / "differences.md"
    assert page.read_text(encoding="utf-8") == differences.page()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_docs(name: str) -> None:
    shown = name if name.startswith("kafka-") else f"headgate {name}"
    assert re.search(rf"`[^`\n]*{re.escape(shown)}\b|^\s*\$? *{re.escape(shown)}\b", TEXT, re.M)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_every_setting_is_in_the_docs(setting: object) -> None:
    assert f"`{setting.name}`" in TEXT  # type: ignore[attr-defined]


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_every_metric_is_in_the_docs(metric: object) -> None:
    assert f"`{metric.name}`" in TEXT  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        where = (page.parent / name).resolve() if name else page
        assert where.exists(), f"{page.name} links to {target}"
        if anchor and where.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", where.read_text(encoding="utf-8"), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in slugs, f"{page.name} links to {target}"


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda p: str(p.relative_to(ROOT)))
def test_every_page_begins_with_its_one_title(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines
    assert lines[0].startswith("# ")
    outside = re.sub(r"```.*?```", "", "\n".join(lines), flags=re.S)
    assert len(re.findall(r"^# ", outside, re.M)) == 1


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


def test_every_headgate_line_of_the_readme_is_one_the_command_takes() -> None:
    """Flags and commands exist; those that need a running cluster are run by other tests."""
    lines = [line for block in blocks(README) for line in block.splitlines()]
    seen = 0
    for line in lines:
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if not words:
            continue
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), line
            seen += 1
        elif words[0] in ("headgate", "kafka-configs", "kafka-quotas"):
            name = words[1] if words[0] == "headgate" else words[0]
            assert name in COMMANDS, line
            seen += 1
    assert seen >= 3
