"""
TLS versions and cipher suites by Kafka's (Java's) names, for a context or for librdkafka.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final

from headgate.errors import ConfigError

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_TOO_OLD: Final = frozenset({"TLSv1", "TLSv1.1"})
"""What old property files name as well; nothing here speaks them."""
_TLS_1_3: Final = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)
"""Always allowed where TLS 1.3 is: OpenSSL chooses them itself."""
_CHACHA: Final = "CHACHA20_POLY1305"


def limit(context: ssl.SSLContext, protocols: Sequence[str], suites: Sequence[str]) -> None:
    """
    Allow a context these versions and suites only.

    Args:
        context: of either side.
        protocols: ``ssl.enabled.protocols``; empty: whatever OpenSSL allows.
        suites: ``ssl.cipher.suites``; empty: likewise. Where only suites of TLS 1.3 are named,
            nothing older is spoken.

    Raises:
        ConfigError: a name isn't known, or nothing would be left; begins with the setting.
    """
    versions = _versions(protocols)
    if versions:
        context.minimum_version, context.maximum_version = min(versions), max(versions)
    older = [suite for suite in suites if suite not in _TLS_1_3]
    if suites and not older:
        if versions and ssl.TLSVersion.TLSv1_3 not in versions:
            raise ConfigError(
                f"ssl.cipher.suites: {suites[0]} is one of TLS 1.3, which ssl.enabled.protocols "
                "leaves out"
            )
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    for suite in older:
        try:
            context.set_ciphers(_openssl_name(suite))
        except ssl.SSLError:
            raise ConfigError(
                f"ssl.cipher.suites: {suite} isn't known here; "
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 is one"
            ) from None
    if older:
        context.set_ciphers(":".join(map(_openssl_name, older)))


def librdkafka_limits(protocols: Sequence[str], suites: Sequence[str]) -> dict[str, str]:
    """
    Return these limits as settings of librdkafka, which has none for TLS versions.

    Raises:
        ConfigError: a name isn't known, or librdkafka has no setting for the limit.
    """
    limit(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), protocols, suites)
    versions = _versions(protocols)
    older = [suite for suite in suites if suite not in _TLS_1_3]
    if (versions and len(set(versions)) < len(_VERSIONS)) or (suites and not older):
        what = "ssl.cipher.suites" if suites and not older else "ssl.enabled.protocols"
        raise ConfigError(
            f"{what}: topics are read and written by librdkafka, which can't be held to one "
            "version of TLS; allow both here and leave one out at the brokers' listener"
        )
    return {"ssl.cipher.suites": ":".join(map(_openssl_name, older))} if older else {}


def _versions(protocols: Sequence[str]) -> list[ssl.TLSVersion]:
    for name in protocols:
        if name not in _VERSIONS and name not in _TOO_OLD:
            raise ConfigError(
                f"ssl.enabled.protocols: {name} isn't known; use {', '.join(_VERSIONS)}"
            )
    versions = [_VERSIONS[name] for name in protocols if name in _VERSIONS]
    if protocols and not versions:
        raise ConfigError(
            f"ssl.enabled.protocols: {', '.join(protocols)} isn't spoken here; use "
            f"{' or '.join(_VERSIONS)}"
        )
    return versions


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite, given its standard name, which Java uses."""
    keys, with_, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not with_:
        return suite
    for one, other in (("AES_", "AES"), ("_CBC", ""), ("CHACHA20_POLY1305_SHA256", _CHACHA)):
        cipher = cipher.replace(one, other)
    return "-".join([*([] if keys == "RSA" else [keys]), cipher]).replace("_", "-")
