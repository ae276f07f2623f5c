"""No sentence of `headgate why` contradicts itself, whatever was told or changed since."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.live.effective import effective_of
from headgate.live.picture import (
    BrokerPicture,
    ClientUse,
    Picture,
    QuotaChange,
    QuotaUse,
    WaitTold,
)
from headgate.live.seen import as_seen_by
from headgate.live.why import why
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import KEYS, PRODUCER, QuotaKey
from headgate.quota.table import QuotaTable

from ..kit.sentences import contradictions

NOW_MS = 1_700_000_000_000
TYPED = sorted(k for k in KEYS if "ip" not in str(k) and k.name != "connection_creation_rate")
PATHS = ("users/alice", "users/<default>", "users/alice/clients/etl", "clients/etl")
amounts = st.one_of(
    st.floats(0.001, 1e12),
    st.sampled_from([1.0, 1e3, 999.96, 1e6, 1_000_000.4, 300_000.0, 1e9]),
)
near = st.sampled_from([1.0 + 1e-9, 1.0001, 1.0006, 1.01, 1.5, 40.0])


@st.composite
def waits(draw: st.DrawFn, key: QuotaKey) -> WaitTold:
    """What was true when a wait was told: the use is beyond the limit, by whatever is little."""
    quota = draw(amounts)
    limit = quota * draw(st.sampled_from([0.1, 1.0])) if key.is_divided else quota
    is_rate = draw(st.booleans())
    return WaitTold(
        NOW_MS - draw(st.integers(-50, 100_000)),
        limit,
        quota,
        limit * draw(near) if is_rate else None,
        None if is_rate else draw(amounts),
        draw(st.sampled_from(["client", "closed", "gate"])),
        draw(st.booleans()),
    )


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    """A client, held or not, by a quota that is as it was, or was changed, or is gone."""
    key = draw(st.sampled_from(TYPED))
    held = draw(st.booleans())
    told = draw(st.one_of(st.none(), waits(key))) if held else None
    asked = told is not None and told.quota is not None
    quota = draw(st.sampled_from([told.quota, None]) if told is not None and asked else amounts)
    if told is not None and draw(st.booleans()):
        quota = draw(amounts)
    rate = draw(st.one_of(st.just(0.0), amounts))
    if quota is not None and draw(st.booleans()):
        rate = quota * draw(near) * draw(st.sampled_from([1.0, 0.5, 0.99]))
    client = ClientUse(
        "alice", "etl", 2, int(held), NOW_MS + draw(st.integers(0, 10**6)) if held else 0, told=told
    )
    others = draw(st.lists(st.just(ClientUse("bob", "etl", 1)), max_size=1))
    use = QuotaUse(
        key.name,
        user=draw(st.sampled_from(["alice", ""])),
        client_id=draw(st.sampled_from(["etl", ""])),
        quota=quota,
        rate=rate,
        split=quota and (quota * 0.1 if key.is_divided else None),
        held=client.held,
        held_until_ms=client.held_until_ms,
        clients=(client, *others),
        owed=draw(st.one_of(st.none(), st.just(0.0), amounts)),
    )
    changes = [
        QuotaChange(
            key.name,
            draw(st.sampled_from(PATHS)),
            NOW_MS - draw(st.integers(0, 100_000)),
            draw(st.sampled_from([told and told.quota, 1e4, None])),
            draw(st.sampled_from([quota, 1e4, None])),
            draw(st.sampled_from(["ops", ""])),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    changes = [change for change in changes if change.before != change.after]
    written = {
        QuotaEntity.of(user="alice"): {PRODUCER: 1e6},
        QuotaEntity.of(user=DEFAULT): {key: 5},
    }
    return Picture(
        NOW_MS,
        brokers=(
            BrokerPicture(1, quotas=(use,), enforce=draw(st.sampled_from(["all", "observe"]))),
        ),
        user="alice",
        client_id="etl",
        effective=effective_of(QuotaTable.of(written), "alice", "etl"),
        changes=tuple(changes),
    )


@given(pictures())
def test_no_sentence_contradicts_itself(picture: Picture) -> None:
    for seen in (picture, as_seen_by(picture, frozenset({"alice"}))):
        found = why(seen, "alice", "etl")
        assert not list(contradictions(found.sentence)), found.sentence


@pytest.mark.parametrize(
    "sentence",
    [
        "a waits 281 ms more, because users/a allows 300 kB/s and it produces 192.6 kB/s.",
        "a waits 2 s more, because users/a allows 1 MB/s and it produced 1 MB/s, 3 s before.",
        "a waits with what it sends next, because users/a allows 1 MB/s and it produces 900 kB/s.",
        "a isn't held: users/a allows 1 MB/s, it produces 400 kB/s, and 700 kB/s are left.",
        "a isn't held: users/a allows 10 %, it uses 12 %, and nothing is left.",
        "a waits 2 s more, because users/a allowed 1 MB/s (1 MB/s now) and it produced 2 MB/s.",
        "a waits 2 s more, because users/a allowed 2 MB/s (1 MB/s now, raised by x); it is so.",
    ],
)
def test_what_contradicts_itself_is_found(sentence: str) -> None:
    assert list(contradictions(sentence))
