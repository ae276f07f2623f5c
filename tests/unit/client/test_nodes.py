"""Bootstrap servers are tried in turn, and calls 48 and 49 are made in one place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.client.connection import Connection
from headgate.client.nodes import Nodes, NoServer, Rotation
from headgate.config.listeners import HostPort
from headgate.errors import ApiError, HeadgateError, KafkaError, StoreError
from headgate.wire import apis

ONE, TWO, THREE = (HostPort("h", port) for port in (1, 2, 3))


def passing(error: HeadgateError) -> bool:
    return not isinstance(error, ApiError)


async def test_each_attempt_begins_after_the_server_that_was_tried_last() -> None:
    rotation, asked = Rotation([ONE, TWO, THREE]), list[HostPort]()
    down = {ONE}

    async def connect(server: HostPort) -> Any:
        asked.append(server)
        if server in down:
            raise StoreError(f"{server} is down")
        return server

    assert [await rotation.connect(connect, passing) for _ in range(3)] == [TWO, THREE, TWO]
    assert asked == [ONE, TWO, THREE, ONE, TWO]
    down |= {TWO, THREE}
    with pytest.raises(NoServer, match="h:3 is down; h:1 is down; h:2 is down") as none:
        await rotation.connect(connect, passing)
    assert [server for server, _ in none.value.problems] == [THREE, ONE, TWO]


async def test_an_error_that_all_servers_would_give_ends_the_attempt() -> None:
    rotation, asked = Rotation([ONE, TWO]), list[HostPort]()

    async def connect(server: HostPort) -> Any:
        asked.append(server)
        raise ApiError(KafkaError.SASL_AUTHENTICATION_FAILED)

    with pytest.raises(ApiError):
        await rotation.connect(connect, passing)
    assert asked == [ONE]


async def test_a_server_with_other_apis_than_the_first_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gateway's admin listener takes KIP-546's draft under the keys of the released APIs."""
    asked: list[HostPort] = []

    class Open:
        def __init__(self, server: HostPort) -> None:
            self.server, self.usable = server, True
            self.versions = {apis.METADATA: (0, 12)} if server == TWO else {48: (0, 0)}

        async def close(self) -> None:
            self.usable = False

    async def opened(server: HostPort, _security: Any, *, greet: bool) -> Any:
        assert greet
        asked.append(server)
        return Open(server)

    monkeypatch.setattr(Connection, "open", opened)
    nodes = Nodes([ONE, TWO, THREE], security=None)  # type: ignore[arg-type]
    for server in (ONE, THREE, ONE):
        connection: Any = await nodes.any()
        assert connection.server == server
        connection.usable = False
    assert asked == [ONE, TWO, THREE, ONE]
    mixed = Nodes([ONE, TWO], security=None)  # type: ignore[arg-type]
    connection = await mixed.any()
    monkeypatch.setattr(mixed, "_has_metadata", True)
    connection.usable = False
    assert (await mixed.any()).server == TWO  # type: ignore[attr-defined]


def test_requests_to_describe_or_alter_client_quotas_are_written_in_one_place() -> None:
    source = Path(headgate.__file__).parent
    writers = [
        path.relative_to(source).as_posix()
        for path in sorted(source.rglob("*.py"))
        if any(f"{name}_request(" in path.read_text("utf-8") for name in ("describe", "alter"))
    ]
    assert writers == ["client/quota_calls.py", "client/quota_messages.py"]
