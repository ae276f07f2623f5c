"""
KIP-546's transcripts, typed as the KIP types them, over one fixture.

List as printed there; Describe with its values corrected to List's (the KIP swaps the two users);
Alter typed with ``--alter`` where the KIP types ``--describe``.
"""

from __future__ import annotations

import re
import shlex

import pytest

from headgate.cli.quotas.kafka_quotas import main
from headgate.quota.alteration import Op, QuotaAlteration
from headgate.quota.entity import DEFAULT, EntityName, QuotaEntity
from headgate.quota.key import QuotaKey
from headgate.store.sqlite.store import SqliteStore


def quotas(user: EntityName, **values: float) -> QuotaAlteration:
    entity = QuotaEntity.of(user=user, client_id="my-client")
    ops = [Op(QuotaKey.parse(key.replace("__", ":")), value) for key, value in values.items()]
    return QuotaAlteration(entity, tuple(ops))


@pytest.fixture
def url(tmp_path: pytest.TempPathFactory) -> str:
    with SqliteStore(f"{tmp_path}/quotas.db") as store:
        store.alter(
            [
                quotas("user-two", consumer_byte_rate__shares=200, producer_byte_rate__bps=1e7),
                quotas("user-one", producer_byte_rate__broker_bps=2000000),
                quotas(
                    DEFAULT, consumer_byte_rate__shares=100, producer_byte_rate__broker_bps=500000
                ),
            ]
        )
        return store.url


def typed(url: str, line: str) -> list[str]:
    words = shlex.split(line.replace("\\\n", " "))
    at = words.index("--bootstrap-server")
    return ["--store", url, *words[at + 2 :]]


LIST_NAMES = (
    "--bootstrap-server localhost:9092 --list --names=client-id=my-client",
    """\
{user=user-two, client-id=my-client}
consumer_byte_rate:shares=200
producer_byte_rate:bps=10000000

{user=user-one, client-id=my-client}
producer_byte_rate:broker_bps=2000000

{user=<default>, client-id=my-client}
consumer_byte_rate:shares=100
producer_byte_rate:broker_bps=500000
""",
)
LIST_PREFIX = (
    "--bootstrap-server localhost:9092 --list --prefix=user=user-",
    """\
{user=user-two, client-id=my-client}
consumer_byte_rate:shares=200
producer_byte_rate:bps=10000000

{user=user-one, client-id=my-client}
producer_byte_rate:broker_bps=2000000
""",
)
DESCRIBE = (
    "--bootstrap-server localhost:9092 --describe --names=user=user-two,client-id=my-client",
    """\
consumer_byte_rate:shares=200 {user=user-two, client-id=my-client}
producer_byte_rate:bps=10000000 {user=user-two, client-id=my-client}
producer_byte_rate:broker_bps=500000 {user=<default>, client-id=my-client}
""",
)
DESCRIBE_OVERRIDES = (
    "--bootstrap-server localhost:9092 --describe --names=user=user-one,client-id=my-client "
    "--include-overrides",
    """\
consumer_byte_rate:shares=100 {user=<default>, client-id=my-client}
producer_byte_rate:broker_bps=2000000 {user=user-one, client-id=my-client}
*producer_byte_rate:broker_bps=500000 {user=<default>, client-id=my-client}
""",
)
ALTER = (
    "--bootstrap-server localhost:9092 --describe --names=client-id=my-client --defaults=user "
    "--add=producer_byte_rate:shares=100 --delete=producer_byte_rate:broker_bps"
)
LIST_AFTER = (
    "--bootstrap-server localhost:9092 --list --names=client-id=my-client --defaults=user",
    """\
{user=<default>, client-id=my-client}
consumer_byte_rate:shares=100
producer_byte_rate:shares=100
""",
)


def answered(url: str, transcript: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    line, output = transcript
    assert main(typed(url, line)) == 0
    printed = capsys.readouterr()
    assert printed.out == output
    # Beyond the KIP's transcript: describe says when shares are enforced.
    said = r"^kafka-quotas: note: (\S+) is enforced only where"
    notes = re.findall(said, printed.err, re.MULTILINE)
    assert len(notes) == len(printed.err.splitlines())
    shown = re.findall(r"^(\w+:shares)=", output, re.MULTILINE) if "--describe" in line else []
    assert set(notes) == set(shown)


def test_546_25_list_by_name(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    answered(url, LIST_NAMES, capsys)


def test_546_25_list_by_prefix(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    answered(url, LIST_PREFIX, capsys)


def test_546_26_describe(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    answered(url, DESCRIBE, capsys)


def test_546_26_describe_with_overrides(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    answered(url, DESCRIBE_OVERRIDES, capsys)


def test_546_27_alter_prints_nothing_and_list_shows_it(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed(url, ALTER.replace("--describe", "--alter"))) == 0
    assert capsys.readouterr() == ("", "")
    line, output = LIST_AFTER
    assert main(typed(url, line)) == 0
    assert capsys.readouterr().out == output


def test_546_27_alter_typed_with_describe_is_bad_usage_and_names_alter(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed(url, ALTER)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "--alter" in printed.err.splitlines()[0]
