"""
What a tenant sees of a picture doesn't depend on what others are called, do, or come from.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.live.picture import (
    BrokerPicture,
    ClientUse,
    EffectiveQuotaEntry,
    EffectiveQuotaOf,
    ListenerUse,
    Picture,
    QuotaUse,
    encode,
)
from headgate.live.seen import as_seen_by

OWN = frozenset({"alice", "amy"})
KEYS = st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "request_percentage"])
SHARED = ("etl", "batch")
"""Client-ids that the tenant's principals use, and others too."""
small = st.integers(0, 1_000_000)


def clients(principals: st.SearchStrategy[str]) -> st.SearchStrategy[ClientUse]:
    address = st.integers(0, 255).map(lambda n: f"66.6.6.{n}")
    return st.builds(
        ClientUse,
        principals,
        st.sampled_from(SHARED),
        connections=small,
        held=small,
        held_until_ms=small,
        addresses=st.lists(st.tuples(address, small), max_size=3).map(tuple),
        other_addresses=small,
    )


strangers = st.text("bcxyz<>\n", min_size=1, max_size=6).map(lambda name: f"foreign-{name}")
own_clients = clients(st.sampled_from(sorted(OWN)))
foreign_clients = st.lists(clients(strangers), max_size=4).map(tuple)


@st.composite
def foreign_uses(draw: st.DrawFn) -> tuple[QuotaUse, ...]:
    """Quota-ids that are others', or shared among others only."""
    return tuple(
        QuotaUse(
            draw(KEYS),
            user=draw(st.one_of(strangers, st.just(""))),
            client_id=draw(st.one_of(strangers, st.just(""))),
            quota=draw(st.one_of(st.none(), st.floats(0, 1e9))),
            rate=draw(st.floats(0, 1e9)),
            held=draw(small),
            clients=draw(foreign_clients),
        )
        for _ in range(draw(st.integers(0, 4)))
    )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Picture, Picture]:
    """Two pictures that differ only in what others do; shared quota-ids are as full in both."""
    user = draw(st.sampled_from([None, "alice", "foreign-bob"]))
    client_id = None if user is None else draw(st.sampled_from([None, "etl", "foreign-app"]))
    own = draw(st.lists(own_clients, max_size=4).map(tuple))
    quota, quarter = draw(st.floats(1, 1e9)), draw(st.integers(1, 4))
    at_ms, connections = draw(small), draw(st.integers(0, 3))
    own_use = QuotaUse(
        draw(KEYS), user="alice", quota=quota, rate=draw(small), clients=own, held=draw(small)
    )
    shared_key = draw(KEYS)
    mine = draw(st.lists(own_clients, min_size=1, max_size=3).map(tuple))
    values = draw(st.tuples(small, small))

    def world() -> Picture:
        others = draw(foreign_clients)
        shared = QuotaUse(
            shared_key,
            client_id="etl",
            quota=quota,
            rate=quota * (quarter - draw(st.floats(0.1, 0.9))) / 4,
            held=draw(small),
            held_until_ms=draw(small),
            held_since_ms=draw(small),
            throttled=draw(small),
            throttled_ms=draw(small),
            window_ms=draw(small),
            clients=mine + others,
            other_clients=draw(small),
        )
        uses = [*draw(foreign_uses()), own_use, shared]
        broker = BrokerPicture(
            1,
            gateway=draw(strangers),
            ready=draw(strangers),
            accept_rate=draw(small),
            connections=connections if user else draw(small),
            listeners=(ListenerUse(draw(strangers), "66.6.6.6:9092", draw(small), draw(small)),),
            quotas=tuple(draw(st.permutations(uses))),
            other_quotas=draw(small),
        )
        entries = [EffectiveQuotaEntry("users/<default>", values[0])]
        if client_id == "foreign-app" and not connections and draw(st.booleans()):
            entries.insert(0, EffectiveQuotaEntry("clients/foreign-app", draw(small)))
            entries.insert(0, EffectiveQuotaEntry("users/<default>/clients/foreign-app", 1.0))
        effective = (EffectiveQuotaOf(shared_key, tuple(entries)),) if user else ()
        return Picture(
            at_ms, "gateway", (broker,), user, client_id, effective=effective, version=draw(small)
        )

    return world(), world()


@given(worlds())
def test_what_others_do_changes_nothing_that_a_tenant_sees(pair: tuple[Picture, Picture]) -> None:
    one, other = (encode(as_seen_by(picture, OWN)) for picture in pair)
    assert one == other
    asked = f'"{pair[0].user}"'.encode() + f'"{pair[0].client_id}"'.encode()
    names = [b"foreign-", b"66.6.6.6:9092"]
    if b"foreign-" in asked:  # the tenant's own words come back
        names = names[1:]
    assert not any(name in one for name in names)


@given(worlds())
def test_a_tenant_sees_all_of_its_own(pair: tuple[Picture, Picture]) -> None:
    picture = pair[0]
    seen = as_seen_by(picture, OWN)
    if picture.user == "foreign-bob":
        assert seen.brokers == seen.effective == ()
        return
    own = [use for use in picture.brokers[0].quotas if use.user in OWN]
    assert [use for use in seen.brokers[0].quotas if use.user] == own
    [shared] = [use for use in seen.brokers[0].quotas if not use.user]
    assert shared.coarse and {client.principal for client in shared.clients} <= OWN


@given(st.sampled_from(["foreign-bob", "nobody"]), worlds())
def test_a_foreign_name_is_answered_as_an_unknown_one(
    name: str, pair: tuple[Picture, Picture]
) -> None:
    foreign = Picture(5, brokers=pair[0].brokers, user=name, effective=pair[0].effective)
    unknown = Picture(5, user=name)
    assert encode(as_seen_by(foreign, OWN)) == encode(as_seen_by(unknown, OWN))
