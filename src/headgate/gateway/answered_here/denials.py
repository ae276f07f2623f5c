"""
Refuse the requests of users without permission, and describe for the audit log what they tried.

A user without permission can't make the event loop read or write more than a few kilobytes of a
request: small requests are refused here, large ones in a separate process.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import HeadgateError, RemoteProtocolError
from headgate.gateway.charging.plans import RequestKind
from headgate.quota.key import format_value
from headgate.store.broker_rules import BROKER_SETTINGS, base_setting
from headgate.wire import apis
from headgate.wire.messages import configs, decode_request, draft
from headgate.wire.messages.denied import denied
from headgate.wire.messages.live import LIVE

if TYPE_CHECKING:
    from headgate.gateway.session.commands import Ask

SMALL_BYTES: Final = 2_048
"""Requests that are read at once: one or two milliseconds, answer included."""
MOST_WAITING: Final = 8
"""Large requests, up to a mebibyte each, that may wait. The connection of one more is closed."""
_LONGEST_S: Final = 30.0
_PROGRAM: Final = "from headgate.wire.messages.denied import main; main()"


class Denials:
    """Refuses requests that name what they ask for, one large one at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headgate-denial")
        self._free = asyncio.Semaphore(1)
        self._waiting = 0

    async def answer(self, ask: Ask, calls: str) -> bytes:
        """
        Refuse what was asked with CLUSTER_AUTHORIZATION_FAILED.

        Args:
            ask: the request; its principal may not ask this.
            calls: ``denied.RELEASED`` or ``denied.DRAFT``.

        Returns:
            The answer's frame.

        Raises:
            RemoteProtocolError: it doesn't parse, or too many are being refused.
        """
        key, version = ask.plan.key, ask.plan.version
        if len(ask.frame) <= SMALL_BYTES:
            return denied(calls, key, version, ask.frame)
        if self._waiting >= MOST_WAITING:
            raise RemoteProtocolError(
                f"{len(ask.frame)} bytes of User:{ask.principal}, without permission, behind "
                f"{MOST_WAITING} others like it",
                reason="refused",
            )
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, _beside, calls, key, version, ask.frame)
        # If the client hangs up now, its request must still be done before the next one begins.
        work.add_done_callback(lambda _: self._free.release())
        return await asyncio.shield(work)

    def close(self) -> None:
        """Refuse no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _beside(calls: str, key: int, version: int, frame: bytes) -> bytes:
    """Refuse in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM, calls, str(key), str(version)],
        input=frame,
        capture_output=True,
        timeout=_LONGEST_S,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason"]
        reason, _, text = said[-1].partition(": ")
        raise RemoteProtocolError(text or reason, reason=reason if text else "malformed")
    return done.stdout


_MOST: Final = 300
"""Characters of each part. 10,000 audit lines are kept, and the refused user chose their text."""


def attempted(ask: Ask) -> tuple[str, str]:
    """
    Return subject and detail of an audit line.

    Args:
        ask: what was asked. Only a small request is read, so that users without permission can't
            make the loop read more.
    """
    origin = f"from {ask.client_ip}" if ask.client_ip else ""
    if len(ask.frame) > SMALL_BYTES:
        return "", _joined([f"a request of {len(ask.frame)} bytes", origin], " ")
    try:
        subject, values = _named(ask)
    except HeadgateError:  # it doesn't parse: its connection will be closed
        subject, values = (), ()
    return _joined(subject), _joined([_joined(values), origin], " ")


def _named(ask: Ask) -> tuple[Iterable[str], Iterable[str]]:
    key = ask.plan.key
    if key == LIVE:
        asked = decode_request(LIVE, 0, ask.frame, ask.body_offset)
        return ("everybody" if asked.user is None else f"user={asked.user}",), ()
    if ask.plan.kind == RequestKind.DRAFT:
        if key != draft.ALTER_QUOTAS:
            return (), ()
        request: Any = draft.decode_request(key, ask.frame, draft.body_offset(ask.frame))
        return (
            (_entity(entry.entity) for entry in request.entries),
            (
                f"{op.type}:{op.units}={'none' if op.remove else op.value}"
                for entry in request.entries
                for op in entry.ops
            ),
        )
    if key == apis.ALTER_CLIENT_QUOTAS:
        request = decode_request(key, ask.plan.version, ask.frame, ask.body_offset)
        return (
            (_entity(entry.entity) for entry in request.entries),
            (
                f"{op.key}={'none' if op.remove else format_value(op.value)}"
                for entry in request.entries
                for op in entry.ops
            ),
        )
    if key in (apis.ALTER_CONFIGS, apis.INCREMENTAL_ALTER_CONFIGS):
        request = decode_request(key, ask.plan.version, ask.frame, ask.body_offset)
        brokers = [r for r in request.resources if r.resource_type == configs.BROKER]
        return (
            (f"broker {r.resource_name}" if r.resource_name else "all brokers" for r in brokers),
            (_setting(c.name, c.value) for r in brokers for c in r.configs),
        )
    return (), ()


def _setting(name: str, value: str | None) -> str:
    """Return a setting with its value, if it is one of ours: others may be secrets."""
    return f"{name}={value}" if base_setting(name) in BROKER_SETTINGS else name


def _entity(parts: Any) -> str:
    """Return an entity as the request spelled it; a null name is the default."""
    names = (f"{part.entity_type}={part.entity_name or '<default>'}" for part in parts)
    return "{" + ", ".join(names) + "}"


def _joined(parts: Iterable[str], between: str = ", ") -> str:
    text = between.join(part for part in parts if part)
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"
