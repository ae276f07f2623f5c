"""Each format of other tools in its forms: what is read, what is refused, what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from headgate.errors import InvalidQuota
from headgate.quota.file import parse_quotas
from headgate.quota.formats.known import FORMATS, Format
from headgate.quota.plan import diff
from headgate.quota.table import QuotaTable


class Read(NamedTuple):
    """A text of a format, the quotas in it, and parts of what is said beside them."""

    format: str
    text: str
    wanted: str
    said: tuple[str, ...] = ()


ALICE = "- {entity: {user: alice}, producer_byte_rate: 5}\n"
DEFAULTS = "- {entity: {user: null}, producer_byte_rate: 5}\n"
PAIR = "- {entity: {user: alice, client-id: etl}, producer_byte_rate: 5}\n"

READ = [
    # Before 2.7 credentials stand beside quotas; Kafka 2.x had no `the`.
    Read(
        "kafka-configs",
        "Configs for user-principal 'alice' are SCRAM-SHA-256=salt=YQ==,stored_key=a=,"
        "server_key=b,iterations=4096,producer_byte_rate=5\n"
        "Configs for user-principal 'alice', client-id 'etl' are producer_byte_rate=5\n"
        "Configs for default user-principal, default client-id are producer_byte_rate=5\n"
        "Configs for user-principal 'bob' are \n",
        ALICE + PAIR + "- {entity: {user: null, client-id: null}, producer_byte_rate: 5}",
    ),
    Read(
        "kafka-configs",
        "[2026-11-01 10:00:00,000] WARN something (a.B)\r\n"
        "Dynamic configs for broker 1 are:\r\n"
        "Quota configs for user-principal 'CN=a, O=x are y' are producer_byte_rate=1.0E7\r\n"
        "Quota configs for ip '10.0.0.1' are connection_creation_rate=50.0\r\n"
        "Quota configs for the default ip are connection_creation_rate=7.0\r\n"
        "Quota configs for client-id 'a' are request_percentage=Infinity, "
        "producer_byte_rate=9.223372036854775807E18\r\n",
        '- {entity: {user: "CN=a, O=x are y"}, producer_byte_rate: 10000000}\n'
        "- {entity: {ip: 10.0.0.1}, connection_creation_rate: 50}\n"
        "- {entity: {ip: null}, connection_creation_rate: 7}\n"
        "- {entity: {client-id: a}, request_percentage: .inf, "
        "producer_byte_rate: 9223372036854775807}",
        ("not quotas: 2 other lines",),
    ),
    Read(
        "kafka-quotas",
        "{user=alice, client-id=<default>}\nproducer_byte_rate:broker_bps=5\n\n"
        "{user=CN%3Da}\nproducer_byte_rate:bps=9\nrequest_percentage:percent=0.5\n",
        "- {entity: {user: alice, client-id: null}, producer_byte_rate: 5}\n"
        '- {entity: {user: "CN=a"}, "producer_byte_rate:bps": 9, request_percentage: 0.5}',
    ),
    Read(
        "rpk",
        json.dumps(
            {
                "quotas": [
                    {
                        "entity": [
                            {"name": "etl", "type": "client-id"},
                            {"name": "alice", "type": "user"},
                        ],
                        "values": [{"key": "producer_byte_rate", "values": "5"}],
                    },
                    {
                        "entity": [{"name": "<default>", "type": "user"}],
                        "values": [{"key": "producer_byte_rate", "value": "5"}],
                    },
                ]
            }
        ),
        PAIR + DEFAULTS,
    ),
    Read(
        "helmsman",
        "zookeeper: {connect: 'localhost:22181'}\nquotas:\n"
        "- {principal: alice, client: etl, producer-byte-rate: 5}\n"
        "- {principal: <default>, producer-byte-rate: 5, consumer-byte-rate: null}\n",
        PAIR + DEFAULTS,
    ),
    Read("helmsman", "- principal: alice\n  producer-byte-rate: 5\n", ALICE),
    Read(
        "ansible",
        "- hosts: all\n  roles: [kafka]\n  tasks:\n  - include_tasks: more.yml\n"
        "  - block:\n    - name: x\n      kafka_quotas:\n        zookeeper: zk:2181\n"
        "        entries:\n        - {entity: {user: alice}, quotas: {producer_byte_rate: 5}}\n"
        "- acme.kafka.kafka_quotas:\n    entries:\n"
        "    - {entity: {user: alice, client: etl}, quotas: {producer_byte_rate: 5}}\n",
        ALICE + PAIR,
        ("roles may hold quotas", "include_tasks may hold quotas"),
    ),
    Read(
        "julie",
        "context: c\nprojects: []\nplatform:\n  kafka:\n    quotas:\n"
        '    - {principal: alice, producer_byte_rate: 5}\n    - {principal: "", '
        "producer_byte_rate: 5}\n",
        ALICE + DEFAULTS,
    ),
    Read("julie", "kafka: {quotas: [{principal: alice, producer_byte_rate: 5}]}", ALICE),
    Read(
        "kafbat",
        '[{"user":"alice","clientId":"etl","ip":null,"quotas":{"producer_byte_rate":5.0}},'
        '{"user":null,"clientId":null,"ip":"::1","quotas":{"connection_creation_rate":5.0}}]',
        PAIR + '- {entity: {ip: "::1"}, connection_creation_rate: 5}',
    ),
    Read(
        "confluent",
        json.dumps(
            {
                "api_version": "kafka-quotas/v1",
                "kind": "ClientQuotaList",
                "data": [
                    {
                        "id": "cq-1",
                        "spec": {
                            "display_name": "q",
                            "throughput": {"ingress_byte_rate": "5", "egress_byte_rate": "6"},
                            "cluster": {"id": "lkc-1"},
                            "principals": [{"id": "sa-1", "kind": "ServiceAccount"}],
                        },
                    }
                ],
            }
        ),
        '- {entity: {user: sa-1}, "producer_byte_rate:bps": 5, "consumer_byte_rate:bps": 6}',
        ("sa-1 is the id",),
    ),
    Read(
        "terraform",
        'terraform {\n  required_version = ">= 1.5" # why\n}\n'
        'variable "x" { default = 5 }\n/* many\nlines */\n'
        'module "more" {\n  source = "./more"\n}\n'
        'resource "kafka_topic" "t" {\n  name = var.x\n  config = { a = "${var.x}" }\n}\n'
        'resource "kafka_quota" "a" {\n  entity_name = "alice"\n  entity_type = "user"\n'
        "  config = {\n    producer_byte_rate : 1024 * 1024,\n"
        '    "request_percentage" = "50"\n  }\n  lifecycle {\n    prevent_destroy = true\n  }\n}\n'
        'resource "kafka_quota_composite" "b" {\n  entity {\n    type = "user"\n  }\n'
        '  entity {\n    type = "client-id"\n    name = "CN=\\"a\\"$${b}"\n  }\n'
        '  config = { "producer_byte_rate" = 2.5e6 }\n}\n',
        "- {entity: {user: alice}, producer_byte_rate: 1048576, request_percentage: 50}\n"
        "- {entity: {user: null, client-id: 'CN=\"a\"${b}'}, producer_byte_rate: 2500000}",
        ("the module more may hold quotas",),
    ),
    Read(
        "terraform",
        json.dumps(
            {
                "version": 4,
                "terraform_version": "1.9.0",
                "resources": [
                    {
                        "mode": "managed",
                        "type": "kafka_quota",
                        "name": "q",
                        "instances": [
                            {
                                "index_key": name,
                                "attributes": {
                                    "id": f"{name}|user",
                                    "entity_name": name,
                                    "entity_type": "user",
                                    "config": {"producer_byte_rate": 5},
                                },
                            }
                            for name in ("alice", "${bob}")
                        ],
                    },
                    {"mode": "data", "type": "kafka_quota", "name": "q", "instances": []},
                    {
                        "mode": "managed",
                        "type": "kafka_quota_composite",
                        "name": "c",
                        "instances": [
                            {
                                "attributes": {
                                    "entity": [
                                        {"name": "", "type": "client-id"},
                                        {"name": "alice", "type": "user"},
                                    ],
                                    "config": {"producer_byte_rate": 5},
                                }
                            }
                        ],
                    },
                ],
            }
        ),
        ALICE
        + '- {entity: {user: "${bob}"}, producer_byte_rate: 5}\n'
        + "- {entity: {user: alice, client-id: null}, producer_byte_rate: 5}",
    ),
    Read(
        "terraform",
        json.dumps(
            {
                "format_version": "1.0",
                "terraform_version": "1.9.0",
                "values": {
                    "root_module": {
                        "child_modules": [
                            {
                                "resources": [
                                    {
                                        "mode": "managed",
                                        "type": "confluent_kafka_client_quota",
                                        "name": "q",
                                        "values": {
                                            "display_name": "q",
                                            "principals": ["sa-1"],
                                            "throughput": [{"ingress_byte_rate": "5"}],
                                        },
                                    }
                                ]
                            }
                        ]
                    }
                },
            }
        ),
        '- {entity: {user: sa-1}, "producer_byte_rate:bps": 5}',
        ("sa-1 is the id",),
    ),
    Read(
        "terraform",
        json.dumps(
            {
                "resource": {
                    "kafka_quota": {
                        "a": {
                            "entity_name": "alice",
                            "entity_type": "user",
                            "config": {"producer_byte_rate": 5},
                        }
                    }
                }
            }
        ),
        ALICE,
    ),
    Read(
        "jikkou",
        "apiVersion: kafka.jikkou.io/v1beta2\nkind: KafkaClientQuotaList\nitems:\n"
        "- {metadata: {}, spec: {type: USER, entity: {user: alice}, configs: "
        "{producerByteRate: 5, consumerByteRate: null}}}\n"
        "- {spec: {type: USERS_DEFAULT, configs: {producerByteRate: 5}}}\n"
        "- {spec: {type: USER_CLIENT, entity: {user: alice, clientId: etl}, configs: "
        "{producerByteRate: 5}}}\n"
        "- {spec: {type: USER_ALL_CLIENTS, entity: {user: alice}, configs: "
        "{requestPercentage: 5}}}\n"
        "- {spec: {type: CLIENT, entity: {clientId: etl}, configs: {producerByteRate: 5}}}\n"
        "- {spec: {type: CLIENTS_DEFAULT, configs: {producerByteRate: 5}}}\n"
        "- {metadata: {annotations: {jikkou.io/delete: true}}, spec: {type: USERS_DEFAULT}}\n"
        "---\napiVersion: kafka.jikkou.io/v1beta2\nkind: KafkaTopic\n"
        "---\napiVersion: kafka.strimzi.io/v1\nkind: KafkaUser\nmetadata: {name: bob}\n"
        "spec: {quotas: {producerByteRate: 5}}\n",
        ALICE
        + DEFAULTS
        + PAIR
        + "- {entity: {user: alice, client-id: null}, request_percentage: 5}\n"
        + "- {entity: {client-id: etl}, producer_byte_rate: 5}\n"
        + "- {entity: {client-id: null}, producer_byte_rate: 5}\n"
        + "- {entity: {user: bob}, producer_byte_rate: 5}",
        ("with jikkou.io/delete, since Jikkou deletes it", "they hold no quotas: 1 KafkaTopic"),
    ),
]


@pytest.mark.parametrize("given", READ, ids=lambda given: given.format)
def test_a_form_is_read_to_the_value(given: Read) -> None:
    file = parse_quotas(given.text, "f")
    assert file.format == given.format
    assert file.table == parse_quotas(f"quotas:\n{given.wanted}").table
    assert not file.removals
    assert len(file.said) == len(given.said)
    assert all(part in line for line, part in zip(file.said, given.said, strict=True))
    assert parse_quotas(given.text, "f", of=given.format).table == file.table


QUOTA = 'resource "kafka_quota" "a" {{\n  entity_name = {}\n  entity_type = "user"\n{}\n}}\n'
CONFIG = "  config = { producer_byte_rate = 5 }"
TASK = (
    "- kafka_quotas:\n    entries:\n    - {entity: {user: %s}, quotas: {producer_byte_rate: 5}}\n"
)
JIKKOU = "apiVersion: kafka.jikkou.io/v1beta2\nkind: KafkaClientQuota\nspec: {%s}\n"
USER = "apiVersion: kafka.strimzi.io/v1\nkind: KafkaUser\nmetadata: {name: a}\nspec: {%s}\n"
REFUSED = [
    ("Quota configs for user-principal 'it's' are producer_byte_rate=5.0", "1: kafka-configs: "
     "can't tell where a name ends"),
    ("Quota configs for user-principal 'a", "1: kafka-configs: a line that can't be read"),
    ("Configs for user-principal 'a' are producer_byte_rate=5\nproducer_byte_rate=6", "2: kafka-c"),
    ("Configs for user-principal 'a' are rate=5", "1: unknown key 'rate'"),
    ("Configs for user-principal 'a' are x", "1: kafka-configs: 'x' isn't of the form key=value"),
    ("producer_byte_rate:broker_bps=5 {user=a}\n", "1: kafka-quotas --describe prints what"),
    ("{user=a}\nproducer_byte_rate:bps=5\nx\n", "3: kafka-quotas: 'x' isn't of the form"),
    ("client-id=a\n\tproducer_byte_rate=5\n", "1: rpk's text doesn't tell"),
    ("quotas: [{entity: [{type: user, name: a}], values: [{key: x}]}]", "1: rpk: a value is of"),
    ("quotas: [{principal: a, clusters: {foo: {}}}]", "1: kafka-helmsman: a quota's values by"),
    ("defaults: {producer-byte-rate: 5}\nquotas: [{principal: a}]", "1: kafka-helmsman: defaults"),
    ("- {principal: a, connection-rate: 5}", "1: unknown quota 'connection-rate'; kafka-helmsman"),
    ("- {principal: a, producer-byte-rate: 5}\n- {}", "2: kafka-helmsman: a quota needs principal"),
    (TASK % "a" + "  when: x\n", "1: Ansible: kafka_quotas with when"),
    (TASK % "'{{ a }}'", "3: Ansible: a template must be filled in first"),
    ("- kafka_quotas: {entries: '{{ quotas }}'}", "1: Ansible: kafka_quotas needs entries"),
    (TASK % "", "3: Ansible: an entity of kafka_quotas needs user, client, or both"),
    ("platform: {kafka: {quotas: [{producer_byte_rate: 5}]}}", "1: Julie: a quota needs its princ"),
    ("platform: {kafka: {quotas: [{principal: a, x: 5}]}}", "1: unknown quota 'x'; Julie's are"),
    ("topics: {}\nservices: {}\n", "1: KafkaGitOps holds no quotas; `headgate export"),
    ("kafka_client_group_byte_rate_quota: []", "1: Redpanda's cluster property kafka_client_group"),
    ('[{"user":"a","clientId":null,"ip":null,"quotas":{}}]', "1: Kafbat's API writes null"),
    ('[{"ingress":"5","principals":["a","b"]}]', "1: Confluent Cloud: a quota of principals a, b"),
    ('[{"ingress":"5","principals":"a, b"}]', "1: Confluent Cloud: a quota of principals a, b"),
    ('[{"ingress":"5","principals":["<default>"]}]', "1: Confluent Cloud: a quota of principals <"),
    ('[{"ingress":"5","principals":["a"],"cluster":"x"},\n'
     '{"ingress":"5","principals":["b"],"cluster":"y"}]', "2: Confluent Cloud: quotas of several"),
    (QUOTA.format("var.name", CONFIG), "2: Terraform: entity_name of kafka_quota.a must be"),
    (QUOTA.format('"${var.name}"', CONFIG), "2: Terraform: entity_name of kafka_quota.a must be"),
    (QUOTA.format('"a"', "  count = 2\n" + CONFIG), "4: Terraform: kafka_quota.a has count"),
    (QUOTA.format('"a"', "  config = {producer_byte_rate = 5 + 5}"), "4: Terraform: config of"),
    (QUOTA.format('"a"', "  config = {producer_byte_rate = 1e9 * 1e999999}"), "4: Terraform: conf"),
    (QUOTA.format('"a"', CONFIG) + "/* x", "6: not Terraform's language: a comment isn't closed"),
    (QUOTA.format('"a"', "  config = {x = 5}"), "4: unknown quota 'x'; Mongey's provider's are"),
    (QUOTA.format('""', CONFIG), "1: Empty user not supported"),
    (QUOTA.format('"a', CONFIG), "2: not Terraform's language: a text isn't closed"),
    (QUOTA.format('"$$${a}"', CONFIG), "2: Terraform: entity_name of kafka_quota.a must be comp"),
    (QUOTA.format('"a"', CONFIG) + "x {", "6: not Terraform's language: the block x isn't closed"),
    ('resource "aiven_kafka_quota" "a" {\n}', "1: Terraform: aiven_kafka_quota isn't read"),
    ('resource "kafka_topic" "a" {\n}', "1: Terraform: no quota of Kafka is a resource here"),
    ('{"resource": {"kafka_quota": {"a": {"entity_name": "${x}", "entity_type": "user"}}}}',
     "1: Terraform: entity_name of kafka_quota.a must be computed"),
    (JIKKOU % "type: USERS, entity: {}", "1: Jikkou has no quota type 'USERS'"),
    (JIKKOU % "type: USER, entity: {}", "1: Jikkou: a quota of type USER needs entity.user"),
    (JIKKOU % "type: USER, entity: {user: a, clientId: b}", "3: Jikkou passes over entity"),
    (JIKKOU % "type: USER, entity: {user: '{{ a }}'}", "1: Jikkou: a template isn't filled in"),
    (JIKKOU % "type: USER, entity: {user: a}, quota: 5", "3: unknown field 'quota' of the spec"),
    (USER % "clientQuotas: {a: 5}", "4: the clientQuotas of KafkaUser a are a list"),
    (USER % "clientQuotas: [5]", "4: a KafkaUser's quotas are a mapping"),
    (USER % "clientQuotas: [{client: a, producerByteRate: 5}]", "4: unknown quota 'client'"),
    ("quotas: [{principal: a, producer-byte-rate: 1}]\n---\nquotas: [{principal: b}]\n",
     "3: a second document; helmsman has one"),
    ("- kafka_quotas: {entries: [{entity: {user: a}, quotas: '{{ x }}'}]}",
     "1: those of kafka_quotas are a mapping of producer_byte_rate"),
    ("- kafka_quotas: {entries: [{entity: {user: a}, quotas: [{producer_byte_rate: 5}]}]}",
     "1: those of kafka_quotas are a mapping"),
    ("- kafka_quotas: {entries: [{entity: {user: a}}]}", "1: Ansible: an entry of kafka_quotas n"),
    (TASK % "a" + "  with_subelements: x\n", "1: Ansible: kafka_quotas with with_subelements"),
    (QUOTA.format('"a"', "  config {\n producer_byte_rate = 1\n }"), "4: Mongey's provider's are"),
    (QUOTA.format('"a"', ""), "1: Terraform: kafka_quota a needs config"),
    (QUOTA.format('"a"', CONFIG + "\n  provider = \"kafka.x\"") + QUOTA.format('"b"', CONFIG),
     "7: Terraform: quotas of several clusters"),
    ('resource "kafka_quota_composite" "a" {\n entity {\n type = "user"\n name = "a"\n }\n'
     ' entity {\n type = "user"\n name = "b"\n }\n' + CONFIG + "\n}\n",
     "6: Terraform: kafka_quota_composite a names its user twice"),
    ("apiVersion: kafka.strimzi.io/v1\nkind: Kafka\nmetadata: {name: a}\n"
     "spec: {kafka: {<<: {quotas: {type: kafka, producerByteRate: 5}}}}\n", "4: a merge key"),
    (USER.replace("{%s}", "%s") % "[quotas]", "4: the spec of KafkaUser a isn't a mapping"),
    (USER.replace("name: a", "name: '{{ .Release.Name }}-etl'") % "quotas: {producerByteRate: 5}",
     "1: the name '{{ .Release.Name }}-etl' of a KafkaUser is a template"),
    (JIKKOU % "type: USER, entity: {user: a}, configs: [{producerByteRate: 1}]",
     "3: a KafkaClientQuota's are a mapping"),
    ("quotas: [{entity: [{type: user, name: a}], values: {producer_byte_rate: 1}}]",
     "1: rpk: values are a list"),
    ("quotas: [{entity: [{type: user, name: a}], values: []}, {entity: {user: b}}]",
     "1: rpk: an entity is a list"),
    ("quotas: [{entity: [{type: client-id, name: a}, {type: user, name: null}], values: []}]",
     "1: rpk: an entity names its user once"),
    ("quotas: [{entity: [{type: user, name: a}, {type: user, name: b}], values: []}]",
     "1: rpk: an entity names its user once"),
    ('[{"user":"a","clientId":"b","ip":null,"quotas":[{"producer_byte_rate":1}]}]',
     "1: Kafbat's are a mapping"),
    ("kafka: {quotas: [{principal: a}]}\nplatform: {kafka: {quotas: [{principal: a}]}}",
     "1: Julie: quotas below platform.kafka and below kafka"),
    (json.dumps({"terraform_version": "1", "planned_values": {"root_module": {"resources": [
        {"mode": "managed", "type": "kafka_quota", "name": "a", "values": {
            "entity_name": "a", "entity_type": "user", "config": {"producer_byte_rate": 1}}}]}},
        "resource_changes": [{"address": "kafka_quota.a", "type": "kafka_quota", "change": {
            "after_unknown": {"id": True, "config": True}}}]}),
     "1: Terraform: kafka_quota.a is known only when the plan was applied"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), REFUSED)
def test_what_cannot_be_read_exactly_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(InvalidQuota) as refused:
        parse_quotas(text, "f")
    assert [line for line in str(refused.value).splitlines() if line.startswith(f"f:{told}")]


def test_a_format_that_was_asked_for_must_be_there() -> None:
    with pytest.raises(InvalidQuota, match=r"f: this isn't what `rpk cluster quotas describe"):
        parse_quotas("quotas: []", "f", of="rpk")
    with pytest.raises(InvalidQuota, match=r"--strimzi chooses among resources.*Terraform's files"):
        parse_quotas(QUOTA.format('"a"', CONFIG), "f", cluster="orders")


@pytest.mark.parametrize("name", ["ansible", "terraform"])
def test_pruning_wants_a_file_that_is_read_whole(name: str) -> None:
    [file] = [
        parse_quotas(given.text, "f") for given in READ if given.format == name
        and any("may hold quotas" in said for said in given.said)
    ]  # fmt: skip
    assert diff(QuotaTable(), file).changes
    with pytest.raises(InvalidQuota, match=r"may hold quotas, and isn't read(.|\n)*--prune would"):
        diff(QuotaTable(), file, prune=True)


def test_every_format_is_tried_here() -> None:
    names = {row.name for row in FORMATS}
    assert names - {given.format for given in READ} == {"redpanda", "kafka-gitops", "strimzi"}


@pytest.mark.parametrize("opened", ["[", "(", "{a=", '"${', "x {\n"])
def test_nesting_of_terraforms_language_is_bounded(opened: str) -> None:
    text = 'resource "kafka_quota" "a" {\n' + ("" if opened == "x {\n" else "  x = ")
    with pytest.raises(InvalidQuota, match="nested more than 50 deep"):
        parse_quotas(text + opened * 100_000, "f")


PAGE = Path(__file__).parents[3] / "docs" / "howto" / "quotas-from-elsewhere.md"


def test_the_page_has_the_table_of_formats() -> None:
    def written(row: Format) -> str:
        if row.name == "strimzi":
            return "with `--strimzi CLUSTER`"
        return "yes" if row.writes else "\u2013"

    rows = [
        f"| `{row.name}` | {row.of} | {row.by} | {written(row)} | {row.refused} |"
        for row in FORMATS
    ]
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8")


def test_nulls_and_what_is_about_to_be_destroyed_set_and_remove_nothing() -> None:
    cloud = '[{"ingress":"5","egress":null,"principals":["sa-1"]}]'
    kafbat = '[{"user":"a","clientId":"b","ip":null,"quotas":{"producer_byte_rate":null}}]'
    assert not parse_quotas(cloud, "f").removals
    assert not parse_quotas(kafbat, "f").removals
    config = {"producer_byte_rate": 5}
    instances = [
        {"attributes": {"entity_name": name, "entity_type": "user", "config": config}, **more}
        for name, more in (("old", {"deposed": "a1"}), ("alice", {}))
    ]
    resource = {"mode": "managed", "type": "kafka_quota", "name": "a", "instances": instances}
    state = json.dumps({"terraform_version": "1.9", "resources": [resource]})
    assert parse_quotas(state, "f").table == parse_quotas(f"quotas:\n{ALICE}").table


@pytest.mark.parametrize(
    ("text", "may_hold"),
    [
        (f"{USER % 'quotas: {producerByteRate: 5}'}---\napiVersion: a/v1\nkind: HelmRelease\n", 1),
        ("apiVersion: v1\nkind: List\nmetadata: {continue: abc}\nitems:\n- {apiVersion: v1, "
         "kind: List, items: [{apiVersion: kafka.strimzi.io/v1, kind: KafkaUser, "
         "metadata: {name: a}, spec: {quotas: {producerByteRate: 5}}}]}\n", 1),
        ('{"metadata":{"next":"x"},"data":[{"ingress":"5","principals":["sa-1"]}]}', 1),
    ],
)  # fmt: skip
def test_what_may_hold_more_quotas_is_said_and_prunes_nothing(text: str, may_hold: int) -> None:
    file = parse_quotas(text, "f")
    assert len(file.unread) == may_hold
    assert len(file.table.entities) == 1
    with pytest.raises(InvalidQuota, match="--prune would remove"):
        diff(QuotaTable(), file, prune=True)


def test_only_a_quotas_file_prunes() -> None:
    file = parse_quotas(QUOTA.format('"a"', CONFIG), "f")
    with pytest.raises(InvalidQuota, match=r"this is one of terraform's: write one by `headgate"):
        diff(QuotaTable(), file, prune=True)
