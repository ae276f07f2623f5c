"""The admin client's public names, as KIP-546 gives them."""

from __future__ import annotations

import inspect

import pytest

import headgate.admin as admin
from headgate.errors import InvalidQuota

PUBLIC = {
    "DEFAULT",
    "QUOTA_ENTITY_NAME_DEFAULT",
    "AdminClient",
    "AlterQuotasEntry",
    "AlterQuotasOptions",
    "AlterQuotasResult",
    "AsyncAdminClient",
    "AsyncAlterQuotasResult",
    "AsyncDescribeEffectiveQuotasResult",
    "AsyncDescribeQuotasResult",
    "DescribeEffectiveQuotasOptions",
    "DescribeEffectiveQuotasResult",
    "DescribeQuotasOptions",
    "DescribeQuotasResult",
    "Entry",
    "FilterComponent",
    "MatchType",
    "Op",
    "QuotaEntity",
    "QuotaFilter",
    "QuotaKey",
    "Value",
}


def parameters(function: object) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]  # type: ignore[arg-type]


def test_the_public_names_are_these_and_are_there() -> None:
    assert set(admin.__all__) == PUBLIC
    assert [name for name in PUBLIC if not hasattr(admin, name)] == []


def test_546_13_names_of_entities_keys_and_filters() -> None:
    entity = admin.QuotaEntity(
        {admin.QuotaEntity.Type.USER: "u", admin.QuotaEntity.Type.CLIENT_ID: "c"}
    )
    assert entity == admin.QuotaEntity({"client-id": "c", "user": "u"})
    key = admin.QuotaKey(admin.QuotaKey.Type.PRODUCER_BYTE_RATE, admin.QuotaKey.Units.RATE_BPS)
    assert key == admin.QuotaKey("producer_byte_rate", "bps")
    assert {t.name for t in admin.QuotaKey.Type} >= {
        "CONSUMER_BYTE_RATE",
        "PRODUCER_BYTE_RATE",
        "REQUEST_PERCENTAGE",
    }
    made = admin.QuotaFilter(admin.QuotaEntity.Type.USER, admin.QuotaFilter.Rule.PREFIX, "test-")
    assert (made.entity_type, made.rule, made.match) == ("user", "PREFIX", "test-")
    assert {rule.name for rule in admin.QuotaFilter.Rule} == {"EXACT", "PREFIX"}


def test_546_14_the_defaults_name_is_the_one_kafka_refuses() -> None:
    assert admin.QUOTA_ENTITY_NAME_DEFAULT == ""
    chosen = admin.QuotaFilter("user", "EXACT", admin.QUOTA_ENTITY_NAME_DEFAULT).component()
    assert chosen == admin.FilterComponent("user", admin.MatchType.DEFAULT)
    prefix = admin.QuotaFilter("user", "PREFIX", "").component()
    assert not prefix.accepts(admin.QuotaEntity({"user": admin.DEFAULT}))


def test_546_15_describe_takes_a_collection_and_gives_one_future() -> None:
    assert parameters(admin.AdminClient.describe_quotas) == ["filters", "options"]
    assert parameters(admin.AsyncAdminClient.describe_quotas) == ["filters", "options"]
    assert callable(admin.DescribeQuotasResult.entities)


def test_546_16_names_of_describe_effective() -> None:
    assert parameters(admin.AdminClient.describe_effective_quotas) == ["entities", "options"]
    assert admin.DescribeEffectiveQuotasOptions().omit_overridden_values is False
    assert admin.Entry._fields == ("source", "value")
    assert admin.Value._fields[:2] == ("entry", "overridden_entries")
    assert callable(admin.DescribeEffectiveQuotasResult.config)
    assert callable(admin.DescribeEffectiveQuotasResult.all)


def test_546_17_names_of_alter() -> None:
    assert parameters(admin.AdminClient.alter_quotas) == ["entries", "options"]
    key = admin.QuotaKey.parse("producer_byte_rate")
    entry = admin.AlterQuotasEntry(
        admin.QuotaEntity({"user": "u"}), [admin.AlterQuotasEntry.Op(key, 5)]
    )
    assert (entry.entity.user, entry.ops) == ("u", (admin.Op(key, 5),))
    assert admin.AlterQuotasOptions().validate_only is False
    assert callable(admin.AlterQuotasResult.values)
    assert callable(admin.AlterQuotasResult.all)


@pytest.mark.parametrize(
    "options",
    [
        admin.DescribeQuotasOptions,
        admin.DescribeEffectiveQuotasOptions,
        admin.AlterQuotasOptions,
    ],
)
def test_546_18_options_have_a_timeout(options: type) -> None:
    assert options(timeout_ms=5).timeout_ms == 5
    assert options().timeout_ms is None


def test_a_name_is_text_or_the_default() -> None:
    with pytest.raises(InvalidQuota):
        admin.QuotaEntity({"user": None})  # type: ignore[dict-item]
