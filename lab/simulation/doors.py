"""
The places where the product asks for time, chance, sockets or threads, led into the simulation.

They are found, not listed: every loaded module of the product is searched for what leads outside
(``OUTSIDE``), in its globals and in the defaults of its functions, and each find is replaced while
``opened`` lasts. What isn't a question but a call into the kernel is listed in ``CALLS``. So a new
place is led in as well, or fails in ``test_doors.py``, where a life runs while the real clocks,
sockets, threads and sources of chance raise.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import logging
import os
import random
import secrets
import select
import socket
import sys
import time
import types
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

from headgate.client.tls import client_context
from headgate.config import Settings
from simulation.certificates import server_context
from simulation.gateways import HeldName, settings_of
from simulation.loop import PROCESS
from simulation.transports import SimEpoll

PRODUCT: Final = ("headgate",)
NEEDED: Final = (
    "headgate.gateway.server",
    "headgate.gateway.usage_journal",
    "headgate.store",
)
"""Modules that are loaded first, so that what is found doesn't depend on what ran before."""


class Shim(types.ModuleType):
    """A module with some of its names replaced; all others are its own."""

    def __init__(self, real: types.ModuleType, **names: Any) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(names)
        self.__dict__["_real"] = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_real"], name)


def _wall_ns() -> int:
    return PROCESS.get().host.wall_ns()


def _monotonic_ns() -> int:
    return PROCESS.get().host.monotonic_ns()


def _perf_ns() -> int:
    return PROCESS.get().perf_ns()


def _cpu_ns() -> int:
    return PROCESS.get().cpu_ns()


def _seconds(ns: Callable[[], int]) -> Callable[[], float]:
    return lambda: ns() / 1e9


def _sleep(seconds: float) -> None:
    """Sleep in a job of an executor: whose code blocks, blocks its whole process here."""
    process = PROCESS.get()
    process.freeze(seconds * 1000)


def _chance() -> random.Random:
    """Return the stream that a process draws from."""
    memory = PROCESS.get().host.memory
    found: random.Random | None = memory.get("chance")
    if found is None:
        host = PROCESS.get().host
        found = memory["chance"] = host.loop.seed.stream("product", host.name)
    return found


def _drawn(name: str) -> Callable[..., Any]:
    return lambda *args, **more: getattr(_chance(), name)(*args, **more)


def _uuid4() -> uuid.UUID:
    return uuid.UUID(int=_chance().getrandbits(128), version=4)


def _token_hex(count: int = 32) -> str:
    return _chance().randbytes(count).hex()


def _hostname() -> str:
    return PROCESS.get().host.name


class _Mark:
    """A copy of a socket, on which ``Gathering`` sets the low-water mark."""

    def __init__(self, end: Any) -> None:
        self._end = end

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._end.setsockopt(level, option, value)

    def close(self) -> None:
        """Close the copy; the socket stays."""


def _socket(*_: Any, fileno: int | None = None, **__: Any) -> Any:
    if fileno is None:
        raise RuntimeError("the product opens a socket where the simulator doesn't know of it")
    return _Mark(PROCESS.get().loop.network.by_fd[fileno])


def _dup(fd: int) -> int:
    return fd


def _epoll() -> SimEpoll:
    return SimEpoll(PROCESS.get().loop)


_TIMES: Final[dict[str, Callable[..., Any]]] = {
    "time": _seconds(_wall_ns),
    "time_ns": _wall_ns,
    "monotonic": _seconds(_monotonic_ns),
    "monotonic_ns": _monotonic_ns,
    "perf_counter": _seconds(_perf_ns),
    "perf_counter_ns": _perf_ns,
    "process_time": _seconds(_cpu_ns),
    "process_time_ns": _cpu_ns,
    "thread_time": _seconds(_cpu_ns),
    "thread_time_ns": _cpu_ns,
    "sleep": _sleep,
}
_DRAWN: Final = ("random", "uniform", "randrange", "randint", "shuffle", "choice", "sample",
                 "getrandbits", "randbytes", "expovariate", "choices")  # fmt: skip
OUTSIDE: Final[dict[types.ModuleType, Shim]] = {
    time: Shim(time, **_TIMES),
    random: Shim(random, **{name: _drawn(name) for name in _DRAWN}),
    secrets: Shim(
        secrets,
        token_hex=_token_hex,
        token_bytes=_drawn("randbytes"),
        token_urlsafe=_token_hex,
        randbelow=_drawn("randrange"),
    ),
    uuid: Shim(uuid, uuid4=_uuid4),
    socket: Shim(socket, socket=_socket, gethostname=_hostname),
    select: Shim(select, epoll=_epoll),
    os: Shim(os, dup=_dup, urandom=_drawn("randbytes")),
}
"""Modules that lead outside, and what stands in for each."""
_FUNCTIONS: Final[dict[int, Any]] = {
    id(getattr(real, name)): getattr(shim, name)
    for real, shim in OUTSIDE.items()
    for name in shim.__dict__
    if name != "_real" and not name.startswith("__") and hasattr(real, name)
}


def _listen(host: str, port: int, backlog: int) -> Any:
    process = PROCESS.get()
    return process.loop.network.listen(process, host, port, backlog)


def _load(given: Any) -> Settings:
    """Read a file again: it stands for its settings, or for what makes them."""
    return given if isinstance(given, Settings) else settings_of(given)


class _WeakOnes(weakref.WeakKeyDictionary[Any, None]):
    """A ``WeakSet`` that keeps the order of what came."""

    def add(self, one: Any) -> None:
        """Take one more."""
        self[one] = None


CALLS: Final[dict[tuple[str, str], Any]] = {
    ("headgate.gateway.connection.acceptor", "accept"): lambda sock: sock.accept(),
    ("headgate.gateway.connection.acceptor", "pending"): lambda sock: sock,
    ("headgate.gateway.broker.broker", "listen"): _listen,
    ("headgate.gateway.broker.broker", "size_buffers"): lambda sock, settings: None,
    ("headgate.gateway.server", "WorkerName"): HeldName,
    ("headgate.gateway.server", "load_settings"): _load,
    ("headgate.gateway.cluster.listener_security", "server_context"): server_context,
    ("headgate.gateway.cluster.listener_security", "client_context"): functools.cache(
        client_context
    ),
    ("headgate.client.tls", "client_context"): functools.cache(client_context),
    ("headgate.gateway.broker.clients", "WeakSet"): _WeakOnes,
}
"""
Calls into the kernel, by module and name: a port opened, a connection taken, a file locked or read.
Plans and TLS contexts are the same in all lives and never changed, so they are made once. What is
held weakly stands in the order in which it came.
"""


def _replaced(value: Any) -> Any:
    """Return what stands in for a value, or the value."""
    if isinstance(value, types.ModuleType):
        return OUTSIDE.get(value, value)
    if callable(value):
        return _FUNCTIONS.get(id(value), value)
    return value


def _functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    """Yield the functions and methods that a module defines."""
    for value in list(vars(module).values()):
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            yield value
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for member in list(vars(value).values()):
                inner = getattr(member, "__func__", None) or getattr(member, "fget", member)
                if isinstance(inner, types.FunctionType):
                    yield inner


def places() -> list[tuple[Any, str, Any, Any]]:
    """Return every place: its holder, its name there, what is there now, what stands in for it."""
    found: list[tuple[Any, str, Any, Any]] = []
    for name, module in sorted(sys.modules.items()):
        if module is None or name.split(".")[0] not in PRODUCT:
            continue
        for key, value in list(vars(module).items()):
            inside = CALLS.get((name, key)) or _replaced(value)
            if inside is not value:
                found.append((module, key, value, inside))
        for function in _functions(module):
            for kind in ("__defaults__", "__kwdefaults__"):
                value = getattr(function, kind)
                if not value:
                    continue
                if kind == "__defaults__":
                    inside = tuple(map(_replaced, value))
                else:
                    inside = {key: _replaced(one) for key, one in value.items()}
                if inside != value:
                    found.append((function, kind, value, inside))
    return found


@contextlib.contextmanager
def opened() -> Iterator[None]:
    """Lead the product into the simulation while this lasts."""
    for name in NEEDED:
        importlib.import_module(name)
    found = places()
    loggers = [logging.getLogger(name) for name in ("headgate", "asyncio")]
    before = [(logger, logger.level) for logger in loggers]
    for holder, key, _, inside in found:
        setattr(holder, key, inside)
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            # Of what a crash or the end of a life cuts off, some was never awaited.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            yield
            gc.collect()
    finally:
        for holder, key, outside, _ in found:
            setattr(holder, key, outside)
        for logger, level in before:
            logger.setLevel(level)
