"""A gateway's journal as requests: identical decisions, nothing counted twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headgate.pipeline.emitted import EMITTED_REQUESTS
from headgate.pipeline.quotas import Quotas
from headgate.pipeline.replaying.packed_format import ORDER, PackOptions
from headgate.pipeline.replaying.packer import PackRequests
from headgate.pipeline.replaying.replay import ReplayPacked
from headgate.pipeline.schema import REQUESTS
from headgate.pipeline.sources.files import find_files
from headgate.pipeline.sources.journal import starts_in
from headgate.pipeline.sources.pieces import FilePiece, pieces_of
from headgate.pipeline.sources.rotation import Input, RolledFiles
from headgate.pipeline.workers.emit import EmitActivity, EmitRequests, RequestsOfMessages
from headgate.pipeline.workers.log_reader import ReadOptions
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import QuotaType
from headgate.quota.table import QuotaTable
from headgate.throttle.java import UNLIMITED
from headgate.throttle.manager import ClientQuotaManager
from headgate.throttle.registry import UNCHARGED
from headgate.throttle.request import RequestQuotaManager
from headgate.usage.files import complete_batches, file_name, journal_files
from headgate.usage.format import Event, Origin
from headgate.usage.reader import read_batches
from headgate.usage.rows import batch_of
from headgate.usage.topic import encode

BEFORE = Path(__file__).parents[2] / "data" / "before"
WINDOWS = {"num_samples": 3, "window_ms": 500}
ALICE = QuotaEntity.of(user="alice")
EVERYONE = QuotaEntity.of(user=DEFAULT)


class Gateway:
    """What a gateway's broker does with its managers, written down as it does."""

    def __init__(self, broker_id: int = 1) -> None:
        self.broker_id = broker_id
        self.events: list[Event] = []
        self.start(0)

    def start(self, now: int) -> None:
        self.produce = ClientQuotaManager(QuotaType.PRODUCER_BYTE_RATE, **WINDOWS)
        self.request = RequestQuotaManager(**WINDOWS)
        self.events.append(Event(Origin("start", broker_id=self.broker_id), float(now)))

    def quota(self, entity: QuotaEntity, value: float | None, now: int) -> None:
        self.produce.update_quota(entity, value, now)

    def charge(self, user: str, client: str, size: int, now: int, ns: int) -> None:
        by_bytes = self.produce.record(user, client, size, now)
        by_time = self.request.record_ns(user, client, ns, now)
        told = max(by_bytes.throttle_time_ms, by_time.throttle_time_ms)
        for quota_type, amount, decision in (
            ("producer_byte_rate", float(size), by_bytes),
            ("request_percentage", ns * 1e-7, by_time),
        ):
            charged = decision is not UNCHARGED
            origin = Origin(
                "record" if charged else "norecord",
                quota_type,
                self.broker_id,
                "L",
                decision.user_tag,
                decision.client_tag,
                None,
                user,
                client,
                "10.0.0.9",
                f"{user}-{client}",
                0,
                11,
                WINDOWS["num_samples"],
                WINDOWS["window_ms"],
            )
            self.events.append(
                Event(
                    origin,
                    float(now),
                    amount,
                    decision.bound,
                    decision.throttle_time_ms,
                    told,
                    0,
                    size,
                    ns / 1e6,
                )
            )


def write(folder: Path, events: list[Event], first: int, suffix: str = ".arrow") -> None:
    path = folder / file_name("w-1", first, suffix)
    batch = batch_of(events, "w-1", first)
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_batches([batch]), path)
        return
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Path]:
    """Four files, with limits that change, a restart, and a compaction that was interrupted."""
    rng = random.Random(5)
    gateway = Gateway()
    now = 1_000_000
    parts = [0]
    for i in range(1200):
        if i == 100:
            gateway.quota(ALICE, 20_000.0, now)
        if i == 300:
            gateway.quota(EVERYONE, 9_000.0, now)
            gateway.request.update_quota(ALICE, 5.0, now)
        if i == 500:
            gateway.quota(ALICE, 3_000.0, now)
        if i == 600:
            parts.append(len(gateway.events))
        if i == 800:
            parts.append(len(gateway.events))
            gateway.start(now)
            gateway.produce.load({ALICE: 4_000.0}, now)
        if i == 1000:
            parts.append(len(gateway.events))
        now += rng.choice([0, 1, 7, 40, 300]) - (40 if i % 97 == 0 else 0)  # clocks step back
        who = rng.choice(["alice", "b@b"])
        gateway.charge(who, rng.choice("xy"), rng.randrange(10, 9000), now, rng.randrange(10**7))
    parts.append(len(gateway.events))
    for n, (a, b) in enumerate(pairwise(parts)):
        write(tmp_path, gateway.events[a:b], a + 1, [".parquet", ".arrow", ".arrow", ".open"][n])
        if n == 0:
            write(tmp_path, gateway.events[a:b], a + 1, ".arrow")
    yield tmp_path


def run(task: Any, n: int) -> pa.Table:
    return pa.Table.from_batches(task(iter([pa.RecordBatch.from_pydict({"id": list(range(n))})])))


def replayed(pieces: tuple[Any, ...]) -> pa.Table:
    """Each charge with the decision that was written down and the one that replaying comes to."""
    options = PackOptions((Quotas.of(QuotaTable()),))
    packed = run(PackRequests(options, ReadOptions(pieces)), len(pieces))
    packed = packed.filter(pc.is_in(packed["kind"], pa.array(["chunk", "plain"])))
    keys = [(name, "ascending") for name in ORDER]
    batches = packed.sort_by(keys).combine_chunks().to_batches(max_chunksize=2)
    return pa.Table.from_batches(ReplayPacked(options)(iter(batches)))


def test_a_journal_that_the_version_before_wrote_is_replayed_identically() -> None:
    table = replayed(tuple(pieces_of(find_files([str(BEFORE / "journal")]))))
    can = table.filter(table["replayable"])
    told = can["logged_throttle_time_ms"].to_pylist()
    assert can["replayed_throttle_time_ms"].to_pylist() == told
    assert (len(told), sum(told)) == (87, 113)


@pytest.mark.parametrize("order", [1, -1])
def test_replay_of_a_journal_is_identical(journal: Path, order: int) -> None:
    pieces = tuple(pieces_of(find_files([str(journal)]))[::order])
    assert len(pieces) == 4
    table = replayed(pieces)
    assert table.num_rows == 2400
    can = table.filter(table["replayable"])
    assert (
        can["replayed_throttle_time_ms"].to_pylist() == can["logged_throttle_time_ms"].to_pylist()
    )
    throttled = pc.greater(can["replayed_throttle_time_ms"], 0)
    kinds = can.filter(throttled)["quota_type"].to_pylist()
    assert kinds.count("producer_byte_rate") > 200
    assert kinds.count("request_percentage") > 20
    # What wasn't charged (no quota of the type yet) has no decision.
    assert sum(not r for r in table["replayable"].to_pylist()) == 100 + 300 + 400


def without_file(table: pa.Table) -> list[dict[str, Any]]:
    rows = table.filter(pc.equal(table["kind"], "request"))
    return rows.drop_columns(["file"]).sort_by("seq").to_pylist()


def files_of(folder: Path) -> list[tuple[str, int]]:
    return [(str(p), p.stat().st_size) for p in sorted(folder.iterdir())]


def test_a_journal_that_grows_is_read_once_whatever_form_its_files_have(
    journal: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = run(EmitRequests(ReadOptions(tuple(pieces_of(find_files([str(journal)]))))), 4)
    first, second, third, fourth = (f.path for f in journal_files(journal))
    folder = tmp_path_factory.mktemp("growing")
    rounds: list[pa.Table] = []
    remembered: list[Input] = []

    def take(rolled: RolledFiles, files: list[tuple[str, int]]) -> None:
        found = rolled.take([path for path, _ in files])
        rolled.remember(found.inputs)
        assert not any(piece.unread for piece in found.pieces)
        remembered.extend(found.inputs)
        pieces = tuple(found.pieces)
        nothing = EMITTED_REQUESTS.arrow.empty_table()
        rounds.append(run(EmitRequests(ReadOptions(pieces)), len(pieces)) if pieces else nothing)

    def there(path: Path, suffix: str) -> None:
        if path.suffix == ".parquet" and suffix != ".parquet":
            path = path.with_suffix(".arrow")
        (folder / path.stem).with_suffix(suffix).write_bytes(path.read_bytes())

    rolled = RolledFiles()
    there(first, ".parquet")
    there(first, ".arrow")  # not taken away yet
    take(rolled, files_of(folder))
    there(second, ".arrow")
    there(third, ".open")
    take(rolled, files_of(folder))
    listed = files_of(folder)
    (folder / second.name).with_suffix(".arrow").unlink()
    write_parquet(second, folder)
    take(rolled, listed)  # compacted between being listed and being read: it was read before
    (folder / third.name).with_suffix(".open").unlink()
    there(third, ".arrow")
    take(rolled, files_of(folder))
    # Killed; and the files before the last one were cleared away.
    rolled = RolledFiles()
    rolled.remember(remembered)
    for path in folder.iterdir():
        path.unlink()
    there(fourth, ".arrow")
    take(rolled, files_of(folder))
    assert [t.num_rows > 0 for t in rounds] == [True, True, False, True, True]
    assert without_file(pa.concat_tables(rounds)) == without_file(whole)


def write_parquet(path: Path, folder: Path) -> None:
    with pa.OSFile(str(path), "rb") as source:
        table = pa.Table.from_batches(list(complete_batches(source)))
    pq.write_table(table, folder / f"{path.stem}.parquet")


def test_a_file_compacted_between_being_listed_and_being_read_is_read_as_parquet(
    journal: Path,
) -> None:
    second = journal_files(journal)[1].path
    listed = [(str(second), second.stat().st_size)]
    write_parquet(second, journal)
    second.unlink()
    pieces = RolledFiles().take([path for path, _ in listed]).pieces
    assert [s.path for s in pieces] == [str(second.with_suffix(".parquet"))]


def test_a_topics_messages_are_the_requests_of_its_files(journal: Path) -> None:
    pieces = tuple(pieces_of(find_files([str(journal)])))
    whole = run(EmitRequests(ReadOptions(pieces)), 4)
    values = [
        encode(batch.slice(at, 150))
        for batch in read_batches([journal])
        for at in range(0, batch.num_rows, 150)
    ]
    starts = tuple(start for value in values for start in starts_in(value))
    assert len(starts) == 2
    names = ("topic", "partition", "offset", "value")
    rows = [dict(zip(names, ("t", 0, n, v), strict=True)) for n, v in enumerate(values)]
    batches = pa.Table.from_pylist(rows).to_batches(max_chunksize=3)
    found = pa.Table.from_batches(RequestsOfMessages(starts=starts)(iter(batches)))
    assert without_file(found) == without_file(whole)


@pytest.mark.parametrize("rows", [True, False])
def test_requests_kept_in_a_table_are_packed_as_they_were_read(
    journal: Path, tmp_path_factory: pytest.TempPathFactory, rows: bool
) -> None:
    pieces = tuple(pieces_of(find_files([str(journal)])))
    options = PackOptions((Quotas.of(QuotaTable()),), rows, own=rows)
    kept = run(EmitRequests(ReadOptions(pieces)), 4)
    kept = kept.filter(pc.equal(kept["kind"], "request"))
    path = tmp_path_factory.mktemp("kept") / "requests.parquet"
    # That a limit moved is no charge to another one.
    kept = kept.set_column(
        kept.schema.get_field_index("event"),
        "event",
        pa.array(["bound" if n % 50 == 0 else k for n, k in enumerate(kept["event"].to_pylist())]),
    )
    pq.write_table(kept.select(REQUESTS.names), path)
    table = PackRequests(options, ReadOptions((FilePiece(str(path), 0, 1, "requests"),)))
    one_way = run(table, 1)
    other = pa.Table.from_batches(PackRequests(options)(iter(kept.to_batches())))
    same = ["kind", "key", "first", "last", "n", "t_from", "t", "amount", "op", "pos"]
    ways = [
        found.filter(pc.is_in(found["kind"], pa.array(["chunk", "plain"]))).select(same).to_pylist()
        for found in (one_way, other)
    ]
    assert sum(row["n"] for row in ways[0]) > 1000
    assert ways[0] == ways[1]


def test_a_request_counts_once_whatever_it_is_charged_to(journal: Path) -> None:
    pieces = tuple(pieces_of(find_files([str(journal)])))
    requests = run(EmitRequests(ReadOptions(pieces)), 4)
    requests = requests.filter(pc.equal(requests["kind"], "request"))
    assert sum(requests["is_request"].to_pylist()) == 1200
    produced = requests.filter(pc.equal(requests["quota_type"], "producer_byte_rate"))
    assert sum(requests["bytes_charged"].to_pylist()) == sum(produced["bytes_charged"].to_pylist())
    activity = run(EmitActivity(ReadOptions(pieces, connections=True)), 4)
    sums = activity.filter(pc.equal(activity["kind"], "activity"))
    assert sum(sums["requests"].to_pylist()) == 1200
    assert sum(sums["bytes"].to_pylist()) == sum(requests["bytes_charged"].to_pylist())
    told = requests["decided_throttle_time_ms"].to_pylist()
    assert sum(sums["throttle_time_ms"].to_pylist()) == sum(told)
    assert set(sums["quota_id"].to_pylist()) == {None, "alice:", "b%40b:"}
    stats = [r for r in activity.to_pylist() if r["kind"] == "stat"]
    assert sum(r["lines"] for r in stats) == 2402


def test_a_connection_counts_once_when_it_is_accepted(tmp_path: Path) -> None:
    gateway = Gateway()

    def came(address: str, now: int) -> None:
        kinds = ("connection", "connection_creation_rate", 1, "L")
        gateway.events.append(Event(Origin(*kinds, client_ip=address), float(now), 1.0))

    came("", 900)  # the listener makes the next one wait
    came("10.0.0.9", 1_000)
    gateway.charge("alice", "x", 10, 1_001, 10)
    gateway.charge("alice", "x", 10, 1_002, 10)
    came("10.0.0.9", 1_003)
    write(tmp_path, gateway.events, 1)
    write(tmp_path, gateway.events, 1, ".parquet")  # a compaction that was interrupted
    pieces = tuple(pieces_of(find_files([str(tmp_path)])))
    activity = run(EmitActivity(ReadOptions(pieces, connections=True)), 1)
    came_in = [r for r in activity.to_pylist() if r["kind"] == "connection"]
    assert [(r["client_ip"], r["first_ms"]) for r in came_in] == [
        ("10.0.0.9", 1_000.0),
        ("10.0.0.9", 1_003.0),
    ]
    assert len({r["connection"] for r in came_in}) == 2
    rows = run(EmitRequests(ReadOptions(pieces)), 1).to_pylist()
    accepted = [r for r in rows if r["event"] == "connection"]
    assert [r["connection"] for r in accepted] == [r["connection"] for r in came_in]
    whose = [(r["is_charged"], r["is_request"], r["amount"], r["recorded"]) for r in accepted]
    assert whose == [(False, False, 0.0, None)] * 2


def test_a_row_of_a_journal(journal: Path) -> None:
    pieces = tuple(pieces_of(find_files([str(journal)])))
    requests = run(EmitRequests(ReadOptions(pieces)), 4)
    row = requests.filter(pc.equal(requests["seq"], 202)).to_pylist()[0]
    again = {n: row[n] for n in REQUESTS.names if n not in ("record_ms", "amount", "handler_ms")}
    assert again == {
        "broker_id": 1,
        "listener": "L",
        "connection": f"{row['principal']}-{row['client_id']}",
        "principal": row["principal"],
        "client_id": row["client_id"],
        "api_name": "PRODUCE",
        "api_version": 11,
        "is_forwarded": False,
        "bytes_charged": round(row["amount"]),
        "bytes_exact": True,
        "throttle_time_ms": row["throttle_time_ms"],
        "producer_ids": None,
        "quota_type": "producer_byte_rate",
        "is_charged": True,
        "is_request": True,
        "client_ip": "10.0.0.9",
        "decided_throttle_time_ms": row["throttle_time_ms"],
        "muted_ms": None,
        "answer_ms": None,
        "source": "journal",
        "event": "record",
        "worker_id": "w-1/1",
        "seq": 202,
        "file": pieces[0].path,
        "recorded": {
            "quota_user": "b@b",
            "quota_client_id": "",
            "quota": UNLIMITED,
            "op": 0,
            "num_samples": 3,
            "window_ms": 500,
            "rule": None,
            "max_throttle_ms": None,
            "start_ms": 0,
            "asked": None,
        },
        "bytes_by_topic": None,
    }


def test_what_was_taken_back_and_what_had_no_decision_keep_the_sensor_right(tmp_path: Path) -> None:
    common = {"broker_id": 1, "quota_user": "alice", "quota_client_id": "", "num_samples": 11}
    common |= {"window_ms": 1000, "principal": "alice", "client_id": "c"}
    fetch = Origin("record", "consumer_byte_rate", api_key=1, **common)  # type: ignore[arg-type]
    back = Origin("unrecord", "consumer_byte_rate", api_key=1, **common)  # type: ignore[arg-type]
    time = Origin("record", "request_percentage", api_key=3, **common)  # type: ignore[arg-type]
    events = [
        Event(Origin("start", broker_id=1), 0.0),
        Event(fetch, 1000.0, 5000.0, 100.0, 40_000, 40_000),
        Event(back, 1000.0, 5000.0, 100.0, None, None),
        Event(fetch, 1001.0, 1000.0, 100.0, 0, 0),
        Event(time, 1000.0, 20.0, 5.0, None, None),  # network thread: charged, not checked
        Event(time, 1001.0, 40.0, 5.0, 1000, 1000),
    ]
    write(tmp_path, events, 1)
    pieces = tuple(pieces_of(find_files([str(tmp_path)])))
    options = PackOptions((Quotas.of(QuotaTable()),))
    packed = run(PackRequests(options, ReadOptions(pieces)), 1)
    packed = packed.filter(pc.equal(packed["kind"], "chunk")).sort_by("key")
    table = pa.Table.from_batches(
        ReplayPacked(options)(iter(packed.combine_chunks().to_batches()))
    ).sort_by("seq")
    # 60 percent seconds over 10 s against 5 %: 2,000 ms, capped at one window.
    assert table["replayed_throttle_time_ms"].to_pylist() == [40_000, 0, 0, 0, 1000]
    activity = run(EmitActivity(ReadOptions(pieces)), 1)
    by_type = {r["quota_type"]: r for r in activity.to_pylist() if r["kind"] == "activity"}
    assert by_type["consumer_byte_rate"]["bytes"] == 1000
    assert by_type["consumer_byte_rate"]["requests"] == 2
    assert by_type["request_percentage"]["requests"] == 1
    assert by_type["request_percentage"]["request_ns"] == 600_000_000


@pytest.mark.parametrize("task", [EmitRequests, EmitActivity])
@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda raw: raw[: len(raw) * 2 // 3], "damaged or cut off: no footer"),
        (lambda raw: b"x" * 500, "damaged or cut off: no footer, 0 batches"),
        (lambda raw: b"ARROW2" + raw[6:], "damaged"),
        (lambda raw: raw, ""),
    ],
)
def test_a_damaged_journal_is_among_the_bad_lines(
    tmp_path: Path, task: Any, harm: Callable[[bytes], bytes], reason: str
) -> None:
    gateway = Gateway()
    write(tmp_path, gateway.events, 1)
    (path,) = tmp_path.iterdir()
    path.write_bytes(harm(path.read_bytes()))
    pieces = tuple(pieces_of(find_files([str(tmp_path)])))
    said = run(task(ReadOptions(pieces)), 1)
    bad = said.filter(pc.equal(said["kind"], "bad")).to_pylist()
    (stat,) = said.filter(pc.equal(said["kind"], "stat")).to_pylist()
    assert len(bad) == bool(reason)
    if reason:
        assert reason in bad[0]["reason"]
        assert bad[0]["file"] == stat["file"] == str(path)
        assert stat["lines"] >= 1
    # What is still open ends where the last batch does.
    path.write_bytes(path.read_bytes()[: len(path.read_bytes()) * 2 // 3])
    path.rename(path.with_suffix(".open"))
    pieces = tuple(pieces_of(find_files([str(tmp_path)])))
    assert "bad" not in run(task(ReadOptions(pieces)), 1)["kind"].to_pylist()


def test_a_damaged_file_that_was_set_aside_is_told_of(tmp_path: Path) -> None:
    for name in ("w-0000000000000001.bad", "w-0000000000000001.bad-1"):
        (tmp_path / name).write_bytes(b"ARROW1\0\0")
    pieces = pieces_of(find_files([str(tmp_path)]))
    assert [piece.unread for piece in pieces] == [
        "it is a journal's, damaged and set aside; what could be read is in its .parquet"
    ] * 2
