"""What deploy/ says is real: versions, pins, settings, quotas, command lines. Others run it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import yaml

from headgate import __version__
from headgate.cli.main import COMMANDS
from headgate.config import Settings
from headgate.config.properties import parse_properties
from headgate.quota.file import read_quotas_file

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RENDERED = [DEPLOY / "install.yaml", *sorted((DEPLOY / "chart" / "goldens").glob("*.yaml"))]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def documents(path: Path) -> list[dict[str, Any]]:
    return [found for found in yaml.load_all(path.read_text("utf-8"), Loader=LOADER) if found]


def of_kind(path: Path, *kinds: str) -> list[dict[str, Any]]:
    return [found for found in documents(path) if found["kind"] in kinds]


def test_the_version_is_the_same_everywhere() -> None:
    chart = yaml.safe_load((DEPLOY / "chart" / "headgate" / "Chart.yaml").read_text("utf-8"))
    image = (DEPLOY / "image" / "Containerfile").read_text("utf-8")
    compose = (DEPLOY / "compose" / "compose.yaml").read_text("utf-8")
    assert {chart["version"], chart["appVersion"]} == {__version__}
    assert f"ARG VERSION={__version__}\n" in image
    assert f"image: headgate:{__version__}\n" in compose


def test_the_image_holds_the_versions_that_tests_run_on() -> None:
    def pins(name: str) -> set[str]:
        text = (ROOT / "requirements" / name).read_text("utf-8")
        # A marker may differ: it says for which platforms, not which version.
        return {re.sub(r" ;[^\\]*", " ", pin) for pin in re.split(r"\n(?=\S)", text.strip())}

    assert pins("image.txt") <= pins("runtime.txt")
    assert len(pins("image.txt")) > 30


def settings() -> Iterator[tuple[str, str]]:
    """Every text of settings below deploy/, by its place."""
    for path in sorted((DEPLOY / "compose").glob("*.properties")):
        yield path.name, path.read_text("utf-8")
    for path in RENDERED:
        for found in of_kind(path, "ConfigMap"):
            yield f"{path.name} {found['metadata']['name']}", found["data"]["headgate.properties"]


@pytest.mark.parametrize(("place", "text"), list(settings()))
def test_settings_are_settings_without_a_mistake(place: str, text: str) -> None:
    found, bad = parse_properties(text)
    assert found
    assert not bad
    read = Settings.from_properties({one.key: one.value for one in found})
    assert read.console.listener or not read.warnings  # a console's file has no gateway in it


def test_the_quotas_of_the_compose_file_are_quotas() -> None:
    assert len(read_quotas_file(DEPLOY / "compose" / "quotas.yaml").table) == 1


def lines() -> Iterator[tuple[str, list[str]]]:
    """Every command line of Headgate below deploy/, by its place."""
    for path in UNITS:
        text = path.read_text("utf-8").replace("$SPLITS", "--topic t --store kafka://k:1")
        for line in re.findall(r"^Exec\w+=/opt/headgate/bin/headgate (.*)$", text, re.M):
            yield path.name, shlex.split(line)
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text("utf-8"))
    for name, service in compose["services"].items():
        if service["image"].startswith("headgate") and "command" in service:
            yield f"compose {name}", service["command"]
    for path in RENDERED:
        for found in of_kind(path, "Deployment", "StatefulSet"):
            (container,) = found["spec"]["template"]["spec"]["containers"]
            yield f"{path.name} {found['metadata']['name']}", container["args"]


@pytest.mark.parametrize(("place", "words"), list(lines()))
def test_command_lines_are_understood(place: str, words: list[str]) -> None:
    parser = resolve_name(f"headgate.{COMMANDS[words[0]].target}")()
    assert parser.parse_args(words[1:])


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.name)
def test_services_lead_to_ports_of_pods_that_may_do_little(path: Path) -> None:
    pods = [found["spec"]["template"] for found in of_kind(path, "Deployment", "StatefulSet")]
    assert pods
    for service in of_kind(path, "Service"):
        wanted = service["spec"]["selector"].items()
        reached = [pod for pod in pods if wanted <= pod["metadata"]["labels"].items()]
        assert reached, service["metadata"]["name"]
        for port in service["spec"]["ports"]:
            for pod in reached:
                (container,) = pod["spec"]["containers"]
                assert port["targetPort"] in {one["name"] for one in container["ports"]}
    for pod in pods:
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        given = {volume["name"] for volume in spec["volumes"]} | {"data"}
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {mount["name"] for mount in container["volumeMounts"]} <= given


def test_a_broker_has_the_port_that_its_clients_are_told() -> None:
    (config,) = (
        found
        for found in of_kind(DEPLOY / "chart" / "goldens" / "everything.yaml", "ConfigMap")
        if found["metadata"]["name"] == "headgate"
    )
    found, _ = parse_properties(config["data"]["headgate.properties"])
    told = Settings.from_properties({one.key: one.value for one in found}).ports
    ports = {
        service["metadata"]["name"]: service["spec"]["ports"][0]["port"]
        for service in of_kind(DEPLOY / "chart" / "goldens" / "everything.yaml", "Service")
    }
    for broker in (0, 2, 10):
        address = told.advertised("CLIENTS", broker)
        assert address is not None
        assert str(address) == f"kafka-{broker}.example.com:{ports[f'headgate-{broker}']}"
        bound = told.bind("CLIENTS", broker)
        assert bound is not None
        assert bound.port == address.port
