"""
Compile the hot core with mypyc: `make setup` runs this; `python scripts/compile_core.py` alone too.

What is built, where, and when it is used: `src/headgate/_compiled.py`. A build lies in a folder
named by the hash of this Python and of every file of ours that the compiled modules import, so
what fits is found again and what doesn't is never used.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
sys.path.insert(0, str(SRC))

from headgate import _compiled  # noqa: E402

KEPT_BUILDS = 4
"""A process that has begun with a build still finds it when three more have been made."""
OPTIMISE = "2"


def source_of(module: str) -> Path | None:
    """Return the file of a module of ours."""
    base = SRC / Path(*module.split("."))
    for file in (base.with_suffix(".py"), base / "__init__.py"):
        if file.is_file():
            return file
    return None


def imports_of(file: Path) -> Iterator[str]:
    """Yield every module of ours that a file may import, wherever it does."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "headgate":
                yield from (".".join(parts[: n + 1]) for n in range(len(parts)))


def files_behind(modules: tuple[str, ...]) -> list[str]:
    """Return all files of ours that the modules are made from, types included, below headgate."""
    found: dict[str, Path] = {}
    waiting = [*modules, "headgate"]
    while waiting:
        module = waiting.pop()
        file = None if module in found else source_of(module)
        if file is not None:
            found[module] = file
            waiting += imports_of(file)
    return sorted(str(file.relative_to(SRC / "headgate")) for file in found.values())


def compile_into(folder: Path, work: Path) -> None:
    """Translate the modules to C and compile that; SystemExit or an error if it can't be."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    began = time.monotonic()
    paths = [str(Path(*name.split(".")).with_suffix(".py")) for name in _compiled.MODULES]
    extensions = mypycify(
        ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(work / "types"), *paths],
        opt_level=OPTIMISE,
        debug_level="0",
        multi_file=True,
        target_dir=str(work / "c"),
        group_name=_compiled.LIBRARY.removesuffix("__mypyc"),
    )
    say(f"translated to C in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    command = Distribution({"name": "headgate-core", "ext_modules": extensions}).get_command_obj(
        "build_ext"
    )
    command.build_lib = str(folder)
    command.build_temp = str(work / "o")
    command.parallel = len(os.sched_getaffinity(0))
    command.ensure_finalized()
    command.run()
    say(f"compiled in {time.monotonic() - began:.0f} s")


def say(text: str) -> None:
    """Print a progress line."""
    print(f"  core: {text}", flush=True)


def build(place: Path) -> Path:
    """Return a build of the sources as they are, made now if there is none."""
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _build(place)


def _build(place: Path) -> Path:
    from mypy.version import __version__ as mypyc

    files = files_behind(_compiled.MODULES)
    key = _compiled.key_of(files, mypyc)
    if (place / key / _compiled.MANIFEST).is_file():
        return place / key
    say(f"{len(_compiled.MODULES)} modules to be compiled from {len(files)} files (about a minute)")
    with tempfile.TemporaryDirectory(prefix="headgate-core-") as work:
        folder = Path(work) / "lib"
        folder.mkdir()
        with contextlib.chdir(SRC):
            compile_into(folder, Path(work))
        if _compiled.key_of(files, mypyc) != key:
            raise SystemExit("the sources were changed meanwhile: run it again")
        manifest = {"files": files, "mypyc": mypyc, "python": sys.version}
        (folder / _compiled.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        with tempfile.TemporaryDirectory(prefix=".new-", dir=place) as near:
            shutil.rmtree(place / key, ignore_errors=True)  # half of one, after a kill
            shutil.copytree(folder, Path(near) / "lib").rename(place / key)
    builds = sorted(place.glob("[0-9a-f]*"), key=lambda folder: folder.stat().st_mtime)
    for old in builds[:-KEPT_BUILDS]:
        shutil.rmtree(old, ignore_errors=True)
    while (other := _compiled.fitting_build(place)) not in (None, place / key):
        shutil.rmtree(other)  # by another version of the compiler
    return place / key


def main() -> int:
    """Build what isn't built yet; 1, with the reason, where that can't be done."""
    os.environ[_compiled.VARIABLE] = "0"
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else _compiled.PLACE
    try:
        folder = build(place)
    except (Exception, SystemExit) as error:
        print(f"the core wasn't compiled: {error}", file=sys.stderr, flush=True)
        return 1
    say(f"compiled: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
