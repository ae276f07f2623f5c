"""The store contract over the SQLite home."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.suite import Opener, StoreContract
from headgate.store import QuotaStore, open_store
from headgate.store.sqlite import file as sqlite_file


class TestSqlite(StoreContract):
    polls = True

    @pytest.fixture
    def empty_home(self, tmp_path: Path) -> Callable[[], None]:
        def empty() -> None:
            for path in tmp_path.glob("quotas.db*"):
                path.unlink()

        return empty

    @pytest.fixture
    def open_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
        # SQLite's lock isn't fair: where a sync takes a second, two writers keep a third waiting.
        monkeypatch.setattr(sqlite_file, "BUSY_MS", 120_000)
        opened: list[QuotaStore] = []

        def opener(*, create: bool = True) -> QuotaStore:
            opened.append(open_store(f"sqlite:{tmp_path / 'quotas.db'}", create=create))
            return opened[-1]

        yield opener
        for store in opened:
            store.close()
