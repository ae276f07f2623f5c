"""Dashboards and alerts ask for what is exported, fire when they should, and are explained."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.metrics.monitoring.dashboards import RULES, files
from kit.prometheus import program
from kit.promql import Labels, labels_of

ROOT = Path(__file__).parents[3]
CASES = ROOT / "tests" / "data" / "monitoring" / "rules_test.yml"
GUIDE = ROOT / "docs" / "howto" / "monitoring.md"
GROUPS = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
EVERY = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in EVERY if "alert" in rule}


@pytest.fixture(scope="module")
def dashboards() -> dict[str, Any]:
    return {
        name.removesuffix(".json"): json.loads(text)
        for name, text in files().items()
        if name.endswith(".json")
    }


def with_variables_set(text: str) -> str:
    return re.sub(r"\$\w+", ".*", text.replace("$__rate_interval", "5m"))


def recorded() -> dict[str, Labels]:
    found: dict[str, Labels] = {}
    for rule in EVERY:
        if "record" in rule:
            found[rule["record"]] = labels_of(rule["expr"], found)
    return found


def test_there_are_four_dashboards_and_the_rules() -> None:
    assert set(files()) == {
        "headgate-now.json",
        "headgate-tenant.json",
        "headgate-fleet.json",
        "headgate-connections.json",
        "headgate-rules.yml",
    }
    assert files()["headgate-rules.yml"] == RULES.read_text("utf-8")


def test_every_panel_asks_for_what_is_exported_and_names_its_series_by_labels_they_have(
    dashboards: dict[str, Any],
) -> None:
    for name, board in dashboards.items():
        for panel in board["panels"]:
            for target in panel["targets"]:
                labels = labels_of(with_variables_set(target["expr"]))
                shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
                assert shown <= labels, f"{name}: {panel['title']}"
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
                assert asked
                assert asked[2] in labels_of(with_variables_set(asked[1])), f"{name}: {asked[0]}"


def test_every_dashboard_fits_any_grafana(dashboards: dict[str, Any]) -> None:
    for board in dashboards.values():
        variables = {variable["name"] for variable in board["templating"]["list"]}
        assert {"datasource", "job", "broker"} <= variables
        text = json.dumps(board)
        assert set(re.findall(r"\$\{?([a-z_]+)", text)) <= variables | {"__rate_interval", "__all"}
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"]
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24
            cells = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            assert not cells & taken
            taken |= cells
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_rule_asks_for_what_is_exported_and_every_alert_says_what_its_series_say() -> None:
    sums = recorded()
    for name, rule in ALERTS.items():
        labels = labels_of(rule["expr"], sums)
        said = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert said <= labels, name


def test_every_alert_has_a_summary_a_description_and_a_section_of_the_guide() -> None:
    headings = re.findall(r"^### (.+)$", GUIDE.read_text("utf-8"), re.M)
    assert headings == list(ALERTS)
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        notes = rule["annotations"]
        assert notes["summary"]
        assert notes["description"]
        assert notes["runbook"] == f"docs/howto/monitoring.md#{name.lower()}"


@pytest.mark.parametrize(
    "text",
    [
        "headgate_store_on",
        'headgate_store_up{user="x"}',
        "sum by (user) (headgate_connections)",
        "headgate_throttled_total",
        "rate(headgate_connections[5m])",
        "headgate_store_up and on (listener) headgate_connections",
        "sum by (broker) (headgate_store_up) > on (job) headgate_store_up",
    ],
)
def test_a_name_or_label_that_isnt_exported_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        labels_of(text)


def promtool(*words: object) -> str:
    done = subprocess.run(
        [program("promtool"), *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_the_rules_and_every_query(
    dashboards: dict[str, Any], tmp_path: Path
) -> None:
    assert f"{len(EVERY)} rules found" in promtool("check", "rules", RULES)
    queries = [
        with_variables_set(target["expr"])
        for board in dashboards.values()
        for panel in board["panels"]
        for target in panel["targets"]
    ]
    rules = [{"record": f"query:{n}", "expr": query} for n, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool("check", "rules", file)


def test_every_alert_fires_where_it_should_and_nowhere_else(tmp_path: Path) -> None:
    cases = yaml.safe_load(CASES.read_text("utf-8"))
    fired = {
        (case["alertname"], bool(case.get("exp_alerts")))
        for test in cases["tests"]
        for case in test["alert_rule_test"]
    }
    assert fired == {(name, fires) for name in ALERTS for fires in (True, False)}
    for path in (RULES, CASES):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    promtool("test", "rules", tmp_path / CASES.name)
