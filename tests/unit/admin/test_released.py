"""What brokers are asked, which know no prefixes; and a home that opens its servers' store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headgate.admin import AdminClient
from headgate.admin.open_target import OpenTarget
from headgate.admin.opening import Address
from headgate.admin.released import KafkaTarget
from headgate.admin.target import EntityQuery
from headgate.client import quota_messages
from headgate.errors import StoreError
from headgate.live.picture import Picture
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.filter import FilterComponent, MatchType, matches
from headgate.quota.key import PRODUCER
from headgate.store.sqlite.store import SqliteStore
from headgate.wire.header import parse_request_header
from headgate.wire.messages import decode_request, encode_response, quotas

ALICE, ALBERT, BOB, ANYBODY = (
    QuotaEntity.of(user=name) for name in ("alice", "albert", "bob", DEFAULT)
)


class Broker:
    """A connection to a broker, and the nodes of its cluster; it keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[FilterComponent, ...]] = []

    async def any(self) -> Broker:
        return self

    client_id = "test"
    versions: Mapping[int, tuple[int, int]] = {}

    async def swap(self, make_frame: Callable[[int], bytes]) -> bytes:
        frame = make_frame(5)
        key, version, correlation, _client, body = parse_request_header(frame)
        answer = self.answer(decode_request(key, version, frame, body))
        return encode_response(key, version, correlation, answer)

    def answer(self, request: Any) -> Any:
        components = tuple(map(quota_messages.component_of, request.components))
        self.asked.append(components)
        entries = tuple(
            quota_messages.described(entity, {PRODUCER: 5.0})
            for entity in (ALICE, ALBERT, BOB, ANYBODY)
            if matches(components, entity, request.strict)
        )
        return quotas.DescribeClientQuotasResponse(entries)


def found(*components: FilterComponent, draft: bool = False) -> tuple[set[QuotaEntity], Any]:
    broker = Broker()
    target = KafkaTarget(broker)  # type: ignore[arg-type]
    entities = asyncio.run(target.describe(EntityQuery(components, draft=draft)))
    return set(entities), broker.asked[0]


@pytest.mark.parametrize("draft", [False, True])
def test_a_prefix_is_asked_for_as_any_name_and_its_answer_filtered(draft: bool) -> None:
    prefix = FilterComponent("user", MatchType.PREFIX, "al")
    asked = (FilterComponent("user", MatchType.ANY),)
    assert found(prefix, draft=draft) == ({ALICE, ALBERT}, asked)


def test_other_conditions_are_asked_for_as_they_are() -> None:
    exact = FilterComponent("user", MatchType.EXACT, "bob")
    assert found(exact) == ({BOB}, (exact,))
    # A broker refuses a type that is named twice, and a prefix without a name.
    assert found(exact, exact)[1] == (exact, exact)
    nameless = FilterComponent("user", MatchType.PREFIX)
    assert found(nameless)[1] == (FilterComponent("user", MatchType.EXACT),)


def test_a_type_that_kip_546_names_twice_is_asked_for_once() -> None:
    both = [FilterComponent("user", MatchType.PREFIX, text) for text in ("al", "alb")]
    asked = (FilterComponent("user", MatchType.ANY),)
    assert found(*both, draft=True) == ({ALBERT}, asked)


class Store:
    """A store whose history can't be read, or is empty."""

    def __init__(self, error: Exception | None) -> None:
        self.closed = False
        self._error = error

    def identity(self) -> None:
        return None

    def history(self, *, limit: int) -> list[object]:
        assert limit == 1
        if self._error is not None:
            raise self._error
        return []

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("error", "says"), [(None, "keeps no history"), (StoreError("it hung up"), "it hung up")]
)
def test_a_store_without_history_is_closed(
    error: Exception | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = Store(error)
    monkeypatch.setattr("headgate.store.open_store", lambda *_, **__: store)
    target = OpenTarget(Address("h:1"))
    with pytest.raises(StoreError, match=says):
        target.find_history()
    assert store.closed
    assert target.store() is None


class Live:
    """Servers that say what goes on."""

    async def live(self, _request: Any) -> Picture:
        return Picture(0, ())

    async def close(self) -> None: ...


def test_servers_whose_history_was_found_still_say_what_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "quotas.db")
    monkeypatch.setattr("headgate.store.open_store", lambda *_, **__: store)

    async def servers(_address: Address) -> Any:
        return Live()

    monkeypatch.setattr("headgate.admin.open_target.open_servers", servers)
    with AdminClient("h:1") as client:
        client.target.find_history()
        assert client.target.store() is store
        assert client.target.table() == store.snapshot()
        assert client.describe_live() == client.target.picture() == Picture(0, ())
    with pytest.raises(StoreError, match="is closed"):
        store.snapshot()
