"""The SQLite store does what the table's own ``apply`` does, for any alterations."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, PRODUCER_BPS, REQUEST
from headgate.quota.table import QuotaTable, alterations_of
from headgate.store.sqlite.store import SqliteStore

# Few enough that alterations meet; names that paths and JSON have trouble with.
NAMES = st.sampled_from(["a", "<default>", "ü/π %", "clients", "..", "\N{PILE OF POO}", DEFAULT])
ENTITIES = st.one_of(
    st.builds(lambda u: QuotaEntity.of(user=u), NAMES),
    st.builds(lambda c: QuotaEntity.of(client_id=c), NAMES),
    st.builds(lambda u, c: QuotaEntity.of(user=u, client_id=c), NAMES, NAMES),
)
WHOLE = st.integers(1, 2**53).map(float)
OPS = st.one_of(
    st.builds(Op, st.sampled_from([PRODUCER, CONSUMER, PRODUCER_BPS]), st.one_of(st.none(), WHOLE)),
    st.builds(
        Op, st.just(REQUEST), st.one_of(st.none(), st.floats(1e-300, 1e300, allow_nan=False))
    ),
)
ALTERATIONS = st.builds(
    QuotaAlteration,
    ENTITIES,
    st.lists(OPS, min_size=1, max_size=3, unique_by=lambda op: op.key).map(tuple),
)
REQUESTS = st.lists(
    st.lists(ALTERATIONS, min_size=1, max_size=4, unique_by=lambda a: a.entity),
    min_size=1,
    max_size=5,
)


# Every commit is synced to disk, so fewer examples than elsewhere.
@settings(deadline=None, max_examples=40)
@given(requests=REQUESTS)
def test_a_store_is_a_table_that_lasts(requests: list[list[QuotaAlteration]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        compare(requests, Path(folder) / "quotas.db")


def compare(requests: list[list[QuotaAlteration]], path: Path) -> None:
    table, told = QuotaTable(), QuotaTable()
    seen = []
    with SqliteStore(path, poll_ms=3_600_000) as store, SqliteStore(path) as other:
        store.watch(lambda table, delta: seen.append((table, delta)))
        for alterations in requests:
            table = table.apply(alterations)[0]
            assert all(result.error is None for result in other.alter(alterations))
            assert other.snapshot() == table
        store.snapshot()
        store._hub.deliver()
        for at, delta in seen:
            told = told.apply(alterations_of(delta.changes))[0]
            assert told == at
        assert told == table
        history = QuotaTable()
        for entry in other.history.entries():
            assert history.get(entry.entity, entry.key) == entry.before
            op = Op(entry.key, entry.after)
            history = history.apply([QuotaAlteration(entry.entity, (op,))])[0]
        assert history == table
