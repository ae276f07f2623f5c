from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from headgate.errors import ApiError, KafkaError
from headgate.quota.alteration import Op, QuotaAlteration, is_ip_literal, validate
from headgate.quota.entity import DEFAULT, QuotaEntity
from headgate.quota.key import CONNECTION, CONSUMER, KEYS, PRODUCER, PRODUCER_IDS, QuotaKey

CASES = Path(__file__).parents[2] / "data" / "cases"
ALTERATIONS = json.loads((CASES / "alter_validation.json").read_text(encoding="utf-8"))["cases"]


def entity_of(names: dict[str, str | None]) -> QuotaEntity:
    return QuotaEntity({t: DEFAULT if n is None else n for t, n in names.items()})


def one(entity: QuotaEntity, key: QuotaKey, value: float | None) -> ApiError | None:
    return validate([QuotaAlteration(entity, (Op(key, value),))]).results[0].error


@pytest.mark.parametrize(
    "case", ALTERATIONS, ids=lambda c: f"{c['entity']}-{c['key']}-{c['value']}"
)
def test_alterations_are_judged_as_kafka_does(case: dict[str, Any]) -> None:
    error = one(entity_of(case["entity"]), QuotaKey.parse(case["key"]), case["value"])
    if case["error"] == 0:
        assert error is None
    else:
        assert error == ApiError(case["error"], case["message"])


def test_nan_is_refused() -> None:
    error = one(QuotaEntity.of(user="u"), PRODUCER, math.nan)
    assert error == ApiError(42, "Quota producer_byte_rate must be greater than 0")


def test_infinity_passes_for_a_double_only() -> None:
    user = QuotaEntity.of(user="u")
    assert one(user, QuotaKey.parse("request_percentage"), math.inf) is None
    assert str(one(user, PRODUCER, math.inf)).endswith("is too large for a LONG.")


@pytest.mark.parametrize(
    "entity",
    [
        QuotaEntity.of(client_id="c"),
        QuotaEntity.of(user="u", client_id="c"),
        QuotaEntity.of(ip="1.2.3.4"),
    ],
    ids=str,
)
def test_936_5_producer_ids_rate_is_for_users_only(entity: QuotaEntity) -> None:
    assert one(entity, PRODUCER_IDS, 5.0) == ApiError(
        42, "Invalid configuration key producer_ids_rate"
    )
    assert one(QuotaEntity.of(user="u"), PRODUCER_IDS, 0.5) is None
    assert one(QuotaEntity.of(user=DEFAULT), PRODUCER_IDS, 200.0) is None


def test_546_12_unknown_units_are_refused_by_name() -> None:
    key = QuotaKey.parse("producer_byte_rate:furlongs")
    assert one(QuotaEntity.of(user="u"), key, 5.0) == ApiError(
        42, "Invalid configuration key producer_byte_rate:furlongs"
    )


def test_a_repeated_entity_keeps_its_first_alteration_and_is_reported() -> None:
    user = QuotaEntity.of(user="u")
    first = QuotaAlteration(user, (Op(PRODUCER, 1.0),))
    second = QuotaAlteration(user, (Op(PRODUCER, 2.0),))
    validated = validate([first, second])
    assert validated.accepted == [first]
    assert [r.error for r in validated.results] == [
        None,
        ApiError(42, "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})"),
    ]


def test_a_repeated_key_spoils_its_alteration_only() -> None:
    bad = QuotaAlteration(QuotaEntity.of(user="u"), (Op(PRODUCER, 1.0), Op(PRODUCER, None)))
    good = QuotaAlteration(QuotaEntity.of(user="v"), (Op(PRODUCER, 1.0), Op(CONSUMER, 2.0)))
    validated = validate([bad, good])
    assert validated.accepted == [good]
    assert "Ignoring duplicate entity" in str(validated.results[0].error)


def test_one_wrong_key_of_an_entity_spoils_all_of_it() -> None:
    ops = (Op(PRODUCER, 1.0), Op(CONSUMER, -1.0))
    validated = validate([QuotaAlteration(QuotaEntity.of(user="u"), ops)])
    assert validated.accepted == []
    assert validated.results[0].error is not None
    assert validated.results[0].error.code == KafkaError.INVALID_REQUEST


def test_all_mistakes_of_one_request_are_reported_together() -> None:
    asked = [
        QuotaAlteration(QuotaEntity.of(user="u"), (Op(CONNECTION, 1.0),)),
        QuotaAlteration(QuotaEntity({}), (Op(PRODUCER, 1.0),)),
        QuotaAlteration(QuotaEntity.of(user="ok"), (Op(PRODUCER, 1.0),)),
    ]
    validated = validate(asked)
    assert [r.error is None for r in validated.results] == [False, False, True]
    assert validated.accepted == [asked[2]]


@pytest.mark.parametrize(
    ("name", "literal"),
    [
        ("127.0.0.1", True),
        ("2130706433", True),
        ("1.2", True),
        ("::1", True),
        ("1.2.3.400", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_which_addresses_java_takes_as_literals(name: str, literal: bool) -> None:
    assert is_ip_literal(name) is literal


def test_hosts_are_asked_of_the_shell() -> None:
    alteration = QuotaAlteration(QuotaEntity.of(ip="tenant.test"), (Op(CONNECTION, 1.0),))
    assert validate([alteration], resolvable=lambda _: True).results[0].error is None
    assert validate([alteration]).results[0].error == ApiError(
        42, "tenant.test is not a valid IP or resolvable host."
    )


def test_every_key_names_its_source() -> None:
    assert all(spec.source for spec in KEYS.values())
