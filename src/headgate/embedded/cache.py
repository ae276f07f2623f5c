"""
Where fetched things are kept, and which process holds which folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from headgate.embedded.process import EmbeddedError

CACHE_VARIABLE = "HEADGATE_CACHE"
_DYING_S = 60.0  # a killed Java is gone within milliseconds, unless the machine is very busy
_FRESH_S = 600  # between a folder's making and its locking lie milliseconds


def cache_dir() -> Path:
    """
    Return the folder for jars and other fetched files; it's made when missing.

    Returns:
        ``$HEADGATE_CACHE``; else ``.cache/headgate`` in the project when run from a checkout;
        else ``headgate`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        folder = Path(named).expanduser()
    else:
        checkout = Path(__file__).resolve().parents[3]
        if (checkout / "pyproject.toml").is_file() and (checkout / "Makefile").is_file():
            folder = checkout / ".cache" / "headgate"
        else:
            base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
            folder = Path(base) / "headgate"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """
    Hold a lock of this name, so that processes side by side don't fetch the same thing twice.

    Args:
        name: a file name inside the cache folder.
    """
    with (cache_dir() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def hold(folder: Path, what: str, *, patience_s: float = 5.0) -> int:
    """
    Take a folder for this process and the children it hands the descriptor to.

    Args:
        folder: the folder; ``.lock`` in it is locked.
        what: what it's used for, for the message.
        patience_s: seconds to wait while its owner lives. If the owner is dead, only its children
            can still have the folder; they are about to end, so the wait is longer.

    Returns:
        A descriptor; the folder is free when every process that has it closed it or ended.

    Raises:
        EmbeddedError: another process has it.
    """
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    began = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            patience = _DYING_S if _is_dead(owner) else patience_s
            if time.monotonic() - began < patience:
                time.sleep(0.1)
                continue
            os.close(descriptor)
            raise EmbeddedError(
                f"{folder} is in use by another {what} (process {owner or 'unknown'}): "
                "stop that one, or name another folder"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor


def _is_dead(owner: str) -> bool:
    """Tell whether a process, by its id, is known to be gone."""
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return True
    except (ValueError, OverflowError, PermissionError):
        pass
    return False


def temporary_folder(kind: str) -> Path:
    """
    Make a temporary folder, and remove those whose process was killed before it could.

    Args:
        kind: goes into the name, such as ``kafka``.
    """
    prefix = f"headgate-{kind}-"
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            _remove_if_abandoned(left)
    return Path(tempfile.mkdtemp(prefix=prefix))


def _remove_if_abandoned(folder: Path) -> None:
    """Remove a folder of this user that nobody holds; a new one may be locked in a moment."""
    lock = folder / ".lock"
    stat = lock.stat()
    if stat.st_uid != os.getuid() or time.time() - stat.st_mtime < _FRESH_S:
        return
    with lock.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held: OSError, and it stays
        shutil.rmtree(folder)
