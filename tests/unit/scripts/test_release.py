"""make release: what stands in the way is named, what is built is kept with its checksums."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from kit.scripts import ROOT, script

CHANGES = (
    "# Changelog\n\n## [1.2.0] - 2026-11-23\n\n### Added\n\n- A thing.\n\n## [1.1.0]\n- Old.\n"
)
TRIED = "# Run\n\n- Commit: {commit}\n- Result: passed\n"


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return script("release")


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    done = subprocess.run(
        ["git", *identity, *words], cwd=root, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout that could be released."""
    root = tmp_path / "tree"
    for name in ("src/headgate", "bench"):
        (root / name).mkdir(parents=True)
    (root / "src/headgate/__init__.py").write_text('"""Doc."""\n\n__version__ = "1.2.0"\n')
    (root / "CHANGELOG.md").write_text(CHANGES)
    (root / "src/headgate/code.py").write_text("NUMBER = 1\n")
    (root / "bench/test-all.md").write_text("none yet\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "Begin")
    (root / "bench/test-all.md").write_text(TRIED.format(commit=git(root, "rev-parse", "HEAD")))
    git(root, "commit", "-qam", "Keep the run")
    return root


def test_a_tree_that_is_ready_has_nothing_in_its_way(release: ModuleType, tree: Path) -> None:
    assert list(release.problems(tree)) == []


@pytest.mark.parametrize(
    ("file", "before", "after", "said"),
    [
        ("src/headgate/__init__.py", "1.2.0", "1.3.0", "begins with 1.2.0, and the source has"),
        ("CHANGELOG.md", " - 2026-11-23", " - unreleased", "has no date for 1.2.0"),
        ("CHANGELOG.md", " - 2026-11-23", "", "has no date for 1.2.0"),
        ("CHANGELOG.md", "### Added\n\n- A thing.\n", "", "says nothing about 1.2.0"),
        ("CHANGELOG.md", "## [1.2.0]", "## [Unreleased]\n\n- More.\n\n## [1.2.0]", "Unreleased"),
        ("bench/test-all.md", "passed", "FAILED", "has no passed run"),
        ("bench/test-all.md", "- Commit: ", "- Commit: 0", "which is no commit here"),
        ("src/headgate/code.py", "1", "2", "these have changed: src/headgate/code.py: make"),
    ],
)
def test_what_stands_in_the_way_is_named(
    release: ModuleType, tree: Path, file: str, before: str, after: str, said: str
) -> None:
    path = tree / file
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    git(tree, "commit", "-qam", "Change")
    problems = list(release.problems(tree))
    assert said in problems[0]
    assert len(problems) == (2 if file == "src/headgate/__init__.py" else 1)  # it's tested, too


def test_pages_and_the_changelog_may_change_after_the_run(release: ModuleType, tree: Path) -> None:
    (tree / "bench/bounds.md").write_text("# Bounds\n")
    (tree / "CHANGELOG.md").write_text(CHANGES.replace("A thing", "Another thing"))
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "Write pages")
    assert list(release.problems(tree)) == []


def test_a_run_of_files_that_no_commit_has_counts_for_nothing(
    release: ModuleType, tree: Path
) -> None:
    page = tree / "bench/test-all.md"
    page.write_text(page.read_text().replace("\n- Result", "-dirty\n- Result"))
    git(tree, "commit", "-qam", "Keep a run of changed files")
    (problem,) = release.problems(tree)
    assert "which is no commit here" in problem


def test_a_changed_file_and_a_tag_that_exists_are_in_the_way(
    release: ModuleType, tree: Path
) -> None:
    (tree / "left").touch()
    git(tree, "tag", "v1.2.0")
    unclean, tagged = release.problems(tree)
    assert unclean == "the tree isn't clean; commit or remove: left"
    assert "a tag v1.2.0 already" in tagged


def test_what_is_kept_replaces_what_was_and_has_its_checksums(
    release: ModuleType, tmp_path: Path
) -> None:
    built = []
    for name in ("kafka_headgate-1.2.0.whl", "kafka_headgate-1.2.0.tar.gz", "x.cdx.json"):
        (tmp_path / name).write_text(name)
        built.append(tmp_path / name)
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "kafka_headgate-1.1.0.tar.gz").touch()
    (dist / "mine.txt").touch()
    release.keep(release.Built(*built), dist)
    assert {path.name for path in dist.iterdir()} == {
        *(path.name for path in built), "SHA256SUMS", "mine.txt"
    }  # fmt: skip
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=dist, capture_output=True)
    assert done.returncode == 0
    first = hashlib.sha256(built[0].name.encode()).hexdigest()
    assert (dist / "SHA256SUMS").read_text().startswith(f"{first}  {built[0].name}\n")


def test_the_commands_that_are_left_tag_with_the_notes(release: ModuleType, tree: Path) -> None:
    built = release.Built(Path("a.whl"), Path("a.tar.gz"), Path("a.json"))
    said = release.last_words(tree, built)
    tag, _, rest = said.partition("\ngit push")
    subprocess.run(["sh", "-c", tag.replace("git ", "git -c user.name=A -c user.email=a@b ", 1)],
                   cwd=tree, check=True)  # fmt: skip
    assert git(tree, "tag", "-l", "--format=%(contents)", "v1.2.0").splitlines() == [
        "Headgate 1.2.0", "", "Added:", "", "- A thing."
    ]  # fmt: skip
    assert rest.endswith("twine upload dist/a.whl dist/a.tar.gz")


def test_the_changelog_begins_with_the_version_of_the_source(release: ModuleType) -> None:
    version, date, notes = release.notes_of(ROOT)
    assert version == release.version_of(ROOT)
    assert date
    assert notes
