"""Each process that was started by hand may show its own health and metrics."""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.cli.contract import BadUsage
from headgate.cli.serve.serve import parser
from headgate.config import HostPort, Settings
from headgate.gateway import Gateway, GatewayThread
from kit.upstreams import Upstream

HERE = HostPort("127.0.0.1", 0)


def gateway(
    upstream: Upstream,
    folder: Path,
    only: frozenset[int] | None,
    http: HostPort | None = None,
    **more: str,
) -> GatewayThread:
    settings = Settings.from_properties(
        {
            "headgate.upstream": upstream.address,
            "headgate.broker.id.min": "1",
            "headgate.broker.id.max": "2",
            "headgate.data.dir": str(folder),
            "headgate.usage": "none",
        }
        | {name.replace("__", "."): value for name, value in more.items()}
    )
    return GatewayThread(lambda: Gateway(settings, only_brokers=only, http=http))


def ports(free_ports: Callable[..., list[int]]) -> dict[str, str]:
    first, _, http = free_ports(3, consecutive=True)
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{first}",
        "headgate__http__listener": f"127.0.0.1:{http}",
    }


def get(at: GatewayThread, path: str) -> tuple[int, str]:
    assert at.gateway.http is not None
    host, port = at.gateway.http.address
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_port_of_the_file_is_the_lowest_brokers_and_the_others_say_how_to_get_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, free_ports: Callable[..., list[int]]
) -> None:
    caplog.set_level(logging.WARNING, "headgate.gateway")
    shared = ports(free_ports)
    with Upstream([1, 2]) as upstream:
        with gateway(upstream, tmp_path, frozenset({2}), **shared) as second:
            assert second.gateway.http is None
            assert "give this one its own with --http HOST:PORT" in caplog.text
        caplog.clear()
        with gateway(upstream, tmp_path, frozenset({2}), HERE, **shared) as second:
            assert get(second, "/readyz") == (200, "ready\n")
            metrics = get(second, "/metrics")[1]
            assert 'broker="2"' in metrics
            assert 'broker="1"' not in metrics
            with gateway(upstream, tmp_path, frozenset({1}), **shared) as first:
                assert get(first, "/healthz") == (200, "ok\n")
                assert 'broker="1"' in get(first, "/metrics")[1]
        with gateway(upstream, tmp_path, frozenset({2}), listeners=shared["listeners"]) as quiet:
            assert quiet.gateway.http is None  # nobody asked for one
        assert "--http" not in caplog.text


def test_a_broker_without_a_port_here_isnt_the_lowest(
    tmp_path: Path, free_ports: Callable[..., list[int]]
) -> None:
    shared = ports(free_ports)
    with (
        Upstream([0, 1, 2]) as upstream,
        gateway(upstream, tmp_path, frozenset({1}), **shared) as first,
    ):
        assert get(first, "/readyz") == (200, "ready\n")


def test_the_option_is_an_address() -> None:
    given = parser().parse_args(["--config", "x", "--http", ":8081"])
    assert given.http == HostPort("", 8081)
    with pytest.raises(BadUsage, match="isn't host:port"):
        parser().parse_args(["--config", "x", "--http", "8081"])
