"""What a reload takes over and what it names, for every setting."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.config import Settings
from headgate.config.reloading import _with, is_taken, take_over
from headgate.config.setting import Setting
from headgate.config.settings import BY_NAME, SETTINGS

BASE = {
    "headgate.upstream": "127.0.0.1:9092",
    "headgate.broker.id.min": "1",
    "headgate.broker.id.max": "1",
}


def settings(**more: str) -> Settings:
    return Settings.from_properties(
        {**BASE, **{name.replace("__", "."): value for name, value in more.items()}}
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_changed_setting_is_taken_over_or_named_and_kept(setting: Setting) -> None:
    before, new = settings(), object()
    fresh: Settings = _with(before, setting.path, new)
    after, kept = take_over(before, fresh)
    old: Any = before.value_of(setting.path)
    assert after.value_of(setting.path) == (new if is_taken(setting) else old)
    assert kept == (() if is_taken(setting) else (setting.name,))


def test_what_a_listener_has_of_its_own_is_taken_over_or_named_with_its_prefix() -> None:
    before = settings()
    fresh = settings(
        listener__name__plaintext__connections__max__idle__ms="7",
        listener__name__plaintext__headgate__upstream="127.0.0.1:9999",
    )
    after, kept = take_over(before, fresh)
    own = after.for_listener("PLAINTEXT")
    assert own.connections_max_idle_ms == 7
    assert after.connections_max_idle_ms == before.connections_max_idle_ms
    assert own.upstream == before.upstream
    assert kept == ("listener.name.plaintext.headgate.upstream",)
    again, kept = take_over(fresh, before)
    assert again.for_listener("PLAINTEXT").connections_max_idle_ms == before.connections_max_idle_ms
    assert again.for_listener("PLAINTEXT").upstream == fresh.for_listener("PLAINTEXT").upstream
    assert kept == ("listener.name.plaintext.headgate.upstream",)


def test_what_all_listeners_share_is_named_once() -> None:
    before = settings(listener__name__plaintext__connections__max__idle__ms="7")
    fresh = settings(
        listener__name__plaintext__connections__max__idle__ms="7", headgate__pacing="smooth"
    )
    assert take_over(before, fresh)[1] == ("headgate.pacing",)


def test_ports_and_listeners_stay() -> None:
    before, fresh = settings(), settings(listeners="PLAINTEXT://:9093,OTHER://:9095",
        listener__security__protocol__map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT")  # fmt: skip
    after, kept = take_over(before, fresh)
    assert (after.ports, after.listener_list) == (before.ports, before.listener_list)
    assert kept == ("listeners", "listener.security.protocol.map")


def test_the_names_taken_over_are_settings() -> None:
    from headgate.config.reloading import _TAKEN

    assert set(BY_NAME) >= _TAKEN
