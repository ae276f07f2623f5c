"""
``headgate serve``: run the gateway in front of Kafka until told to stop.

SIGTERM and SIGINT drain: requests in flight are finished, nothing new is taken. SIGHUP reads the
settings file again and puts in force what can change while running.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.cli import exit_codes
from headgate.cli.output import complain, printable
from headgate.errors import ConfigError, HeadgateError, StoreError

if TYPE_CHECKING:
    from headgate.config.settings import Settings
    from headgate.gateway.server import Gateway
    from headgate.store.base import QuotaStore

_HELP = """\
Run the gateway: one port per upstream broker and listener, quotas from the store, usage journal.

The settings file is described in docs/reference/settings.md; the shortest that works is
  headgate.upstream=embedded
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    made = argparse.ArgumentParser(
        prog="headgate serve",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--config", metavar="FILE", required=True, help="headgate.properties")
    made.add_argument(
        "--check", action="store_true", help="check the settings, print what is odd, and stop"
    )
    made.add_argument(
        "--brokers",
        metavar="ID,…",
        type=_broker_ids,
        help="front these brokers only; other processes front the others",
    )
    made.add_argument(
        "--process-per-broker",
        action="store_true",
        help="run one process per broker under a supervisor",
    )
    made.add_argument("--verbose", "-v", action="store_true", help="log every decision of note")
    return made


def _broker_ids(text: str) -> frozenset[int]:
    """Read ``1,2,3``."""
    try:
        return frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a list of broker ids") from None


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    from headgate.config import load_settings

    args = parser().parse_args(argv)
    logging.basicConfig(
        level=logging.DEBUG if args.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    try:
        settings = load_settings(args.config)
    except ConfigError as error:
        for problem in error.problems:
            complain(printable(f"headgate serve: {problem}"))
        return exit_codes.USAGE
    except OSError as error:
        complain(f"headgate serve: {args.config} can't be read: {error.strerror}")
        return exit_codes.USAGE
    for warning in settings.warnings:
        complain(printable(f"headgate serve: warning: {warning}"))
    if args.check:
        return exit_codes.DONE
    try:
        if args.process_per_broker:
            return supervise(settings, Path(args.config))
        return serve(settings, Path(args.config), args.brokers)
    except HeadgateError as error:
        for line in str(error).splitlines():
            complain(printable(f"headgate serve: {line}"))
        return exit_codes.FAILED


def supervise(settings: Settings, config: Path) -> int:
    """
    Run a process per broker until a signal says stop.

    Raises:
        HeadgateError: the upstream doesn't answer, or is the embedded one.
    """
    if settings.embedded:
        raise HeadgateError(
            "--process-per-broker fronts a cluster that runs on its own; with "
            "headgate.upstream=embedded one process serves all"
        )
    from headgate.cli.workers import Supervisor
    from headgate.gateway import Gateway

    async def run() -> int:
        brokers = await Gateway(settings).find_brokers()
        return await Supervisor(config, brokers).run()

    return asyncio.run(run())


def serve(settings: Settings, config: Path, brokers: frozenset[int] | None = None) -> int:
    """
    Serve until a signal says stop.

    Args:
        settings: of the file.
        config: the file, for reloads.
        brokers: front these only; None: all.

    Raises:
        HeadgateError: the start failed; says where and the way out.
    """
    try:
        Path(settings.data_dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadgateError(
            f"headgate.data.dir {settings.data_dir} can't be made: {error.strerror}"
        ) from error
    with contextlib.ExitStack() as stack:
        arguments = upstream_of(settings, stack)
        arguments["only_brokers"] = brokers
        store = store_of(settings)
        if store is not None:
            stack.callback(store.close)
        else:
            from headgate.gateway.snapshot import load_snapshot
            from headgate.store import open_store

            arguments["table"] = load_snapshot(settings)
            arguments["reopen"] = lambda: open_store(settings.store, settings)
        return _run(settings, store, arguments, config)


def upstream_of(settings: Settings, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Start the embedded Kafka if that is the upstream; return the gateway's arguments for it."""
    if not settings.embedded:
        return {}
    from dataclasses import replace

    from headgate.config import HostPort, Password, SecurityProtocol
    from headgate.embedded import EmbeddedKafka

    kafka = stack.enter_context(
        EmbeddedKafka(
            Path(settings.embedded_dir),
            brokers=settings.embedded_brokers,
            progress=lambda text: complain(f"headgate serve: {text}"),
        )
    )
    upstreams = {}
    for listener in settings.listener_list:
        name = "SASL_PLAINTEXT" if listener.protocol.sasl else "PLAINTEXT"
        upstreams[listener.name] = [
            HostPort.parse(text) for text in kafka.bootstrap(name).split(",")
        ]
    admin = replace(
        settings.upstream_admin,
        security_protocol=SecurityProtocol.PLAINTEXT,
        sasl_mechanism="PLAIN",
        sasl_username="admin",
        sasl_password=Password(kafka.users["admin"]),
    )
    return {"upstreams": upstreams, "admin": admin}


def store_of(settings: Settings) -> QuotaStore | None:
    """
    Open the store; None if it can't be reached and a snapshot or permission to go on is there.

    Raises:
        StoreError: it can't be reached and there is nothing to go on with.
    """
    from headgate.gateway.snapshot import load_snapshot
    from headgate.store import open_store

    try:
        return open_store(settings.store, settings)
    except StoreError as error:
        if load_snapshot(settings) is None and settings.store_required:
            raise StoreError(
                f"the store {settings.store} can't be reached ({error}) and there is no snapshot "
                f"at {settings.store_snapshot}; set headgate.store.required=false to serve "
                "without quotas until it answers"
            ) from error
        complain(f"headgate serve: {error}; serving with the last known quotas")
        return None


def _run(
    settings: Settings, store: QuotaStore | None, arguments: dict[str, Any], config: Path
) -> int:
    try:
        import uvloop
    except ImportError:  # pragma: no cover - the gateway extra isn't installed
        raise HeadgateError(
            "the gateway needs uvloop and kio: pip install 'headgate[gateway]'"
        ) from None
    from headgate.gateway import Gateway

    status: int = uvloop.run(_main(lambda: Gateway(settings, store, **arguments), config))
    return status


async def _main(make: Callable[[], Gateway], config: Path) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gateway = make()
    await gateway.start()
    loop.add_signal_handler(signal.SIGHUP, gateway.reload, config)
    for listener in gateway.settings.listener_list:
        complain(f"headgate serve: {listener.name} {gateway.bootstrap(listener.name)}")
    settle_memory()
    complain(f"headgate serve: ready, process {os.getpid()}")
    await stop.wait()
    complain("headgate serve: draining")
    await gateway.stop()
    complain("headgate serve: stopped")
    return exit_codes.DONE


def settle_memory() -> None:
    """
    Tune the collector for a gateway that has started.

    What is there now stays, so it needn't be walked; and the tuples of the journal, which live for
    a second, shouldn't make it look every 700 of them: that doubled the cost of an event.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
