"""
Draw up Grafana's JSON from the table of panels, and the files that users get.

Source: Grafana's documentation of the dashboard JSON model, schema version 39 (Grafana 11).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headgate.metrics.monitoring.panels import DASHBOARDS, STAT, TABLE, TIMES, Dashboard, Panel

RULES: Final = Path(__file__).parent / "rules.yml"
SCHEMA_VERSION: Final = 39
_COLUMNS: Final = 24
_SIZES: Final = {STAT: (4, 4), TABLE: (12, 9), TIMES: (12, 8)}
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    STAT: {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"},
    TABLE: {"showHeader": True, "cellHeight": "sm"},
    TIMES: {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
}
_DRAWN: Final[dict[str, dict[str, Any]]] = {
    STAT: {},
    TABLE: {"align": "auto", "filterable": True},
    TIMES: {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": False},
}


def files() -> dict[str, str]:
    """Return the text of each dashboard and of the rules, by file name."""
    texts = {
        f"{dashboard.name}.json": json.dumps(dashboard_json(dashboard), indent=2) + "\n"
        for dashboard in DASHBOARDS
    }
    return {**texts, "headgate-rules.yml": RULES.read_text(encoding="utf-8")}


def dashboard_json(dashboard: Dashboard) -> dict[str, Any]:
    """
    Return a dashboard as Grafana imports it.

    Args:
        dashboard: a row of the table.

    Returns:
        The JSON model. The Prometheus to ask is a variable, so it fits any Grafana.
    """
    wanted = ",".join(f'{label}=~"${label}"' for label, _ in dashboard.variables)
    panels = [
        _panel(number, panel, place, wanted)
        for number, (panel, place) in enumerate(
            zip(dashboard.panels, _places(dashboard.panels), strict=True), 1
        )
    ]
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource"}
    return {
        "uid": dashboard.name,
        "title": dashboard.title,
        "tags": ["headgate"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [
            {
                "title": "Headgate",
                "type": "dashboards",
                "tags": ["headgate"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {
            "list": [
                {**source, "query": "prometheus", "current": {}, "hide": 0, "refresh": 1},
                *(_variable(label, metric) for label, metric in dashboard.variables),
            ]
        },
        "panels": panels,
    }


def _variable(label: str, metric: str) -> dict[str, Any]:
    """Return a label that may be chosen; All also matches series without the label."""
    within = "" if label == "job" else '{job=~"$job"}'
    query = f"label_values({metric}{within}, {label})"
    return {
        "name": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": label},
        "definition": query,
        "refresh": 2,
        "sort": 3 if label == "broker" else 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _places(panels: Sequence[Panel]) -> list[dict[str, int]]:
    """Lay panels out from left to right, in rows as high as their highest."""
    places, x, y, highest = [], 0, 0, 0
    for panel in panels:
        width, height = _SIZES[panel.kind]
        if x + width > _COLUMNS:
            x, y, highest = 0, y + highest, 0
        places.append({"x": x, "y": y, "w": width, "h": height})
        x, highest = x + width, max(highest, height)
    return places


def _panel(number: int, panel: Panel, place: dict[str, int], wanted: str) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    for color, value in zip(("orange", "red"), panel.steps or (), strict=False):
        steps.append({"color": color, "value": value})
    moment = panel.kind == TABLE
    drawn: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.doc,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "custom": _DRAWN[panel.kind],
                "thresholds": {"mode": "absolute", "steps": steps},
                "color": {"mode": "palette-classic" if panel.kind == TIMES else "thresholds"},
            },
            "overrides": [],
        },
        "options": _OPTIONS[panel.kind],
        "targets": [
            {
                "refId": chr(ord("A") + place_),
                "datasource": _SOURCE,
                "expr": expression.replace("{@}", f"{{{wanted}}}").replace("{@,", f"{{{wanted},"),
                "legendFormat": legend,
                "instant": moment,
                "range": not moment,
                "format": "table" if moment else "time_series",
            }
            for place_, (expression, legend) in enumerate(panel.queries)
        ],
    }
    if moment:
        # Without the time of asking; the value last, under the panel's name.
        hidden = {
            "excludeByName": {"Time": True, "Value": panel.unit == "none"},
            "renameByName": {"Value": panel.title},
        }
        drawn["transformations"] = [{"id": "organize", "options": hidden}]
    return drawn
