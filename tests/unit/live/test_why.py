"""The answer in words, from pictures as a gateway makes them."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.live.effective import effective_of, travelling
from headgate.live.picture import (
    BrokerPicture,
    ClientUse,
    ListenerUse,
    Picture,
    QuotaChange,
    QuotaUse,
    WaitTold,
    decode,
    encode_steps,
)
from headgate.live.seen import as_seen_by
from headgate.live.why import ladder, why
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.human import human
from headgate.quota.key import PRODUCER, PRODUCER_BPS, REQUEST
from headgate.quota.table import QuotaTable
from headgate.steps import finish

NOW_MS = 1_700_000_000_000
TABLE = QuotaTable.of(
    {
        QuotaEntity.of(user="alice"): {PRODUCER: 1e6},
        QuotaEntity.of(user=DEFAULT): {PRODUCER: 5e6, REQUEST: 50.0},
        QuotaEntity.of(client_id="etl"): {PRODUCER: 7.0},
    }
)
TOLD = WaitTold(NOW_MS - 3_800, 1e6, 1e6, rate=1.5e6)
ETL = ClientUse("alice", "etl", 2, held=1, held_until_ms=NOW_MS + 1_200, told=TOLD)
HELD = QuotaUse(
    "producer_byte_rate",
    user="alice",
    quota=1e6,
    rate=2.1e6,
    held=2,
    held_until_ms=NOW_MS + 5_000,
    held_since_ms=NOW_MS - 65_000,
    throttled=7,
    throttled_ms=12_000,
    clients=(ETL, ClientUse("alice", "app", 1, held=1, held_until_ms=NOW_MS + 5_000)),
)


def picture(*quotas: QuotaUse, table: QuotaTable = TABLE, **broker: Any) -> Picture:
    return Picture(
        NOW_MS,
        brokers=(BrokerPicture(1, quotas=quotas, **broker),),
        user="alice",
        client_id="etl",
        effective=effective_of(table, "alice", "etl"),
    )


def test_a_held_client_is_told_which_quota_why_that_one_who_shares_it_and_what_frees_it() -> None:
    found = why(picture(HELD), "alice", "etl")
    assert found.state == "held"
    assert found.sentence == (
        "alice/etl waits 1.2 s more, because users/alice allows 1 MB/s and the quota-id produced "
        "1.5 MB/s when the wait was told, 3.8 s before."
    )
    assert found.because == (
        "users/alice is the most specific quota of producer_byte_rate that matches; it overrides "
        "users/<default> (5 MB/s), clients/etl (7 B/s)."
    )
    assert found.others == "The quota-id is shared with alice/app (1 connected, 1 held)."
    assert found.since.startswith(
        "The quota-id has been throttled since 2023-11-14 22:12:15 UTC, for 1 "
    )
    assert found.free == (
        "It goes on in 1.2 s; it stays free at 1 MB/s or less; what it sent needs a quota of 2.1 "
        "MB/s."
    )
    rungs = [rung for rung in ladder(found.quotas[0], "alice", "etl") if rung.value is not None]
    assert [(r.number, r.value, r.applies) for r in rungs] == [
        (3, 1e6, True),
        (6, 5e6, False),
        (7, 7.0, False),
    ]


def test_asked_about_any_client_id_a_pairs_limit_is_not_said_to_be_the_users() -> None:
    told = replace(TOLD, limit=20_000.0, quota=20_000.0)
    pair = replace(HELD, client_id="etl", quota=20_000.0, clients=(replace(ETL, told=told),))
    asked = replace(picture(pair), client_id=None, effective=effective_of(TABLE, "alice", None))
    found = why(asked, "alice", None)
    assert (
        "because producer_byte_rate of alice/etl allows 20 kB/s and it produced" in found.sentence
    )
    assert found.because == ""


def test_a_free_client_is_told_its_room_and_one_over_its_quota_what_comes() -> None:
    free = replace(HELD, rate=4e5, held=0, held_since_ms=0, clients=(ClientUse("alice", "etl", 1),))
    found = why(picture(free), "alice", "etl")
    assert (found.state, found.since) == ("free", "")
    assert found.sentence == (
        "alice/etl isn't held: users/alice allows 1 MB/s, it produces 400 kB/s, and 600 kB/s are "
        "left."
    )
    over = why(picture(replace(free, rate=3e6)), "alice", "etl")
    assert over.state == "over" and over.sentence.startswith("alice/etl waits with what it sends")


def test_no_quota_is_said_so_and_so_is_an_exempt_principal() -> None:
    nothing = picture(table=QuotaTable())
    assert why(nothing, "alice", "etl").sentence == "alice/etl isn't limited by a quota."
    exempt = why(replace(picture(HELD), exempt=True), "alice", "etl")
    assert exempt.state == "exempt" and "headgate.exempt.principals" in exempt.sentence
    assert exempt.free == ""


def test_the_broker_and_the_quota_that_keep_it_longest_decide() -> None:
    other = replace(HELD, clients=(replace(ETL, held_until_ms=NOW_MS + 9_000),))
    both = replace(
        picture(HELD), brokers=(BrokerPicture(1, quotas=(HELD,)), BrokerPicture(2, quotas=(other,)))
    )
    found = why(both, "alice", "etl")
    assert found.sentence.startswith("alice/etl waits 9 s more at broker 2, because")
    keys = [quota.key for quota in found.quotas]
    assert keys == ["producer_byte_rate", "request_percentage"]
    only = why(both, "alice", "etl", "request_percentage")
    assert [quota.key for quota in only.quotas] == ["request_percentage"]
    assert "users/<default> allows 50 %" in only.sentence


@pytest.mark.parametrize(
    ("enforce", "key", "enforced"),
    [
        ("observe", PRODUCER, False),
        ("missing", PRODUCER, False),
        ("missing", PRODUCER_BPS, True),
        ("all", PRODUCER, True),
    ],
)
def test_what_the_gateway_does_not_enforce_is_not_blamed(
    enforce: str, key: Any, enforced: bool
) -> None:
    use = replace(HELD, key=key.name, clients=())
    found = why(picture(use, enforce=enforce, table=QuotaTable()), "alice", "etl")
    assert (found.state == "over") == enforced
    assert ("isn't throttled by the gateway" in found.sentence) != enforced


def test_connections_that_are_kept_out_are_named() -> None:
    ip = QuotaUse("connection_creation_rate", ip="10.0.0.1", quota=10.0, rate=9.9)
    slow = ListenerUse("SASL", blocked_since_ms=NOW_MS - 1_500)
    found = why(picture(HELD, ip, listeners=(slow,)), "alice", "etl")
    assert found.connecting == (
        "New connections from 10.0.0.1 are limited to 10/s at broker 1; there are 9.9/s.",
        "Listener SASL has accepted nobody for 1.5 s at broker 1.",
    )
    assert all(not quota.use.ip for quota in found.quotas if quota.use)


def test_a_tenant_is_told_of_a_shared_quota_how_full_it_is_by_quarters_and_no_names() -> None:
    shared = replace(HELD, user="", client_id="etl", clients=(ETL, ClientUse("bob", "etl", 3)))
    found = why(as_seen_by(picture(shared), frozenset({"alice"})), "alice", "etl")
    assert found.state == "held" and "bob" not in str(found)
    assert found.others == "Others may share the quota-id: how full it is, is told by quarters."
    assert "up to 1.25 MB/s" in found.sentence and "needs" not in found.free


def test_a_shared_quota_next_to_nothing_is_told_too() -> None:
    shared = replace(HELD, user="", client_id="etl", quota=1e-310, rate=1e6, clients=(ETL,))
    found = as_seen_by(picture(shared), frozenset({"alice"})).brokers[0].quotas[0]
    assert found.quota == 1e-310
    assert found.rate > found.quota


def waits(told: WaitTold, *changes: QuotaChange, quota: float | None = 1e6, **more: Any) -> str:
    """The sentence of a client that was told to wait, by a quota that is ``quota`` by now."""
    client = replace(ETL, told=told, held_until_ms=NOW_MS + 534_000)
    use = replace(HELD, clients=(client,), quota=quota, rate=1.0, **more)
    asked = replace(picture(use), changes=changes)
    return why(asked, "alice", "etl").sentence.removeprefix("alice/etl waits 8 min 54 s more")


def test_a_wait_is_told_by_the_quota_and_the_use_of_its_own_moment() -> None:
    told = WaitTold(NOW_MS - 6_000, 3e3, 3e3, rate=1.6e5)
    change = QuotaChange("producer_byte_rate", "users/alice", NOW_MS - 1_000, 3e3, None, "ops")
    assert waits(told, change, quota=None) == (
        " under a quota that is gone (users/alice: 3 kB/s, removed 2023-11-14 22:13:19 UTC by ops),"
        " because it produced 160 kB/s when the wait was told, 6 s before; a removal doesn't end "
        "it, as in Kafka."
    )
    assert waits(told, quota=None).startswith(" under a quota that is gone (3 kB/s), because it ")
    raised = replace(change, after=1e6, who="")
    assert waits(told, raised) == (
        ", because users/alice allowed 3 kB/s (1 MB/s now, raised 2023-11-14 22:13:19 UTC) and it "
        "produced 160 kB/s when the wait was told, 6 s before; a change doesn't end a wait, as in "
        "Kafka."
    )
    # Removed, and a less specific quota applies under the same quota-id.
    assert "allowed 3 kB/s (removed 2023-11-14 22:13:19 UTC by ops; users/alice allows 1 MB/s" in (
        waits(told, change)
    )
    added = replace(change, before=None, after=1e6)
    assert "because the quota allowed 3 kB/s (1 MB/s now, set 2023" in waits(told, added)
    earlier = replace(raised, at_ms=told.at_ms - 1)
    assert "(1 MB/s now) and it" in waits(told, earlier)
    # Changed twice: it was lowered, and raised beyond what it was.
    lower = replace(raised, after=1e3, at_ms=raised.at_ms - 1)
    assert "(1 MB/s now, raised 2023" in waits(told, lower, replace(raised, before=1e3))
    removed = waits(told, lower, replace(change, before=1e3), quota=None)
    assert removed.startswith(
        " under a quota that is gone (users/alice: 3 kB/s, removed 2023-11-14"
    )
    # Of a cluster-wide quota it was the broker's part that the client was beyond.
    key = PRODUCER_BPS.name
    divided = replace(told, quota=1e6, limit=1e5)
    assert waits(divided, quota=None, key=key).startswith(
        " under a quota that is gone (1 MB/s in all, 100 kB/s of it here), because it produced 160 "
    )
    assert "allowed 1 MB/s in all, 100 kB/s of it here (2 MB/s in all now) and it" in waits(
        divided, quota=2e6, key=key
    )
    other = replace(told, limit=1e6, quota=1e6, rate=2e6, replaced=True)
    assert waits(other).endswith("another quota applies to it now, and that doesn't end the wait, "
                                 "as in Kafka.")  # fmt: skip


def test_a_debt_and_a_rate_that_rounds_to_its_limit_are_told_as_such() -> None:
    told = WaitTold(NOW_MS, 1e6, 1e6, owed=2.5e8)
    assert waits(told) == (
        ", because users/alice allows 1 MB/s and it owed 250 MB when the wait was told."
    )
    little = replace(told, owed=None, rate=1_000_010.0)
    assert "allows 1 MB/s and it produced a little more when the wait was told." in waits(little)
    rounded = replace(little, limit=24.105e9, quota=24.105e9, rate=24.1124e9)
    said = waits(rounded, quota=24.105e9)
    assert "allows 24.11 GB/s and it produced a little more" in said.replace("users/alice ", "")
    within = replace(told, owed=None, rate=9e5)  # no use of that moment explains the wait
    assert waits(within) == ", because users/alice allows 1 MB/s."
    unknown = replace(HELD, clients=(replace(ETL, told=None),))
    assert why(picture(unknown), "alice", "etl").sentence == (
        "alice/etl waits 1.2 s more by users/alice, which allows 1 MB/s."
    )


def test_a_bucket_decides_by_what_is_owed_and_not_by_the_rate() -> None:
    client = (ClientUse("alice", "etl", 1),)
    use = replace(HELD, held=0, clients=client, owed=300.0)
    assert why(picture(use), "alice", "etl").sentence == (
        "alice/etl waits with what it sends next, because users/alice allows 1 MB/s and it owes "
        "300 B."
    )
    paid = why(picture(replace(use, owed=0.0)), "alice", "etl")
    assert (paid.state, paid.sentence) == (
        "free", "alice/etl isn't held: users/alice allows 1 MB/s, and it owes nothing."
    )  # fmt: skip


def test_a_tenant_is_not_told_who_changed_the_quota_nor_what_others_used() -> None:
    told = WaitTold(NOW_MS - 6_000, 1e6, 1e6, rate=3.21e6)
    shared = replace(HELD, user="", client_id="etl", quota=2e6, clients=(replace(ETL, told=told),))
    change = QuotaChange("producer_byte_rate", "clients/etl", NOW_MS - 1_000, 1e6, 2e6, "ops")
    asked = replace(picture(shared), changes=(change,))
    found = why(as_seen_by(asked, frozenset({"alice"})), "alice", "etl").sentence
    assert "ops" not in found and "raised 2023-11-14 22:13:19 UTC)" in found
    assert "produced up to 1.25 MB/s" in found


def test_a_quota_without_a_bound_travels_and_is_told() -> None:
    table = QuotaTable.of({QuotaEntity.of(user="alice"): {REQUEST: inf}})
    effective = travelling(effective_of(table, "alice", "etl"))
    made = Picture(at_ms=NOW_MS, brokers=(), user="alice", client_id="etl", effective=effective)
    read = decode(finish(encode_steps(made)))
    assert read == made
    assert human(REQUEST, read.effective[0].entries[0].value) == "unlimited"
