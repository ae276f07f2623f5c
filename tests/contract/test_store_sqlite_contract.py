"""The store contract over the SQLite home."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.suite import Moments, Opener, StoreContract, called
from headgate.store import QuotaStore, open_store
from headgate.store.sqlite import file as sqlite_file
from headgate.store.sqlite import rows


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

    @pytest.fixture
    def reading(self, monkeypatch: pytest.MonkeyPatch) -> Moments:
        moments = Moments()
        steps = ("identity", "latest", "log_since", "quotas", "brokers")
        called(monkeypatch, moments.passed, rows, *steps)
        return moments

    @pytest.fixture
    def changing(self, monkeypatch: pytest.MonkeyPatch) -> Moments:
        moments = Moments()  # later moments are a transaction's: it locks the file
        called(monkeypatch, moments.passed, sqlite_file.OpenDatabase, "begin")
        return moments

    @pytest.fixture
    def dying(self, monkeypatch: pytest.MonkeyPatch) -> Moments:
        moments = Moments()
        called(monkeypatch, moments.passed, sqlite_file.OpenDatabase, "begin", "check")
        called(monkeypatch, moments.passed, rows, "identity", "set_key", "count_change")
        return moments
