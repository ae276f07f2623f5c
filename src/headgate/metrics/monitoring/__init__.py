"""
Grafana dashboards, and Prometheus' alerts (``rules.yml``), over the metrics of a gateway.

`headgate monitoring DIR` writes them to a folder.

- ``panels``: what each dashboard asks and shows, as a table.
- ``dashboards``: that table as Grafana's JSON; all files.
"""
