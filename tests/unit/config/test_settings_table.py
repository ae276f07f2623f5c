"""The table of settings, the dataclass and the reference page say the same."""

import dataclasses
from pathlib import Path

import pytest

from headgate.config.kinds import INT_MAX, LONG_MAX
from headgate.config.security import ClientSecurity, Tls, ZooKeeperSecurity
from headgate.config.setting import Setting
from headgate.config.settings import BY_NAME, SETTINGS, Settings
from kit.settings_page import settings_page

ROOT = Path(__file__).parents[3]
MADE = {"listener_list", "ports", "warnings", "given", "by_listener"}


def test_every_setting_is_listed_once() -> None:
    assert len(BY_NAME) == len(SETTINGS)
    assert len({setting.path for setting in SETTINGS}) == len(SETTINGS)


def test_every_setting_is_a_field_and_every_field_a_setting() -> None:
    names = {field.name for field in dataclasses.fields(Settings)}
    assert {setting.path[0] for setting in SETTINGS} == names - MADE


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("ssl", Tls),
        ("upstream_ssl", Tls),
        ("upstream_admin", ClientSecurity),
        ("zookeeper", ZooKeeperSecurity),
    ],
)
def test_nested_settings_are_fields_too(field: str, kind: type) -> None:
    inner = {s.path[1] for s in SETTINGS if s.path[0] == field}
    fields = {f.name for f in dataclasses.fields(kind)}
    assert inner <= fields
    assert fields - inner <= {"endpoint_identification_algorithm"}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_every_row_is_complete_and_its_default_is_reachable(setting: Setting) -> None:
    assert setting.doc.endswith(".")
    assert setting.source
    settings = Settings.from_properties({})
    value = settings.value_of(setting.path)
    if setting.default is not None:
        assert value == setting.default
    if isinstance(setting.default, bool | int | float | str):
        text = str(setting.default)
        parsed = setting.kind.parse(text.lower() if isinstance(setting.default, bool) else text)
        assert parsed == setting.default


def test_defaults_are_kafkas() -> None:
    settings = Settings.from_properties({})
    assert (settings.quota_window_num, settings.quota_window_size_seconds) == (11, 1)
    assert settings.max_connections == INT_MAX
    assert settings.max_connection_creation_rate == INT_MAX
    assert settings.connections_max_idle_ms == 600_000
    assert settings.socket_request_max_bytes == 100 * 1024 * 1024


def test_936_3_936_4_producer_id_defaults_are_the_seeds() -> None:
    settings = Settings.from_properties({})
    assert settings.producer_id_quota_window_num == 11
    assert settings.producer_id_quota_window_size_seconds == 1
    assert settings.producer_id_quota_cache_cleanup_scheduler_interval_ms == 10
    assert settings.producer_id_quota_cache_window_seconds == 11


def test_55_3_static_defaults_are_unlimited_and_warn_when_given() -> None:
    assert Settings.from_properties({}).quota_producer_default == LONG_MAX
    settings = Settings.from_properties({"quota.producer.default": "1048576"})
    assert settings.quota_producer_default == 1048576
    assert "quota.producer.default is deprecated, use clients/<default>" in settings.warnings


@pytest.mark.parametrize(
    "name", ["super.users", "headgate.admin.principals", "headgate.exempt.principals"]
)
def test_principals_divided_by_a_comma_are_one_and_a_warning_says_so(name: str) -> None:
    said = f"{name}: User:a, User:b is one principal, as in Kafka; for several write User:a;User:b"
    assert said in Settings.from_properties({name: "User:c;User:a, User:b"}).warnings
    for fine in ("User:a;User:b", "User:CN=a,OU=b"):
        found = Settings.from_properties({name: fine}).warnings
        assert found == Settings.from_properties({}).warnings


def test_the_reference_page_is_the_tables() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert page == settings_page()
