"""
Resolve the requirements and Kafka's jars again and pin them with hashes: `make pins`.

The requirements files name packages, versions and hashes and record no address; uv, itself pinned
in requirements/pins.txt, resolves them for every platform and Python from 3.11 on.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = ("build", "runtime", "image", "dev", "mutants", "site", "package", "deploy", "pins")
# What Headgate itself runs on is declared once, in pyproject.toml.
DECLARED = {
    "runtime": ["--all-extras"],
    "image": ["--extra=gateway", "--extra=admin", "--extra=console"],
}
OPTIONS = [
    "--quiet",
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-annotate",
    "--no-header",
]


def main() -> int:
    """Pin everything; what is pinned already stays unless ``--upgrade`` is given."""
    folder = ROOT / "requirements"
    install = [
        "install",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "-r",
        str(folder / "pins.txt"),
    ]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    for name in FILES:
        print(f"requirements/{name}.txt", flush=True)
        command = [sys.executable, "-m", "uv", "pip", "compile", *OPTIONS, *sys.argv[1:]]
        if name in DECLARED:
            command += ["pyproject.toml", *DECLARED[name]]
        else:
            command += [f"requirements/{name}.in"]
        if name == "image":
            command += ["--constraint=requirements/runtime.txt"]
        command += ["--output-file", f"requirements/{name}.txt"]
        subprocess.run(command, cwd=ROOT, check=True)
    return subprocess.run([sys.executable, "scripts/pin_jars.py"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
