"""The store contract over a real ZooKeeper."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from contract.suite import Opener, StoreContract
from headgate.embedded import EmbeddedZooKeeper
from headgate.store import QuotaStore, open_store

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
