"""
A gateway's answer to what goes on now, over real sockets: to administrators, to others, to tenants.
No Kafka is needed.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate.admin import AdminClient
from headgate.cli.main import main
from headgate.cli.quotas.kafka_quotas import main as kafka_quotas
from headgate.client.connection import Connection
from headgate.client.security import Security
from headgate.clock import now_ms
from headgate.config.listeners import HostPort
from headgate.errors import InvalidQuota, KafkaError, StoreError
from headgate.gateway import GatewayThread
from headgate.gateway.answered_here import live as own_live
from headgate.live.past import Past
from headgate.live.picture import EffectiveQuotaOf, Picture, decode
from headgate.live.why import why
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_SHARES, REQUEST
from headgate.store import open_store
from headgate.store.base import AuditEvent
from headgate.store.watched import QuotaStore
from headgate.usage.reader import read_until
from headgate.wire.messages import live

from .gateway_kit import wait_for
from .scripted_upstream import (
    SLOW,
    Start,
    Upstream,
    connect,
    fetch,
    produce,
    read_answer,
    start,
    upstream,
)

__all__ = ["start", "upstream"]

DENIED = int(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
ADMIN = {
    "headgate__admin__listener": "ADMIN://127.0.0.1:0",
    "listener__security__protocol__map": "PLAINTEXT:PLAINTEXT,ADMIN:PLAINTEXT",
    "super__users": "User:ANONYMOUS",
}


def ask(
    at: tuple[str, int], user: str | None, client_id: str | None = None, most: int = 500
) -> live.LiveResponse:
    async def exchange() -> live.LiveResponse:
        connection = await Connection.open(HostPort(*at), Security(), greet=True)
        assert live.LIVE not in connection.versions
        try:
            return await connection.ask(live.LIVE, 0, live.LiveRequest(user, client_id, most))
        finally:
            await connection.close()

    return asyncio.run(exchange())


def picture(at: tuple[str, int], user: str | None, client_id: str | None = None) -> Picture:
    answer = ask(at, user, client_id)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.picture is not None
    return decode(answer.picture)


def port(gateway: GatewayThread) -> tuple[str, int]:
    return gateway.gateway.addresses("PLAINTEXT")[1]


def test_an_administrator_sees_who_is_held_by_which_quota_and_where_it_comes_from(
    start: Start,
) -> None:
    gateway = start(SLOW | {QuotaEntity.of(user=DEFAULT): {PRODUCER: 7.0, REQUEST: 50.0}}, **ADMIN)
    admin = gateway.gateway.shared.admin_address
    assert admin is not None
    with connect(gateway) as sock:
        sock.sendall(produce(60_000))
        read_answer(sock)
        for at, user in ((port(gateway), None), (port(gateway), "ANONYMOUS"), (admin, None)):
            found = picture(at, user, "app" if user else None)
            [broker] = found.brokers
            use = broker.quotas[0]
            assert (use.key, use.user, use.client_id) == ("producer_byte_rate", "ANONYMOUS", "")
            assert use.quota == 1_000.0
            assert 3_000 < use.rate <= 6_000 and use.utilisation == use.rate / use.quota
            assert use.held == use.throttled == 1
            # What the answer told is what was left of it.
            assert 0 <= use.held_until_ms - use.held_since_ms - use.throttled_ms < 5_000
            assert use.held_until_ms > found.at_ms + 10_000
            clients = {client.client_id: client for client in use.clients}
            assert (clients["app"].connections, clients["app"].held) == (1, 1)
            assert clients["app"].addresses == (("127.0.0.1", 1),)
            listener = broker.listeners[0]
            assert (listener.name, listener.muted) == ("PLAINTEXT", 1)
            assert broker.enforce == "all"
            assert [q.key for q in found.effective] == (
                ["producer_byte_rate", "request_percentage"] if user else []
            )
        [applies, _] = found_effective(gateway)
        assert [(e.entity, e.value) for e in applies.entries] == [
            ("users/ANONYMOUS", 1_000.0),
            ("users/<default>", 7.0),
        ]


def found_effective(gateway: GatewayThread) -> tuple[EffectiveQuotaOf, ...]:
    return picture(port(gateway), "ANONYMOUS", "app").effective


def test_looking_changes_no_sensor(start: Start) -> None:
    gateway = start(SLOW, **ADMIN)
    with connect(gateway) as sock:
        sock.sendall(produce(60_000))
        read_answer(sock)

        def sensors() -> object:
            managers = gateway.gateway.brokers[1].rules.managers
            [sensor] = managers.produce.sensors()
            return [getattr(sensor, name) for name in ("value", "others", "last_ms", "oldest_ms")]

        before = gateway.call(sensors)
        for _ in range(3):
            picture(port(gateway), None)
        assert gateway.call(sensors) == before


@pytest.mark.parametrize("user", [None, "ANONYMOUS", "bob", "nobody-there"])
def test_others_are_refused_alike_and_audited(start: Start, user: str | None) -> None:
    audited: list[AuditEvent] = []
    store = SimpleNamespace(
        availability=SimpleNamespace(silent=None),
        history=SimpleNamespace(audit=audited.append),
        close=lambda: None,
    )
    gateway = start({QuotaEntity.of(user="bob"): {PRODUCER: 9.0}}, super__users="User:root")
    gateway.call(lambda: setattr(gateway.gateway.in_force, "store", store))
    answer = ask(port(gateway), user)
    assert (answer.error_code, answer.picture) == (DENIED, None)
    assert answer.error_message == KafkaError.CLUSTER_AUTHORIZATION_FAILED.generic_message
    [event] = audited
    subject = "everybody" if user is None else f"user={user}"
    assert (event.action, event.outcome, event.subject) == ("DescribeLive", "refused", subject)


def test_as_many_quota_ids_are_named_as_were_asked_for(start: Start) -> None:
    quotas = {QuotaEntity.of(user=DEFAULT, client_id=DEFAULT): {PRODUCER: 1e9}}
    gateway = start(quotas, **ADMIN)
    managers = gateway.gateway.brokers[1].rules.managers
    gateway.call(lambda: [managers.produce.record(f"u{n}", "c", n, now_ms()) for n in range(30)])
    answer = ask(port(gateway), None, most=10)
    assert answer.picture is not None
    [broker] = decode(answer.picture).brokers
    assert [use.user for use in broker.quotas] == [f"u{n}" for n in range(29, 19, -1)]
    assert broker.other_quotas == 20


def test_the_admin_client_joins_what_every_broker_says(start: Start) -> None:
    gateway = start(SLOW, **ADMIN)
    admin = gateway.gateway.shared.admin_address
    assert admin is not None
    # One client all along: the next one would wait for what this one owes.
    with connect(gateway) as sock:
        sock.sendall(produce(60_000))
        read_answer(sock)
        for host, number in (port(gateway), admin):
            with AdminClient(f"{host}:{number}") as client:
                for _ in range(2):
                    found = client.describe_live("ANONYMOUS", "app")
                    assert [broker.broker_id for broker in found.brokers] == [1]
                    assert why(found, "ANONYMOUS", "app").state == "held"
                # A connection that the gateway has closed meanwhile is opened again.
                gateway.call(
                    lambda: [
                        link.close("idle") for broker in gateway.gateway.brokers.values()
                        for link in list(broker.links) if link.session.client_id != "app"
                    ]
                )  # fmt: skip
                assert client.describe_live("ANONYMOUS").brokers[0].quotas[0].rate > 1_000


def altered(store: QuotaStore, user: str, value: float | None, **pair: str) -> None:
    change = QuotaAlteration(QuotaEntity.of(user=user, **pair), (Op(PRODUCER, value),))
    assert store.alter([change], who="ops", tool="test")[0].error is None


def test_a_wait_that_outlasts_its_quota_is_told_by_the_quota_that_was(
    start: Start, tmp_path: Path
) -> None:
    with closing(open_store(f"sqlite:{tmp_path / 'quotas.db'}")) as store:
        altered(store, "ANONYMOUS", 1_000.0)
        gateway = start(store=open_store(store.url), **ADMIN)

        def said() -> str:
            return why(picture(port(gateway), "ANONYMOUS", "app"), "ANONYMOUS", "app").sentence

        wait_for(lambda: picture(port(gateway), "ANONYMOUS", "app").effective, "the quota")
        with connect(gateway) as sock:
            sock.sendall(produce(60_000))
            read_answer(sock)
            told = "because users/ANONYMOUS allows 1 kB/s and the quota-id produced 6 kB/s when the"
            wait_for(lambda: told in said(), "a look at the connections")
            altered(store, "ANONYMOUS", 50_000.0)
            wait_for(
                lambda: "users/ANONYMOUS allowed 1 kB/s (50 kB/s now, raised 20" in said(), "it"
            )
            assert "UTC by ops) and the quota-id produced 6 kB/s when the wait was told" in said()
            altered(store, "ANONYMOUS", None)
            gone = "under a quota that is gone (users/ANONYMOUS: 1 kB/s, removed 20"
            wait_for(lambda: gone in said(), "the removal")
            assert "a removal doesn't end it, as in Kafka" in said()
            altered(store, "ANONYMOUS", 1e6, client_id="app")  # by now another quota-id is charged
            wait_for(lambda: "users/ANONYMOUS/clients/app" in str(
                picture(port(gateway), "ANONYMOUS", "app").effective), "the other")  # fmt: skip
            found = why(picture(port(gateway), "ANONYMOUS", "app"), "ANONYMOUS", "app")
            assert found.state == "held" and gone in found.sentence
            assert [(q.client_id, q.held) for q in found.quotas] == [("", 1), ("app", 0)]


def test_who_connects_again_is_told_of_the_wait_that_the_closed_connection_left(
    start: Start,
) -> None:
    gateway = start(SLOW, **ADMIN)
    with connect(gateway) as sock:
        sock.sendall(produce(60_000))
        read_answer(sock)
    with connect(gateway) as sock:
        sock.sendall(produce(100))

        def told() -> object:
            return why(picture(port(gateway), "ANONYMOUS", "app"), "ANONYMOUS", "app").sentence

        wait_for(lambda: "waits" in str(told()), "the debt")
        assert "produced 6 kB/s when a connection that has closed since was told" in str(told())


def test_a_mistyped_name_is_answered_with_what_comes_near(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = start(SLOW, **ADMIN)
    words = ["why", "--bootstrap-server", "{}:{}".format(*port(gateway)), "--user"]
    assert main([*words, "ANONYMUOS"]) == 0
    assert "No user ANONYMUOS is connected now, and no quota names one; did you mean ANONYM" in (
        capsys.readouterr().out
    )
    assert main([*words, "ANONYMOUS"]) == 0
    assert "No user" not in capsys.readouterr().out


def test_a_fetch_that_waits_is_told_by_the_fetch_that_closed_the_gate(start: Start) -> None:
    gateway = start({QuotaEntity.of(user="ANONYMOUS"): {CONSUMER: 1_000.0}}, **ADMIN)
    with connect(gateway) as sock:
        sock.sendall(fetch())
        read_answer(sock)
        found = why(picture(port(gateway), "ANONYMOUS", "app"), "ANONYMOUS", "app")
        assert "and the quota-id fetched 10.01 kB/s when the wait was told" in found.sentence
    with connect(gateway) as sock:
        sock.sendall(fetch())
        look = (port(gateway), "ANONYMOUS", "app")
        held = "fetched 10.01 kB/s with the last request"
        wait_for(lambda: held in why(picture(*look), *look[1:]).sentence, "the gate")


def test_a_broker_without_a_gateway_is_told_so(upstream: Upstream) -> None:
    upstream.refuses = {live.LIVE}
    told = f"127.0.0.1:{upstream.port} isn't a Headgate gateway"
    with (
        AdminClient(f"127.0.0.1:{upstream.port}") as client,
        pytest.raises(StoreError, match=told),
    ):
        client.describe_live()
    with (
        AdminClient(store="sqlite::memory:") as client,
        pytest.raises(InvalidQuota, match="give the address of a gateway"),
    ):
        client.describe_live()


def test_the_journal_tells_later_what_the_gateway_told_then(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = tmp_path / "journal"
    quotas = SLOW | {QuotaEntity.of(user=DEFAULT): {PRODUCER: 7.0}}
    gateway = start(quotas, **ADMIN, headgate__usage=f"files:{journal}")
    with connect(gateway) as sock:
        sock.sendall(produce(60_000))
        read_answer(sock)
        told = picture(port(gateway), "ANONYMOUS", "app")
    gateway.stop(0)

    def past(at_ms: int) -> Picture:
        found = Past(at_ms, "ANONYMOUS", "app")
        for batch in read_until(journal, at_ms + 10_000):
            found.take(batch)
        return found.picture()

    then = past(told.at_ms)
    one, other = told.brokers[0].quotas[0], then.brokers[0].quotas[0]
    for name in ("key", "user", "client_id", "quota", "held", "held_until_ms", "held_since_ms",
                 "throttled", "throttled_ms"):  # fmt: skip
        assert getattr(one, name) == getattr(other, name), name
    assert other.rate == pytest.approx(one.rate, rel=0.05)
    assert then.effective == told.effective
    assert why(then, "ANONYMOUS", "app").because == why(told, "ANONYMOUS", "app").because
    assert past(one.held_until_ms).brokers[0].quotas[0].held == 0

    when = str(told.at_ms)
    words = ["why", "--requests", str(journal), "--user", "ANONYMOUS", "--client-id", "app"]
    assert main([*words, "--at", when]) == 0
    said = capsys.readouterr().out
    assert "ANONYMOUS/app waits " in said and "because users/ANONYMOUS allows 1 kB/s" in said
    assert main([*words, "--json"]) == 0  # the end
    assert '"state": "held"' in capsys.readouterr().out
    assert main([*words, "--at", "2001-01-01"]) == 1
    assert "there are no events before" in capsys.readouterr().err
    log = tmp_path / "request.log"
    log.write_text("x")
    assert main(["why", "--requests", str(log), "--user", "a"]) == 2
    assert "request logs name no quotas" in capsys.readouterr().err
    assert main(["why", "--bootstrap-server", "x:1", "--user", "a", "--at", "1"]) == 2


def test_questions_about_everybody_share_one_look(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = start(SLOW, **ADMIN)
    monkeypatch.setattr(own_live, "FRESH_MS", 3_600_000)
    monkeypatch.setattr(own_live, "_PAUSES", 1_000_000)
    first = picture(port(gateway), None)
    second = picture(port(gateway), None)
    with connect(gateway) as sock:
        sock.sendall(produce(60_000))
        read_answer(sock)
        third = picture(port(gateway), None)
        assert first.at_ms == second.at_ms == third.at_ms
        assert third.brokers[0].quotas == ()  # as it was before
        one = picture(port(gateway), "ANONYMOUS", "app")
        assert one.brokers[0].quotas[0].rate > 0 and one.brokers[0].connections == 0


def test_55_3_why_names_server_properties_where_nothing_else_applies(start: Start) -> None:
    gateway = start(quota__producer__default="4096", **ADMIN)
    found = picture(port(gateway), "bob", "etl").effective
    [quota] = [quota for quota in found if quota.key == PRODUCER.name]
    assert [(e.entity, e.value) for e in quota.entries] == [("server.properties", 4096.0)]
    answer = why(picture(port(gateway), "bob", "etl"), "bob", "etl")
    assert "server.properties" in answer.sentence


@pytest.mark.parametrize("capacity", ["", "1000000"])
def test_546_9_shares_lack_a_capacity_is_said_and_only_where_none_is_set(
    start: Start, capsys: pytest.CaptureFixture[str], capacity: str
) -> None:
    more = {"headgate__capacity__producer_byte_rate": capacity} if capacity else {}
    gateway = start({QuotaEntity.of(user="alice"): {PRODUCER_SHARES: 2.0}}, **ADMIN, **more)
    [quota] = picture(port(gateway), "alice", "etl").effective
    admin = gateway.gateway.shared.admin_address
    assert admin is not None
    words = ["--bootstrap-server", f"127.0.0.1:{admin[1]}", "--describe", "--names", "user=alice"]
    assert kafka_quotas(words) == 0
    printed = capsys.readouterr()
    assert "producer_byte_rate:shares=2 {user=alice}" in printed.out
    said = "the gateway has no headgate.capacity.producer_byte_rate"
    assert (said in printed.err) == (said in quota.note) == (not capacity)
    assert bool(printed.err) == (not capacity)
