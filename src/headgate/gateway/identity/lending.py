"""
The credentials for an mTLS client's connection to the broker, which never sees its certificate.

They are those of its principal in ``headgate.upstream.credentials.file``, else
``headgate.upstream.shared.*`` if enabled. Without either the client is refused. The gateway's own
admin credentials are never lent.

The file::

    credentials:
      - principal: alice
        sasl.mechanism: SCRAM-SHA-512
        sasl.username: alice
        sasl.password: alice-secret
      - principal: etl
        ssl.keystore.location: /etc/headgate/etl.pem

A reload makes a new ``Lending``, and with it new TLS contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from headgate.client.security import BY_PASSWORD
from headgate.client.tls import ClientContexts
from headgate.config.kinds import Password
from headgate.config.listeners import SecurityProtocol
from headgate.errors import ConfigError
from headgate.gateway.log import get_logger
from headgate.steps import Work, emptying
from headgate.yaml_reading import plain_yaml

if TYPE_CHECKING:
    from headgate.config.security import ClientSecurity
    from headgate.config.settings import Settings

log = get_logger("headgate.gateway")

_SASL: Final = ("sasl.mechanism", "sasl.username", "sasl.password")
_SSL: Final = (
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.key.password",
)
_SECRET: Final = frozenset({"sasl.password", "ssl.keystore.password", "ssl.key.password"})
_QUOTE: Final = "a value with a special character, as passwords have them, goes into quotes: 'p@ss'"


class Lending:
    """
    The credentials lent to principals.

    Args:
        settings: of the listener.
        protocol: of clients' connections to the broker.
        read: ``rows_of``; or one that reads a file once for all listeners.

    Attributes:
        contexts: TLS contexts for the credentials lent.

    Raises:
        ConfigError: the file can't be read, every mistake at once.
    """

    def __init__(
        self,
        settings: Settings,
        protocol: SecurityProtocol,
        read: Callable[[Path], Sequence[Any]] | None = None,
    ) -> None:
        self._protocol = protocol
        self._shared = settings.upstream_shared if settings.upstream_shared_enable else None
        self._base = settings.upstream_shared
        self._trust = settings.upstream_ssl
        self._mapped: dict[str, ClientSecurity] = {}
        self.contexts = ClientContexts(_still_valid)
        problems = [] if self._shared is None else self._wrong_shared(settings)
        if problems:
            raise ConfigError(problems)
        where = settings.upstream_credentials_file
        if where is not None:
            self._mapped = self._read(Path(where), (read or rows_of)(Path(where)))

    def _wrong_shared(self, settings: Settings) -> list[str]:
        """Say why the shared credentials can never log in."""
        prefix, shared, problems = "headgate.upstream.shared.", settings.upstream_shared, []
        given = f"{prefix}security.protocol"
        if given in settings.given and shared.security_protocol is not self._protocol:
            problems.append(
                f"{given}={shared.security_protocol}, but clients' connections go on in "
                f"{self._protocol} (headgate.upstream.security.protocol)"
            )
        if self._protocol.sasl and not (shared.sasl_username and shared.sasl_password):
            problems.append(
                f"the upstream speaks {self._protocol}: {prefix}enable needs "
                f"{prefix}sasl.username and {prefix}sasl.password"
            )
        return problems

    def lend(self, principal: str) -> ClientSecurity | None:
        """Return the credentials for a principal; None: it is refused."""
        found = self._mapped.get(principal)
        if found is not None:
            return found
        if self._shared is None:
            return None
        return replace(self._shared, security_protocol=self._protocol)

    def freeing(self) -> Work[None]:
        """Forget all credentials, in steps, when no connection asks for them any more."""
        yield from emptying(self._mapped)

    def _read(self, path: Path, rows: Sequence[Any]) -> dict[str, ClientSecurity]:
        problems: list[str] = []
        found: dict[str, ClientSecurity] = {}
        for number, row in enumerate(rows, 1):
            principal = row.get("principal") if isinstance(row, dict) else None
            if not isinstance(principal, str) or not principal:
                problems.append(f"{path}: entry {number} names no principal")
                continue
            unknown = sorted(set(row) - {"principal", *_SASL, *_SSL})
            if unknown:
                # What follows a comma in a password without quotes looks like a name without value.
                told = [name for name in unknown if row[name]]
                problems.append(
                    f"{path}: entry {number} ({principal}): unknown "
                    f"{', '.join(told) or 'names, not shown here'}; there are "
                    f"{', '.join((*_SASL, *_SSL))}; {_QUOTE}"
                )
                continue
            security = self._security(row)
            if self._protocol.sasl and security.sasl_mechanism not in BY_PASSWORD:
                problems.append(
                    f"{path}: entry {number} ({principal}): sasl.mechanism "
                    f"{security.sasl_mechanism} can't be lent; use one of {', '.join(BY_PASSWORD)}"
                )
                continue
            if self._protocol.sasl and not (security.sasl_username and security.sasl_password):
                problems.append(
                    f"{path}: entry {number} ({principal}): the upstream speaks {self._protocol}, "
                    "so sasl.username and sasl.password are needed"
                )
                continue
            found[principal] = security
        if problems:
            raise ConfigError(problems)
        return found

    def _security(self, row: Mapping[str, Any]) -> ClientSecurity:
        def value(name: str) -> Any:
            text = row.get(name)
            if not isinstance(text, str) or not text:
                return None
            return Password(text) if name in _SECRET else text

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


def rows_of(path: Path) -> Sequence[Any]:
    """
    Read the entries of a credentials file.

    Raises:
        ConfigError: it can't be read, or isn't such a file.
    """
    try:
        # Every value stays the text it is: 0123 and yes are passwords too.
        content = plain_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"headgate.upstream.credentials.file: {path} can't be read: {error.strerror}"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}{_where(error)} isn't YAML; {_QUOTE}") from None
    rows = content.get("credentials") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise ConfigError(f"{path}: it must hold a list named credentials")
    return rows


def _still_valid(error: ConfigError) -> None:
    log.error("lent certificates have changed and can't be used; those from before stay in force",
              error=str(error))  # fmt: skip


def _where(error: Exception) -> str:
    """Say the line of a mistake in YAML, and not the parser's own words: they quote the line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return "" if mark is None else f":{mark.line + 1}"
