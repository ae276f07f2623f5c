"""
The console beside the gateway: `headgate console` as a child process, started again when it ends.

The child ends with its parent, however that ends: its stdin is a pipe that closes then.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.connecting import load_properties
from headgate.cli.serve.exit_limit import AGAIN_S, STEADY_S
from headgate.config.listeners import WILDCARDS, HostPort
from headgate.console.access.names import check_reach
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.config.settings import Settings

_END_S: Final = 5.0
"""How long it may take to end before it is killed."""


def gateway_address(settings: Settings) -> HostPort:
    """
    Return the gateway's port with the protocol that ``headgate.console.command.config`` names.

    Raises:
        ConfigError: no port does, or the file can't be read.
    """
    file = settings.console.command_config
    try:
        given = load_properties(file) if file else {}
    except OSError as error:
        raise ConfigError(f"headgate.console.command.config: {error}") from None
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    for listener in settings.listener_list:
        ports = settings.ports.broker_ids(listener.name)
        bind = settings.ports.bind(listener.name, ports[0]) if ports else None
        if listener.protocol == protocol and bind is not None and bind.port:
            return HostPort("127.0.0.1" if bind.host in WILDCARDS else bind.host, bind.port)
    raise ConfigError(
        f"the console would ask the gateway by {protocol}, and no listener with a port of its own "
        "speaks that; set headgate.console.command.config to a file with security.protocol"
    )


@contextlib.asynccontextmanager
async def console_beside(settings: Settings, config: Path, log: Any) -> AsyncIterator[None]:
    """
    Run the console that the settings ask for as long as a block runs; none if they ask for none.

    Args:
        settings: as read from the file.
        config: the file, for the console.
        log: where to say that it ended.

    Raises:
        ConfigError: it couldn't reach the gateway, or people could use it who mustn't.
    """
    if settings.console.listener is None:
        yield
        return
    check_reach(settings.console, settings.console.listener)
    command = [
        sys.executable, "-m", "headgate.cli.main", "console", "--config", str(config),
        "--bootstrap-server", str(gateway_address(settings)), "--with-parent",
    ]  # fmt: skip
    keeper = asyncio.create_task(_keep(command, log))
    try:
        yield
    finally:
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper


async def _keep(command: Sequence[str], log: Any) -> None:
    """Run the console again and again."""
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        started = loop.time()
        status = await _run(command, log)
        failures = 0 if loop.time() - started > STEADY_S else failures + 1
        wait = AGAIN_S[min(max(failures, 1), len(AGAIN_S)) - 1]
        log.error("the console ended; it is started again", status=status, wait_s=wait)
        await asyncio.sleep(wait)


async def _run(command: Sequence[str], log: Any) -> int:
    """Run the console once; if this is cancelled, end it."""
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    except OSError as error:  # as when memory or process ids run out
        log.error("the console can't be started", error=str(error))
        return -1
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_END_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
