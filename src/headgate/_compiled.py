"""
Which code runs: modules that were compiled from exactly these sources, or the sources themselves.

``make setup`` compiles the hot core (``MODULES``) with mypyc into ``headgate-compiled`` below the
environment, a folder for each state of the sources. Importing ``headgate`` puts a finder first that
takes these modules from there if, and only if, the folder was built by this Python from files that
are byte for byte what lies here now; else Python reads the sources as ever. One answer for all
modules and for as long as the process runs: a compiled class and an interpreted one can't mix.

``HEADGATE_COMPILED``: ``0`` takes the sources whatever there is; ``1`` refuses to go without a
fitting build (ImportError); a path names another folder of builds; unset or empty: what fits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

VARIABLE: Final = "HEADGATE_COMPILED"
LIBRARY: Final = "headgate_core__mypyc"
"""The one shared library that all compiled modules are in."""
MANIFEST: Final = "manifest.json"
SOURCES: Final = Path(__file__).resolve().parent
PLACE: Final = Path(sys.prefix) / "headgate-compiled"
MODULES: Final = tuple(
    f"headgate.{name}"
    for name in (
        "throttle.java",
        "throttle.overrides",
        "throttle.sensor",
        "throttle.registry",
        "throttle.manager",
        "throttle.request",
        "throttle.token_bucket",
        "throttle.pacing",
        "throttle.controller_mutation",
        "throttle.connection",
        "throttle.producer_id",
        "throttle.bps",
        "throttle.shares",
        "gateway.commands",
        "gateway.plans",
        "gateway.mute",
        "gateway.headroom",
        "gateway.context",
        "gateway.managers",
        "gateway.enforcement_state",
        "gateway.enforcement",
        "gateway.session_state",
        "gateway.session_taken",
        "gateway.session_requests",
        "gateway.session_answers",
        "gateway.session",
        "gateway.sides",
        "gateway.link",
        "gateway.journal",
        "gateway.usage_journal",
    )
)
_WANTED: Final = frozenset(MODULES)


class Status(NamedTuple):
    """
    Which core runs in this process.

    Attributes:
        folder: the build in use; None: the sources are.
        text: the same for people, with the reason.
    """

    folder: Path | None
    text: str


def key_of(files: Iterable[str], mypyc: str, sources: Path = SOURCES) -> str:
    """
    Return what a build is told by: a hash of this Python, mypyc and the files it was made from.

    Args:
        files: paths below ``sources``, with ``/``.
        mypyc: its version.
        sources: the package's folder.

    Raises:
        OSError: a file isn't there.
    """
    from hashlib import sha256
    from sysconfig import get_config_var

    whole = sha256(f"{get_config_var('SOABI')} {sys.version} {mypyc}".encode())
    for name in sorted(files):
        whole.update(f"\0{name}\0".encode())
        whole.update(sha256((sources / name).read_bytes()).digest())
    return whole.hexdigest()[:24]


def fitting_build(place: Path = PLACE, sources: Path = SOURCES) -> Path | None:
    """Return the folder that was built from the sources as they are, if there is one."""
    import json

    try:
        folders = sorted(place.iterdir())
    except OSError:
        return None
    for folder in folders:
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
            if key_of(manifest["files"], manifest["mypyc"], sources) == folder.name:
                return folder
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half built, or of sources that have gone
    return None


class CompiledFinder:
    """
    Find modules of the core in a build that fits; nothing else.

    Args:
        place: where builds are.
        sources: the package's folder.
        wish: the variable's value.
    """

    def __init__(
        self, place: Path = PLACE, sources: Path = SOURCES, wish: str | None = None
    ) -> None:
        self._wish = os.environ.get(VARIABLE, "") if wish is None else wish
        self._place = place if self._wish in ("", "0", "1") else Path(self._wish)
        self._sources = sources
        self._status: Status | None = None

    def status(self) -> Status:
        """
        Say which core this process uses; decided at the first question.

        Raises:
            ImportError: none fits, and one is demanded.
        """
        if self._status is None:
            status = self._decide()
            if self._wish == "1" and status.folder is None:
                raise ImportError(f"{VARIABLE}=1, but the core is {status.text}")
            self._status = status
        return self._status

    def _decide(self) -> Status:
        if self._wish == "0":
            return Status(None, f"interpreted ({VARIABLE}=0)")
        folder = fitting_build(self._place, self._sources)
        if folder is None:
            why = "was built from other sources" if self._place.is_dir() else "isn't built"
            return Status(None, f"interpreted: the compiled one {why} (make setup builds it)")
        self._status = found = Status(folder, f"compiled ({folder.name})")
        try:
            import_module(LIBRARY)
        except ImportError as error:
            self._status = None
            return Status(None, f"interpreted: the compiled one can't be loaded ({error})")
        return found

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Python's own question to a finder."""
        if name not in _WANTED and name != LIBRARY:
            return None
        folder = self.status().folder
        return None if folder is None else self._spec(folder, name)

    @staticmethod
    def _spec(folder: Path, name: str) -> ModuleSpec:
        file = str(folder / (name.replace(".", "/") + EXTENSION_SUFFIXES[0]))
        spec = spec_from_file_location(name, file, loader=ExtensionFileLoader(name, file))
        assert spec is not None
        return spec


_finder: Final = CompiledFinder()


def install() -> None:
    """Put the finder first, once."""
    finders: list[Any] = sys.meta_path
    if _finder not in finders:
        finders.insert(0, _finder)


def status() -> Status:
    """Say which core this process uses."""
    return _finder.status()
