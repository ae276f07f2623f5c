"""
Bring what builds, runs and checks deploy/: for the nightly tests, and for `make chart`.

Debian's buildah, podman, runc and debootstrap are installed where they are missing (as root; apt
checks signed lists). Helm is built by Go, checked by Go's sums. The checkers come from the package
index, held to requirements/deploy.txt. The base of the image that is tested is made by debootstrap.
All but Debian's packages are kept in the cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import chromium
import package_build

from headgate.embedded.cache import cache_dir, locked

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "chart"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
KUBERNETES = "1.30.0"
SUITE = "bookworm"
PACKAGES = ("buildah", "podman", "runc", "debootstrap")


class Missing(Exception):
    """A tool isn't there and can't be brought; says what to install."""


def say(text: str) -> None:
    """Print a progress line."""
    print(f"[deploy] {text}", flush=True)


def folder() -> Path:
    """Where things are kept."""
    made = cache_dir() / "deploy"
    made.mkdir(parents=True, exist_ok=True)
    return made


def checker(name: str) -> Path:
    """Return a program of requirements/deploy.txt."""
    with locked("deploy-checkers"):
        pins = ROOT / "requirements" / "deploy.txt"
        return package_build.tools(pins, folder() / "checkers") / name


def helm() -> Path:
    """
    Return Helm, which Go builds the first time: several minutes.

    Raises:
        Missing: there is no Go.
    """
    program = folder() / "bin" / "helm"
    with locked("deploy-helm"):
        if not program.exists():
            go = os.environ.get("HEADGATE_GO") or shutil.which("go")
            if go is None:
                raise Missing("no Go to build Helm: install Go 1.24 or newer, or set HEADGATE_GO")
            say(f"building {HELM} …")
            environment = {**os.environ, "GOBIN": str(program.parent)}
            subprocess.run([go, "install", HELM], env=environment, cwd=folder(), check=True)
    return program


def programs(names: tuple[str, ...] = PACKAGES) -> None:
    """
    See that there are the programs of some of Debian's packages; by default, what makes an image.

    Raises:
        Missing: they aren't there, and this isn't root on a Debian.
    """
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [name for name in names if shutil.which(name, path=path) is None]
    if os.geteuid() != 0:
        raise Missing("root folders and images are made as root here: run this as root")
    if not missing:
        return
    say(f"installing Debian's {', '.join(missing)} …")
    install = ["install", "--no-install-recommends", *missing]
    brought = shutil.which("apt-get") and (
        chromium.apt(*install) or (chromium.apt("update") and chromium.apt(*install))
    )
    if not brought:
        raise Missing(f"install {', '.join(missing)} (Debian: apt-get install)")


def base(suite: str = SUITE, packages: tuple[str, ...] = ("python3", "python3-venv")) -> Path:
    """
    Return a Debian with some packages as a tar file, made the first time: some minutes, 170 MB.

    Args:
        suite: the release's name.
        packages: what it has beside what every Debian has.
    """
    made = folder() / f"{'-'.join((suite, *packages))}.tar"
    with locked("deploy-base"):
        if made.exists():
            return made
        say(f"debootstrap {suite} …")
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
        unfinished = made.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)  # of a run that was killed
        command += [suite, str(unfinished)]  # from debootstrap's own mirror
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        log = folder() / "debootstrap.log"
        try:
            with log.open("w") as out:
                subprocess.run(
                    ["env", f"PATH={path}", *command], stdout=out, stderr=out, check=True
                )
            without = ("./var/cache/apt", "./var/lib/apt/lists/*", "./proc/*", "./sys/*")
            tar = ["tar", "-C", unfinished, *(f"--exclude={name}" for name in without)]
            subprocess.run([*tar, "-cf", made.with_suffix(".new"), "."], check=True)
            made.with_suffix(".new").rename(made)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return made


def render(values: Path | None) -> str:
    """Return what the chart renders to with values of a file, or with its own."""
    command = [helm(), "template", "headgate", CHART / "headgate", "--namespace", "headgate"]
    command += ["--kube-version", KUBERNETES]
    command += [] if values is None else ["--values", values]
    return subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def rendered() -> dict[Path, str]:
    """Return every file that is rendered from the chart, with its text."""
    head = "# Rendered from deploy/chart by `make chart`; change that.\n"
    namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: headgate}\n"
    # Everything else goes there too: `kubectl apply -f` has no other way to know.
    placed = re.sub(
        r"^(metadata:\n)(?=  name)", r"\1  namespace: headgate\n", render(None), flags=re.M
    )
    texts = {ROOT / "deploy" / "install.yaml": head + namespace + placed}
    for values in sorted((CHART / "goldens" / "values").glob("*.yaml")):
        texts[CHART / "goldens" / values.name] = head + render(values)
    return texts


def main() -> int:
    """Render the chart's goldens and install.yaml again; 1 where a tool is missing."""
    try:
        for path, text in rendered().items():
            path.write_text(text, encoding="utf-8")
            say(str(path.relative_to(ROOT)))
    except Missing as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
