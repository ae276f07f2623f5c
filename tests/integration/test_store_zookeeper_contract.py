"""The store contract over a real ZooKeeper."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract.suite import Moments, Opener, StoreContract, called
from headgate.embedded import EmbeddedZooKeeper
from headgate.store import QuotaStore, open_store
from headgate.store.zookeeper.client import ZkClient

pytestmark = pytest.mark.kafka3


class TestZooKeeper(StoreContract):
    @pytest.fixture
    def chroot(self) -> str:
        return f"/contract/{uuid.uuid4().hex}"

    @pytest.fixture
    def empty_home(self, zookeeper: EmbeddedZooKeeper, chroot: str) -> Callable[[], None]:
        def empty() -> None:
            with zookeeper.client() as client:
                if client.exists(chroot):
                    for name in client.get_children(chroot):
                        client.delete(f"{chroot}/{name}", recursive=True)

        return empty

    @pytest.fixture
    def open_home(self, zookeeper: EmbeddedZooKeeper, chroot: str) -> Iterator[Opener]:
        opened: list[QuotaStore] = []

        def opener(*, create: bool = True) -> QuotaStore:
            opened.append(open_store(f"zookeeper://{zookeeper.address}{chroot}", create=create))
            return opened[-1]

        yield opener
        for store in opened:
            store.close()

    @pytest.fixture
    def reading(self, monkeypatch: pytest.MonkeyPatch) -> Moments:
        """Many reads are in flight at once: others' transactions come between any two of them."""
        moments = Moments()
        inner = ZkClient._ask

        def one_by_one(client: ZkClient, call: Any, paths: list[str]) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for path in paths:
                moments.passed()
                found |= inner(client, call, [path])
            return found

        monkeypatch.setattr(ZkClient, "_ask", one_by_one)
        return moments

    @pytest.fixture
    def changing(self, reading: Moments, monkeypatch: pytest.MonkeyPatch) -> Moments:
        called(monkeypatch, reading.passed, ZkClient, "_commit")
        return reading

    @pytest.fixture
    def dying(self, changing: Moments) -> Moments:
        return changing
