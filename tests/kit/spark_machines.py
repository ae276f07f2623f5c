"""A standalone Spark cluster whose machines share no folder, and what spark-submit sends to it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import urlopen

import pyspark
from packaging.requirements import Requirement

from headgate.embedded import free_ports, spark_env
from kit.machines import Machine

ROOT: Final = Path(__file__).parents[2]
RECIPE: Final = ROOT / "docs" / "howto" / "spark-submit.md"
SPARK: Final = Path(pyspark.__file__).parent
_START_S: Final = 120.0


def java() -> dict[str, str]:
    """Return the variables by which Spark finds its Java, itself, and loopback."""
    return {
        "JAVA_HOME": spark_env()["JAVA_HOME"],
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def asked(url: str) -> Any:
    """Return the JSON that a page of Spark gives; None: it doesn't answer yet, or any more."""
    try:
        with urlopen(url, timeout=60) as answer:
            return json.load(answer)
    except HTTPError as early:  # its pages aren't all there yet
        early.close()
    except (OSError, HTTPException, ValueError):  # it doesn't listen, hangs up, or is starting
        pass
    return None


@dataclass(frozen=True)
class Cluster:
    """
    A master and its workers.

    Args:
        master: its URL.
        page: the URL of its page.
        workers: by machine; ``home / "work"`` holds a folder per application and executor.
    """

    master: str
    page: str
    workers: list[Machine]

    def ran(self, app: str) -> bool:
        """Say whether an application of a name ran here."""
        told = asked(f"{self.page}/json/") or {}
        return any(a["name"] == app for a in told["activeapps"] + told["completedapps"])

    def worker_of(self, app: str, executor: str) -> Machine:
        """Return the machine that runs an application's executor."""
        [found] = [w for w in self.workers if (w.home / "work" / app / executor).is_dir()]
        return found


@contextlib.contextmanager
def standalone(
    folder: Path, environment: Mapping[str, str] | None = None, *, memory: str = "1g"
) -> Iterator[Cluster]:
    """
    Run a master and two workers of one core each on loopback.

    Args:
        folder: a folder for each machine is made in it.
        environment: variables of the machines, besides.
        memory: of a worker.
    """
    port, page, *pages = free_ports(4)
    master, url = f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{page}"
    variables = {**java(), "SPARK_DAEMON_MEMORY": "256m", **(environment or {})}
    machines: list[Machine] = []

    def run(name: str, *arguments: str) -> Machine:
        argv = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{arguments[0]}"]
        argv += ["--host", "127.0.0.1", *arguments[1:]]
        machines.append(Machine(folder / name, argv, variables))
        return machines[-1]

    try:
        run("master", "master.Master", "--port", str(port), "--webui-port", str(page))
        for n, own in enumerate(pages, 1):
            flags = ["--cores", "1", "--memory", memory, "--webui-port", str(own)]
            flags += ["--work-dir", str(folder / f"worker-{n}" / "work"), master]
            run(f"worker-{n}", "worker.Worker", *flags)
        deadline = time.monotonic() + _START_S
        while (asked(f"{url}/json/") or {}).get("aliveworkers", 0) < len(pages):
            assert time.monotonic() < deadline, "the workers don't register"
            assert all(m.process.poll() is None for m in machines), machines[-1].said
            time.sleep(0.2)
        yield Cluster(master, url, machines[1:])
    finally:
        for machine in reversed(machines):
            machine.stop()


def commands(heading: str) -> list[str]:
    """Return the lines of the first example under a heading of the docs, continued ones joined."""
    text = RECIPE.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1]
    return text.split("```\n")[1].replace("\\\n", "").splitlines()


def submit_script() -> str:
    """Return the file that the docs give spark-submit."""
    return RECIPE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


def make_environment(folder: Path, wheel: Path | None, run: Callable[[str], str]) -> None:
    """
    Make the environment of the docs, as ``pip install '.[pipeline]'`` does; there's no network.

    Args:
        folder: where ``pipeline-env`` and ``pipeline-env.tar.gz`` come to lie.
        wheel: Headgate's; None: its packages alone.
        run: runs a line of shell in the folder.
    """
    make, pip, pack = commands("What the workers need")
    assert pip == "pipeline-env/bin/pip install '.[pipeline]'"
    run(make.replace("python3", sys.executable) + " --without-pip")
    site = next((folder / "pipeline-env" / "lib").glob("python3*/site-packages"))
    _copy_packages(site)
    if wheel is not None:
        with zipfile.ZipFile(wheel) as content:
            content.extractall(site)
        run(pack)


def _copy_packages(site: Path) -> None:
    """Copy what the extra ``pipeline`` asks for, pyspark left out, from where this runs."""
    names, wanted = {"kafka-headgate"}, [("kafka-headgate", ("pipeline",))]
    while wanted:
        name, extras = wanted.pop()
        for text in distribution(name).requires or ():
            need = Requirement(text)
            given = [{"extra": extra} for extra in (*extras, "")]
            if need.marker is not None and not any(map(need.marker.evaluate, given)):
                continue
            if need.name not in {*names, "pyspark"}:
                names.add(need.name)
                wanted.append((need.name, tuple(need.extras)))
    for name in names - {"kafka-headgate"}:
        for file in distribution(name).files or ():
            source = Path(str(file.locate()))
            if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
                continue
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, site / file)


def write_conf(folder: Path, settings: Mapping[str, str]) -> Path:
    """Write what is the cluster's, not the recipe's: the settings of a spark-submit on loopback."""
    every = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        **settings,
    }
    folder.mkdir(parents=True)
    lines = "".join(f"{name} {value}\n" for name, value in every.items())
    (folder / "spark-defaults.conf").write_text(lines)
    return folder
