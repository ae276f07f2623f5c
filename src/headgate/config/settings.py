"""
Every setting of `headgate.properties`: a table of rows, and the typed, frozen object made from it.

The parser, the did-you-mean and `docs/reference/settings.md` read the same rows. To add a setting,
add a field with a row.
"""

# ruff: noqa: E501, RUF009 - a table's rows read best whole; each is made of a call

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from headgate.config import kinds as k
from headgate.config.console import ConsoleSettings
from headgate.config.kinds import UsageTarget
from headgate.config.listeners import Endpoint, HostPort, Listener, SecurityProtocol
from headgate.config.load import Loaded, read_file, read_properties
from headgate.config.ports import PortPlan
from headgate.config.security import ClientSecurity, Tls, ZooKeeperSecurity
from headgate.config.setting import Setting, filled, part, row, rows_of


# fmt: off
@dataclass(frozen=True, kw_only=True)
class Settings:
    """
    Everything `headgate.properties` says, defaults filled in.

    Quantities have the unit that their names say.

    Attributes beyond the table:
        listener_list: the listeners with protocol and addresses, in the file's order.
        ports: broker id -> port of each listener.
        warnings: what to say at start-up (deprecated settings, settings without effect).
    """

    # Listeners
    listeners: tuple[Endpoint, ...] = row("listeners", k.ENDPOINTS, (Endpoint("PLAINTEXT", HostPort("", 9092)),),
        "Where clients connect.", "Kafka", shown="PLAINTEXT://:9092")
    advertised_listeners: tuple[Endpoint, ...] | None = row("advertised.listeners", k.ENDPOINTS, None,
        "The addresses clients are told, moved by broker id like `listeners`; `{id}` in a host is the "
        "broker's id. Needed where a listener listens on every interface.", "Kafka", shown="`listeners`")
    listener_security_protocol_map: Mapping[str, SecurityProtocol] = row("listener.security.protocol.map", k.PROTOCOL_MAP,
        {str(protocol): protocol for protocol in SecurityProtocol},
        "Protocol of each listener name.", "Kafka")
    inter_broker_listener_name: str | None = row("inter.broker.listener.name", k.TEXT, None,
        "The listener that stays open to connections when the broker-wide limits are reached, while there "
        "is more than one listener.", "KIP-612")
    bootstrap_listener: tuple[Endpoint, ...] = row("headgate.bootstrap.listener", k.ENDPOINTS, (),
        "Extra ports that lead to any live broker; each takes the settings of the listener it is named "
        "after.")
    admin_listener: Endpoint | None = row("headgate.admin.listener", k.ENDPOINT, None,
        "Where the KIP-546 draft APIs (48, 49, 50) are served.")
    http_listener: HostPort | None = row("headgate.http.listener", k.ADDRESS, None,
        "Where `/metrics`, `/healthz` and `/readyz` are served.")
    metrics_quota_ids: int = row("headgate.metrics.quota.ids", k.integer(2), 1000,
        "Quota-ids of each broker and quota type, and addresses, that have series of their own in `/metrics`: the "
        "busiest, half of the places kept for those that a quota names. All others are shown as one sum.")
    quota_client_ids: int = row("headgate.quota.client.ids", k.integer(1), 10000,
        "Client-ids of one principal that are charged separately at a broker, besides those that a quota names. "
        "What comes beyond, while this many are in use, is charged together, as one client-id.")
    socket_request_max_bytes: int = row("socket.request.max.bytes", k.integer(1), 104857600,
        "Longest frame taken from a client; a longer one closes its connection.", "Kafka")
    # Differs: -1 as queued.max.request.bytes stands for a bound of 128 MiB; in Kafka for none.
    queued_max_request_bytes: int = row("queued.max.request.bytes", k.long(-1), None,
        "Most bytes a process holds in memory for all connections together: requests and answers that are collected "
        "whole, what muted clients have sent already, what waits to be sent. Connections that haven't "
        "authenticated take an eighth at most. When it is full, at most 8 KiB more are read of each connection, "
        "and the connection that holds most without progress for 5 s is closed. It must have room for the "
        "longest frame and a quarter more, and for 32 of the longest SASL tokens.",
        "Kafka", shown="134217728, or `socket.request.max.bytes` if that is more")
    socket_listen_backlog_size: int = row("socket.listen.backlog.size", k.integer(1), 50,
        "Connections that wait in the kernel's queue, as while accepting is delayed.", "Kafka")
    # Differs: Kafka's socket buffers are 102400 bytes unless set; Headgate's are the system's.
    socket_send_buffer_bytes: int = row("socket.send.buffer.bytes", k.integer(-1), -1,
        "Kernel's send buffer of a client's connection; -1 leaves its size to the system.", "Kafka")
    socket_receive_buffer_bytes: int = row("socket.receive.buffer.bytes", k.integer(-1), -1,
        "Kernel's receive buffer of a client's connection; -1 leaves its size to the system.", "Kafka")
    # Upstream
    upstream: tuple[HostPort, ...] | None = row("headgate.upstream", k.UPSTREAM, None,
        "Bootstrap servers of the cluster, or `embedded`: a real Apache Kafka started and stopped with "
        "the gateway.", per_listener=True, shown="embedded")
    broker_id_min: int = row("headgate.broker.id.min", k.integer(0), None,
        "Least broker id: the one at the listeners' own ports.",
        shown="1 embedded; else required unless `headgate.broker.ports` lists them")
    broker_id_max: int = row("headgate.broker.id.max", k.integer(0), None,
        "Greatest broker id that gets a port; a broker above it isn't exposed and is reported.",
        shown="as many as embedded brokers; else required unless `headgate.broker.ports` lists them")
    broker_ports: Mapping[int, int] = row("headgate.broker.ports", k.BROKER_PORTS, {},
        "Port of each broker id, instead of counting from the listener's port.", per_listener=True)
    upstream_security_protocol: SecurityProtocol | None = row("headgate.upstream.security.protocol", k.PROTOCOL, None,
        "Protocol in which clients' connections go on to the brokers.", per_listener=True, shown="the listener's")
    upstream_ssl: Tls = part(Tls, "headgate.upstream.", "the gateway's")
    upstream_credentials_file: str | None = row("headgate.upstream.credentials.file", k.PATH, None,
        "A YAML file that says with which SASL credentials or key store each mTLS client goes upstream: "
        "`credentials: [{principal: alice, sasl.mechanism: PLAIN, sasl.username: …, sasl.password: …}]`.")
    upstream_connect_timeout_ms: int = row("headgate.upstream.connect.timeout.ms", k.integer(1), 10000,
        "Longest wait for a broker to accept a connection.")
    upstream_refresh_ms: int = row("headgate.upstream.refresh.ms", k.integer(100), 30000,
        "How often the upstream's brokers are looked up, besides when an answer names a new one.")
    # Upstream: the gateway's own work
    upstream_admin: ClientSecurity = part(ClientSecurity, "headgate.upstream.admin.",
        "the gateway's own connections; unless it is given, that of clients' connections to the broker counts")
    # Upstream: shared credentials
    upstream_shared_enable: bool = row("headgate.upstream.shared.enable", k.BOOLEAN, False,
        "Let mTLS clients without credentials of their own use the ones below.")
    upstream_shared: ClientSecurity = part(ClientSecurity, "headgate.upstream.shared.", "shared connections")
    # Embedded Kafka
    embedded_brokers: int = row("headgate.embedded.brokers", k.integer(1, 9), 1,
        "Number of brokers.")
    embedded_dir: str = row("headgate.embedded.dir", k.PATH, None,
        "Where it keeps its data.", shown="`headgate.data.dir`/kafka")
    data_dir: str = row("headgate.data.dir", k.PATH, "headgate-data",
        "Folder for everything that has no place of its own, relative to where the gateway is started.")
    # Quota windows
    quota_window_num: int = row("quota.window.num", k.integer(1), 11,
        "Samples kept for produce, fetch, request and connection quotas.", "Kafka")
    quota_window_size_seconds: int = row("quota.window.size.seconds", k.integer(1), 1,
        "Length of each sample.", "Kafka")
    controller_quota_window_num: int = row("controller.quota.window.num", k.integer(1), 11,
        "Samples kept for controller mutation quotas.", "Kafka")
    controller_quota_window_size_seconds: int = row("controller.quota.window.size.seconds", k.integer(1), 1,
        "Length of each of those samples.", "Kafka")
    producer_id_quota_window_num: int = row("producer.id.quota.window.num", k.integer(1), 11,
        "Samples kept for producer-id quotas.", "KIP-936")
    producer_id_quota_window_size_seconds: int = row("producer.id.quota.window.size.seconds", k.integer(1), 1,
        "Length of each of those samples.", "KIP-936")
    producer_id_quota_cache_cleanup_scheduler_interval_ms: int = row(
        "producer.id.quota.cache.cleanup.scheduler.interval.ms", k.integer(1), 10,
        "How often users without live producer ids are dropped from the cache; the gateway does it once a "
        "second at most.", "KIP-936")
    producer_id_quota_cache_window_seconds: int = row("producer.id.quota.cache.window.seconds", k.integer(1), None,
        "How long a producer id counts as seen. 1 gives KIP-936's literal rule, which counts every active "
        "id again each second.", "Headgate (KIP-936 leaves it open)", shown="all samples together")
    # Quota defaults
    quota_producer_default: int = row("quota.producer.default", k.long(1), k.LONG_MAX,
        "Deprecated, use clients/<default>. Bytes per second and broker for producers that no other quota "
        "applies to.", "KIP-55", shown="9223372036854775807 (none)")
    quota_consumer_default: int = row("quota.consumer.default", k.long(1), k.LONG_MAX,
        "Deprecated, use clients/<default>. The same for consumers.", "KIP-55", shown="9223372036854775807 (none)")
    # Enforcement
    enforce: str = row("headgate.enforce", k.one_of("all", "missing", "observe"), None,
        "`all` throttles by every quota; `missing` only by those the upstream can't enforce (bps, shares, "
        "producer ids); `observe` measures and reports, and throttles nobody.",
        shown="all; missing if the store is the fronted cluster")
    quota_rules: str = row("headgate.quota.rules", k.one_of("4", "3.9"), "4",
        "Which Kafka's way of choosing a client's quota level: Kafka 4 stops considering a level when its last quota "
        "is removed, 3.9 considers it until restart.")
    fetch: str = row("headgate.fetch", k.one_of("deliver", "kafka"), "deliver",
        "`deliver` gives a violating fetch its records, then mutes, and holds the next ones of its "
        "quota-id until that is paid; `kafka` empties it as a broker does.")
    fetch_hold_max_ms: int = row("headgate.fetch.hold.max.ms", k.integer(0), 10000,
        "The longest a fetch is held; then it is answered empty. Keep it some seconds below the shortest "
        "request timeout of your consumers.")
    pacing: str = row("headgate.pacing", k.one_of("kafka", "smooth"), "kafka",
        "`kafka` throttles by sampled windows, in bursts; `smooth` by token bucket at the same long-run "
        "rate.")
    pacing_burst_seconds: float = row("headgate.pacing.burst.seconds", k.double(0, above=True), 1.0,
        "Seconds' worth of quota a smooth client may send at once.")
    pacing_burst_overrides: Mapping[str, float] = row("headgate.pacing.burst.overrides", k.BURSTS, {},
        "The same for single quotas, by the entity they are set for: `users/alice:10,users/<default>:2,"
        "users/bob/clients/<default>:30`. Names are percent-encoded, as in ZooKeeper's paths.")
    exempt_principals: frozenset[str] = row("headgate.exempt.principals", k.PRINCIPALS, frozenset(),
        "Principals that are measured and never throttled.")
    request_time: str = row("headgate.request.time", k.one_of("gateway", "upstream"), "gateway",
        "What `request_percentage` charges: the gateway's own time for a request, or the upstream's time "
        "to answer it without long polls, an estimate.")
    unknown_apis: str = row("headgate.unknown.apis", k.one_of("hide", "pass"), "hide",
        "API keys the gateway doesn't know: hidden from clients, or passed through unread.")
    capacity_producer_byte_rate: float | None = row("headgate.capacity.producer_byte_rate", k.double(0, above=True), None,
        "Bytes per second of producing a broker can take; `shares` are enforced only if it is set.")
    capacity_consumer_byte_rate: float | None = row("headgate.capacity.consumer_byte_rate", k.double(0, above=True), None,
        "The same for consuming.")
    splits: str = row("headgate.splits", k.one_of("local", "stream"), "local",
        "What divides cluster-wide quotas among brokers: this gateway, or `headgate splits` for a fleet.")
    splits_period_ms: int = row("headgate.splits.period.ms", k.integer(100), 5000,
        "How often a cluster-wide quota is divided again; a throttle by it lasts two periods at most.")
    splits_topic: str = row("headgate.splits.topic", k.TEXT, "__headgate_splits",
        "Topic of the splits.")
    # Connections
    max_connections: int = row("max.connections", k.integer(0), k.INT_MAX,
        "Connections per broker, and with a listener's prefix per listener.", "Kafka", True)
    max_connections_per_ip: int = row("max.connections.per.ip", k.integer(0), k.INT_MAX,
        "Connections per client address.", "Kafka")
    max_connections_per_ip_overrides: Mapping[str, int] = row("max.connections.per.ip.overrides", k.COUNTS, {},
        "The same for single addresses, of 1,000 at most.", "Kafka")
    max_connection_creation_rate: int = row("max.connection.creation.rate", k.integer(0), k.INT_MAX,
        "Connections accepted per second; above it accepting is delayed.", "KIP-612", True)
    connections_max_idle_ms: int = row("connections.max.idle.ms", k.long(-1), 600000,
        "An idle connection is closed after this long; -1 never. Muted time counts.", "Kafka", True)
    connection_failed_authentication_delay_ms: int = row("connection.failed.authentication.delay.ms", k.integer(0), 100,
        "How long a client that the gateway itself refuses waits for the answer and the close; a broker's "
        "own refusals come as late as that broker sends them. At most a thousand connections of a broker "
        "wait.", "KIP-306")
    handshake_timeout_ms: int = row("headgate.handshake.timeout.ms", k.integer(1), 30000,
        "A connection that hasn't finished TLS and authentication by then is closed.")
    # Identity
    super_users: frozenset[str] = row("super.users", k.PRINCIPALS, frozenset(),
        "May read and change quotas through the gateway.", "Kafka")
    admin_principals: frozenset[str] = row("headgate.admin.principals", k.PRINCIPALS, frozenset(),
        "May do the same, without being super users of the brokers.")
    principal_builder_class: str | None = row("principal.builder.class", k.CLASS, None,
        "A Python class that names a connection's principal, on PLAINTEXT too; given listener, protocol, "
        "peer address, TLS subject and SASL identity. It is asked for each connection, on the event loop: what "
        "waits there stops all traffic. What it raises refuses the client, a name of more than 8 KiB too.",
        "KIP-55", True, shown="Kafka's rules")
    sasl_enabled_mechanisms: tuple[str, ...] = row("sasl.enabled.mechanisms", k.WORDS,
        ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        "Mechanisms that pass. GSSAPI can't be observed and is refused.", "Kafka", True)
    sasl_oauthbearer_sub_claim_name: str = row("sasl.oauthbearer.sub.claim.name", k.TEXT, "sub",
        "Claim of an OAuth token that names the principal.", "Kafka", True)
    ssl_client_auth: str = row("ssl.client.auth", k.one_of("required", "requested", "none", fold=str.lower), "none",
        "Whether TLS clients must show a certificate.", "Kafka", True)
    ssl_principal_mapping_rules: tuple[str, ...] = row("ssl.principal.mapping.rules", k.RULES, ("DEFAULT",),
        "How a certificate's name becomes a principal.", "Kafka", True)
    # TLS for clients
    ssl: Tls = part(Tls, "", "the gateway's", "Kafka", per_listener=True, without=("endpoint_identification_algorithm",))
    # Store
    store: str = row("headgate.store", k.STORE, None,
        "The store.", shown="sqlite:`headgate.data.dir`/quotas.db")
    store_required: bool = row("headgate.store.required", k.BOOLEAN, True,
        "Refuse to serve when neither the store nor the last snapshot can be read.")
    store_snapshot: str = row("headgate.store.snapshot", k.PATH, None,
        "Where the last known quotas are kept.", shown="`headgate.data.dir`/snapshot.json")
    store_poll_ms: int = row("headgate.store.poll.ms", k.integer(100), 5000,
        "How often a Kafka store looks for changes made by others.")
    store_kafka: ClientSecurity = part(ClientSecurity, "headgate.store.kafka.", "a `kafka://` store")
    zookeeper: ZooKeeperSecurity = part(ZooKeeperSecurity, source="Headgate")
    # Leases
    lease_ttl_ms: int = row("headgate.lease.ttl.ms", k.integer(1000), 10000,
        "A worker that hasn't renewed its lease for this long is replaced.")
    worker_id: str | None = row("headgate.worker.id", k.TEXT, None,
        "Name of this gateway in leases and in the journal; its own for each process. `--brokers` are "
        "added to it.", shown="host name and what `headgate.data.dir`/workers keeps over restarts")
    worker_hang_timeout_ms: int = row("headgate.worker.hang.timeout.ms", k.integer(0), 30000,
        "A worker process that says nothing to its supervisor for this long is killed and started again "
        "(`--process-per-broker`). A gateway that was told to end, and takes longer than "
        "`headgate.drain.timeout.ms` by this time, ends at once. 0: never.")
    drain_timeout_ms: int = row("headgate.drain.timeout.ms", k.integer(0), 30000,
        "On SIGTERM, how long requests in flight may take to finish.")
    # Logs
    log_format: str = row("headgate.log.format", k.one_of("text", "json"), "text",
        "How `headgate serve` writes log lines to stderr: an event with `key=value` fields, or a JSON "
        "object per line.")
    # Usage journal
    usage: UsageTarget = row("headgate.usage", k.USAGE, None,
        "Where events go.", shown="files:`headgate.data.dir`/usage")
    usage_batch_ms: int = row("headgate.usage.batch.ms", k.integer(10, 1000), 1000,
        "Longest time an event waits to be written: what a kill can lose.")
    usage_roll_bytes: int = row("headgate.usage.roll.bytes", k.long(65536), 67108864,
        "A file is closed at this size.")
    usage_retention_bytes: int = row("headgate.usage.retention.bytes", k.long(0), 10737418240,
        "Oldest files go when all together are larger; 0 keeps everything.")
    # Console
    console: ConsoleSettings = part(ConsoleSettings, "headgate.console.", source="Headgate")
    # fmt: on
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
        return cls._of(read_properties(properties, SETTINGS))

    @classmethod
    def from_file(cls, path: str | Path) -> Settings:
        """
        Read a settings file, UTF-8.

        Raises:
            ConfigError: the file can't be read, or every mistake in it, in the file's order, each
                with its line.
        """
        return cls._of(read_file(path, SETTINGS))

    @classmethod
    def _of(cls, loaded: Loaded) -> Settings:
        whole = filled(cls, loaded.values, **loaded.made)
        views = {
            name.upper(): filled(cls, {**loaded.values, **own}, **loaded.made)
            for name, own in loaded.by_listener.items()
        }
        return replace(whole, by_listener=views)

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


SETTINGS: Final[tuple[Setting, ...]] = tuple(rows_of(Settings))
BY_NAME: Final[Mapping[str, Setting]] = {setting.name: setting for setting in SETTINGS}

load_settings = Settings.from_file
