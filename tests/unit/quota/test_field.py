"""Files as people have them: read to the value, or refused by the tool's name with a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.cli.main import load
from headgate.errors import InvalidQuota
from headgate.quota.file import parse_quotas, read_quotas_file
from headgate.quota.lookalikes import name_notes

DATA = Path(__file__).parents[2] / "data" / "quotas"

READ: dict[str, str | None] = {
    "q1-describe-3x.txt": """\
- entity: {user: orders}
  producer_byte_rate: 1048576
  consumer_byte_rate: 2097152
- entity: {user: orders, client-id: null}
  producer_byte_rate: 70000
- entity: {user: null}
  consumer_byte_rate: 600000
""",
    "q2-describe-2x.txt": """\
- entity: {user: orders}
  producer_byte_rate: 1048576
  consumer_byte_rate: 2097152
- entity: {user: null}
  producer_byte_rate: 1048576
- entity: {client-id: etl}
  request_percentage: 50
""",
    "q4b-kafka-only.yaml": """\
- entity: {user: null}
  producer_byte_rate: 500000
""",
    "q6-terraform.tf": """\
- entity:
    user: User:CN=pay/producer
  producer_byte_rate: 5242880
  request_percentage: 100
""",
    "q7-jikkou.yaml": """\
- entity: {user: orders, client-id: etl}
  producer_byte_rate: 1024
  consumer_byte_rate: 2048
  request_percentage: 10
""",
    "q11-ccloud.json": """\
- entity: {user: sa-1}
  producer_byte_rate:bps: 5000000
  consumer_byte_rate:bps: 10000000
""",
    "q13-user-prefix.yaml": """\
- entity:
    user: User:CN=pay/producer
  producer_byte_rate: 5242880
""",
    "04c-kafkauser-clientQuotas.yaml": """\
- entity: {user: CN=otel-user}
  producer_byte_rate: 1048576
- entity: {user: CN=otel-user, client-id: otel-client-id}
  producer_byte_rate: 4444
- entity: {user: CN=otel-user, client-id: null}
  producer_byte_rate: 3333
""",
    "04d-kafka-cr-default-quotas.yaml": """\
- entity: {user: my-user}
  producer_byte_rate: 10
- entity: {user: null}
  producer_byte_rate: 1000000
  consumer_byte_rate: 1000000
  request_percentage: 55
  controller_mutation_rate: 50
""",
    "05-literal-names.yaml": None,  # names as they are: see NOTED
}
REFUSED = {
    "q5-rpk.yaml": ("15: rpk: client-id-prefix bar-", "take the entry out"),
    "q9-kafbat.json": ("1: Kafbat's API", "headgate export --bootstrap-server"),
    "04a-kafkauser-quotas-beside-spec.yaml": ("7: unknown field 'quotas'", "are in spec.quotas"),
}
SAID = {
    "q1-describe-3x.txt": ["4: not quotas: 1 line of SCRAM credentials"],
    "q11-ccloud.json": ["sa-1 is the id of a Confluent Cloud account"],
    "04c-kafkauser-clientQuotas.yaml": ["no released Strimzi"],
}
"""What is said beside quotas that were read; nothing of all others."""
NOTED = {"q6-terraform.tf": 1, "q13-user-prefix.yaml": 1, "05-literal-names.yaml": 7}
"""How many names don't mean what they look like."""


def test_each_input_of_the_field_has_its_answer_here() -> None:
    kinds = {file.name for file in DATA.iterdir() if file.suffix != ".properties"}
    assert kinds == READ.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", READ)
def test_a_file_of_the_field_is_read_to_the_value(name: str) -> None:
    file = read_quotas_file(DATA / name)
    wanted = READ[name]
    if wanted is not None:
        assert file.table == parse_quotas(f"quotas:\n{wanted}").table
    assert len(file.said) == len(SAID.get(name, []))
    for line, part in zip(file.said, SAID.get(name, []), strict=True):
        assert line.startswith(f"{DATA / name}:")
        assert part in line
    assert len(name_notes(file.table.entities)) == NOTED.get(name, 0)


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_of_the_field_is_refused_with_its_way_out(name: str) -> None:
    with pytest.raises(InvalidQuota) as refused:
        read_quotas_file(DATA / name)
    [line] = str(refused.value).splitlines()
    assert all(part in line.removeprefix(f"{DATA / name}:") for part in REFUSED[name])


def test_what_serve_refuses_its_check_refuses_too(capsys: pytest.CaptureFixture[str]) -> None:
    config = DATA / "14-check-without-upstream-user.properties"
    assert load("serve")(["--config", str(config), "--check"]) == 1
    told = capsys.readouterr().err
    assert "set headgate.upstream.admin.sasl.username" in told
