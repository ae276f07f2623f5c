"""
With which credentials an mTLS client goes upstream: the broker never sees its certificate.

Mapped to its principal in ``headgate.upstream.credentials.file``, else
``headgate.upstream.shared.*`` if enabled, else none: the client is refused. The gateway's own
admin credentials are never lent.

The file::

    credentials:
      - principal: alice
        sasl.mechanism: SCRAM-SHA-512
        sasl.username: alice
        sasl.password: alice-secret
      - principal: etl
        ssl.keystore.location: /etc/headgate/etl.pem
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from headgate.config.kinds import Password
from headgate.config.listeners import SecurityProtocol
from headgate.errors import ConfigError

if TYPE_CHECKING:
    from headgate.config.settings import ClientSecurity, Settings

_SASL: Final = ("sasl.mechanism", "sasl.username", "sasl.password")
_SSL: Final = (
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.key.password",
)
_SECRET: Final = frozenset({"sasl.password", "ssl.keystore.password", "ssl.key.password"})


class Lending:
    """
    The credentials lent to principals.

    Args:
        settings: of the listener.
        protocol: what the upstream speaks.

    Raises:
        ConfigError: the file can't be read, every mistake at once.
    """

    def __init__(self, settings: Settings, protocol: SecurityProtocol) -> None:
        self._protocol = protocol
        self._shared = settings.upstream_shared if settings.upstream_shared_enable else None
        self._base = settings.upstream_shared
        self._trust = settings.upstream_ssl
        self._mapped: Mapping[str, ClientSecurity] = {}
        where = settings.upstream_credentials_file
        if where is not None:
            self._mapped = self._read(Path(where))

    def lend(self, principal: str) -> ClientSecurity | None:
        """Return what a principal goes upstream with; None: it is refused."""
        found = self._mapped.get(principal)
        if found is not None:
            return found
        if self._shared is None:
            return None
        return replace(self._shared, security_protocol=self._protocol)

    def _read(self, path: Path) -> dict[str, ClientSecurity]:
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise ConfigError(f"headgate.upstream.credentials.file: {path}: {error}") from error
        rows = content.get("credentials") if isinstance(content, dict) else None
        if not isinstance(rows, list):
            raise ConfigError(f"{path}: it must hold a list named credentials")
        problems: list[str] = []
        found: dict[str, ClientSecurity] = {}
        for number, row in enumerate(rows, 1):
            principal = row.get("principal") if isinstance(row, dict) else None
            if not isinstance(principal, str) or not principal:
                problems.append(f"{path}: entry {number} names no principal")
                continue
            unknown = sorted(set(row) - {"principal", *_SASL, *_SSL})
            if unknown:
                problems.append(
                    f"{path}: entry {number} ({principal}): unknown {', '.join(unknown)}; there "
                    f"are {', '.join((*_SASL, *_SSL))}"
                )
                continue
            found[principal] = self._security(row)
        if problems:
            raise ConfigError(problems)
        return found

    def _security(self, row: Mapping[str, Any]) -> ClientSecurity:
        def value(name: str) -> Any:
            text = row.get(name)
            if text is None:
                return None
            return Password(str(text)) if name in _SECRET else str(text)

        tls = replace(
            self._trust,
            keystore_location=value("ssl.keystore.location") or self._trust.keystore_location,
            keystore_type=value("ssl.keystore.type") or "PEM",
            keystore_password=value("ssl.keystore.password"),
            key_password=value("ssl.key.password"),
        )
        return replace(
            self._base,
            security_protocol=self._protocol,
            sasl_mechanism=value("sasl.mechanism") or "PLAIN",
            sasl_username=value("sasl.username"),
            sasl_password=value("sasl.password"),
            ssl=tls,
        )
