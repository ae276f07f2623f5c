"""The store contract over a real ZooKeeper."""

import uuid
from collections.abc import Iterator

import pytest

from contract.suite import Opener, StoreContract
from headgate.embedded import EmbeddedZooKeeper
from headgate.store import QuotaStore, open_store

pytestmark = pytest.mark.kafka3


class TestZooKeeper(StoreContract):
    @pytest.fixture
    def open_home(self, zookeeper: EmbeddedZooKeeper) -> Iterator[Opener]:
        url = f"zookeeper://{zookeeper.address}/contract/{uuid.uuid4().hex}"
        opened: list[QuotaStore] = []

        def opener() -> QuotaStore:
            opened.append(open_store(url))
            return opened[-1]

        yield opener
        for store in opened:
            store.close()
