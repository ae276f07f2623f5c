"""
Add to wheel and sdist which build they are and a README for an index page, and to the wheel a bill
of materials.

Hatchling runs this at every build, also at one from the sdist, so it needs the standard library and
Hatchling only. Both files depend on the source alone: two builds of a commit are the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import tomllib
import uuid
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

MARK = "build.json"
BILL = "kafka-headgate.cdx.json"
PINS = "requirements/runtime.txt"
JARS = "src/headgate/embedded/pins"
Json = dict[str, Any]


class MarkAndBill(BuildHookInterface):
    """Adds ``build.json``, and a wheel's bill of materials below ``.dist-info/sboms``."""

    def initialize(self, version: str, build_data: Json) -> None:
        """Write the files and tell Hatchling; an editable install has neither."""
        if version == "editable":
            return
        root = Path(self.root)
        self.made = tempfile.TemporaryDirectory(prefix="headgate-build-")
        folder = Path(self.made.name)
        if (told := mark(root)) is not None:
            (folder / MARK).write_text(as_text(told))
            inside = MARK if self.target_name == "sdist" else f"headgate/{MARK}"
            build_data["force_include"][str(folder / MARK)] = inside
        if self.target_name == "wheel":
            (folder / BILL).write_text(as_text(bill(root, self.metadata.version)))
            build_data["sbom_files"].append(str(folder / BILL))

    def finalize(self, version: str, build_data: Json, artifact_path: str) -> None:
        """Remove what was made."""
        if version != "editable":
            self.made.cleanup()


class IndexPage(MetadataHookInterface):
    """Sets the description that a package index shows."""

    def update(self, metadata: Json) -> None:
        """Add it to pyproject.toml's metadata."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": index_page(text)}


def index_page(readme: str) -> str:
    """
    Return the README as it can stand without the files beside it.

    Pictures go. A link to a file becomes its text and the file's name.
    """
    text = re.sub(r"^!\[[^]]*\]\([^)]*\)\n\n", "", readme, flags=re.M)
    return re.sub(r"\[([^]]+)\]\((?!https?:|#)([^)]+)\)", r"\1 (`\2`)", text)


def as_text(what: Json) -> str:
    """Return JSON that is the same for the same content."""
    return json.dumps(what, indent=2, ensure_ascii=False) + "\n"


def mark(root: Path) -> Json | None:
    """
    Return commit and day of the source; None where it isn't exactly a commit.

    Args:
        root: a checkout, or an unpacked sdist, which brings the answer.
    """
    if (root / MARK).is_file():
        found: Json = json.loads((root / MARK).read_text())
        return found

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words],
            cwd=root,
            env={**os.environ, "TZ": "UTC"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    try:
        # A folder inside another project's checkout isn't part of that project's commit.
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return None
        if git("status", "--porcelain"):
            return None
        commit, date = git("log", "-1", "--format=%H %cd", "--date=format-local:%Y-%m-%d").split()
    except (OSError, subprocess.CalledProcessError):
        return None
    return {"commit": commit, "date": date}


def requirements(root: Path) -> tuple[str, dict[str, list[str]]]:
    """Return the project's name, and for each package the extras that need it; "" is the core."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named: dict[str, list[str]] = {}
    parts = {"": project["dependencies"], **project["optional-dependencies"]}
    for part, wanted in parts.items():
        for text in wanted:
            found = re.match(r"[\w.-]+", text)
            assert found is not None, text
            named.setdefault(found[0].lower(), []).append(part)
    return project["name"], named


def bill(root: Path, version: str) -> Json:
    """
    Return what a release was tested with: packages as pinned, jars as fetched; CycloneDX 1.6.

    Args:
        root: holds pyproject.toml and what is pinned.
        version: of the release.
    """
    name, named = requirements(root)
    me = f"pkg:pypi/{name}@{version}"
    components = [*packages(root, named), *jars(root)]
    direct = [part["bom-ref"] for part in components if part["name"] in named]
    content = json.dumps([me, components])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": me,
                "name": name,
                "version": version,
                "purl": me,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": me, "dependsOn": direct}],
        # What the packages bring in their turn is listed, but not which brings which.
        "compositions": [{"aggregate": "incomplete", "dependencies": [me]}],
    }


def packages(root: Path, named: dict[str, list[str]]) -> list[Json]:
    """Return the Python packages that the release was tested with."""
    found = []
    pins = (root / PINS).read_text()
    for name, version, marker in re.findall(r"^([\w.-]+)==(\S+)(?: ; ([^\\\n]+))?", pins, re.M):
        reference = f"pkg:pypi/{name}@{version}"
        by = named.get(name, [])
        properties = [{"name": "headgate:extra", "value": extra} for extra in by if extra]
        if marker:
            properties.append({"name": "headgate:marker", "value": marker.strip()})
        found.append(
            {
                "type": "library",
                "bom-ref": reference,
                "name": name,
                "version": version,
                "scope": "required" if "" in by else "optional",
                "purl": reference,
                **({"properties": properties} if properties else {}),
            }
        )
    return found


def jars(root: Path) -> list[Json]:
    """Return the jars of the embedded Kafkas, which are fetched when one is first started."""
    found: dict[str, Json] = {}
    for pins in sorted((root / JARS).glob("kafka-*.txt")):
        for line in pins.read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            digest, coordinates, _ = line.split()
            group, name, version = coordinates.split(":")
            reference = f"pkg:maven/{group}/{name}@{version}"
            jar = found.setdefault(
                reference,
                {
                    "type": "library",
                    "bom-ref": reference,
                    "group": group,
                    "name": name,
                    "version": version,
                    "scope": "optional",
                    "hashes": [{"alg": "SHA-256", "content": digest}],
                    "purl": reference,
                    "properties": [{"name": "headgate:extra", "value": "embedded"}],
                },
            )
            jar["properties"].append({"name": "headgate:fetched-for", "value": pins.stem})
    return list(found.values())
