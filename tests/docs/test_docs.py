"""Docs and product say the same: differences, commands, settings, metrics, links, README blocks."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import differences

from headgate.cli.main import COMMANDS, load
from headgate.config.settings import SETTINGS
from headgate.metrics.table import METRICS
from kit.pages import PAGES, README, ROOT, SHELL, blocks

# From a driver to its own workers, and nobody else's.
OWN_VARIABLES = {"HEADGATE_WORKERS_PRELOAD"}
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


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


def test_every_environment_variable_is_in_the_docs_and_every_one_there_is_read() -> None:
    def read(*folders: str) -> set[str]:
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
        code = "\n".join(path.read_text(encoding="utf-8") for path in paths)
        return set(re.findall(r"\"(HEADGATE_[A-Z_]+)\"", code))

    shown = set(re.findall(r"\bHEADGATE_[A-Z_]+\b", TEXT))
    assert read("src", "scripts", "deploy") - OWN_VARIABLES <= shown
    assert shown <= read("src", "scripts", "deploy", "tests")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            # Others' pages aren't asked for: tests stay on this machine. Their form can be wrong.
            assert re.fullmatch(r"https?://[\w-]+(\.[\w-]+)+(:\d+)?(/[\w./#~%?=&+-]*)?", target), (
                target
            )
            continue
        name, _, anchor = target.partition("#")
        where = (page.parent / name).resolve() if name else page
        assert where.exists(), f"{page.name} links to {target}"
        if anchor and where.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", where.read_text(encoding="utf-8"), re.M)
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in slugs, f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_page_begins_with_its_one_title(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines
    assert lines[0].startswith("# ")
    outside = re.sub(r"```.*?```", "", "\n".join(lines), flags=re.S)
    assert len(re.findall(r"^# ", outside, re.M)) == 1


def help_of(name: str, *action: str) -> str:
    """What a command prints for --help."""
    printed = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        contextlib.suppress(SystemExit),
    ):
        load(name)([*action, "--help"])
    return printed.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_line_shown_is_one_that_exists(page: Path) -> None:
    """make targets, commands and flags; lines that need a cluster are run by other tests."""
    shell = "\n".join(block.text for block in blocks(*SHELL, pages=[page]))
    lines = shell.replace("\\\n", " ").splitlines()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in lines:
        words = line.removeprefix("$ ").split("#")[0].split()
        if not words:
            continue
        if words[0] == "make" and len(words) > 1:
            targets = [word for word in words[1:] if "=" not in word]
            assert all(re.search(rf"^{t}:", makefile, re.M) for t in targets), line
        elif words[0] in ("headgate", "kafka-configs", "kafka-quotas"):
            name = words[1] if words[0] == "headgate" else words[0]
            assert name in COMMANDS or name.startswith("-"), line
            if name in COMMANDS:
                shown = help_of(name)
                if words[1:3] in (["console", "user"], ["console", "token"], ["store", "copy"]):
                    shown = help_of(*words[1:3])
                for flag in re.findall(r"(?<![\w'=-])--[a-z][a-z-]+", " ".join(words)):
                    assert re.search(rf"{flag}(?![\w-])", shown), f"{flag}: {line}"


def test_the_readme_shows_how_to_begin() -> None:
    text = README.read_text(encoding="utf-8")
    shown = "\n".join(block.text for block in blocks(*SHELL, pages=[README]))
    for line in ("pip install", "uvx --from", "make demo", "headgate serve", "headgate why"):
        assert line in shown
    assert len(re.findall(r"!\[", text)) == 2
    assert len(text.splitlines()) < 80
