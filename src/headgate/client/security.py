"""
How to connect to a Kafka broker: TLS, SASL and the client-id, read from settings.

Either from Kafka's client settings, as in the file given to ``--command-config``, or from a group
of settings in ``headgate.properties``, such as ``headgate.store.kafka.*``. Names and defaults are
Kafka's (``security.protocol``, ``sasl.jaas.config``, ``ssl.*``).
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.client.tls import client_context, librdkafka_tls, tls_of
from headgate.config.listeners import SecurityProtocol
from headgate.config.security import ClientSecurity
from headgate.config.wrong_protocol import Spoken
from headgate.errors import ConfigError
from headgate.wire.sasl_client import Exchange, oauthbearer, plain, scram, unsecured_token
from headgate.wire.scram import HASHES

CLIENT_ID: Final = "headgate.admin"
BY_PASSWORD: Final = ("PLAIN", *HASHES)
"""SASL mechanisms that take a name and a password, as credentials in files do."""
MECHANISMS: Final = (*BY_PASSWORD, "OAUTHBEARER")

Login = Callable[[], Exchange]
"""Begins a SASL exchange."""
_PLAINTEXT: Final = Spoken("security.protocol", "PLAINTEXT")


@dataclass(frozen=True, slots=True)
class Security:
    """
    How to connect.

    Args:
        tls: the context, or None for no TLS.
        mechanism: the SASL mechanism, or "".
        login: begins a SASL exchange; None for no SASL.
        client_id: what requests call their sender; a gateway's history shows it as the tool.
        spoken: the security protocol, and the setting that it comes from, for messages.
    """

    tls: ssl.SSLContext | None = None
    mechanism: str = ""
    login: Login | None = None
    client_id: str = CLIENT_ID
    spoken: Spoken = _PLAINTEXT

    @classmethod
    def of(cls, config: Mapping[str, str], client_id: str = CLIENT_ID) -> Security:
        """
        Read Kafka's client settings.

        Args:
            config: by Kafka's names; those that this client doesn't need are ignored.
            client_id: used unless ``client.id`` is set.

        Raises:
            ConfigError: every mistake at once.
        """
        problems: list[str] = []
        protocol = config.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in set(SecurityProtocol):
            known = ", ".join(SecurityProtocol)
            problems.append(f"security.protocol: {protocol} isn't one of {known}")
        tls: ssl.SSLContext | None = None
        mechanism = ""
        login: Login | None = None
        try:
            if protocol.endswith("SSL"):
                tls = client_context(tls_of(config))
        except ConfigError as exc:
            problems += exc.problems
        try:
            if protocol.startswith("SASL"):
                mechanism = config.get("sasl.mechanism", "GSSAPI").strip()
                login = _login_of(mechanism, config)
        except ValueError as exc:
            problems.append(str(exc))
        if problems:
            raise ConfigError(problems)
        spoken = Spoken("security.protocol", protocol)
        return cls(tls, mechanism, login, config.get("client.id", client_id), spoken)

    @classmethod
    def own(
        cls, given: ClientSecurity, tls: ssl.SSLContext | None, client_id: str, setting: str
    ) -> Security:
        """
        Make it from a group of settings of ``headgate.properties``.

        Args:
            given: the group.
            tls: the context made of its ``ssl.*``; None without TLS.
            client_id: what requests call their sender.
            setting: where the protocol is set, for messages.

        """
        spoken = Spoken(setting, given.security_protocol)
        if not given.security_protocol.sasl:
            return cls(tls, client_id=client_id, spoken=spoken)
        mechanism = given.sasl_mechanism
        password = "" if given.sasl_password is None else given.sasl_password.value
        login = _by_password(mechanism, given.sasl_username or "", password)
        return cls(tls, mechanism, login, client_id, spoken)


def librdkafka_config(bootstrap: str, security: ClientSecurity | None) -> dict[str, str]:
    """
    Return the settings with which a confluent-kafka client connects.

    Raises:
        ConfigError: a file can't be read, or librdkafka has no such setting.
    """
    config = {"bootstrap.servers": bootstrap}
    if security is None:
        return config
    config["security.protocol"] = security.security_protocol.name
    if security.security_protocol.sasl:
        password = security.sasl_password
        config["sasl.mechanism"] = security.sasl_mechanism
        config["sasl.username"] = security.sasl_username or ""
        config["sasl.password"] = "" if password is None else password.value
    if security.security_protocol.tls:
        config |= librdkafka_tls(security.ssl)
    return config


_JAAS_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))')


def jaas_options(text: str) -> dict[str, str]:
    """Return the options of a ``sasl.jaas.config``: ``… required username="a" password="b";``."""
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted or not bare else bare
        for name, quoted, bare in _JAAS_OPTION.findall(text)
    }


def _by_password(mechanism: str, username: str, password: str) -> Login:
    if mechanism == "PLAIN":
        return lambda: plain(username, password)
    return lambda: scram(mechanism, username, password)


def _login_of(mechanism: str, config: Mapping[str, str]) -> Login:
    if mechanism not in MECHANISMS:
        raise ValueError(
            f"sasl.mechanism: {mechanism} can't be spoken here; use {', '.join(MECHANISMS)}"
        )
    options = jaas_options(config.get("sasl.jaas.config", ""))
    username = options.get("username", config.get("sasl.username", ""))
    password = options.get("password", config.get("sasl.password", ""))
    if mechanism == "OAUTHBEARER":
        return _bearer(config, options)
    if not username:
        raise ValueError(f'sasl.jaas.config: {mechanism} needs username="…" password="…"')
    return _by_password(mechanism, username, password)


def _bearer(config: Mapping[str, str], options: Mapping[str, str]) -> Login:
    token = options.get("token") or config.get("sasl.oauthbearer.token")
    if token:
        return lambda: oauthbearer(token)
    url = config.get("sasl.oauthbearer.token.endpoint.url", "")
    if url.startswith("file://"):
        path = Path(url.removeprefix("file://"))
        return lambda: oauthbearer(path.read_text(encoding="utf-8").strip())
    subject = options.get("unsecuredLoginStringClaim_sub")
    if subject:
        return lambda: oauthbearer(unsecured_token(subject, int(time.time())))
    raise ValueError(
        'sasl.jaas.config: OAUTHBEARER needs token="…", or the token in a file named by '
        "sasl.oauthbearer.token.endpoint.url=file:///path"
    )
