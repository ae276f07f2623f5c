"""Images built by buildah and run by podman, in a store that goes when a test ends."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

# Layers as plain folders: that works in a container and on any file system.
DRIVER = "vfs"
# Builds without a container: a chroot is enough, and needs no rights over cgroups.
BUILD = ("--isolation", "chroot", "--network", "host", "--format", "docker")
# crun doesn't run everywhere; limits lower than the machine's are always granted.
RUNTIME = ("--cgroup-manager", "cgroupfs", "--runtime", "runc")
LIMITS = ("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=1000:1000")
ON_HOST = ("--network", "host", "--read-only")
# How pip reaches its index, which a build needs too.
PIP = ("/etc/pip.conf", "/etc/ssl/certs")


class Containers:
    """Containers of one test module; ``close`` removes all that they wrote."""

    def __init__(self) -> None:
        # Podman takes no path of over 50 characters here, and pytest's are longer.
        self._folder = folder = Path(tempfile.mkdtemp(prefix="containers-"))
        places = ("--root", folder / "images", "--runroot", folder / "run")
        self._store = [*map(str, places), "--storage-driver", DRIVER]
        self._names: list[str] = []

    def buildah(self, *words: str | Path) -> str:
        """Run a command of buildah; return what it printed."""
        return _run(["buildah", *self._store, *words])

    def podman(self, *words: str | Path, status: int = 0) -> str:
        """Run a command of podman that ends with a status; return what it printed."""
        return _run(["podman", *self._store, *RUNTIME, *words], status)

    def take(self, tar: Path, name: str) -> None:
        """Make an image of a tar file with a root file system."""
        made = self.buildah("from", "scratch").strip()
        self.buildah("add", "--quiet", made, tar, "/")
        self.buildah("commit", "--quiet", made, name)
        self.buildah("rm", made)

    def build(self, file: Path, context: Path, name: str, **arguments: str) -> None:
        """Build an image from a Containerfile."""
        given = [word for pair in arguments.items() for word in ("--build-arg", "=".join(pair))]
        for path in filter(lambda path: Path(path).exists(), PIP):
            given += ["--volume", f"{path}:{path}:ro"]
        self.buildah("bud", *BUILD, *given, "--file", file, "--tag", name, context)

    def run(self, *words: str | Path) -> str:
        """Run a container to its end, its root file system read-only; return what it printed."""
        return self.podman("run", "--rm", "--no-healthcheck", *ON_HOST, *LIMITS, *words)

    def start(self, name: str, *words: str | Path) -> None:
        """Run one in the background; its health is told when asked for, not by timers."""
        self._names.append(name)
        kept = ["--name", name, "--log-driver", "k8s-file", "--health-interval", "disable"]
        self.podman("run", "--detach", *kept, *ON_HOST, *LIMITS, *words)

    def log(self, name: str) -> str:
        """Return what a container that was started has written."""
        return Path(self.state(name)["HostConfig"]["LogConfig"]["Path"]).read_text()

    def state(self, name: str) -> dict[str, Any]:
        """Return what podman knows of a container."""
        (found,) = json.loads(self.podman("inspect", name))
        assert isinstance(found, dict)
        return found

    def close(self) -> None:
        """End and remove everything."""
        for name in self._names:
            self.podman("rm", "--force", "--time", "0", name)
        self.podman("rmi", "--all", "--force")
        shutil.rmtree(self._folder)


def _run(command: list[str | Path], status: int = 0) -> str:
    done = subprocess.run(
        list(map(str, command)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    told = f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == status, told
    return done.stdout
