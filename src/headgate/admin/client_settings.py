"""
The names of client settings: Kafka's, and librdkafka's for the same settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from headgate.errors import ConfigError

_NAMES = """
    bootstrap.controllers bootstrap.servers client.dns.lookup client.id config.providers
    connections.max.idle.ms default.api.timeout.ms enable.metrics.push metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries
    retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
    sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
    ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""
KAFKA_SETTINGS: Final = frozenset(_NAMES.split())
"""What Kafka's AdminClientConfig takes (4.3.1); what isn't needed here is ignored."""
_OURS: Final = frozenset({"sasl.username", "sasl.password", "sasl.oauthbearer.token"})
_OUR_PREFIXES: Final = ("zookeeper.", "headgate.")
"""How a store's settings begin; they are checked when the store is opened."""
_SPELLINGS: Final[Mapping[str, str]] = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
    "ssl.key.pem": "ssl.keystore.key",
}
"""librdkafka's name (so confluent-kafka's too) of a setting: Kafka's name of it."""
_READ: Final = frozenset({"ssl.certificate.location", "ssl.key.location"})
"""Their values name files; Kafka's hold the PEM text itself."""


def strangers(names: Iterable[str]) -> list[str]:
    """Return a sentence for each setting that neither Kafka nor Headgate has."""
    known = sorted(KAFKA_SETTINGS | _OURS | set(_SPELLINGS))
    said = []
    for name in names:
        if name in known or name.startswith(_OUR_PREFIXES):
            continue
        near = difflib.get_close_matches(name, known, 1, 0.7)
        said.append(f"unknown setting {name}" + (f"; did you mean {near[0]}?" if near else ""))
    return said


def kafka_names(config: Mapping[str, str]) -> dict[str, str]:
    """
    Return settings under Kafka's names.

    Args:
        config: by Kafka's or librdkafka's names.

    Raises:
        ConfigError: settings that don't exist, values that aren't text, a setting given under two
            names with different values, a file that can't be read; all at once.
    """
    problems = strangers(config)
    found: dict[str, str] = {}
    for name, value in config.items():
        if not isinstance(value, str):
            problems.append(f"{name}: {value!r} isn't text")
            continue
        own = _SPELLINGS.get(name, name)
        if name in _READ:
            try:
                value = Path(value).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as exc:
                problems.append(f"{name}: {value} can't be read: {exc}")
                continue
        if found.setdefault(own, value) != value:
            problems.append(f"{name} and another spelling of {own} say different things")
    if "ssl.ca.location" in config:
        found.setdefault("ssl.truststore.type", "PEM")
    if problems:
        raise ConfigError(problems)
    return found
