"""The checker finds every mistake of a store that is planted, and none in the store without."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from faults import workload
from faults.checker import check
from faults.planted import PLANTED
from faults.workload import Log, Plan, Writer
from headgate.store.sqlite.store import SqliteStore

CALLS = 40
WRITERS = 4


def verdict(kind: type[SqliteStore], folder: Path, seed: int = 1) -> list[str]:
    """Let writers work side by side on a store, in threads, each with a store of its own."""
    names = workload.entities(2, "planted")
    plan = Plan(names, [("consumer_byte_rate", "producer_byte_rate")], folder / "stop")
    path = folder / "q.db"
    with ExitStack() as opened:
        stores = [opened.enter_context(kind(path, poll_ms=5)) for _ in range(WRITERS + 1)]
        told = Log(folder / "watch")
        stores[0].watch(lambda table, _: told.write(found=workload.values_in(table, names)))
        logs = [folder / f"writer-{n}" for n in range(1, WRITERS + 1)]
        writers = [
            Writer(log.name, store, plan, Log(log), seed)
            for log, store in zip(logs, stores[1:], strict=True)
        ]

        def work(writer: Writer) -> None:
            for _ in range(CALLS):
                writer.once()

        threads = [threading.Thread(target=work, args=(writer,)) for writer in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stores[0]._refresh()
        stores[0]._hub.deliver()  # what its thread hasn't told yet
        with SqliteStore(path) as sound:
            audit = workload.audit_of(sound, 0, names)
        audit = audit._replace(entries=workload.audit_of(stores[0], 0, names).entries)
    return check(workload.operations_of(logs), audit, [workload.events_of(folder / "watch")])


def test_a_sound_store_is_found_sound(tmp_path: Path) -> None:
    assert verdict(SqliteStore, tmp_path) == []


@pytest.mark.parametrize("kind", PLANTED, ids=lambda kind: kind.__name__)
def test_a_planted_fault_is_found(kind: type[SqliteStore], tmp_path: Path) -> None:
    """Where writers have to meet for it they may miss each other, so there are ten goes."""
    laws: set[str] = set()
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        laws |= {line.partition(":")[0] for line in verdict(kind, folder, seed)}
        if laws & PLANTED[kind]:
            return
    raise AssertionError(f"{kind.__doc__} Not found; what was: {laws}")
