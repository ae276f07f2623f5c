from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from headgate.errors import InvalidQuota
from headgate.quota.entity import (
    DEFAULT,
    QuotaEntity,
    entity_from_path,
    parse_entity,
    quota_id,
)
from headgate.quota.sanitizer import desanitize, sanitize

CASES = Path(__file__).parents[2] / "data" / "cases"
SANITIZER = json.loads((CASES / "sanitizer.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", SANITIZER["cases"], ids=lambda c: c["sanitized"])
def test_55_12_names_are_encoded_as_kafka_does(case: dict[str, str]) -> None:
    assert sanitize(case["raw"]) == case["sanitized"]
    assert desanitize(case["sanitized"]) == case["raw"]


@pytest.mark.parametrize("case", SANITIZER["desanitize"], ids=lambda c: c["sanitized"])
def test_names_are_decoded_with_javas_habits(case: dict[str, str]) -> None:
    if case.get("error"):
        with pytest.raises(InvalidQuota, match="hexadecimal"):
            desanitize(case["sanitized"])
    else:
        assert desanitize(case["sanitized"]) == case["raw"]


def test_an_unpaired_surrogate_becomes_a_question_mark() -> None:
    assert sanitize("a\ud800b") == "a%3Fb"


def test_55_20_quota_id_strings() -> None:
    assert quota_id("user1", "") == "user1:"
    assert quota_id("user2", "clientA") == "user2:clientA"
    assert quota_id("", "clientA") == ":clientA"
    assert quota_id("CN=a b", "c:d") == "CN%3Da%20b:c:d"


def test_a_user_called_default_is_not_the_default() -> None:
    named, default = QuotaEntity.of(user="<default>"), QuotaEntity.of(user=DEFAULT)
    assert named != default
    assert (str(named), str(default)) == ("{user=%3Cdefault%3E}", "{user=<default>}")
    assert (named.path, default.path) == ("users/%3Cdefault%3E", "users/<default>")


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (QuotaEntity.of(user=DEFAULT), "users/<default>"),
        (QuotaEntity.of(user="user1"), "users/user1"),
        (QuotaEntity.of(client_id="clientA", user="user2"), "users/user2/clients/clientA"),
        (QuotaEntity.of(client_id=DEFAULT), "clients/<default>"),
        (QuotaEntity.of(client_id="clientA"), "clients/clientA"),
        (QuotaEntity.of(user=DEFAULT, client_id=DEFAULT), "users/<default>/clients/<default>"),
        (QuotaEntity.of(ip="127.0.0.1"), "ips/127.0.0.1"),
    ],
)
def test_55_22_paths_are_those_of_kip_55(entity: QuotaEntity, path: str) -> None:
    assert entity.path == path
    assert entity_from_path(path) == entity
    assert entity_from_path("/config/" + path) == entity
    assert parse_entity(str(entity)) == entity
    assert pickle.loads(pickle.dumps(entity)) == entity


@pytest.mark.parametrize(
    "path", ["", "users", "topics/x", "users/a/clients", "users/a/users/b", "clients/a/users/b/x"]
)
def test_what_is_no_entity_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidQuota, match="isn't the path of a quota entity"):
        entity_from_path(path)


def test_equality_does_not_depend_on_order() -> None:
    one = QuotaEntity({"client-id": "c", "user": "u"})
    two = QuotaEntity({"user": "u", "client-id": "c"})
    assert one == two
    assert hash(one) == hash(two)
    assert one.shape == "user+client-id"


def test_546_11_unknown_types_can_be_held() -> None:
    entity = QuotaEntity({"user": "u", "GROUP": "internal-group"})
    assert str(entity) == "{user=u, GROUP=internal-group}"
    with pytest.raises(InvalidQuota, match="no configuration path"):
        _ = entity.path


def test_a_name_that_is_neither_text_nor_default_is_refused() -> None:
    with pytest.raises(InvalidQuota, match="must be text or DEFAULT"):
        QuotaEntity({"user": None})  # type: ignore[dict-item]


def test_named_entities_print_before_defaults() -> None:
    entities = [QuotaEntity.of(user=DEFAULT), QuotaEntity.of(user="z"), QuotaEntity.of(user="a")]
    assert [e.user for e in sorted(entities)] == ["a", "z", DEFAULT]


def test_javas_text_follows_its_hash_map() -> None:
    assert QuotaEntity.of(user="u").java_text == "ClientQuotaEntity(entries={user=u})"
    assert (
        QuotaEntity.of(user="u", client_id=DEFAULT).java_text
        == "ClientQuotaEntity(entries={client-id=null, user=u})"
    )
