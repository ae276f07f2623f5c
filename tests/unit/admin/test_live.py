"""What the brokers of a cluster answer about now, joined."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from headgate.admin import AdminClient
from headgate.admin.live import ask_brokers
from headgate.client import connection
from headgate.config.listeners import HostPort
from headgate.errors import ApiError, KafkaError, StoreError, Unanswered
from headgate.live.picture import BrokerPicture, Picture, encode
from headgate.live.seen import UNUSED
from headgate.wire.messages.live import LIVE, LiveRequest, LiveResponse

ASKED = LiveRequest(None, None, 10)


class Gateway:
    """A connection to a gateway that answers after a while, or hangs up."""

    client_id = "test"

    def __init__(
        self, number: int, error: KafkaError | None = None, *, gone: bool = False, note: str = ""
    ) -> None:
        self.address = f"gateway-{number}:1"
        self.answered = False
        self.note = note
        self._number, self._error, self._gone = number, error, gone

    async def ask(self, api_key: int, version: int, message: Any) -> LiveResponse:
        assert (api_key, version, message) == (LIVE, 0, ASKED)
        if self._error is not None:
            return LiveResponse(int(self._error), "no", None)
        await asyncio.sleep(0.01)
        self.answered = True
        if self._gone:
            raise StoreError("it closed the connection")
        picture = Picture(10 - self._number, brokers=(BrokerPicture(self._number),), note=self.note)
        return LiveResponse(0, None, encode(picture))


class Cluster:
    def __init__(self, *gateways: Gateway) -> None:
        self.gateways = dict(enumerate(gateways, 1))

    async def brokers(self) -> dict[int, HostPort]:
        return {number: HostPort("gateway", number) for number in self.gateways}

    async def bare(self, where: HostPort) -> Gateway:
        return self.gateways[where.port]


def ask(*gateways: Gateway) -> Picture:
    nodes: Any = Cluster(*gateways)
    return asyncio.run(ask_brokers(nodes, ASKED))


def test_all_are_joined_and_one_that_cannot_be_asked_is_named() -> None:
    found = ask(Gateway(1), Gateway(2), Gateway(3, gone=True))
    assert ([broker.broker_id for broker in found.brokers], found.at_ms) == ([1, 2], 8)
    assert found.note.startswith("Some brokers couldn't be asked: gateway-3:1 isn't a Headgate")


def test_a_client_is_unused_where_no_broker_sees_it() -> None:
    assert ask(Gateway(1, note=UNUSED), Gateway(2, note=UNUSED)).note == UNUSED
    assert ask(Gateway(1, note=UNUSED), Gateway(2)).note == ""


def test_none_that_answers_is_an_error_that_names_each() -> None:
    with pytest.raises(StoreError, match=r"gateway-1:1 isn't.*\n.*gateway-2:1 isn't"):
        ask(Gateway(1, gone=True), Gateway(2, gone=True))


def test_a_refusal_waits_for_the_others_so_that_connections_may_be_closed() -> None:
    slow = Gateway(2)
    with pytest.raises(ApiError, match="no") as told:
        ask(Gateway(1, KafkaError.CLUSTER_AUTHORIZATION_FAILED), slow)
    assert told.value.code == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert slow.answered


def test_a_server_that_answers_nobody_is_named_in_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "ANSWER_S", 0.2)
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="x";',
    }
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        where = f"127.0.0.1:{hangs.getsockname()[1]}"
        with AdminClient(where, config=login) as client, pytest.raises(Unanswered) as told:
            client.describe_live("alice")
    assert str(told.value).startswith(f"{where} takes connections and doesn't answer within 0.2 s")
    assert "/readyz" in str(told.value)
