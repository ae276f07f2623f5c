"""The store contract over the SQLite home."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.suite import Opener, StoreContract
from headgate.store import QuotaStore, open_store, sqlite


class TestSqlite(StoreContract):
    @pytest.fixture
    def open_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
        # SQLite's lock isn't fair: where a sync takes a second, two writers keep a third waiting.
        monkeypatch.setattr(sqlite, "BUSY_MS", 120_000)
        opened: list[QuotaStore] = []

        def opener() -> QuotaStore:
            opened.append(open_store(f"sqlite:{tmp_path / 'quotas.db'}"))
            return opened[-1]

        yield opener
        for store in opened:
            store.close()
