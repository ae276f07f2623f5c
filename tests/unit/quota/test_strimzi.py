"""KafkaUser resources of Strimzi: read as a quotas file, written from a table, and back again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.main import load
from headgate.errors import InvalidQuota
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.file import parse_quotas, read_quotas_file
from headgate.quota.formats.strimzi import NAMES, kafka_users
from headgate.quota.key import (
    CONNECTION,
    CONSUMER,
    MUTATION,
    PRODUCER,
    PRODUCER_BPS,
    REQUEST,
    QuotaKey,
)
from headgate.quota.table import QuotaTable

main_apply = load("apply")
main_export = load("export")
main_plan = load("plan")

EXAMPLE = Path(__file__).parents[3] / "examples" / "strimzi-users.yaml"
PAYMENTS = QuotaEntity.of(user="CN=payments")
EXPECTED = QuotaTable.of(
    {
        PAYMENTS: {PRODUCER: 10485760.0, CONSUMER: 20971520.0, REQUEST: 55.0, MUTATION: 0.5},
        QuotaEntity.of(user="etl.nightly"): {PRODUCER: 1048576.0},
    }
)


def user(name: str, *, by: str | None = None, **quotas: object) -> dict[str, Any]:
    spec: dict[str, Any] = {"quotas": quotas}
    if by:
        spec["authentication"] = {"type": by}
    named = {"name": name}
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": named,
        "spec": spec,
    }


def test_the_example_reads_as_the_user_operator_would_set_it() -> None:
    assert read_quotas_file(EXAMPLE).table == EXPECTED


@pytest.mark.parametrize(
    ("by", "name"),
    [("tls", "CN=a"), ("tls-external", "CN=a"), ("scram-sha-512", "a"), (None, "a")],
)
def test_the_kind_of_authentication_decides_whose_quotas_they_are(by: str, name: str) -> None:
    text = yaml.safe_dump(user("a", by=by, producerByteRate=5))
    assert parse_quotas(text).table == QuotaTable.of({QuotaEntity.of(user=name): {PRODUCER: 5.0}})


@pytest.mark.parametrize(
    "written",
    [
        lambda users: yaml.safe_dump_all(users),
        lambda users: yaml.safe_dump_all([{"apiVersion": "v1", "kind": "Secret"}, *users]),
        lambda users: json.dumps({"apiVersion": "v1", "kind": "List", "items": users}),
        lambda users: json.dumps({"apiVersion": "x/v1", "kind": "KafkaUserList", "items": users}),
    ],
)
def test_documents_lists_and_json_read_alike(written: Callable[[list[Any]], str]) -> None:
    users = [user("a", by="tls", requestPercentage=5), user("b", consumerByteRate=7)]
    users[1]["apiVersion"] = "kafka.strimzi.io/v1beta2"
    entities = parse_quotas(written(users)).table.entities
    assert {str(e.user): dict(values) for e, values in entities.items()} == {
        "CN=a": {REQUEST: 5.0},
        "b": {CONSUMER: 7.0},
    }


def test_every_mistake_is_told_with_its_line() -> None:
    lines = yaml.safe_dump_all(
        [
            user("a", producerByteRate=0, connectionRate=3),
            user("b", by="gssapi", consumerByteRate=7),
            user("a", producerByteRate="lots"),
            {**user("", producerByteRate=1), "metadata": {}},
            {**user("c"), "spec": {"quotas": [1]}},
            {**user("d"), "apiVersion": "example.com/v1"},
        ],
        sort_keys=False,
    )
    with pytest.raises(InvalidQuota) as refused:
        parse_quotas(lines, "users.yaml")
    told = str(refused.value).splitlines()
    assert all(line.startswith("users.yaml:") for line in told)
    assert [line.split(": ", 1)[1] for line in told] == [
        "unknown quota 'connectionRate'; a KafkaUser's are producerByteRate, consumerByteRate, "
        "requestPercentage, controllerMutationRate",
        "unknown authentication 'gssapi' of KafkaUser b",
        "a KafkaUser needs metadata.name",
        "a KafkaUser's quotas are a mapping such as {producerByteRate: 1048576}",
        "a KafkaUser's apiVersion is kafka.strimzi.io/v1, or an older version of it",
        "Quota producer_byte_rate must be greater than 0 (entity {user=a})",
        "producer_byte_rate:broker_bps stands twice for {user=a}; it is on line 7 already",
    ]
    assert lines.splitlines()[int(told[0].split(":")[1]) - 1].strip() == "connectionRate: 3"
    assert lines.splitlines()[int(told[5].split(":")[1]) - 1].strip() == "producerByteRate: 0"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("apiVersion: v1\nkind: Secret\n", "no KafkaUser of Strimzi"),
        ("apiVersion: v1\nkind: List\nitems: 5\n", "no KafkaUser of Strimzi"),
        ("quotas: []\n---\nquotas: []\n", "a second document"),
    ],
)
def test_what_is_no_list_of_users_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidQuota, match=told):
        parse_quotas(text)


WHOLE = st.integers(1, 2**31 - 1).map(float)
VALUES: dict[QuotaKey, st.SearchStrategy[float]] = {
    PRODUCER: WHOLE,
    CONSUMER: WHOLE,
    REQUEST: WHOLE,
    MUTATION: st.floats(0.001, 1e9),
}
PLAIN = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True).filter(
    lambda name: not any(bad in name for bad in ("..", ".-", "-."))
)
USERS = st.builds("{}{}".format, st.sampled_from(["", "CN="]), PLAIN)


@given(
    st.dictionaries(
        USERS,
        st.sets(st.sampled_from(list(VALUES)), min_size=1).flatmap(
            lambda keys: st.fixed_dictionaries({key: VALUES[key] for key in sorted(keys)})
        ),
        max_size=5,
    ).filter(lambda quotas: len({name.removeprefix("CN=") for name in quotas}) == len(quotas))
)
def test_what_is_written_reads_back(quotas: dict[str, dict[QuotaKey, float]]) -> None:
    table = QuotaTable.of({QuotaEntity.of(user=name): of for name, of in quotas.items()})
    written = kafka_users(table, "orders")
    assert not written.left_out
    assert parse_quotas(yaml.safe_dump(written.body)).table == table
    for one in written.items or ():
        assert one["metadata"]["labels"] == {"strimzi.io/cluster": "orders"}
        whole = [one["spec"]["quotas"].get(name, 0) for name in list(NAMES)[:3]]
        assert all(isinstance(value, int) for value in whole)  # Strimzi's schema: integer


def test_what_a_kafka_user_cannot_hold_is_named() -> None:
    table = QuotaTable.of(
        {
            PAYMENTS: {PRODUCER: 2.0**31, CONSUMER: 5.0, PRODUCER_BPS: 7.0, REQUEST: 12.5},
            QuotaEntity.of(user="Alice"): {PRODUCER: 5.0},
            QuotaEntity.of(user=f"CN={'a' * 65}"): {PRODUCER: 5.0},
            QuotaEntity.of(user=DEFAULT): {PRODUCER: 5.0},
            QuotaEntity.of(user="a", client_id="b"): {PRODUCER: 5.0},
            QuotaEntity.of(ip="10.0.0.1"): {CONNECTION: 5.0},
        }
    )
    document, _, left_out, users = kafka_users(table, "orders")
    assert document["items"] == users
    assert [(u["metadata"]["name"], u["spec"]["quotas"]) for u in users or ()] == [
        ("payments", {"consumerByteRate": 5})
    ]
    assert len(left_out) == 3 + 5
    assert "{user=CN%3Dpayments} producer_byte_rate:bps: Strimzi has no such quota" in left_out


def test_a_store_takes_users_gives_them_back_and_agrees_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, again = ["--store", f"sqlite:{tmp_path / 'quotas.db'}"], tmp_path / "users.yaml"
    assert main_plan([*store, str(EXAMPLE)]) == 3
    assert main_apply([*store, str(EXAMPLE)]) == 0
    assert main_export([*store, "--strimzi", "orders", "--out", str(again)]) == 0
    assert "2 entities written" in capsys.readouterr().err
    assert read_quotas_file(again).table == EXPECTED
    assert main_plan([*store, "--prune", str(again)]) == 0
    capsys.readouterr()
    assert main_export([*store, "--strimzi", "orders", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in told["quotas"]] == ["KafkaUser", "KafkaUser"]


# --- nothing is passed over in silence

DATA = Path(__file__).parents[2] / "data" / "quotas"
DEFAULT_USER = QuotaEntity.of(user=DEFAULT)


def refusals(text: str, cluster: str | None = None) -> list[str]:
    with pytest.raises(InvalidQuota) as refused:
        parse_quotas(text, "f", cluster=cluster)
    return str(refused.value).splitlines()


def test_a_kafka_holds_the_default_users_quotas() -> None:
    file = read_quotas_file(DATA / "04d-kafka-cr-default-quotas.yaml")
    defaults = {PRODUCER: 1e6, CONSUMER: 1e6, REQUEST: 55.0, MUTATION: 50.0}
    own = {QuotaEntity.of(user="my-user"): {PRODUCER: 10.0}}
    assert file.table == QuotaTable.of({DEFAULT_USER: defaults, **own})
    alone = read_quotas_file(DATA / "q4b-kafka-only.yaml")
    assert alone.table == QuotaTable.of({DEFAULT_USER: {PRODUCER: 5e5}})


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (DATA / "04a-kafkauser-quotas-beside-spec.yaml", "7: unknown field 'quotas' of KafkaUser"),
    ],
)
def test_quotas_where_strimzi_has_none_are_refused(written: Path, told: str) -> None:
    with pytest.raises(InvalidQuota, match=re.escape(told)):
        read_quotas_file(written)


KAFKA = "apiVersion: kafka.strimzi.io/v1\nkind: Kafka\nmetadata: {name: prod}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("spec: {kafka: {quotas: {type: strimzi, producerByteRate: 5}}}", "Strimzi's plugin"),
        ("spec: {kafka: {quotas: {producerByteRate: 5}}}", "need `type: kafka`"),
        ("spec: {kafka: {quotas: {type: kafka, ingress: 5}}}", "unknown quota 'ingress'"),
        ("spec: {kafka: {quotas: 5}}", "a Kafka's quotas are a mapping"),
        ("spec: {quotas: {type: kafka}, kafka: {}}", "unknown field 'quotas' of Kafka prod"),
        ("spec: {kafka: {defaultQuotas: {}}}", "unknown field 'defaultQuotas' of Kafka prod"),
        ("specs: {}", "unknown field 'specs' of Kafka prod"),
        ("spec: {}\nspec: {}", "spec of Kafka prod stands twice"),
        ("---\nquotas: []", "not a resource: it has no apiVersion and kind"),
        ("---\napiVersion: v1\nkind: List\nitems: {}", "needs items: [...]"),
    ],
)
def test_what_could_hold_quotas_is_read_or_refused_by_its_name(text: str, told: str) -> None:
    assert [line for line in refusals(KAFKA + text) if told in line]


def labelled(name: str, cluster: str | None, **more: Any) -> dict[str, Any]:
    made = user(name, producerByteRate=5)
    made["metadata"] |= {"labels": {"strimzi.io/cluster": cluster}} if cluster else {}
    made["metadata"] |= more
    return made


def test_one_cluster_is_read_of_several_and_the_others_are_said() -> None:
    text = yaml.safe_dump_all([labelled("a", "one"), labelled("b", "two"), labelled("c", None)])
    assert "several clusters (one, two)" in refusals(text)[0]
    assert "nothing here is of the cluster three" in refusals(text, "three")[0]
    file = parse_quotas(text, "f", cluster="two")
    assert file.table == QuotaTable.of({QuotaEntity.of(user="b"): {PRODUCER: 5.0}})
    assert [line.split(": ", 1)[1] for line in file.said] == [
        "left out: KafkaUser a is of the cluster one",
        "left out: KafkaUser c is of no cluster",
    ]
    assert "--strimzi chooses among" in refusals("quotas: []", "two")[0]


def test_what_is_being_deleted_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    going = labelled("a", "one", deletionTimestamp="2026-11-27T08:00:00Z")
    other = {"apiVersion": "v1", "kind": "Secret"}
    file = tmp_path / "users.yaml"
    file.write_text(yaml.safe_dump_all([going, labelled("b", "one"), other]))
    store = ["--store", f"sqlite:{tmp_path / 'quotas.db'}"]
    assert main_apply([*store, "--strimzi", "one", str(file)]) == 0
    told = capsys.readouterr().err
    assert "left out: KafkaUser a is being deleted, since 2026-11-27T08:00:00Z" in told
    assert "not read, since they hold no quotas: 1 Secret" in told
    assert main_plan([*store, "--json", "--strimzi", "one", str(file)]) == 0
    assert len(json.loads(capsys.readouterr().out)["notes"]) == 2


def test_pruning_removes_nothing_because_of_what_is_not_read(tmp_path: Path) -> None:
    store = ["--store", f"sqlite:{tmp_path / 'quotas.db'}"]
    (tmp_path / "before.yaml").write_text(
        "quotas: [{entity: {user: CN=my-user}, producer_byte_rate: 5}]"
    )
    assert main_apply([*store, str(tmp_path / "before.yaml")]) == 0
    beside = str(DATA / "04a-kafkauser-quotas-beside-spec.yaml")
    assert main_apply([*store, "--prune", "--max-removals", "9", beside]) == 1
    assert main_plan([*store, str(tmp_path / "before.yaml")]) == 0


def test_two_users_that_would_have_one_resource_are_not_both_written() -> None:
    table = parse_quotas(
        "quotas:\n- {entity: {user: alice}, producer_byte_rate: 5}\n"
        "- {entity: {user: CN=alice}, producer_byte_rate: 6}\n"
    ).table
    _, _, left_out, users = kafka_users(table, "orders")
    assert len(users) == 1
    assert [line for line in left_out if "KafkaUser alice is written already" in line]
