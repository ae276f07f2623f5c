"""The frozen settings everything else is given: typed, complete, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.config.kinds import Password, UsageTarget
from headgate.config.listeners import Endpoint, HostPort, Listener, SecurityProtocol
from headgate.config.ports import PortPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """One side's TLS: key store, trust store, versions. Names after Kafka's ``ssl.*``."""

    keystore_location: str | None
    keystore_type: str
    keystore_password: Password | None
    keystore_certificate_chain: str | None
    keystore_key: Password | None
    key_password: Password | None
    truststore_location: str | None
    truststore_type: str
    truststore_password: Password | None
    truststore_certificates: str | None
    enabled_protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    endpoint_identification_algorithm: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """Credentials with which the gateway itself calls a cluster."""

    security_protocol: SecurityProtocol
    sasl_mechanism: str
    sasl_username: str | None
    sasl_password: Password | None
    ssl: Tls


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSecurity:
    """How the ZooKeeper store connects; Kafka's ``zookeeper.*``."""

    sasl_username: str | None
    sasl_password: Password | None
    session_timeout_ms: int
    set_acl: bool
    ssl_enable: bool
    keystore_location: str | None
    keystore_password: Password | None
    truststore_location: str | None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """
    Everything `headgate.properties` says, defaults filled in.

    A field is a setting of `table.py`: the name without ``headgate.``, dots as underscores.
    Quantities keep the unit of their name.

    Attributes beyond the table:
        listener_list: the listeners with protocol and addresses, in the file's order.
        ports: broker id -> port of each listener.
        warnings: what to say at start-up (deprecated settings, settings without effect).
    """

    # Listeners
    listeners: tuple[Endpoint, ...]
    advertised_listeners: tuple[Endpoint, ...] | None
    listener_security_protocol_map: Mapping[str, SecurityProtocol]
    inter_broker_listener_name: str | None
    bootstrap_listener: tuple[Endpoint, ...]
    admin_listener: Endpoint | None
    http_listener: HostPort | None
    metrics_quota_ids: int
    socket_request_max_bytes: int
    queued_max_request_bytes: int
    socket_listen_backlog_size: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    # Upstream
    upstream: tuple[HostPort, ...] | None
    """None is embedded."""
    broker_id_min: int
    broker_id_max: int
    broker_ports: Mapping[int, int]
    upstream_security_protocol: SecurityProtocol | None
    """None is the listener's own."""
    upstream_ssl: Tls
    upstream_credentials_file: str | None
    upstream_connect_timeout_ms: int
    upstream_refresh_ms: int
    upstream_admin: ClientSecurity
    upstream_shared_enable: bool
    upstream_shared: ClientSecurity
    embedded_brokers: int
    embedded_dir: str
    data_dir: str
    # Quota windows and defaults
    quota_window_num: int
    quota_window_size_seconds: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    producer_id_quota_window_num: int
    producer_id_quota_window_size_seconds: int
    producer_id_quota_cache_cleanup_scheduler_interval_ms: int
    producer_id_quota_cache_window_seconds: int
    quota_producer_default: int
    quota_consumer_default: int
    # Enforcement
    enforce: str
    quota_rules: str
    fetch: str
    fetch_hold_max_ms: int
    pacing: str
    pacing_burst_seconds: float
    pacing_burst_overrides: Mapping[str, float]
    exempt_principals: frozenset[str]
    request_time: str
    unknown_apis: str
    capacity_producer_byte_rate: float | None
    capacity_consumer_byte_rate: float | None
    splits: str
    splits_period_ms: int
    splits_topic: str
    # Connections
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    max_connection_creation_rate: int
    connections_max_idle_ms: int
    connection_failed_authentication_delay_ms: int
    handshake_timeout_ms: int
    # Identity
    super_users: frozenset[str]
    admin_principals: frozenset[str]
    principal_builder_class: str | None
    sasl_enabled_mechanisms: tuple[str, ...]
    sasl_oauthbearer_sub_claim_name: str
    ssl_client_auth: str
    ssl_principal_mapping_rules: tuple[str, ...]
    ssl: Tls
    # Store, leases, journal
    store: str
    store_required: bool
    store_snapshot: str
    store_poll_ms: int
    store_kafka: ClientSecurity
    zookeeper: ZooKeeperSecurity
    lease_ttl_ms: int
    worker_id: str | None
    worker_hang_timeout_ms: int
    drain_timeout_ms: int
    log_format: str
    usage: UsageTarget
    usage_batch_ms: int
    usage_roll_bytes: int
    usage_retention_bytes: int
    # Made from the rest
    listener_list: tuple[Listener, ...] = ()
    ports: PortPlan = field(default_factory=PortPlan)
    warnings: tuple[str, ...] = ()
    given: frozenset[str] = frozenset()
    """Names the file gave, with their listener prefix."""
    by_listener: Mapping[str, Settings] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Settings:
        """
        Build settings from names and texts, as if read from a file.

        Raises:
            ConfigError: every mistake at once.
        """
        from headgate.config.load import settings_of

        return settings_of(properties)

    def for_listener(self, name: str) -> Settings:
        """Return these settings with ``listener.name.<name>.…`` in force (Kafka's prefix rule)."""
        return self.by_listener.get(name.upper(), self)

    @property
    def embedded(self) -> bool:
        """True where the upstream is the embedded Kafka."""
        return self.upstream is None

    @property
    def quota_window_ms(self) -> int:
        """Length of one sample, ms."""
        return self.quota_window_size_seconds * 1000

    def protocol_of(self, listener: str) -> SecurityProtocol:
        """Return the protocol of a listener name."""
        return self.listener_security_protocol_map[listener.upper()]

    def limit_given(self, name: str, listener: str | None = None) -> bool:
        """True if the file gives ``name``, with that listener's prefix if one is named."""
        prefix = f"listener.name.{listener.lower()}." if listener else ""
        return prefix + name in self.given

    def value_of(self, path: tuple[str, ...]) -> Any:
        """Return the value at a `Setting.path`."""
        value: Any = self
        for attribute in path:
            value = getattr(value, attribute)
        return value
