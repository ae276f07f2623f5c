"""
Draw the tables of a pipeline run as one HTML file, without Spark.

The page is self-contained (one copy of plotly inside), draws a chart only when it comes into view,
and gives each chart as a table too.

- ``tables``: a run's tables, as much of them as the page needs.
- ``sections``, ``model``: what the page shows: the smaller tables summed up, and all its figures.
- ``what_to_do``: what the page says first.
- ``charts``, ``topics``: what is drawn; who uses which topic.
- ``render``: the page, from ``templates/``.
"""

from __future__ import annotations

from headgate.pipeline.report.model import Report, build_report
from headgate.pipeline.report.render import render, write_report
from headgate.pipeline.report.tables import ReportTables, read_lake, read_tables

__all__ = [
    "Report",
    "ReportTables",
    "build_report",
    "read_lake",
    "read_tables",
    "render",
    "write_report",
]
