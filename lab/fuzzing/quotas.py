"""Quotas as people write them: files, values with units, names, paths, plans."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

from fuzzing.target import Target, outcome
from headgate.cli.quotas.plan_file import read_plan, write_plan
from headgate.quota.alteration import entity_error, value_error
from headgate.quota.entity import QuotaEntity, entity_from_path, parse_entity
from headgate.quota.file import dump_quotas, parse_quotas, read_quotas_file
from headgate.quota.human import has_unit, human, read_value
from headgate.quota.key import KEYS, QuotaKey
from headgate.quota.plan import diff, effective_changes, known_clients, plan_of
from headgate.quota.sanitizer import desanitize, sanitize
from headgate.quota.table import QuotaTable

ROOT = Path(__file__).parents[2]
_ALL = list(KEYS)
_PLAIN = QuotaTable.of({QuotaEntity.of(user="alice"): {_ALL[0]: 1000.0}})


@functools.cache
def folder() -> Path:
    """A folder of this process, for what is read from files."""
    memory = Path("/dev/shm")  # a disk would be synced thousands of times
    place = memory if memory.is_dir() else None
    kept = tempfile.TemporaryDirectory(prefix="headgate-fuzz-", dir=place)
    _KEPT.append(kept)
    return Path(kept.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def quotas_file(data: bytes) -> None:
    """Any file: a table that reads back equal, or every mistake with its place."""
    path = folder() / "quotas.yaml"
    path.write_bytes(data)
    how, read = outcome(lambda: read_quotas_file(path), str(path))
    if how == "refused" or read is None:
        return
    for entity, values in read.table.entities.items():
        assert entity_error(entity, resolvable=lambda _: True) is None
        assert all(value_error(entity, key, value) is None for key, value in values.items())
    again = parse_quotas(dump_quotas(read.table))
    assert again.table == read.table
    assert again.table.static_defaults == read.table.static_defaults
    for prune in (False, True)[: 1 if read.unread else 2]:  # what isn't read, prunes nothing
        plan = diff(_PLAIN, read, prune=prune)
        assert plan_of(_PLAIN, plan.changes).desired == plan.desired
        if len(read.table) < 20:
            list(effective_changes(plan, known_clients([read.table, _PLAIN])))


def values(data: bytes) -> None:
    """Any text as a value of any key: a number that its key may have, or a reason."""
    if not data:
        return
    key = _ALL[data[0] % len(_ALL)]
    text = data[1:].decode("utf-8", "replace")
    try:
        value = read_value(text, key)
    except ValueError as error:
        assert repr(text) in str(error)
        return
    assert value >= 0
    assert has_unit(text) or text.strip()[-1].isdigit()
    assert human(key, value)


def names(data: bytes) -> None:
    """Any text as a name, a path, an entity's text: what is written is read back."""
    text = data.decode("utf-8", "replace")
    assert desanitize(sanitize(text)) == text
    outcome(lambda: desanitize(text), repr(text))
    QuotaKey.parse(text)
    for read in (entity_from_path, parse_entity):
        how, entity = outcome(lambda read=read: read(text))  # type: ignore[misc]
        if how == "read":
            assert entity is not None
            assert parse_entity(str(entity)) == entity
            if entity_error(entity, resolvable=lambda _: True) is None:
                assert entity_from_path(entity.path) == entity
    middle = len(text) // 2
    both = QuotaEntity.of(user=text[:middle], client_id=text[middle:])
    assert parse_entity(str(both)) == both
    if text[:middle] and text[middle:]:
        assert entity_from_path(both.path) == both


def plan_file(data: bytes) -> None:
    """Any file as a plan: a plan that can be checked, something else, or a reason."""
    path = folder() / "plan.json"
    path.write_bytes(data)
    how, plan = outcome(lambda: read_plan(path), str(path))
    if how == "read" and plan is not None:
        outcome(lambda: plan.check("here", _PLAIN, None))


def _files() -> list[bytes]:
    table = QuotaTable.of(
        {
            QuotaEntity.of(user="alice", client_id="etl"): {_ALL[0]: 1.5, _ALL[1]: 7.0},
            QuotaEntity.of(user="\N{GRINNING FACE} \u202e: x"): {_ALL[0]: 2.0**40},
            QuotaEntity.of(ip="10.0.0.1"): {_ALL[-1]: 3.0},
        }
    )
    made = [
        dump_quotas(table),
        dump_quotas(table, {"store": "x", "revision": 3, "brokers": {"1": {"a": "b"}}}),
        json.dumps({"quotas": [{"entity": {"user": None}, "producer_byte_rate": "5MB/s"}]}),
        "quotas:\n- entity: {client: x}\n  config: {producer_byte_rate: null}\n",
        "static_defaults: {producer_byte_rate: 1}\nhistory:\n"
        "- {t_ms: 1, entity: {user: a}, key: producer_byte_rate, value: 1}\n",
        "quotas: &a\n- entity: {user: b}\n  request_percentage: 50%\n",
    ]
    data = ROOT / "tests" / "data"
    others = [*(data / "quotas").iterdir(), data / "hcl" / "sample.tf"]
    examples = (ROOT / "examples").rglob("*.y*ml")
    found = [path.read_bytes() for path in sorted([*examples, *others])]
    return [text.encode() for text in made] + [each for each in found if len(each) < 4096]


def _values() -> list[bytes]:
    texts = ("10MB/s", "512 KiB/s", "50%", "20/s", "1.5", ".5kB", "7", "0.1 MB/s", "1e3")
    return [bytes([n]) + text.encode() for n in range(len(_ALL)) for text in texts]


def _names() -> list[bytes]:
    entities = ("{user=alice, client-id=<default>}", "{ip=10.0.0.1}", "{}", "{a%3D=b}")
    paths = ("users/alice/clients/<default>", "ips/1.2.3.4", "/config/clients/a%20b/", "users/%zz")
    return [text.encode() for text in (*entities, *paths, "alice~ +*é\N{GRINNING FACE}")]


def _plans() -> list[bytes]:
    path = folder() / "made.json"
    read = parse_quotas("quotas: [{entity: {user: alice}, producer_byte_rate: 5}]")
    write_plan(path, diff(_PLAIN, read, prune=True), None, "why")
    return [path.read_bytes()]


_YAML = (
    b"quotas:",
    b"entity:",
    b"{user: ",
    b"client-id: ",
    b"null",
    b"~",
    b"!!int ",
    b"&a ",
    b"*a",
)
_MORE = (b"- ", b"\n  ", b"history:", b"note: ", b"inf", b".nan", b"<<: ", b"producer_byte_rate: ")
TARGETS = {
    "quotas files": Target(quotas_file, _files, (*_YAML, *_MORE)),
    "values": Target(
        values, _values, (b"MB/s", b"%", b"e", b"inf", b"_", b" ")
    ),
    "names": Target(
        names, _names, (b"users/", b"clients/", b"<default>", b"%2F", b"{", b"}", b"="),
    ),
    "plans": Target(
        plan_file, _plans, (b"null", b"Infinity", b"[", b"{", b'"entity":'),
    ),
}  # fmt: skip
