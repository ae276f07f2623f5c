"""Kill -9 in the middle of alters: what was acknowledged is there, nothing is half there."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from contract.suite import Seen
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, REQUEST
from headgate.quota.table import QuotaTable, alterations_of
from headgate.store import open_store

# Counts up: one request sets two keys of one entity and one of another to the same number, and
# the number is printed once the store has acknowledged it.
WRITER = """
import sys
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import QuotaEntity
from headgate.quota.key import CONSUMER, PRODUCER, REQUEST
from headgate.store import open_store

url, name, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = open_store(url)
print("open", flush=True)
pair = QuotaEntity.of(user=name)
single = QuotaEntity.of(user=name, client_id="single")
for n in range(first, last):
    value = float(n)
    results = store.alter([
        QuotaAlteration(pair, (Op(PRODUCER, value), Op(CONSUMER, value))),
        QuotaAlteration(single, (Op(REQUEST, value),)),
    ], who=name, tool="writer")
    assert all(r.error is None for r in results)
    print(n, flush=True)
store.close()
"""


def start(url: str, name: str, first: int, last: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, name, str(first), str(last)],
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(child: "subprocess.Popen[str]") -> list[str]:
    """Return the lines printed that weren't read yet; the process is over."""
    # Not communicate(): it reads past the buffer, and would lose what readline() put there.
    assert child.stdout is not None
    with child.stdout as out:
        lines = out.read().split()
    child.wait()
    return lines


def kill_many(folder: Path, kills: int, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    met: Counter[str] = Counter()
    url, last_acknowledged, n = "", 0, 0
    for i in range(kills):
        if i % 10 == 0:
            # A new file, so that some kills meet the making of one.
            n, last_acknowledged = 0, 0
            url = f"sqlite:{folder / f'q{i}.db'}"
        child = start(url, "alice", n + 1, 10**9)
        assert child.stdout is not None
        if i % 10:
            for _ in range(chance.randint(1, 12)):
                line = child.stdout.readline().strip()
                if line not in ("open", ""):
                    last_acknowledged = int(line)
            time.sleep(chance.random() * 0.004)
        else:
            time.sleep(chance.random() * 0.4)
        child.send_signal(signal.SIGKILL)
        acknowledged = [int(line) for line in finish(child) if line != "open"]
        assert child.returncode == -signal.SIGKILL
        last_acknowledged = max([last_acknowledged, *acknowledged])
        n = check(url, last_acknowledged)
        met["unacknowledged but whole" if n > last_acknowledged else "acknowledged"] += 1
        last_acknowledged = n  # the next child goes on from there
    return met


def check(url: str, acknowledged: int) -> int:
    """Return the number the store holds; everything in it agrees on that number."""
    store = open_store(url)
    try:
        table = store.snapshot()
        pair = QuotaEntity.of(user="alice")
        single = QuotaEntity.of(user="alice", client_id="single")
        n = table.get(pair, PRODUCER) or 0.0
        assert acknowledged <= n <= acknowledged + 1
        wanted = {pair: {PRODUCER: n, CONSUMER: n}, single: {REQUEST: n}} if n else {}
        assert {e: dict(v) for e, v in table.entities.items()} == wanted
        steps = [(h.key, h.before, h.after) for h in store.history.entries()]
        assert steps == [
            (key, value - 1.0 or None, value)
            for value in map(float, range(1, int(n) + 1))
            for key in (PRODUCER, CONSUMER, REQUEST)
        ]
        return int(n)
    finally:
        store.close()


def test_twenty_kills_lose_nothing_acknowledged_and_leave_nothing_half_applied(
    tmp_path: Path,
) -> None:
    met = kill_many(tmp_path, 20, seed=50)
    assert met.total() == 20


@pytest.mark.slow
def test_a_thousand_kills_lose_nothing_acknowledged_and_leave_nothing_half_applied(
    tmp_path: Path,
) -> None:
    met = kill_many(tmp_path, 1_000, seed=1_000)
    assert met.total() == 1_000


def test_several_processes_alter_at_once_one_is_killed_and_no_change_is_lost(
    tmp_path: Path,
) -> None:
    url = f"sqlite:{tmp_path / 'q.db'}"
    names = ["a", "b", "c", "d"]
    store = open_store(url)
    watching = Seen()
    store.watch(watching)
    children = {name: start(url, name, 1, 61) for name in names}
    killed = children["d"]
    assert killed.stdout is not None
    seen = [killed.stdout.readline().strip() for _ in range(6)]
    killed.send_signal(signal.SIGKILL)
    last = {name: finish(child)[-1:] for name, child in children.items()}
    assert all(children[name].returncode == 0 for name in "abc")
    table = store.snapshot()
    # All of it was watched too: other processes' changes, in order, none left out.
    watching.until(lambda: watching.table == table)
    rebuilt = QuotaTable()
    for _, delta in watching.events:
        rebuilt = rebuilt.apply(alterations_of(delta.changes))[0]
    assert rebuilt == table
    for name in "abc":
        assert last[name] == ["60"]
        assert table.entities[QuotaEntity.of(user=name)] == {PRODUCER: 60.0, CONSUMER: 60.0}
        mine = [h.after for h in store.history.entries() if h.who == name and h.key == REQUEST]
        assert mine == [float(n) for n in range(1, 61)]
    acknowledged = int((last["d"] or seen[-1:])[0])
    values = table.entities[QuotaEntity.of(user="d")]
    assert values[PRODUCER] == values[CONSUMER]
    assert acknowledged <= values[PRODUCER] <= 60.0
    store.close()
