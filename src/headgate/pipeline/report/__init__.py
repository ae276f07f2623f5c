"""
One HTML file that people enjoy: a pipeline run's Parquet tables, drawn, without Spark.

`tables.py` reads, `model.py` computes, `charts.py` says what is drawn, `render.py` writes the page
from `templates/`. The page is self-contained (one copy of plotly inside), draws a chart only when
it comes into view, and gives each chart as a table too.
"""

from __future__ import annotations

from headgate.pipeline.report.model import Report, build_report
from headgate.pipeline.report.render import render, write_report
from headgate.pipeline.report.tables import ReportTables, read_tables

__all__ = ["Report", "ReportTables", "build_report", "read_tables", "render", "write_report"]
