"""
``headgate serve``: run the gateway in front of Kafka until told to stop.

SIGTERM and SIGINT drain: requests in flight are finished, nothing new is taken. SIGHUP reads the
settings file again and puts in force what can change while running.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.cli import exit_codes
from headgate.cli.contract import BadUsage, Parser
from headgate.cli.output import complain, printable
from headgate.cli.results import Checked, Result
from headgate.cli.serve.announcer import Announcer
from headgate.cli.serve.exit_limit import end_process, exit_limit_s
from headgate.errors import HeadgateError, StoreError

if TYPE_CHECKING:
    from headgate.config import HostPort
    from headgate.config.settings import Settings
    from headgate.gateway.running import WorkerEnd
    from headgate.gateway.server import Gateway
    from headgate.store.watched import QuotaStore

_SWITCH_S = 0.0005
_HELP = """\
Run the gateway: one port per upstream broker and listener, quotas from the store, usage journal.

The settings file is described in docs/reference/settings.md; the shortest that works is
  headgate.upstream=embedded
"""


class _Ended(Result):
    """A gateway that has ended, and the exit status of its process."""

    exit_status: int

    @property
    def status(self) -> int:
        """The exit status."""
        return self.exit_status


def parser() -> Parser:
    """Return the command's parser."""
    made = Parser(
        "headgate serve",
        _HELP,
        _serve,
        example="headgate serve --config headgate.properties",
        json="with --check: print one JSON object, also for mistakes",
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
    made.add_argument(
        "--http",
        metavar="HOST:PORT",
        type=_address,
        help="where this process shows /healthz, /readyz and /metrics, instead of "
        "headgate.http.listener: each process started by hand needs a port of its own",
    )
    made.add_argument("--supervisor-fd", type=int, help=argparse.SUPPRESS)
    made.add_argument("--verbose", "-v", action="store_true", help="log every decision of note")
    return made


def _broker_ids(text: str) -> frozenset[int]:
    """Read ``1,2,3``."""
    try:
        return frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a list of broker ids") from None


def _address(text: str) -> HostPort:
    """Read ``host:port``; no host is every interface."""
    from headgate.config import HostPort

    try:
        return HostPort.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _serve(args: argparse.Namespace) -> Result:
    from headgate.config import load_settings

    if args.json and not args.check:
        raise BadUsage("--json goes with --check; a gateway that runs writes log lines")
    # Ignored until it can be obeyed: by default SIGHUP ends a process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    settings = load_settings(args.config)
    if args.check:
        return _check(settings, args.config)
    if args.supervisor_fd is None:
        _set_up_log(settings, verbose=args.verbose)
        for warning in settings.warnings:
            _log().warning("settings", warning=warning)
    else:
        _set_up_log(settings, verbose=args.verbose, worker=",".join(map(str, args.brokers or ())))
    config = Path(args.config)
    try:
        if args.process_per_broker:
            return _Ended(supervise(settings, config, verbose=args.verbose, http=args.http))
        return _Ended(serve(settings, config, args.brokers, args.supervisor_fd, args.http))
    except HeadgateError as error:
        if settings.log_format != "json":
            raise
        _log().error("can't serve", error=str(error))
        return _Ended(exit_codes.FAILED)


def _check(settings: Settings, config: str) -> Checked:
    """
    Say what is odd in settings that could be read.

    Raises:
        ConfigError: what they name can't be used.
    """
    from headgate.gateway import Gateway

    for warning in settings.warnings:
        complain(printable(f"headgate serve: warning: {warning}"))
    Gateway(settings).check()
    complain(printable(f"headgate serve: {config}: no mistakes"))
    return Checked(config, list(settings.warnings))


def _set_up_log(settings: Settings, *, verbose: bool, **bound: object) -> None:
    """Send log lines to stderr in the form that ``headgate.log.format`` says."""
    from headgate.gateway.log import set_up

    if settings.log_format == "json":
        bound["pid"] = os.getpid()
    set_up(settings.log_format, verbose=verbose, bound=bound)


def _log() -> Any:
    from headgate.gateway.log import get_logger

    return get_logger("headgate.serve")


def supervise(
    settings: Settings, config: Path, *, verbose: bool = False, http: HostPort | None = None
) -> int:
    """
    Run a process per broker until a signal says stop.

    Args:
        settings: of the file.
        config: the file, for the workers.
        verbose: whether they log every decision of note.
        http: where health and metrics are shown, instead of ``headgate.http.listener``.

    Raises:
        HeadgateError: the upstream doesn't answer, or is the embedded one.
    """
    if settings.embedded:
        raise HeadgateError(
            "--process-per-broker fronts a cluster that runs on its own; with "
            "headgate.upstream=embedded one process serves all"
        )
    import asyncio

    from headgate.cli.serve.supervisor import Supervisor
    from headgate.gateway import Gateway

    async def run() -> int:
        brokers = await Gateway(settings).find_brokers()
        return await Supervisor(config, settings, brokers, verbose=verbose, http=http).run()

    return asyncio.run(run())


def serve(
    settings: Settings,
    config: Path,
    brokers: frozenset[int] | None = None,
    supervisor_fd: int | None = None,
    http: HostPort | None = None,
) -> int:
    """
    Serve until a signal says stop.

    Args:
        settings: of the file.
        config: the file, for reloads.
        brokers: front these only; None: all.
        supervisor_fd: the line to the supervisor; None: there is none.
        http: where this process shows health and metrics, instead of ``headgate.http.listener``.

    Raises:
        HeadgateError: the start failed; says where and the way out.
    """
    import uvloop

    from headgate.gateway import Gateway

    _allow_files()
    try:
        Path(settings.data_dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadgateError(
            f"headgate.data.dir {settings.data_dir} can't be made: {error.strerror}"
        ) from error
    with contextlib.ExitStack() as stack:
        arguments = upstream_of(settings, stack)
        arguments["only_brokers"] = brokers
        arguments["supervised"] = supervisor_fd is not None
        arguments["http"] = http
        store = store_of(settings)
        if store is not None:
            stack.callback(store.close)
        else:
            arguments["reopen"] = lambda: open_own_store(settings)
        # A busy thread (the journal's, a store's) lets the event loop's go on after this time, not
        # after Python's five milliseconds.
        sys.setswitchinterval(_SWITCH_S)
        make = partial(Gateway, settings, store, **arguments)
        status: int = uvloop.run(_main(make, config, supervisor_fd))
        return status


def _allow_files() -> None:
    """Raise the limit of open files to what the system allows, as Java does: a client takes two."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def upstream_of(settings: Settings, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Start the embedded Kafka if that is the upstream; return the gateway's arguments for it."""
    if not settings.embedded:
        return {}
    from dataclasses import replace

    from headgate.config import HostPort, Password, SecurityProtocol
    from headgate.embedded import EmbeddedKafka
    from headgate.embedded.keeping import keeping

    kafka = stack.enter_context(
        EmbeddedKafka(
            Path(settings.embedded_dir),
            brokers=settings.embedded_brokers,
            progress=lambda text: _log().info("embedded Kafka", progress=text),
        )
    )
    stack.enter_context(
        keeping(kafka, lambda text: _log().warning("embedded Kafka", progress=text))
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
    Open the store; None if it can't be reached, and a snapshot or the settings let us go on.

    Raises:
        StoreError: it can't be reached, and there is neither a snapshot nor that setting.
    """
    try:
        return open_own_store(settings)
    except StoreError as error:
        if not Path(settings.store_snapshot).exists() and settings.store_required:
            raise StoreError(
                f"the store {settings.store} can't be reached ({error}) and there is no snapshot "
                f"at {settings.store_snapshot}; set headgate.store.required=false to serve "
                "without quotas until it answers"
            ) from error
        _log().warning("serving with the last known quotas", error=str(error))
        return None


def open_own_store(settings: Settings) -> QuotaStore:
    """
    Open the store; make it only if there is no snapshot: a snapshot shows that it existed.

    Raises:
        StoreError: it can't be opened, or is missing though there is a snapshot.
    """
    from headgate.store import open_store

    create = not Path(settings.store_snapshot).exists()
    try:
        return open_store(settings.store, settings, create=create)
    except StoreError as error:
        if not error.missing:
            raise
        raise StoreError(
            f"{error.missing}, and the quotas last known here ({settings.store_snapshot}) are of "
            "another store, or of one that was there. Bring that store back; or name the right one "
            "by headgate.store; or make one there, with headgate apply --store "
            f"{settings.store}, and let the gateway use it with headgate store accept"
        ) from error


async def _main(make: Callable[[], Gateway], config: Path, supervisor_fd: int | None) -> int:
    import asyncio

    from headgate.cli.serve.console import console_beside
    from headgate.gateway.background import GarbageBounds
    from headgate.gateway.fleet.fleet import ExitGuard

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    log = _log()
    gateway = make()
    guard = ExitGuard(end_process)

    def end() -> None:
        guard.arm(exit_limit_s(gateway.settings))
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    line: WorkerEnd | None = None
    if supervisor_fd is not None:
        from headgate.gateway.running import WorkerEnd

        line = WorkerEnd(gateway, end)
        line.start(supervisor_fd)
    await gateway.start()
    loop.add_signal_handler(signal.SIGHUP, gateway.reload_soon, config)
    GarbageBounds(gateway.work.stall_meter.note).settle()
    announcer = Announcer(gateway, log)
    gateway.fronting_changed = announcer.say
    announcer.say()
    alone = supervisor_fd is None
    async with console_beside(gateway.settings, config, log) if alone else contextlib.nullcontext():
        await stop.wait()
    log.info("draining")
    await gateway.stop()
    if line is not None:
        line.close()
    log.info("stopped")
    return exit_codes.DONE
