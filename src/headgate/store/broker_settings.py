"""
The dynamic settings of brokers that a store keeps for gateways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from headgate.errors import ApiError, KafkaError
from headgate.store.base import BrokerCallback, BrokerConfigs
from headgate.store.broker_rules import Told, broker_event, validate_broker_configs
from headgate.store.home import StoreHome
from headgate.store.hub import Hub, Watch

Write = Callable[[str, Mapping[str, "str | None"], Told], None]
"""Sets or removes checked settings of one broker, all or nothing, with an audit line."""


class BrokerSettings:
    """
    Settings by broker; "" is the cluster's default.

    Args:
        home: the store's.
        write: as kinds of stores do it.
    """

    def __init__(self, home: StoreHome, write: Write) -> None:
        self._home = home
        self._write = write
        self.hub: Hub[BrokerConfigs] = Hub()
        self.known: BrokerConfigs = {}
        self._version = 0

    def publish(self, found: BrokerConfigs) -> None:
        """Make settings the known ones; queue them for the watches if they differ."""
        if found != self.known:
            self.known = found
            self._version += 1
            self.hub.push(self._version, found)

    def now(self) -> BrokerConfigs:
        """Return the settings as of now."""
        self._home.read()
        return self.known

    def watch(self, callback: BrokerCallback) -> Watch[BrokerConfigs]:
        """Call back with all settings, now (before this returns) and after every change."""

        def first() -> tuple[int, BrokerConfigs]:
            with self._home.lock:
                self._home.read()
                return self._version, self.known

        watch = self.hub.add(callback, first)
        self._home.watch()
        return watch

    def alter(
        self,
        broker: str,
        ops: Mapping[str, str | None],
        *,
        validate_only: bool = False,
        who: str = "",
        tool: str = "",
    ) -> None:
        """
        Set or remove (None) settings of one broker, all or nothing, with an audit line.

        Args:
            broker: the broker's id as text, or "" for the cluster's default.
            ops: setting to its new value, or None to remove it.
            validate_only: check, and change nothing.
            who: the principal, for the audit.
            tool: the program, for the audit.

        Raises:
            ApiError: INVALID_CONFIG, INVALID_REQUEST (``broker_rules``), POLICY_VIOLATION.
        """
        availability = self._home.availability
        with availability.changing(self._home.change_s):
            kept = validate_broker_configs(broker, ops, self.now())
            if availability.refuses is not None:
                raise ApiError(KafkaError.POLICY_VIOLATION, availability.refuses)
            if not validate_only:
                self._home.prepare()
                told = partial(broker_event, broker, who, tool, self._home.clock_ms())
                self._write(broker, kept, told)
