"""What brokers are asked, which know no prefixes; and a home that opens its servers' store."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headgate.admin import AdminClient
from headgate.admin.open_target import OpenTarget
from headgate.admin.opening import Address
from headgate.admin.released import KafkaTarget
from headgate.admin.target import ChangeRequest, EntityQuery
from headgate.client import quota_messages
from headgate.errors import ConfigError, StoreError
from headgate.live.picture import Picture
from headgate.quota.alteration import Op, QuotaAlteration
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
        self.home = self.history = self
        self._error = error

    def identity(self) -> None:
        return None

    def entries(self, *, limit: int) -> list[object]:
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


class Controller(Broker):
    """A controller that changes what the first requests ask for, and then hangs up."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.answers = answers
        self.sent = 0

    async def controlling(self, use: Callable[[Any], Any]) -> Any:
        return await use(self)

    async def any(self) -> Controller:
        return self

    def answer(self, request: Any) -> Any:
        self.sent += 1
        if self.sent > self.answers:
            raise StoreError("it hung up")
        entries = tuple(quotas.AlteredEntry(entry.entity, 0, None) for entry in request.entries)
        return quotas.AlterClientQuotasResponse(entries)


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_a_change_of_several_requests_says_which_were_made(
    answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota_messages, "MAX_RECORDS_PER_REQUEST", 2)
    controller = Controller(answers)
    target = KafkaTarget(controller)  # type: ignore[arg-type]
    entities = [QuotaEntity.of(user=f"u{number}") for number in range(6)]
    change = ChangeRequest([QuotaAlteration(e, (Op(PRODUCER, 5.0),)) for e in entities])
    if answers == 0:
        with pytest.raises(StoreError, match="it hung up"):
            asyncio.run(target.errors(change))
        return
    told = asyncio.run(target.errors(change))
    assert told[: 2 * answers] == [None] * 2 * answers
    failed = [str(error) for error in told[2 * answers :]]
    assert failed[:2] == ["it hung up"] * 2
    assert set(failed[2:]) <= {"not sent, as the request before failed: it hung up"}
    assert len(failed) == 6 - 2 * answers
    assert controller.sent == answers + 1


def test_two_who_look_for_the_history_at_once_open_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SqliteStore(tmp_path / "quotas.db").close()
    opened: list[SqliteStore] = []
    both = threading.Barrier(2)

    def opening(*_: Any, **__: Any) -> SqliteStore:
        opened.append(SqliteStore(tmp_path / "quotas.db"))
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.5)  # where a second one is being opened, it is met here
        return opened[-1]

    monkeypatch.setattr("headgate.store.open_store", opening)
    target = OpenTarget(Address("h:1"))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: target.find_history(), range(2)))
    assert len(opened) == 1
    target.close()
    with pytest.raises(StoreError, match="is closed"):
        opened[0].snapshot()


@pytest.mark.parametrize("servers", [True, False])
def test_a_store_that_opens_after_its_target_was_closed_is_closed(
    servers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "quotas.db")
    begun, go = threading.Event(), threading.Event()

    def opening(*_: Any, **__: Any) -> SqliteStore:
        begun.set()
        assert go.wait(30)
        return store

    monkeypatch.setattr("headgate.store.open_store", opening)
    target = OpenTarget(Address("h:1") if servers else Address(store="sqlite:x"))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(target.find_history if servers else target.table)
        assert begun.wait(30)
        target.close()
        go.set()
        with pytest.raises(StoreError, match="is closed"):
            late.result()
    with pytest.raises(StoreError, match="is closed"):
        store.snapshot()


def test_an_end_is_refused_where_kafka_keeps_the_quotas() -> None:
    controller = Controller(9)
    target = KafkaTarget(controller)  # type: ignore[arg-type]
    change = ChangeRequest([QuotaAlteration(ALICE, (Op(PRODUCER, 5.0),))], until_ms=9**15)
    for call in (target.alter(change), target.errors(change)):
        with pytest.raises(ConfigError, match="Kafka has no place for it; give --store"):
            asyncio.run(call)
    assert controller.sent == 0
