"""The table of APIs against what was read from Kafka's sources and from kio."""

import json
from pathlib import Path

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from headgate.wire.apis import API, NEVER, api_name, has_throttle

DATA = Path(__file__).parents[2] / "data" / "wire"
TABLE = {row["api_key"]: row for row in json.loads((DATA / "api_table.json").read_text())["apis"]}
KIO_VERSIONS = [
    (key, version)
    for key, name in api_key_map.items()
    for version, kinds in schema_name_map[name].items()
    if EntityType.response in kinds
]


@pytest.mark.parametrize("key", sorted(TABLE))
def test_the_table_says_what_kafkas_sources_say(key: int) -> None:
    row, api = TABLE[key], API[key]
    oldest, _, newest = row["versions"].partition("-")
    if key not in (76, 77, 78, 79):  # version 0 was never released (Kafka 4.1)
        assert api.min_version == int(oldest)
    assert api.max_version >= int(newest or oldest)
    if key != 74:  # since 4.1: ListConfigResources
        assert api.name == row["name"]
    flexible = row["flexible_versions"]
    assert api.flexible_since == (NEVER if flexible == "none" else int(flexible[:-1]))
    assert api.throttle_since == row["throttle_time_ms_since"]
    assert api.client_throttles_since == row["client_throttles_since"]
    assert api.cluster_action == row["cluster_action"]
    assert api.forwardable == row["forwardable"]
    if row["listeners"] == ["controller"]:
        assert not api.proxied


@pytest.mark.parametrize(("key", "version"), KIO_VERSIONS)
def test_kio_knows_no_version_that_the_table_contradicts(key: int, version: int) -> None:
    api = API[key]
    schema = load_response_schema(key, version)
    assert api.min_version <= version <= api.max_version
    assert schema.__flexible__ == (version >= api.flexible_since)
    assert ("throttle_time" in schema.__dataclass_fields__) == has_throttle(key, version)
    assert load_request_schema(key, version).__flexible__ == (version >= api.flexible_since)


@pytest.mark.parametrize(("key", "version"), KIO_VERSIONS)
def test_no_api_with_addresses_was_forgotten(key: int, version: int) -> None:
    """Every response version that has both a host and a port is one we narrow or rewrite."""

    def has_address(schema: type) -> bool:
        fields = schema.__dataclass_fields__
        if "host" in fields and "port" in fields:
            return True
        return any(
            has_address(nested)
            for field in fields.values()
            for nested in getattr(field.type, "__args__", (field.type,))
            if hasattr(nested, "__dataclass_fields__")
        )

    if has_address(load_response_schema(key, version)):
        api = API[key]
        # 88, 89: endpoints that members of a Streams group chose themselves, for each other.
        assert not api.proxied or api.has_addresses or key in (88, 89)


def test_what_the_gateway_reads_is_bounded() -> None:
    for api in API.values():
        if api.has_addresses or api.charged:
            assert api.passes_until is not None, api.name


def test_unknown_apis() -> None:
    assert api_name(0) == "Produce"
    assert api_name(4711) == "UNKNOWN(4711)"
    assert not has_throttle(4711, 3)
