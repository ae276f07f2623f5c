"""
Build, check, install the wheel with each extra into an environment of its own, run every command.

`make package`. An environment gets what the wheel itself asks for, in the versions and with the
hashes of requirements/runtime.txt, and nothing else: a package that an extra forgets isn't there.
The environment of the embedded extra starts a Kafka for all. ``--all`` (in `make test-all`) adds
what takes longer: every job on Spark, a gateway that fetches the jars of its own Kafka, the demo,
and the demo by uvx.
Wheel, sdist, bill of materials and their checksums are left in dist/.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path

import build_hook
from package_build import Built, Failed, keep, make
from package_commands import CASES, Case
from packaging.requirements import Requirement

from headgate.cli.extras import DISTRIBUTION, EXTRAS
from headgate.embedded import find_java, free_ports
from headgate.embedded.cache import cache_dir
from headgate.embedded.process import Child, EmbeddedError

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
INSTALL = ["install", "-q", "--progress-bar", "off", "--no-deps", "--no-build-isolation"]
INSTALL += ["--no-compile"]  # most of it is never loaded
KAFKA = """
import sys
from pathlib import Path
from headgate.embedded import EmbeddedKafka
with EmbeddedKafka(Path(sys.argv[1])) as kafka:
    print("at", kafka.bootstrap(), flush=True)
    sys.stdin.read()
"""
# Runs commands one after the other in one process: Python's start costs more than they do.
SAY = """
import contextlib, io, json, sys
from headgate.cli.main import main
for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main(json.loads(line))
    print(json.dumps([status, said.getvalue()]))
"""
PRICES = "currency: EUR\nbytes_in_per_gb: 2\n"
STARTED = time.monotonic()


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"[package {time.monotonic() - STARTED:4.0f} s] {text}", flush=True)


def run(*command: str | Path, status: int = 0, given: str = "", **environment: str) -> str:
    """Run a command that has to end with a status; return what it printed."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=tempfile.gettempdir(),  # not the checkout: its sources aren't what was installed
        env={**os.environ, "HEADGATE_CACHE": str(cache_dir()), **environment},
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
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


def needed(extras: list[str]) -> set[str]:
    """Return the distributions that the wheel asks for with extras, and what these ask for."""
    found: set[str] = set()
    wanted = [(DISTRIBUTION, tuple(extras))]
    while wanted:
        name, chosen = wanted.pop()
        for text in distribution(name).requires or ():
            need = Requirement(text)
            given = [{"extra": extra} for extra in (*chosen, "")]
            if need.marker is not None and not any(map(need.marker.evaluate, given)):
                continue
            if (plain := re.sub(r"[-_.]+", "-", need.name).lower()) not in found:
                found.add(plain)
                wanted.append((need.name, tuple(need.extras)))
    return found


def brought(extras: str) -> frozenset[str]:
    """Return the packages that extras bring, as they are imported."""
    chosen = EXTRAS if extras == "all" else filter(None, extras.split(","))
    return frozenset().union(*(EXTRAS[extra] for extra in chosen))


class Environment:
    """A clean environment that holds the wheel with an extra, or several with commas."""

    def __init__(self, folder: Path, wheel: Path, extra: str) -> None:
        self.bin = folder / "bin"
        self.extra = extra
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        names = needed(extra.split(","))
        pins = re.split(r"^(?=\S)", (REQUIREMENTS / "runtime.txt").read_text(), flags=re.M)
        wanted = folder / "requirements.txt"
        wanted.write_text("".join(pin for pin in pins if pin.partition("==")[0].lower() in names))
        pip = [*PIP, "--python", self.bin / "python"]
        built_by = REQUIREMENTS / "build.txt"
        if "pyspark" in names:  # comes as source only
            run(*pip, *INSTALL, "--require-hashes", "-r", built_by)
        run(*pip, *INSTALL, "--require-hashes", "-r", wanted)
        build = re.findall(r"^([\w.-]+)==", built_by.read_text(), flags=re.M)
        run(*pip, "uninstall", "-qy", *(name for name in build if name.lower() not in names))
        run(*pip, *INSTALL, wheel)
        run(*pip, "check")
        say(f"{self}: {len(names)} packages")

    def __str__(self) -> str:
        return f"[{self.extra}]" if self.extra else "no extra"

    def __call__(
        self, program: str, *words: str | Path, status: int = 0, given: str = "", **variables: str
    ) -> str:
        """Run a program of the environment."""
        return run(self.bin / program, *words, status=status, given=given, **variables)

    def try_all(self, places: dict[str, str], *, long: bool) -> None:
        """
        Run every command of this extra, and check that the others name the extra they lack.

        Raises:
            Failed: a command did neither.
        """
        lacking = [c for c in CASES if not brought(c.extra) <= brought(self.extra)]
        lines = "".join(f"{json.dumps([c.command, *c.words(places)])}\n" for c in lacking)
        answers = self("python", "-c", SAY, given=lines).splitlines()
        without = 0
        for case, answer in zip(lacking, answers, strict=True):
            status, said = json.loads(answer)
            if status == case.status and not case.waits:
                without += 1  # it does with a part of its extra, which this one brings too
                continue
            if (status, len(said.splitlines())) != (1, 1):
                raise Failed(f"{self}: {case.line} ended with {status} and said:\n{said}")
            expect(said, f"pip install '{DISTRIBUTION}[{case.extra}]'")
        working = [c for c in CASES if c.extra == self.extra and (long or not c.long)]
        for case in working:
            self.work(case, places)
        told = build_hook.mark(ROOT)
        which = "no commit known" if told is None else f"commit {told['commit'][:12]}"
        for command in ("headgate",), ("python", "-m", "headgate"):
            expect(self(*command, "--version"), which)
        worked, missed = len(working) + without, len(lacking) - without
        say(f"{self}: {worked} command lines work, {missed} say which extra they miss")

    def work(self, case: Case, places: dict[str, str]) -> None:
        """Run a command; a server until it serves."""
        if not case.waits:
            java = str(find_java().home)  # [pipeline] brings none
            self(*program(case), *case.words(places), status=case.status, JAVA_HOME=java)
            return
        with self.serving(case, places):
            if case.command == "serve":
                # The whole way: a tool, through the gateway, to the Kafka.
                asked = ["--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"]
                address = ["--bootstrap-server", places["front"]]
                expect(self("kafka-configs", *address, *asked), "log.retention.hours")

    @contextlib.contextmanager
    def serving(self, case: Case, places: dict[str, str], **variables: str) -> Iterator[Path]:
        """Run a server, give the file that it writes to, and stop it at the end."""
        log = Path(places["out"], f"{case.command}.log")
        variables = {"HEADGATE_CACHE": str(cache_dir()), **variables}
        command = ["env", *(f"{name}={value}" for name, value in variables.items())]
        command += [str(self.bin / "headgate"), case.command, *case.words(places)]
        child = Child(command, name=f"headgate {case.command}", output=log, log=log)
        try:
            child.wait_until(lambda: case.waits in child.log_text(), timeout_s=600)
            yield log
        finally:
            child.stop()


def program(case: Case) -> list[str]:
    """Return what a command is run by: Kafka's tools are programs of their own."""
    return [case.command] if case.command.startswith("kafka-") else ["headgate", case.command]


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


def places_of(env: Environment, folder: Path, kafka: str) -> dict[str, str]:
    """Write what the commands are given, and return what stands for each name in braces."""
    out = folder / f"files {env.extra or 'no extra'}"  # a blank in a path changes nothing
    out.mkdir()
    (data,) = env.bin.parent.glob("lib/python*/site-packages/headgate/pipeline/data")
    front = f"127.0.0.1:{free_ports(1)[0]}"
    config = out / "headgate.properties"
    config.write_text(
        f"listeners=PLAINTEXT://{front}\nheadgate.upstream={kafka}\n"
        "headgate.broker.id.min=1\nheadgate.broker.id.max=1\n"
        f"headgate.store=sqlite:{out / 'gateway.db'}\nheadgate.data.dir={out}\n"
        f"headgate.usage=files:{out / 'usage'}\n"
    )
    prices = out / "prices.yaml"
    prices.write_text(PRICES)
    described = out / "described.txt"
    described.write_text("Quota configs for user-principal 'alice' are producer_byte_rate=5.0\n")
    return {
        "out": str(out),
        "sqlite": f"sqlite:{out / 'quotas.db'}",
        "copy": f"sqlite:{out / 'copy.db'}",
        "kafka": kafka,
        "front": front,
        "gateway": str(config),
        "log": str(data / "request.log.gz"),
        "quotas": str(data / "quotas.yaml"),
        "prices": str(prices),
        "described": str(described),
        "tables": str(out / "tables"),
    }


def fetch_itself(env: Environment, folder: Path) -> None:
    """Start the wheel's gateway with an embedded Kafka, whose jars it has to fetch."""
    port = free_ports(1)[0]
    config = folder / "embedded.properties"
    config.write_text(
        f"listeners=PLAINTEXT://127.0.0.1:{port}\nheadgate.upstream=embedded\n"
        f"headgate.store=sqlite:{folder / 'embedded.db'}\nheadgate.data.dir={folder / 'data'}\n"
        f"headgate.embedded.dir={folder / 'own kafka'}\nsuper.users=User:ANONYMOUS\n"
    )
    case = Case("serve --config {config}", waits=" ready logger=headgate.serve")
    places = {"out": str(folder), "config": str(config)}
    with (
        tempfile.TemporaryDirectory(prefix="headgate-jars-") as jars,
        env.serving(case, places, HEADGATE_CACHE=jars) as log,
    ):
        expect(log.read_text(), "fetching", "jars, verified")
        env("kafka-quotas", "--bootstrap-server", f"127.0.0.1:{port}", "--list")


def through_uvx(wheel: Path, folder: Path) -> None:
    """Have uv run the wheel's demo as the README says, with nothing installed before."""
    run(*PIP, *INSTALL, "--require-hashes", "-r", REQUIREMENTS / "pins.txt")
    uvx = [sys.executable, "-m", "uv", "tool", "run", "--python", sys.executable]
    demo = ["headgate", "demo", "--quiet", "--seconds", "30", "--dir", folder / "demo"]
    expect(run(*uvx, "--from", f"{wheel}[all]", *demo), "users/user2/clients/clientA", "Report: ")
    say("uvx runs the demo of the wheel")


def try_everything(folder: Path, wheel: Path, *, long: bool) -> None:
    """Install the wheel with each extra, two at a time, and run every command in each."""
    extras = ["embedded", "pipeline", "", "admin", "gateway", "console"]
    if long:
        extras += ["pipeline,admin", "all"]

    def install(extra: str) -> Environment:
        return Environment(folder / (extra or "none"), wheel, extra)

    with ThreadPoolExecutor(2) as lanes:
        made = list(lanes.map(install, extras))
        with embedded(made[0], folder) as kafka:
            say(f"a Kafka at {kafka}")
            places = [places_of(env, folder, kafka) for env in made]
            # Two environments at a time. Only [admin] changes quotas in the Kafka.
            both = zip(made, places, strict=True)
            list(lanes.map(lambda both: both[0].try_all(both[1], long=long), both))
            if long:
                fetch_itself(made[-1], folder)
                say("a gateway from the wheel fetched and started a Kafka of its own")
    if long:
        through_uvx(wheel, folder)


def ship(folder: Path, *, long: bool = False) -> Built:
    """
    Build, check, install and try.

    Args:
        folder: an empty one.
        long: also what takes longer.

    Raises:
        Failed: something isn't as it should be.
    """
    built = make(folder, say)
    try:
        try_everything(folder, built.wheel, long=long)
    except EmbeddedError as problem:
        raise Failed(str(problem)) from problem
    say("every command works with its extra, or says which one it misses")
    return built


def main() -> int:
    """Do it in a temporary folder; 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="also what takes longer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headgate-package-") as name:
        try:
            keep(ship(Path(name), long=options.all), ROOT / "dist")
        except Failed as problem:
            print(f"error: {problem}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
