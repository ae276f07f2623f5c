"""Debian's Prometheus, as scripts/prometheus.py leaves it."""

from __future__ import annotations

from headgate.embedded.cache import cache_dir


def program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``."""
    path = cache_dir() / "prometheus" / name
    assert path.exists(), f"there is no {name} in {path.parent}: run `make prometheus`"
    return str(path)
