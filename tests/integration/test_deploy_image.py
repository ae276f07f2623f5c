"""The image is built from the wheel, runs as nobody on a read-only root, and throttles a client."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate import __version__
from headgate.embedded import EmbeddedKafka
from kit.containers import Containers
from kit.scripts import ROOT

from .gateway_kit import send, topic, wait_for

pytestmark = [pytest.mark.kafka4, pytest.mark.slow]
IMAGE = "localhost/headgate"
COMPOSE = ROOT / "deploy" / "compose"
NEEDED = ("requirements/build.txt", "requirements/image.txt", "deploy/image/healthy.py")
COMPILERS = ("cc", "gcc", "c++", "g++", "clang", "ld", "as", "make", "cargo", "rustc", "go")
# What only a program inside can say.
LOOK = f"""
import importlib.util, os, shutil
print(os.getuid(), os.getgid())
print([name for name in {COMPILERS} if shutil.which(name)], importlib.util.find_spec("pip"))
try:
    open("/opt/headgate/written", "w")
except OSError as refused:
    print(refused.strerror)
"""


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """The image, built from this tree's wheel on a Debian with nothing but Python."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import deploy_tools

    deploy_tools.programs()
    base = deploy_tools.base()
    context = tmp_path_factory.mktemp("context")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", context / "dist"]
    subprocess.run(list(map(str, build)), cwd=ROOT, check=True)
    for name in NEEDED:
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, context / name)
    made = Containers()
    try:
        made.take(base, "localhost/base")
        file = ROOT / "deploy" / "image" / "Containerfile"
        made.build(file, context, IMAGE, BASE="localhost/base")
        yield made
    finally:
        made.close()


def test_nothing_in_it_compiles_and_it_runs_as_nobody_who_may_write(containers: Containers) -> None:
    shown = containers.run("--entrypoint", "python", IMAGE, "-c", LOOK)
    assert shown.splitlines() == ["10001 10001", "[] None", "Read-only file system"]
    image = containers.podman(
        "inspect", IMAGE, "--format", "{{.Config.Labels}} {{.Config.StopSignal}}"
    )
    assert f"org.opencontainers.image.version:{__version__}" in image
    assert "SIGTERM" in image


def test_dashboards_and_alerts_are_written_from_it(containers: Containers) -> None:
    place = ("--volume", "monitoring:/var/lib/headgate")
    told = containers.run(*place, IMAGE, "monitoring", "/var/lib/headgate")
    assert "/var/lib/headgate/headgate-rules.yml" in told


def test_a_client_is_throttled_through_it_its_health_is_told_and_it_ends_on_a_signal(
    containers: Containers,
    kafka4: EmbeddedKafka,
    unique: Callable[[str], str],
    free_ports: Callable[..., list[int]],
    tmp_path: Path,
) -> None:
    first, _, http, page = free_ports(4, consecutive=True)  # two brokers
    bootstrap = f"127.0.0.1:{first}"
    settings = tmp_path / "headgate.properties"
    settings.write_text(
        f"headgate.upstream={kafka4.bootstrap('PLAINTEXT')}\n"
        "headgate.broker.id.min=1\nheadgate.broker.id.max=2\n"
        f"listeners=PLAINTEXT://{bootstrap}\nheadgate.http.listener=127.0.0.1:{http}\n"
        "headgate.data.dir=/var/lib/headgate\nsuper.users=User:ANONYMOUS\n"
    )

    def started(name: str, url: str, *words: str | Path) -> str:
        """Start a container, and wait until its health check passes."""
        name = unique(name)
        containers.start(name, "--env", f"HEADGATE_HEALTH_URL={url}", *words)

        def healthy() -> bool:
            try:
                containers.podman("healthcheck", "run", name)
            except AssertionError:
                assert containers.state(name)["State"]["Running"], containers.log(name)
                return False
            return True

        wait_for(healthy, f"{name} to be healthy", 120)
        return name

    mounted = ("--volume", f"{settings}:/etc/headgate/headgate.properties:ro")
    data = ("--volume", f"{unique('data')}:/var/lib/headgate")
    gateway = started("gateway", f"http://127.0.0.1:{http}/readyz", *data, *mounted, IMAGE)
    client, records = unique("greedy"), topic(bootstrap, unique("shipped"))
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text(
        f"quotas: [{{entity: {{client-id: {client}}}, producer_byte_rate: 100000}}]\n"
    )
    given = ("--volume", f"{quotas}:/quotas.yaml:ro", IMAGE)
    assert "1 entity changed" in containers.run(
        *given, "apply", "--bootstrap-server", bootstrap, "/quotas.yaml"
    )
    assert max(send(bootstrap, records, 2_000, **{"client.id": client})) > 0
    assert not any(send(bootstrap, records, 200, **{"client.id": unique("modest")}))

    # The console of the compose file, with its certificate, at ports of this test.
    script = COMPOSE / "certificate.py"
    make = ("--volume", f"{script}:/certificate.py:ro", "--entrypoint", "python", IMAGE)
    place = ("--volume", f"{unique('page')}:/var/lib/headgate")
    containers.run(*place, *make, "/certificate.py", "/var/lib/headgate")
    shown = (COMPOSE / "console.properties").read_text("utf-8")
    shown = shown.replace("=:8088", f"=127.0.0.1:{page}").replace(
        "localhost:8088", f"localhost:{page}"
    )
    pages = tmp_path / "console.properties"
    pages.write_text("".join(line for line in shown.splitlines(True) if "store" not in line))
    console = ("--volume", f"{pages}:/etc/headgate/console.properties:ro", IMAGE, "console")
    config = ("--config", "/etc/headgate/console.properties", "--bootstrap-server", bootstrap)
    started("console", f"https://127.0.0.1:{page}/healthz", *place, *console, *config)

    containers.podman("stop", "--time", "90", gateway)
    state = containers.state(gateway)["State"]
    assert state["ExitCode"] == 0, containers.log(gateway)
