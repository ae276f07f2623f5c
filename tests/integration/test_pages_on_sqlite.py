"""Pages whose commands need no Kafka, followed: quotas as code, an upgrade, the console's users."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import yaml

from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import PRODUCER
from headgate.store import open_store
from headgate.store.base import AuditEvent
from kit.pages import ROOT, Reader

from .scripted_upstream import Start, start, upstream

__all__ = ["start", "upstream"]
LEAN = "headgate.upstream=embedded\n"
KUBECTL = f"""#!/bin/sh
case "$1" in
get) cat "{ROOT}/examples/strimzi-users.yaml" ;;
apply) grep strimzi.io/cluster users.yaml ;;
esac
"""


def without_moments(history: str) -> str:
    """Put words in the place of times, names of changes, and who works on this machine."""
    history = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", history)
    history = re.sub(r"\b[0-9a-f]{12}\b", "CHANGE", history)
    return re.sub(r"TIME  \S+@\S+", "TIME  SOMEBODY", history)


def test_quotas_as_code(tmp_path: Path, start: Start) -> None:
    with open_store(f"sqlite:{tmp_path / 'quotas.db'}") as store:
        gateway = start(store=store, super__users="User:ANONYMOUS")
        here = {
            "localhost:9092": gateway.bootstrap("PLAINTEXT"),
            "/var/lib/headgate": f"{tmp_path}",
            "2026-11-21T15:00:00Z": "2020-01-01T00:00:00Z",
        }
        reader = Reader("docs/howto/quotas-as-code.md", tmp_path, here)
        quotas = tmp_path / "quotas.yaml"
        shown = reader.block("client-id: etl}  ")
        quotas.write_text(shown)
        reader.run_lines("apply --bootstrap-server")
        reader.run_lines("export --bootstrap-server")
        told = [yaml.safe_load(text)["quotas"] for text in (quotas.read_text(), shown)]
        assert sorted(told[0], key=str) == sorted(told[1], key=str)

        with quotas.open("a") as file:
            file.write("- entity: {user: alice, client-id: etl}\n  producer_byte_rate: 4MB/s\n")
        wanted, said = reader.run_console("$ headgate plan", good=(3,))
        assert said == wanted
        reader.run(reader.block("plan.json"))
        store.history.audit(
            AuditEvent("mallory", "admin listener", "alter_quotas", "refused", "users/bob")
        )
        wanted, said = reader.run_console("$ headgate history")
        assert without_moments(said) == without_moments(wanted)
        [change] = re.findall(r"[0-9a-f]{12}", said)

        back = reader.block("headgate undo").replace("1f9d675c0385", change)
        assert "4000000 (4 MB/s) → none" in reader.run(back)
        assert not store.snapshot()


def test_quotas_of_strimzis_users(tmp_path: Path) -> None:
    reader = Reader("docs/howto/quotas-as-code.md", tmp_path, {"/var/lib/headgate": f"{tmp_path}"})
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o700)
    reader.environment["PATH"] = f"{kubectl.parent}:{reader.environment['PATH']}"
    _, planned, applied = reader.run_lines("kubectl get")
    assert "users/CN%3Dpayments" in planned
    assert "Applied: 2 entities changed." in applied
    _, sent = reader.run_lines("kubectl apply")
    assert sent.split() == ["strimzi.io/cluster:", "orders"] * 2


def test_an_upgrade_and_the_way_back(tmp_path: Path) -> None:
    reader = Reader("docs/howto/upgrade.md", tmp_path, {"/var/lib/headgate": f"{tmp_path}"})
    (tmp_path / "headgate.properties").write_text(LEAN)
    with open_store(f"sqlite:{tmp_path / 'quotas.db'}") as store:
        store.alter([QuotaAlteration.of(QuotaEntity.of(user="a"), [Op(PRODUCER, 5.0)])])
        reader.run(reader.block("headgate serve"))
        reader.run(reader.block("headgate export"))
        reader.run(reader.block("headgate apply"))
        with open_store(f"sqlite:{tmp_path / 'quotas-old.db'}") as old:
            assert old.snapshot().entities == store.snapshot().entities


def test_mistakes_are_found_before_a_gateway_starts(tmp_path: Path) -> None:
    reader = Reader("docs/howto/troubleshooting.md", tmp_path)
    settings = tmp_path / "headgate.properties"
    settings.write_text(LEAN)
    check = reader.block("headgate serve").strip()
    reader.run(check)
    settings.write_text(f"{LEAN}no.such=1\nlisteners=nothing\n")
    said = reader.run(f"{check} 2>&1", good=(1,))
    assert ":2: " in said
    assert ":3: " in said


def test_the_console_with_its_users(tmp_path: Path, free_port: int) -> None:
    reader = Reader("docs/howto/console.md", tmp_path)
    with open_store(f"sqlite:{tmp_path / 'quotas.db'}"):
        pass
    (tmp_path / "tenants.yaml").write_text(reader.block("tenants:\n"))
    *users, console = reader.block("console user add").splitlines()
    _, said = [reader.run(line, typed="correct horse battery\n") for line in users]
    assert said.split() == ["ada", "operator", "tom", "tenant", "payments"]
    address = f"127.0.0.1:{free_port}"
    for command, place in ((reader.block("sqlite:quotas.db\n"), "Now"), (console, "Sign in")):
        with (
            reader.running(f"{command.rstrip()} --listen {address}", f"http://{address}/"),
            urllib.request.urlopen(f"http://{address}/") as page,
        ):
            assert place in page.read().decode()


def test_the_console_by_a_program(tmp_path: Path, free_port: int) -> None:
    address, alice = f"127.0.0.1:{free_port}", QuotaEntity.of(user="alice")
    reader = Reader("docs/howto/console.md", tmp_path, {"127.0.0.1:8088": address})
    with open_store(f"sqlite:{tmp_path / 'quotas.db'}") as store:
        store.alter([QuotaAlteration.of(alice, [Op(PRODUCER, 5.0)])])
        ada = reader.block("console user add").splitlines()[0]
        reader.run(ada, typed="correct horse battery\n")
        reader.run(reader.block("token add nightly"))
        start = f"headgate console --store sqlite:quotas.db --data console --listen {address}"
        with reader.running(start, f"http://{address}/"):
            api = reader.block("curl.conf\n")
            [row] = json.loads(reader.run(api))["rows"]
            assert (row["entity"], row["value"]) == ("users/alice", 5.0)
            api = api.rpartition("curl --silent")[0]
            change = reader.block("> plan.json") + reader.block("> made.json")
            planned, stale = map(json.loads, reader.run(api + change, good=(22,)).splitlines())
            assert (planned["removals"], planned["refused"]) == (0, [])
            assert (stale["status"], stale["where"]) == (409, "revision")
            assert store.snapshot().get(alice, PRODUCER) == 2e6
            made = json.loads(reader.run(api + reader.block("$undo, $revision")))
            assert store.snapshot().get(alice, PRODUCER) == 5.0
            assert store.history.entries()[-1].change == made["change"]
