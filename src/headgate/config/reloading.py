"""Which settings a running gateway takes over on SIGHUP; the others keep their value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from headgate.config.setting import Setting
from headgate.config.settings import SETTINGS, Settings

_TAKEN: Final = frozenset(
    {
        "socket.request.max.bytes",
        "headgate.upstream.credentials.file",
        "headgate.upstream.connect.timeout.ms",
        "headgate.upstream.refresh.ms",
        "headgate.enforce",
        "headgate.exempt.principals",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.connection.creation.rate",
        "connections.max.idle.ms",
        "headgate.handshake.timeout.ms",
        "super.users",
        "headgate.admin.principals",
        "principal.builder.class",
        "sasl.enabled.mechanisms",
        "sasl.oauthbearer.sub.claim.name",
        "headgate.drain.timeout.ms",
        "headgate.usage.retention.bytes",
    }
)
_TAKEN_GROUPS: Final = ("ssl.", "headgate.upstream.ssl.", "headgate.upstream.shared.")


def is_taken(setting: Setting) -> bool:
    """Whether SIGHUP puts a setting's new value in force; the others need a restart."""
    return setting.name in _TAKEN or setting.name.startswith(_TAKEN_GROUPS)


def take_over(before: Settings, fresh: Settings) -> tuple[Settings, tuple[str, ...]]:
    """
    Return what is in force after a reload.

    Args:
        before: the settings in force now.
        fresh: the settings that the file gives now.

    Returns:
        The settings: fresh where `is_taken`, else as before; and the names, with their listener's
        prefix, of those that changed and need a restart.
    """
    kept: list[str] = []
    base = _take_over(before, fresh, "", kept)
    views = {}
    for listener in sorted({*before.by_listener, *fresh.by_listener}):
        prefix = f"listener.name.{listener.lower()}."
        own: list[str] = []
        views[listener] = _take_over(
            before.for_listener(listener), fresh.for_listener(listener), prefix, own
        )
        kept.extend(name for name in own if name.removeprefix(prefix) not in kept)
    return replace(base, by_listener=views), tuple(kept)


def _take_over(before: Settings, fresh: Settings, prefix: str, kept: list[str]) -> Settings:
    # Ports and listeners are made of settings that stay.
    made = replace(fresh, listener_list=before.listener_list, ports=before.ports)
    for setting in SETTINGS:
        if is_taken(setting):
            continue
        old = before.value_of(setting.path)
        if fresh.value_of(setting.path) != old:
            kept.append(prefix + setting.name)
            made = _with(made, setting.path, old)
    return made


def _with(whole: Any, path: tuple[str, ...], value: object) -> Any:
    """Return a copy of nested dataclasses with one value replaced."""
    head, *rest = path
    inner = _with(getattr(whole, head), tuple(rest), value) if rest else value
    return replace(whole, **{head: inner})
