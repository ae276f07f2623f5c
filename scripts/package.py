"""
Install the wheel with each extra into an environment of its own, and run what that is for.

`make package`. An environment gets what the wheel itself asks for, in the versions and with the
hashes of requirements/runtime.txt, and nothing else: a package that an extra forgets isn't there.
The embedded one starts a Kafka; the admin one and the gateway's speak to it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from headgate.cli.extras import DISTRIBUTION
from headgate.embedded import find_java, free_ports
from headgate.embedded.cache import cache_dir
from headgate.embedded.process import Child

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
INSTALL = ["install", "-q", "--progress-bar", "off", "--no-deps", "--no-build-isolation"]
QUOTA = "producer_byte_rate=1048576"
KAFKA = """
import sys
from pathlib import Path
from headgate.embedded import EmbeddedKafka
with EmbeddedKafka(Path(sys.argv[1])) as kafka:
    print("at", kafka.bootstrap(), flush=True)
    sys.stdin.read()
"""
STARTED = time.monotonic()


class Failed(Exception):
    """A command didn't do what it's for; its output."""


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"[package {time.monotonic() - STARTED:4.0f} s] {text}", flush=True)


def run(*command: str | Path, status: int = 0, **environment: str) -> str:
    """Run a command that has to end with a status; return what it printed."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=tempfile.gettempdir(),  # not the checkout: its sources aren't what was installed
        env={**os.environ, "HEADGATE_CACHE": str(cache_dir()), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != status:
        shown = " ".join(map(str, command))
        raise Failed(f"{shown}\nended with {done.returncode}, not {status}:\n{done.stdout[-4000:]}")
    return done.stdout


def expect(said: str, *wanted: str) -> None:
    """Look for texts in what a command printed."""
    for text in wanted:
        if text not in said:
            raise Failed(f"{text!r} isn't in:\n{said[-4000:]}")


def needed(extra: str) -> set[str]:
    """Return the distributions that the wheel asks for with an extra, and what these ask for."""
    found: set[str] = set()
    wanted = [(DISTRIBUTION, (extra,))]
    while wanted:
        name, extras = wanted.pop()
        for text in distribution(name).requires or ():
            need = Requirement(text)
            given = [{"extra": extra} for extra in (*extras, "")]
            if need.marker is not None and not any(map(need.marker.evaluate, given)):
                continue
            if (plain := re.sub(r"[-_.]+", "-", need.name).lower()) not in found:
                found.add(plain)
                wanted.append((need.name, tuple(need.extras)))
    return found


class Environment:
    """A clean environment that holds the wheel with one extra."""

    def __init__(self, folder: Path, wheel: Path, extra: str) -> None:
        self.bin = folder / "bin"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        names = needed(extra)
        pins = re.split(r"^(?=\S)", (REQUIREMENTS / "runtime.txt").read_text(), flags=re.M)
        wanted = folder / "requirements.txt"
        wanted.write_text("".join(pin for pin in pins if pin.partition("==")[0].lower() in names))
        pip = [*PIP, "--python", self.bin / "python"]
        built_by = REQUIREMENTS / "build.txt"
        run(*pip, *INSTALL, "--require-hashes", "-r", built_by)
        run(*pip, *INSTALL, "--require-hashes", "-r", wanted)
        build = re.findall(r"^([\w.-]+)==", built_by.read_text(), flags=re.M)
        run(*pip, "uninstall", "-qy", *(name for name in build if name.lower() not in names))
        run(*pip, *INSTALL, wheel)
        run(*pip, "check")
        say(f"[{extra}]: {len(names)} packages" if extra else f"no extra: {len(names)} packages")

    def __call__(
        self, program: str, *arguments: str | Path, status: int = 0, **environment: str
    ) -> str:
        """Run a program of the environment."""
        return run(self.bin / program, *arguments, status=status, **environment)


def core(env: Environment, folder: Path) -> None:
    """Quotas in SQLite and as a file, dashboards; a command without its extra says which it is."""
    store = f"sqlite:{folder / 'quotas.db'}"
    alice = ["--entity-type", "users", "--entity-name", "alice"]
    env("kafka-configs", "--store", store, "--alter", "--add-config", QUOTA, *alice)
    (folder / "quotas.yaml").write_text(env("headgate", "export", "--store", store))
    expect(env("headgate", "plan", "--store", store, folder / "quotas.yaml"), "No changes")
    expect(env("headgate", "monitoring", folder), "headgate-rules.yml")
    said = env("headgate", "report", "--tables", folder, status=1)
    expect(said, f"pip install '{DISTRIBUTION}[pipeline]'")
    if len(said.splitlines()) != 1:
        raise Failed(said)


@contextlib.contextmanager
def embedded(env: Environment, folder: Path) -> Iterator[str]:
    """A Kafka, started by what the embedded extra brings; gives its address."""
    child = subprocess.Popen(
        [env.bin / "python", "-c", KAFKA, folder / "kafka"],
        cwd=folder,
        env={**os.environ, "HEADGATE_CACHE": str(cache_dir())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        told = child.stdout.readline().split()
        if len(told) != 2:
            raise Failed(f"the embedded Kafka didn't start: {child.wait()}")
        yield told[1]
        child.stdin.close()


def admin(env: Environment, kafka: str) -> None:
    """Quotas in a topic of the Kafka, and the Kafka's own settings."""
    store = ["--store", f"kafka://{kafka}"]
    alice = ["--entity-type", "users", "--entity-name", "alice"]
    env("kafka-configs", *store, "--alter", "--add-config", QUOTA, *alice)
    expect(env("headgate", "history", *store), "alice", "1048576")
    brokers = ["--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"]
    expect(env("kafka-configs", "--bootstrap-server", kafka, *brokers), "log.retention.hours")


def gateway(env: Environment, asked_by: Environment, kafka: str, folder: Path) -> None:
    """A gateway before the Kafka, which a tool asks."""
    port = free_ports(1)[0]
    config = folder / "headgate.properties"
    config.write_text(
        f"listeners=PLAINTEXT://127.0.0.1:{port}\nheadgate.upstream={kafka}\n"
        "headgate.broker.id.min=1\nheadgate.broker.id.max=1\n"
        f"headgate.store=sqlite:{folder / 'gateway.db'}\nheadgate.data.dir={folder}\n"
        f"headgate.usage=files:{folder / 'usage'}\n"
    )
    expect(env("headgate", "serve", "--config", config, "--check"), "no mistakes")
    log = folder / "gateway.log"
    command = [env.bin / "headgate", "serve", "--config", config]
    child = Child(command, name="the gateway", output=log, log=log)
    child.wait_until(lambda: " ready logger=headgate.serve" in child.log_text(), timeout_s=180)
    address = ["--bootstrap-server", f"127.0.0.1:{port}"]
    brokers = ["--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"]
    expect(asked_by("kafka-configs", *address, *brokers), "log.retention.hours")
    child.stop()


def pipeline(env: Environment, folder: Path) -> None:
    """The log that comes with the package, summed up and drawn."""
    ask = "from headgate.pipeline.bundled import *; print(bundled_log(), bundled_quotas())"
    log, quotas = env("python", "-c", ask).split()
    tables = folder / "tables"
    files = ["--requests", log, "--quotas", quotas, "--broker-id", "1", "--out", tables]
    java = str(find_java().home)  # the extra brings none
    env("headgate", "usage", *files, JAVA_HOME=java)
    env("headgate", "report", "--tables", tables)
    if not (tables / "report.html").is_file():
        raise Failed(f"there is no report in {tables}")


def main() -> int:
    """Build, install, run; 1 if something failed."""
    with tempfile.TemporaryDirectory(prefix="headgate-package-") as name:
        folder = Path(name)
        try:
            arguments = ["--no-deps", "--no-build-isolation", "-w", folder, ROOT]
            run(*PIP, "wheel", "-q", *arguments)
            (wheel,) = folder.glob("*.whl")
            say(wheel.name)
            core(Environment(folder / "core", wheel, ""), folder)
            tables = Environment(folder / "pipeline", wheel, "pipeline")
            pipeline(tables, folder)
            shutil.rmtree(tables.bin.parent)  # half a gigabyte
            tools = Environment(folder / "admin", wheel, "admin")
            front = Environment(folder / "gateway", wheel, "gateway")
            brokers = Environment(folder / "embedded", wheel, "embedded")
            with embedded(brokers, folder) as kafka:
                say(f"a Kafka at {kafka}")
                admin(tools, kafka)
                gateway(front, tools, kafka, folder)
        except Failed as problem:
            print(f"error: {problem}", file=sys.stderr)
            return 1
    say("the wheel does what each extra is for")
    return 0


if __name__ == "__main__":
    sys.exit(main())
