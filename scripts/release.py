"""
Everything that a release needs except uploading: `make release`, or `make release DRY=1` to see.

It looks whether the tree is clean, the version is new and has its date in CHANGELOG.md, and the
last `make test-all` passed. It builds, compares and tries what `make package` does. It leaves
wheel, sdist, bill of materials and checksums in dist/, and prints the commands that tag and upload.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from package import ship
from package_build import Built, Failed, keep

ROOT = Path(__file__).resolve().parent.parent
UNTESTED = ("bench/", "docs/")  # may change between the last `make test-all` and the release
MOST_SHOWN = 5


def git(root: Path, *words: str) -> str:
    """Return what git says; nothing where it fails."""
    command = ["git", *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def version_of(root: Path) -> str:
    """Return the version that the source has."""
    text = (root / "src" / "headgate" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.M)
    assert found is not None
    return found[1]


def notes_of(root: Path) -> tuple[str, str, str]:
    """Return version, date and text of the changelog's first entry."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## \[(.+?)\](?: - (\S+))?\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if found is None:
        return "", "", ""
    return found[1], found[2] or "", found[3].strip()


def problems(root: Path) -> Iterator[str]:
    """Say what stands in the way of a release; each in one line, with the way out."""
    if changed := git(root, "status", "--porcelain"):
        yield f"the tree isn't clean; commit or remove: {', '.join(changed.split()[1::2])}"
    version = version_of(root)
    first, date, notes = notes_of(root)
    if first != version:
        yield f"CHANGELOG.md begins with {first or 'no version'}, and the source has {version}"
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        yield f"CHANGELOG.md has no date for {version}: write ## [{version}] - YYYY-MM-DD"
    if not notes:
        yield f"CHANGELOG.md says nothing about {first}"
    if git(root, "tag", "--list", f"v{version}"):
        yield f"there is a tag v{version} already; set a new version"
    tried = (root / "bench" / "test-all.md").read_text(encoding="utf-8")
    commit = re.search(r"^- Commit: (\S+)$", tried, re.M)
    if commit is None or "\n- Result: passed\n" not in tried:
        yield "bench/test-all.md has no passed run of a commit: make test-all"
    elif not (tested := git(root, "rev-parse", "--verify", "--quiet", f"{commit[1]}^{{commit}}")):
        yield f"bench/test-all.md is about {commit[1]}, which is no commit here: make test-all"
    elif changed := [
        path
        for path in git(root, "diff", "--name-only", tested, "HEAD").split("\n")
        if path and not path.startswith(UNTESTED) and path != "CHANGELOG.md"
    ]:
        shown = ", ".join(changed[:MOST_SHOWN]) + (" …" if changed[MOST_SHOWN:] else "")
        yield f"since the run in bench/test-all.md these have changed: {shown}: make test-all"


def last_words(root: Path, built: Built) -> str:
    """Return the commands that tag and upload, for a person to run."""
    version, _, notes = notes_of(root)
    plain = re.sub(r"^#+ (.*)$", r"\1:", notes, flags=re.M)  # headings would be git's comments
    message = f"Headgate {version}\n\n{plain}"
    return (
        f"git tag -a v{version} -F - <<'END'\n{message}\nEND\n"
        f"git push origin v{version}\n"
        f"twine upload dist/{built.wheel.name} dist/{built.sdist.name}"
    )


def main() -> int:
    """Do it; 1 if something is in the way or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="go through all, leave nothing")
    options = parser.parse_args()
    found = list(problems(ROOT))
    for problem in found:
        print(f"{'in the way' if options.dry else 'error'}: {problem}", flush=True)
    if found and not options.dry:
        return 1
    with tempfile.TemporaryDirectory(prefix="headgate-release-") as name:
        try:
            built = ship(Path(name))
        except Failed as problem:
            print(f"error: {problem}", file=sys.stderr)
            return 1
        if not options.dry:
            for path in keep(built, ROOT / "dist"):
                print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")
        print(f"\nNothing was uploaded. The rest, by hand:\n\n{last_words(ROOT, built)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
