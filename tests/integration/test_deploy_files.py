"""The tools that check deployments find nothing wrong in deploy/, and the chart is as rendered."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from kit.prometheus import program
from kit.scripts import ROOT

pytestmark = pytest.mark.slow
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
RENDERED = [DEPLOY / "install.yaml", *sorted((CHART / "goldens").glob("*.yaml"))]
KUBERNETES = "1.36"
MOST_EXPOSED = 1.5  # of 10; systemd calls less than 2 "ok"
# Kinds that Kubernetes lacks and an operator brings: no schema says what they may hold.
FOREIGN = {"ServiceMonitor"}


@pytest.fixture(scope="module")
def tools() -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    import deploy_tools

    return deploy_tools


def run(*command: str | Path, status: int = 0) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_the_containerfile_keeps_the_rules_of_hadolint(tools: ModuleType) -> None:
    run(tools.checker("hadolint"), DEPLOY / "image" / "Containerfile")


def test_the_compose_file_fits_the_specification(tools: ModuleType, tmp_path: Path) -> None:
    check = [tools.checker("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    file = DEPLOY / "compose" / "compose.yaml"
    run(*check, file)
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(file.read_text("utf-8").replace("read_only:", "readonly:"))
    run(*check, wrong, status=1)


def test_prometheus_takes_its_settings_with_the_rules(tmp_path: Path) -> None:
    run(sys.executable, "-m", "headgate", "monitoring", tmp_path)
    text = (DEPLOY / "compose" / "prometheus.yml").read_text("utf-8")
    (tmp_path / "prometheus.yml").write_text(
        text.replace("/etc/headgate-monitoring", str(tmp_path))
    )
    assert "rules found" in run(program("promtool"), "check", "config", tmp_path / "prometheus.yml")


def test_the_certificate_of_the_compose_file_is_one_that_a_console_serves(tmp_path: Path) -> None:
    make = [sys.executable, DEPLOY / "compose" / "certificate.py", tmp_path]
    run(*make)
    before = (tmp_path / "console.pem").read_bytes()
    run(*make)  # again: it stays
    assert (tmp_path / "console.pem").read_bytes() == before
    assert (tmp_path / "console.key").stat().st_mode & 0o077 == 0
    import ssl

    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
        tmp_path / "console.pem", tmp_path / "console.key"
    )


def test_the_chart_renders_what_is_kept(tools: ModuleType) -> None:
    run(tools.helm(), "lint", "--strict", CHART / "headgate", "--kube-version", tools.KUBERNETES)
    for path, text in tools.rendered().items():
        assert path.read_text("utf-8") == text, f"{path}: run `make chart`"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("store=sqlite:quotas.db", "store"),
        ("brokers=1", "brokers"),
        ("listener.protocol=TLS", "protocol"),
        ("replica=2", "replica"),
        ("console.enabled=true", "console.url"),
    ],
)
def test_the_chart_refuses_values_that_make_no_sense(
    tools: ModuleType, value: str, told: str
) -> None:
    render = [tools.helm(), "template", "h", CHART / "headgate"]
    given = ["--kube-version", tools.KUBERNETES, "--set", value]
    assert told in run(*render, *given, status=1)


@pytest.mark.parametrize("path", RENDERED, ids=lambda path: path.name)
def test_kubernetes_knows_everything_that_is_rendered(
    tools: ModuleType, path: Path, tmp_path: Path
) -> None:
    check = [tools.checker("kubernetes-validate"), "-k", KUBERNETES, "--strict"]
    known = [d for d in yaml.safe_load_all(path.read_text("utf-8")) if d["kind"] not in FOREIGN]
    file = tmp_path / "known.yaml"
    file.write_text(yaml.safe_dump_all(known))
    assert "WARN" not in run(*check, file)
    file.write_text(yaml.safe_dump_all(known).replace("readOnlyRootFilesystem", "readOnlyRoot"))
    run(*check, file, status=1)


def test_the_units_are_understood_and_may_do_little(tmp_path: Path) -> None:
    assert shutil.which("systemd-analyze"), "install systemd (Debian: apt-get install systemd)"
    for unit in UNITS:
        text = unit.read_text("utf-8")
        # The place of an installation must exist; here it is that of this environment.
        placed = text.replace("/opt/headgate/bin/headgate", str(Path(sys.executable)))
        (tmp_path / unit.name).write_text(placed)
    paths = sorted(tmp_path.iterdir())
    verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=yes"]
    assert run(*verify, *paths) == ""
    for path in paths:
        security = ["systemd-analyze", "security", "--offline=true", "--no-pager"]
        run(*security, f"--threshold={MOST_EXPOSED * 10:.0f}", path)
    (tmp_path / paths[0].name).write_text(
        paths[0].read_text("utf-8").replace("NoNewPrivileges", "NoPrivileges")
    )
    run(*verify, paths[0], status=1)
