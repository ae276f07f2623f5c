"""
Every setting of `headgate.properties`, as data: name, kind, default, meaning, source.

The parser, the frozen `Settings`, the did-you-mean and `docs/reference/settings.md` all read this
table. To add a setting: a row here and a field of the same name in `settings.py`; a test holds them
together.
"""

# ruff: noqa: E501 - a table's rows read best whole

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headgate.config import kinds as k
from headgate.config.listeners import Endpoint, HostPort, SecurityProtocol


@dataclass(frozen=True, slots=True)
class Setting:
    """
    One row of the table.

    Args:
        name: as written in the file.
        kind: how its text is read.
        default: the parsed value when the line is absent; None is "not set".
        doc: what it does, for the reference; one or two sentences.
        source: ``Kafka`` (its name and meaning are Kafka's), a KIP, or ``Headgate``.
        per_listener: may be written ``listener.name.<name>.<setting>``.
        shown: the default in words, where the value alone would mislead.
        field: where it lives in `Settings`, dots for nesting; derived from the name if "".
    """

    name: str
    kind: k.Kind
    default: Any
    doc: str
    source: str = "Headgate"
    per_listener: bool = False
    shown: str = ""
    field: str = ""

    @property
    def path(self) -> tuple[str, ...]:
        """The attribute names that lead to it in `Settings`."""
        if self.field:
            return tuple(self.field.split("."))
        return (self.name.removeprefix("headgate.").replace(".", "_"),)

    @property
    def default_text(self) -> str:
        """The default as the reference prints it."""
        if self.shown:
            return self.shown
        if self.default is None:
            return "not set"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if isinstance(self.default, dict):
            return ",".join(f"{key}:{value}" for key, value in self.default.items()) or "none"
        if isinstance(self.default, tuple | frozenset):
            return ",".join(str(item) for item in self.default) or "none"
        return str(self.default)


@dataclass(frozen=True, slots=True)
class Group:
    """A heading of the reference and the settings under it."""

    title: str
    intro: str
    settings: tuple[Setting, ...]


def _tls(prefix: str, field: str, whose: str, *, server: bool) -> Iterator[Setting]:
    """The ``ssl.*`` rows of one side; Kafka's names after the prefix."""

    def row(name: str, kind: k.Kind, default: Any, doc: str, shown: str = "") -> Setting:
        attribute = name.removeprefix("ssl.").replace(".", "_")
        source = "Kafka" if server else "Headgate, after Kafka"
        return Setting(
            f"{prefix}{name}", kind, default, doc, source, server, shown, f"{field}.{attribute}"
        )

    yield row("ssl.keystore.location", k.PATH, None, f"Key store with {whose} certificate and key.")
    yield row("ssl.keystore.type", k.one_of("PKCS12", "PEM", fold=str.upper), "PKCS12",
              "Form of the key store. JKS can't be read: convert it with `keytool -importkeystore`.")  # fmt: skip
    yield row("ssl.keystore.password", k.PASSWORD, None, "Password of the key store.")
    yield row("ssl.keystore.certificate.chain", k.TEXT, None, "Certificate chain as PEM text, instead of a key store.")  # fmt: skip
    yield row("ssl.keystore.key", k.PASSWORD, None, "Private key as PEM text, instead of a key store.")  # fmt: skip
    yield row("ssl.key.password", k.PASSWORD, None, "Password of the private key.")
    yield row("ssl.truststore.location", k.PATH, None, "Certificates of the authorities trusted.")
    yield row("ssl.truststore.type", k.one_of("PKCS12", "PEM", fold=str.upper), "PKCS12", "Form of the trust store.")  # fmt: skip
    yield row("ssl.truststore.password", k.PASSWORD, None, "Password of the trust store.")
    yield row("ssl.truststore.certificates", k.TEXT, None, "Trusted certificates as PEM text, instead of a trust store.")  # fmt: skip
    yield row(
        "ssl.enabled.protocols",
        k.WORDS,
        ("TLSv1.2", "TLSv1.3"),
        "TLS versions offered: `TLSv1.2`, `TLSv1.3`. Older names are skipped.",
    )
    yield row("ssl.cipher.suites", k.WORDS, (), "TLS 1.2 cipher suites allowed; those of TLS 1.3 always are. Only ones of TLS 1.3: nothing older is spoken.", "the system's")  # fmt: skip
    if not server:
        yield row("ssl.endpoint.identification.algorithm", k.one_of("https", "", fold=str.lower), "https",
                  "`https` checks that the broker's certificate bears its host name; empty doesn't.")  # fmt: skip


def _client(prefix: str, field: str, whose: str) -> Iterator[Setting]:
    """The rows of one set of credentials with which the gateway itself calls a cluster."""

    def row(name: str, kind: k.Kind, default: Any, doc: str) -> Setting:
        attribute = name.replace(".", "_")
        return Setting(f"{prefix}{name}", kind, default, doc, "Headgate, after Kafka", False, "",
                       f"{field}.{attribute}")  # fmt: skip

    yield row("security.protocol", k.PROTOCOL, SecurityProtocol.PLAINTEXT, f"Protocol of {whose}.")
    yield row("sasl.mechanism", k.one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", fold=str.upper),
              "PLAIN", "SASL mechanism.")  # fmt: skip
    yield row("sasl.username", k.TEXT, None, "User name.")
    yield row("sasl.password", k.PASSWORD, None, "Password.")
    yield from _tls(prefix, f"{field}.ssl", "the client's", server=False)


GROUPS: tuple[Group, ...] = (
    Group(
        "Listeners",
        "One port per broker and listener: broker *id* is at the listener's port + id - `headgate.broker.id.min`.",
        (
            Setting("listeners", k.ENDPOINTS, (Endpoint("PLAINTEXT", HostPort("", 9092)),),
                    "Where clients connect.", "Kafka", shown="PLAINTEXT://:9092"),
            Setting("advertised.listeners", k.ENDPOINTS, None,
                    "The addresses clients are told, moved by broker id like `listeners`. Needed where a listener "
                    "listens on every interface.", "Kafka", shown="`listeners`"),
            Setting("listener.security.protocol.map", k.PROTOCOL_MAP,
                    {str(protocol): protocol for protocol in SecurityProtocol},
                    "Protocol of each listener name.", "Kafka"),
            Setting("inter.broker.listener.name", k.TEXT, None,
                    "The listener that stays open to connections when the broker-wide limits are reached, while there "
                    "is more than one listener.", "KIP-612"),
            Setting("headgate.bootstrap.listener", k.ENDPOINTS, (),
                    "Extra ports that lead to any live broker; each takes the settings of the listener it is named "
                    "after."),
            Setting("headgate.admin.listener", k.ENDPOINT, None,
                    "Where the KIP-546 draft APIs (48, 49, 50) are served."),
            Setting("headgate.http.listener", k.ADDRESS, None,
                    "Where `/metrics`, `/healthz` and `/readyz` are served."),
            Setting("headgate.metrics.quota.ids", k.integer(2), 1000,
                    "Quota-ids of each broker and quota type, and addresses, that have series of their own in `/metrics`: the "
                    "busiest, half of the places kept for those that a quota names. All others are shown as one sum."),
            Setting("socket.request.max.bytes", k.integer(1), 104857600,
                    "Longest frame taken from a client; a longer one closes its connection.", "Kafka"),
            # Differs: -1 as queued.max.request.bytes stands for a bound of 128 MiB; in Kafka for none.
            Setting("queued.max.request.bytes", k.long(-1), None,
                    "Most bytes a process holds in memory for all connections together: requests and answers that are collected "
                    "whole, what muted clients have sent already, what waits to be sent. Connections that haven't "
                    "authenticated take an eighth at most. Where it is full nobody is read any further but "
                    "for 8 KiB each, and the largest holder without progress for 5 s is closed. Room for the longest "
                    "frame and a quarter more; for 32 of the longest SASL tokens at once.", "Kafka",
                    shown="134217728, or `socket.request.max.bytes` if that is more"),
            Setting("socket.listen.backlog.size", k.integer(1), 50,
                    "Connections that wait in the kernel's queue, as while accepting is delayed.", "Kafka"),
            # Differs: Kafka's socket buffers are 102400 bytes unless set; Headgate's are the system's.
            Setting("socket.send.buffer.bytes", k.integer(-1), -1,
                    "Kernel's send buffer of a client's connection; -1 leaves its size to the system.", "Kafka"),
            Setting("socket.receive.buffer.bytes", k.integer(-1), -1,
                    "Kernel's receive buffer of a client's connection; -1 leaves its size to the system.", "Kafka"),
        ),
    ),
    Group(
        "Upstream",
        "The cluster in front of which the gateway stands.",
        (
            Setting("headgate.upstream", k.UPSTREAM, None,
                    "Bootstrap servers of the cluster, or `embedded`: a real Apache Kafka started and stopped with "
                    "the gateway.", per_listener=True, shown="embedded"),
            Setting("headgate.broker.id.min", k.integer(0), None,
                    "Least broker id: the one at the listeners' own ports.",
                    shown="1 embedded; else required unless `headgate.broker.ports` lists them"),
            Setting("headgate.broker.id.max", k.integer(0), None,
                    "Greatest broker id that gets a port; a broker above it isn't exposed and is reported.",
                    shown="as many as embedded brokers; else required unless `headgate.broker.ports` lists them"),
            Setting("headgate.broker.ports", k.BROKER_PORTS, {},
                    "Port of each broker id, instead of counting from the listener's port.", per_listener=True),
            Setting("headgate.upstream.security.protocol", k.PROTOCOL, None,
                    "Protocol in which clients' connections go on to the brokers.",
                    per_listener=True, shown="the listener's"),
            *_tls("headgate.upstream.", "upstream_ssl", "the gateway's", server=False),
            Setting("headgate.upstream.credentials.file", k.PATH, None,
                    "A YAML file that says with which SASL credentials or key store each mTLS client goes upstream: "
                    "`credentials: [{principal: alice, sasl.mechanism: PLAIN, sasl.username: …, sasl.password: …}]`."),
            Setting("headgate.upstream.connect.timeout.ms", k.integer(1), 10000,
                    "Longest wait for a broker to accept a connection."),
            Setting("headgate.upstream.refresh.ms", k.integer(100), 30000,
                    "How often the upstream's brokers are looked up, besides when an answer names a new one."),
        ),
    ),
    Group(
        "Upstream: the gateway's own work",
        "Credentials for what the gateway does for itself (discovery, the Kafka store, journal topics). Never lent to a client.",
        tuple(_client("headgate.upstream.admin.", "upstream_admin", "the gateway's own connections")),
    ),
    Group(
        "Upstream: shared credentials",
        "How clients that authenticate by mTLS go upstream when nothing is mapped to their principal. Unset: they are refused.",
        (
            Setting("headgate.upstream.shared.enable", k.BOOLEAN, False,
                    "Let mTLS clients without credentials of their own use the ones below.",
                    field="upstream_shared_enable"),
            *_client("headgate.upstream.shared.", "upstream_shared", "shared connections"),
        ),
    ),
    Group(
        "Embedded Kafka",
        "The upstream `embedded`: for trying things, tests and the demo.",
        (
            Setting("headgate.embedded.brokers", k.integer(1, 9), 1, "Number of brokers."),
            Setting("headgate.embedded.dir", k.PATH, None, "Where it keeps its data.",
                    shown="`headgate.data.dir`/kafka"),
            Setting("headgate.data.dir", k.PATH, "headgate-data",
                    "Folder for everything that has no place of its own, relative to where the gateway is started."),
        ),
    ),
    Group(
        "Quota windows",
        "Samples and their length, as on a broker: `num` samples of `size` seconds, the newest of them running.",
        (
            Setting("quota.window.num", k.integer(1), 11,
                    "Samples kept for produce, fetch, request and connection quotas.", "Kafka"),
            Setting("quota.window.size.seconds", k.integer(1), 1, "Length of each sample.", "Kafka"),
            Setting("controller.quota.window.num", k.integer(1), 11,
                    "Samples kept for controller mutation quotas.", "Kafka"),
            Setting("controller.quota.window.size.seconds", k.integer(1), 1,
                    "Length of each of those samples.", "Kafka"),
            Setting("producer.id.quota.window.num", k.integer(1), 11,
                    "Samples kept for producer-id quotas.", "KIP-936"),
            Setting("producer.id.quota.window.size.seconds", k.integer(1), 1,
                    "Length of each of those samples.", "KIP-936"),
            Setting("producer.id.quota.cache.cleanup.scheduler.interval.ms", k.integer(1), 10,
                    "How often users without live producer ids are dropped from the cache; the gateway does it once a "
                    "second at most.", "KIP-936"),
            Setting("producer.id.quota.cache.window.seconds", k.integer(1), None,
                    "How long a producer id counts as seen. 1 gives KIP-936's literal rule, which counts every active "
                    "id again each second.", "Headgate (KIP-936 leaves it open)",
                    shown="all samples together"),
        ),
    ),
    Group(
        "Quota defaults",
        "KIP-55's last resort, removed from Kafka in 3.0.",
        (
            Setting("quota.producer.default", k.long(1), k.LONG_MAX,
                    "Deprecated, use clients/<default>. Bytes per second and broker for producers whom no other quota "
                    "reaches.", "KIP-55", shown="9223372036854775807 (none)"),
            Setting("quota.consumer.default", k.long(1), k.LONG_MAX,
                    "Deprecated, use clients/<default>. The same for consumers.", "KIP-55",
                    shown="9223372036854775807 (none)"),
        ),
    ),
    Group(
        "Enforcement",
        "What the gateway does about a violated quota.",
        (
            Setting("headgate.enforce", k.one_of("all", "missing", "observe"), None,
                    "`all` throttles by every quota; `missing` only by those the upstream can't enforce (bps, shares, "
                    "producer ids); `observe` measures and reports, and throttles nobody.",
                    shown="all; missing if the store is the fronted cluster"),
            Setting("headgate.quota.rules", k.one_of("4", "3.9"), "4",
                    "Whose way of choosing a client's quota level: in Kafka 4 a level goes with its last quota, in 3.9 "
                    "it stays in use until restart."),
            Setting("headgate.fetch", k.one_of("deliver", "kafka"), "deliver",
                    "`deliver` gives a violating fetch its records, then mutes, and holds the next ones of its "
                    "quota-id until that is paid; `kafka` empties it as a broker does."),
            Setting("headgate.fetch.hold.max.ms", k.integer(0), 10000,
                    "The longest a fetch is held; then it is answered empty. Keep it some seconds below the shortest "
                    "request timeout of your consumers."),
            Setting("headgate.pacing", k.one_of("kafka", "smooth"), "kafka",
                    "`kafka` throttles by sampled windows, in bursts; `smooth` by token bucket at the same long-run "
                    "rate."),
            Setting("headgate.pacing.burst.seconds", k.double(0, above=True), 1.0,
                    "Seconds' worth of quota a smooth client may send at once."),
            Setting("headgate.pacing.burst.overrides", k.BURSTS, {},
                    "The same for single quotas, by the entity they are set for: `users/alice:10,users/<default>:2,"
                    "users/bob/clients/<default>:30`. Names are percent-encoded, as in ZooKeeper's paths."),
            Setting("headgate.exempt.principals", k.PRINCIPALS, frozenset(),
                    "Principals that are measured and never throttled."),
            Setting("headgate.request.time", k.one_of("gateway", "upstream"), "gateway",
                    "What `request_percentage` charges: the gateway's own time for a request, or the upstream's time "
                    "to answer it without long polls, an estimate."),
            Setting("headgate.unknown.apis", k.one_of("hide", "pass"), "hide",
                    "API keys the gateway doesn't know: hidden from clients, or passed through unread."),
            Setting("headgate.capacity.producer_byte_rate", k.double(0, above=True), None,
                    "Bytes per second of producing a broker can take; `shares` are enforced only if it is set."),
            Setting("headgate.capacity.consumer_byte_rate", k.double(0, above=True), None,
                    "The same for consuming."),
            Setting("headgate.splits", k.one_of("local", "stream"), "local",
                    "Who divides cluster-wide quotas among brokers: this gateway, or `headgate splits` for a fleet."),
            Setting("headgate.splits.period.ms", k.integer(100), 5000,
                    "How often a cluster-wide quota is divided anew; a throttle by it lasts two periods at most."),
            Setting("headgate.splits.topic", k.TEXT, "__headgate_splits", "Topic the divisions travel in."),
        ),
    ),
    Group(
        "Connections",
        "Limits on connections (KIP-402, KIP-612). All but the three last also change while it runs, through "
        "`kafka-configs --entity-type brokers`. Like Kafka, a broker-wide value is also the limit of every listener "
        "without its own.",
        (
            Setting("max.connections", k.integer(0), k.INT_MAX,
                    "Connections per broker, and with a listener's prefix per listener.", "Kafka", True),
            Setting("max.connections.per.ip", k.integer(0), k.INT_MAX,
                    "Connections per client address.", "Kafka"),
            Setting("max.connections.per.ip.overrides", k.COUNTS, {},
                    "The same for single addresses.", "Kafka"),
            Setting("max.connection.creation.rate", k.integer(0), k.INT_MAX,
                    "Connections accepted per second; above it accepting is delayed.", "KIP-612", True),
            Setting("connections.max.idle.ms", k.long(-1), 600000,
                    "An idle connection is closed after this long; -1 never. Muted time counts.", "Kafka", True),
            Setting("connection.failed.authentication.delay.ms", k.integer(0), 100,
                    "How long a client that the gateway itself refuses waits for the answer and the close; a broker's "
                    "own refusals come as late as that broker sends them. At most a thousand connections of a broker "
                    "wait.", "KIP-306"),
            Setting("headgate.handshake.timeout.ms", k.integer(1), 30000,
                    "A connection that hasn't finished TLS and authentication by then is closed."),
        ),
    ),
    Group(
        "Identity",
        "Who a client is: what quotas are looked up by.",
        (
            Setting("super.users", k.PRINCIPALS, frozenset(),
                    "May read and change quotas through the gateway.", "Kafka"),
            Setting("headgate.admin.principals", k.PRINCIPALS, frozenset(),
                    "May do the same, without being super users of the brokers."),
            Setting("principal.builder.class", k.CLASS, None,
                    "A Python class that names a connection's principal, on PLAINTEXT too; given listener, protocol, "
                    "peer address, TLS subject and SASL identity. It is asked for each connection, on the event loop: what "
                    "waits there stops all traffic. What it raises refuses the client, a name of more than 8 KiB too.",
                    "KIP-55", True, shown="Kafka's rules"),
            Setting("sasl.enabled.mechanisms", k.WORDS, ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
                    "Mechanisms that pass. GSSAPI can't be observed and is refused.", "Kafka", True),
            Setting("sasl.oauthbearer.sub.claim.name", k.TEXT, "sub",
                    "Claim of an OAuth token that names the principal.", "Kafka", True),
            Setting("ssl.client.auth", k.one_of("required", "requested", "none", fold=str.lower), "none",
                    "Whether TLS clients must show a certificate.", "Kafka", True),
            Setting("ssl.principal.mapping.rules", k.RULES, ("DEFAULT",),
                    "How a certificate's name becomes a principal.", "Kafka", True),
        ),
    ),
    Group("TLS for clients", "The gateway's side of encrypted listeners.", tuple(_tls("", "ssl", "the gateway's", server=True))),
    Group(
        "Store",
        "Where quotas live.",
        (
            Setting("headgate.store", k.STORE, None, "The store.", shown="sqlite:`headgate.data.dir`/quotas.db"),
            Setting("headgate.store.required", k.BOOLEAN, True,
                    "Refuse to serve when neither the store nor the last snapshot can be read."),
            Setting("headgate.store.snapshot", k.PATH, None, "Where the last known quotas are kept.",
                    shown="`headgate.data.dir`/snapshot.json"),
            Setting("headgate.store.poll.ms", k.integer(100), 5000,
                    "How often a Kafka store looks for changes made by others."),
            *_client("headgate.store.kafka.", "store_kafka", "a `kafka://` store"),
            Setting("headgate.store.zookeeper.sasl.username", k.TEXT, None, "ZooKeeper DIGEST-MD5 user.",
                    field="zookeeper.sasl_username"),
            Setting("headgate.store.zookeeper.sasl.password", k.PASSWORD, None, "Its password.",
                    field="zookeeper.sasl_password"),
            Setting("zookeeper.session.timeout.ms", k.integer(1), 18000, "ZooKeeper session timeout.", "Kafka 3.9",
                    field="zookeeper.session_timeout_ms"),
            Setting("zookeeper.set.acl", k.BOOLEAN, False, "Give znodes ACLs that only the creator may change.",
                    "Kafka 3.9", field="zookeeper.set_acl"),
            Setting("zookeeper.ssl.client.enable", k.BOOLEAN, False, "Speak TLS to ZooKeeper.", "Kafka 3.9",
                    field="zookeeper.ssl_enable"),
            Setting("zookeeper.ssl.keystore.location", k.PATH, None, "Key store (PEM) for ZooKeeper.", "Kafka 3.9",
                    field="zookeeper.keystore_location"),
            Setting("zookeeper.ssl.keystore.password", k.PASSWORD, None, "Its password.", "Kafka 3.9",
                    field="zookeeper.keystore_password"),
            Setting("zookeeper.ssl.truststore.location", k.PATH, None, "Trusted certificates (PEM) for ZooKeeper.",
                    "Kafka 3.9", field="zookeeper.truststore_location"),
        ),
    ),
    Group(
        "Leases",
        "Each broker is fronted by exactly one live worker.",
        (
            Setting("headgate.lease.ttl.ms", k.integer(1000), 10000,
                    "A worker that hasn't renewed its lease for this long is replaced."),
            Setting("headgate.worker.id", k.TEXT, None,
                    "Name of this gateway in leases and in the journal; its own for each process. `--brokers` are "
                    "added to it.", shown="host name and what `headgate.data.dir`/workers keeps over restarts"),
            Setting("headgate.worker.hang.timeout.ms", k.integer(0), 30000,
                    "A worker process that says nothing to its supervisor for this long is killed and started again "
                    "(`--process-per-broker`), and a gateway that was told to end and takes so much longer than "
                    "`headgate.drain.timeout.ms` ends at once; 0: never."),
            Setting("headgate.drain.timeout.ms", k.integer(0), 30000,
                    "On SIGTERM, how long requests in flight may take to finish."),
        ),
    ),
    Group(
        "Logs",
        "What the gateway says while it runs. Connection closes are logged ten a minute for each reason, refusals for each principal and API; another line tells how many were left out, and metrics count all.",
        (
            Setting("headgate.log.format", k.one_of("text", "json"), "text",
                    "How `headgate serve` writes log lines to stderr: an event with `key=value` fields, or a JSON "
                    "object per line."),
        ),
    ),
    Group(
        "Usage journal",
        "What was charged to whom, for the pipeline.",
        (
            Setting("headgate.usage", k.USAGE, None, "Where events go.", shown="files:`headgate.data.dir`/usage"),
            Setting("headgate.usage.batch.ms", k.integer(10, 1000), 1000,
                    "Longest time an event waits to be written: what a kill can lose."),
            Setting("headgate.usage.roll.bytes", k.long(65536), 67108864, "A file is closed at this size."),
            Setting("headgate.usage.retention.bytes", k.long(0), 10737418240,
                    "Oldest files go when all together are larger; 0 keeps everything."),
        ),
    ),
)  # fmt: skip

SETTINGS: tuple[Setting, ...] = tuple(setting for group in GROUPS for setting in group.settings)
BY_NAME: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}

BROKER_ONLY: tuple[str, ...] = (
    "alter.", "authorizer.", "auto.", "background.", "broker.", "client.", "compression.", "config.", "controlled.",
    "controller.listener.", "controller.quorum.", "create.", "default.", "delegation.", "delete.", "early.", "fetch.",
    "follower.", "group.", "initial.", "inter.broker.protocol", "kafka.metrics.", "leader.", "log.", "log4j.",
    "message.", "metadata.", "metric.", "metrics.", "min.insync.", "node.id", "num.", "offset.", "offsets.", "password.",
    "process.roles", "producer.purgatory.", "queued.", "remote.", "replica.", "replication.", "request.timeout.",
    "reserved.", "rlmm.", "rsm.", "security.inter.broker.protocol", "share.", "socket.connection.", "telemetry.",
    "transaction.", "transactional.", "unclean.", "unstable.", "zookeeper.", "plain.", "scram-sha-", "oauthbearer.", "gssapi.",
    "sasl.jaas.", "sasl.kerberos.", "sasl.login.", "sasl.mechanism.", "sasl.oauthbearer.", "sasl.server.", "ssl.allow.",
    "ssl.engine.", "ssl.keymanager.", "ssl.protocol", "ssl.provider", "ssl.secure.", "ssl.trustmanager.",
)  # fmt: skip
"""Beginnings of Kafka settings that mean nothing to a gateway: a copied server.properties gets a warning, not an error."""
