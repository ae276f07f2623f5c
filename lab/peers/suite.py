"""
Run kafka-python's own integration tests at a real broker and at a gateway in front of it; compare.

The tests come from its source package, fetched by pip and held to the hashes in requirements/;
aiokafka's source package has none. Each of the two runs has a fresh Kafka of the kind the suite
starts for itself: one node with id 0, an authorizer, four partitions for new topics, a plaintext,
a SASL and a TLS listener; 4.3 in KRaft mode, 3.9 with ZooKeeper. The gateway is a ``headgate
serve`` of its own process with its default settings. A test that doesn't pass is tried again, on
both sides alike: the suite has second-sharp deadlines, and a loaded machine misses one now and
then. It is tried with a fresh Kafka, for some tests find there what they left behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives import serialization

from headgate.embedded import EmbeddedKafka, free_ports
from headgate.embedded.broker import BrokerProcess, brokers_told
from headgate.embedded.process import accepts
from headgate.embedded.properties import BrokerPorts, as_text

ROOT: Final = Path(__file__).resolve().parents[2]
LAB: Final = ROOT / "lab"
CACHE: Final = ROOT / ".cache" / "peers"
PINS: Final = ROOT / "requirements" / "dev.txt"
PACKAGE: Final = "kafka-python"
VERSIONS: Final = ("4.3.1", "3.9.2")
TRIES: Final = 3
START_TIMEOUT_S: Final = 180.0

# What the suite's repository has and its source package leaves out.
_MISSING: Final = {
    "test/__init__.py": "",
    "test/service.py": "class ExternalService: ...\n\n\nclass SpawnedService: ...\n",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What became of one test.

    Attributes:
        result: ``passed``, ``skipped``, ``failed`` or ``error``.
        tries: how often it was run.
        text: why it didn't pass; empty if it did.
    """

    result: str
    tries: int = 1
    text: str = ""

    @property
    def bad(self) -> bool:
        """Whether the test failed, or its fixtures did."""
        return self.result in ("failed", "error")


Outcomes = dict[str, Outcome]


# --- the suite -----------------------------------------------------------------------------------


def pinned() -> tuple[str, str]:
    """Return the version that requirements/ pins, and the pin with its hashes."""
    pin = re.search(rf"^{PACKAGE}==([\w.]+)(?: \\\n +--hash=\S+)+", PINS.read_text(), re.MULTILINE)
    assert pin is not None, f"{PINS} doesn't pin {PACKAGE}"
    return pin[1], pin[0]


def fetch() -> Path:
    """Fetch and unpack the source package once; return its folder."""
    version, pin = pinned()
    folder = CACHE / f"{PACKAGE}-{version}"
    if folder.is_dir():
        return folder
    work = CACHE / f"new-{os.getpid()}"
    work.mkdir(parents=True)
    try:
        wanted = work / "wanted.txt"
        wanted.write_text(pin + "\n")
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        command += ["download", "--quiet", "--no-deps", "--no-build-isolation"]
        command += ["--no-binary", PACKAGE, "--require-hashes", "-r", str(wanted), "-d", str(work)]
        subprocess.run(command, check=True)
        (archive,) = work.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(work / "unpacked", filter="data")
        (unpacked,) = (work / "unpacked").iterdir()
        for name, text in _MISSING.items():
            assert not (unpacked / name).exists(), f"the source package has {name} by now"
            (unpacked / name).write_text(text)
        unpacked.rename(folder)
    finally:
        shutil.rmtree(work)
    return folder


# --- where it runs -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """
    Where the suite is pointed at.

    Attributes:
        plaintext: ``host:port`` of the listener of that protocol.
        sasl: the same.
        ssl: the same.
        ssl_dir: folder with ``ca-cert``.
    """

    plaintext: str
    sasl: str
    ssl: str
    ssl_dir: Path


class PeerBroker(BrokerProcess):
    """A broker that says it is broker 0, and has a TLS listener."""

    ssl_port: int

    def wait(self, knows: Collection[int], progress: Callable[[str], None]) -> None:
        self.child.wait_until(
            lambda: accepts(self.ssl_port) and brokers_told(self.ports.plaintext) == {0},
            timeout_s=START_TIMEOUT_S,
        )


class PeerKafka(EmbeddedKafka):
    """
    One broker as the suite starts it: id 0, a TLS listener, ACLs.

    Args:
        folder: for data and key material.
        version: of Kafka.
    """

    def __init__(self, folder: Path, version: str) -> None:
        super().__init__(folder / "kafka", version=version)
        self.ssl_dir = folder / "ssl"
        self.ssl_dir.mkdir(parents=True)
        self._ssl_port = free_ports(1)[0]
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ssl_dir / "ca-cert")
        cert = authority.issue_cert("localhost", "127.0.0.1")
        key = serialization.load_pem_private_key(cert.private_key_pem.bytes(), None)
        as_kafka_reads = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        chain = b"".join(blob.bytes() for blob in cert.cert_chain_pems)
        (self.ssl_dir / "server.pem").write_bytes(as_kafka_reads + chain)

    @property
    def place(self) -> Place:
        """Where it listens."""
        return Place(
            self.bootstrap("PLAINTEXT"),
            self.bootstrap("SASL_PLAINTEXT"),
            f"127.0.0.1:{self._ssl_port}",
            self.ssl_dir,
        )

    def make_broker(self, id: int, ports: BrokerPorts) -> BrokerProcess:
        """Return a broker that waits for its TLS listener too."""
        broker = PeerBroker(id, self.dir / f"broker-{id}", ports, self.version)
        broker.ssl_port = self._ssl_port
        return broker

    def settings_of(self, broker: BrokerProcess) -> dict[str, str]:
        """Return what is in server.properties."""
        settings = super().settings_of(broker)
        # The suite looks at advertised.listeners: its 3.9 brokers leave them to the default.
        del settings["advertised.listeners"]
        ports = broker.ports
        open_to_clients = (
            f"PLAINTEXT://127.0.0.1:{ports.plaintext},SASL_PLAINTEXT://127.0.0.1:{ports.sasl},"
            f"SSL://127.0.0.1:{self._ssl_port}"
        )
        if self.kraft:
            mode = {
                "node.id": "0",
                "controller.quorum.voters": f"0@127.0.0.1:{ports.controller}",
                "listeners": f"{open_to_clients},CONTROLLER://127.0.0.1:{ports.controller}",
                "advertised.listeners": open_to_clients,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            }
        else:
            mode = {
                "broker.id": "0",
                "listeners": open_to_clients,
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            }
        more = mode | {
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.ssl_dir / "server.pem"),
            "num.partitions": "4",
            "group.min.session.timeout.ms": "1000",
            "allow.everyone.if.no.acl.found": "true",
        }
        return settings | more


@contextlib.contextmanager
def at_broker(folder: Path, version: str) -> Iterator[Place]:
    """Start a Kafka; the suite goes straight to it."""
    with PeerKafka(folder, version) as kafka:
        yield kafka.place


@contextlib.contextmanager
def at_gateway(folder: Path, version: str) -> Iterator[Place]:
    """Start a Kafka and a ``headgate serve`` before it; the suite goes to the gateway."""
    with PeerKafka(folder, version) as kafka:
        there = kafka.place
        plaintext, sasl, ssl = free_ports(3)
        listeners = f"PLAINTEXT://127.0.0.1:{plaintext},SASL://127.0.0.1:{sasl},"
        pem = there.ssl_dir / "server.pem"
        settings = {
            "listeners": f"{listeners}TLS://127.0.0.1:{ssl}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL",
            "headgate.upstream": there.plaintext,
            "listener.name.sasl.headgate.upstream": there.sasl,
            "headgate.upstream.admin.sasl.username": "admin",
            "headgate.upstream.admin.sasl.password": kafka.users["admin"],
            "listener.name.tls.headgate.upstream": there.ssl,
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(pem),
            "headgate.upstream.ssl.truststore.type": "PEM",
            "headgate.upstream.ssl.truststore.location": str(there.ssl_dir / "ca-cert"),
            "headgate.upstream.admin.ssl.truststore.type": "PEM",
            "headgate.upstream.admin.ssl.truststore.location": str(there.ssl_dir / "ca-cert"),
            "headgate.broker.id.min": "0",
            "headgate.broker.id.max": "0",
            "headgate.data.dir": str(folder / "headgate"),
        }
        config = folder / "headgate.properties"
        config.write_text(as_text(settings))
        with _served(config, folder / "headgate.log"):
            yield Place(
                f"127.0.0.1:{plaintext}", f"127.0.0.1:{sasl}", f"127.0.0.1:{ssl}", there.ssl_dir
            )


@contextlib.contextmanager
def _served(config: Path, log: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "headgate.cli.main", "serve", "--config", str(config)]
    with log.open("wb") as said:
        process = subprocess.Popen(command, stderr=said, stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + START_TIMEOUT_S
        while "ready" not in log.read_text():
            assert process.poll() is None, f"headgate serve ended: {log.read_text()}"
            assert time.monotonic() < until, f"headgate serve isn't ready: {log.read_text()}"
            time.sleep(0.05)
        yield
        assert process.poll() is None, f"headgate serve ended: {log.read_text()}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# --- the run -------------------------------------------------------------------------------------


def run(
    suite: Path,
    place: Callable[[Path, str], AbstractContextManager[Place]],
    folder: Path,
    version: str,
    tests: Sequence[str] = (),
) -> Outcomes:
    """
    Run the suite once, and what didn't pass again.

    Args:
        suite: its folder.
        place: starts what it is pointed at.
        folder: for everything that comes up.
        version: of Kafka.
        tests: ids of those wanted; all by default.

    Returns:
        Test id to what became of it.
    """
    found: Outcomes = {}
    wanted = list(tests) or ["test/integration"]
    for attempt in range(1, TRIES + 1):
        own = folder / f"run-{attempt}"
        own.mkdir()
        with place(own, version) as where:
            outcomes = _run_once(suite, where, own / "report", version, wanted)
        for name, outcome in outcomes.items():
            found[name] = Outcome(outcome.result, attempt, outcome.text)
        wanted = [name for name, o in found.items() if o.bad]
        if not wanted:
            break
    return found


def _run_once(
    suite: Path, place: Place, report: Path, version: str, tests: Sequence[str]
) -> Outcomes:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "KAFKA_", "ZOOKEEPER_"))
    }
    environment |= {
        "KAFKA_VERSION": version,
        "PYTHONPATH": os.pathsep.join([str(suite), str(LAB)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PEER_PLAINTEXT": place.plaintext,
        "PEER_SASL_PLAINTEXT": place.sasl,
        "PEER_SSL": place.ssl,
        "PEER_SSL_DIR": str(place.ssl_dir),
    }
    xml = report.with_suffix(".xml")
    command = [sys.executable, "-m", "pytest", "-p", "peers.kafka_python", "-p", "no:cacheprovider"]
    command += ["--tb=short", f"--junitxml={xml}", "-o", "junit_family=xunit1", *tests]
    with report.with_suffix(".txt").open("wb") as said:
        subprocess.run(
            command, cwd=suite, env=environment, stdin=subprocess.DEVNULL, stdout=said,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    assert xml.is_file(), report.with_suffix(".txt").read_text()[-5_000:]
    return dict(_read(xml))


def _read(xml: Path) -> Iterator[tuple[str, Outcome]]:
    for case in ET.parse(xml).getroot().iter("testcase"):
        of_class = case.get("classname", "").removeprefix(
            case.get("file", "").removesuffix(".py").replace("/", ".")
        )
        parts = [case.get("file", ""), *of_class.strip(".").split("."), case.get("name", "")]
        name = "::".join(part for part in parts if part)
        bad = [child for child in case if child.tag in ("failure", "error", "skipped")]
        kind = {"failure": "failed"}.get(bad[0].tag, bad[0].tag) if bad else "passed"
        yield name, Outcome(kind, text=(bad[0].text or bad[0].get("message", "")) if bad else "")


# --- the comparison ------------------------------------------------------------------------------


def differences(direct: Outcomes, through: Outcomes) -> list[tuple[str, str, str]]:
    """Return (test, at the broker, through the gateway) of those that differ."""
    names = sorted({*direct, *through})
    nothing = Outcome("not run")
    pairs = ((n, direct.get(n, nothing).result, through.get(n, nothing).result) for n in names)
    return [(name, before, after) for name, before, after in pairs if before != after]


def table(direct: Outcomes, through: Outcomes) -> str:
    """Return both sides' counts as a Markdown table."""
    rows = [
        "| | passed | failed | skipped | passed only when tried again |",
        "|---|---|---|---|---|",
    ]
    for title, side in (("at the broker", direct), ("through the gateway", through)):
        results = [outcome.result for outcome in side.values()]
        again = sum(o.result == "passed" and o.tries > 1 for o in side.values())
        bad = sum(outcome.bad for outcome in side.values())
        counts = (results.count("passed"), bad, results.count("skipped"), again)
        rows.append(f"| {title} | {' | '.join(map(str, counts))} |")
    return "\n".join(rows)


def both(
    folder: Path,
    version: str,
    tests: Sequence[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Outcomes, Outcomes]:
    """
    Run the suite at a broker and through a gateway.

    Args:
        folder: an empty one, for everything that comes up.
        version: of Kafka, one of ``VERSIONS``.
        tests: ids of those wanted; all by default.
        progress: told what is going on.

    Returns:
        What came of it at the broker, and through the gateway.
    """
    suite = fetch()
    sides = []
    for name, place in (("broker", at_broker), ("gateway", at_gateway)):
        (folder / name).mkdir()
        started = time.monotonic()
        sides.append(run(suite, place, folder / name, version, tests))
        progress(f"{name}: {len(sides[-1])} tests in {time.monotonic() - started:.0f} s")
    return sides[0], sides[1]
