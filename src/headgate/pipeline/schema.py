"""
Say what every table of the pipeline holds: columns, types, units, grain.

One constant per table. Times are epoch milliseconds, UTC, unless a column says so; what is written
has each as a TIMESTAMP besides, and the UTC day of the first (``Table.timed``).
"""

from __future__ import annotations

from typing import Final

from headgate.pipeline.bill_tables import FOCUS, LOG_DIRS
from headgate.pipeline.table import Column, Table, make_table

_QUOTA_ID: Final = """
    quota_type string: quota type the row is about: producer_byte_rate, consumer_byte_rate,
        request_percentage, controller_mutation_rate, producer_ids_rate, connection_creation_rate
    quota_id string: who shares the quota: `<sanitised user>:<client-id>`, an empty side = not part
        of it
    quota_user string: user tag of the quota-id, raw; '' = not part
    quota_client_id string: client-id tag of the quota-id, raw; '' = not part
"""

RECORDED: Final = make_table(
    "recorded",
    "What a gateway's journal says about the quota that a row was charged to.",
    """
    quota_user string: user tag of the quota-id it was charged to, raw; null = it was charged to
        none
    quota_client_id string: client-id tag of that quota-id, raw
    quota double: limit in force then, in the quota's unit per second; infinite = none
    op int: what was done: 0 charged and checked, 1 charged and not checked, 2 taken back, 4 the
        limit became `asked`, 5 checked first and then charged unless refused
    num_samples int: quota.window.num
    window_ms int: quota.window.size.seconds x 1000
    rule string: how the limit decides: sampled (Kafka's rate over windows), bucket (Kafka's token
        bucket), paced (a bucket whose limit may change)
    max_throttle_ms long: longest throttle time of one decision, ms; null = the type's own
    start_ms long: when the gateway's sensors began, epoch ms
    asked double: what was asked for, where `amount` isn't it: a refused change of topics, the new
        limit of a row whose `event` is bound
    """,
)

EVENTS: Final = ("bound", "connection", "producer_id", "malformed")
"""Values of column ``event`` in rows of REQUESTS that are no charge."""

REQUESTS: Final = make_table(
    "requests",
    "One row per charge: a request line of a broker's log, or a charge of a gateway's journal "
    "(there one request may be charged to several quota types: `quota_type` tells). A journal also "
    "gives rows that are no charge: `event` is bound (a limit changed), connection (a connection "
    "was accepted) or producer_id (a broker gave out producer ids); these have `is_charged` and "
    "`is_request` false, as has a line that couldn't be read, where a data source was told to keep "
    "such lines (malformed).",
    """
    record_ms double: when the charge was made (event told: its request's), epoch ms: exact from a
        journal; from a log the best estimate, log time - sendTimeMs - responseQueueTimeMs
    broker_id int: broker, from --broker-id, the path's pattern or the journal
    listener string: listener name
    connection string: connection id as logged
    principal string: name part of the principal, raw
    client_id string: client-id, raw; '' = none
    api_name string: API, as Kafka's ApiKeys names it: PRODUCE, FETCH, ...
    api_version int: version of the request
    is_forwarded bool: the controller's line of a request that a broker forwarded; charged to
        nobody, for the broker's own line carries the charge
    bytes_charged long: bytes charged to the byte-rate quota: a produce request's size without its
        4-byte length, a fetch response's as Kafka sizes it; 0 for APIs not charged by bytes
    bytes_exact bool: false where the log doesn't hold what was charged, and the row's figure is an
        estimate: a throttled fetch, a fetch of an unknown version; of a change of topics, where
        `amount` is one: a deleted or enlarged topic, a default's partitions that the answer doesn't
        tell
    handler_ms double: handler thread time, ms (a lower bound of what the request quota charges)
    throttle_time_ms long: throttle time told to the client, ms; null = a row of event told has it
    producer_ids int: new producer ids (journals only): of a Produce that is charged with them, and
        of a row whose `event` is producer_id
    quota_type string: quota that the request is charged to: producer_byte_rate for PRODUCE (but not
        one refused as a whole, for its transactional id say: a broker doesn't count its bytes),
        consumer_byte_rate for a client's FETCH, controller_mutation_rate for topic and partition
        changes; else request_percentage
    amount double: what was charged, in the quota's own unit: bytes, percent x seconds of one
        thread, partitions (of topics without an error), producer ids
    is_charged bool: counts against a client quota (not a follower's fetch, not forwarded)
    is_request bool: counts as a request: false for a journal's second charge of the same request
    client_ip string: peer address
    decided_throttle_time_ms long: by this row's own quota, ms (journals); event told: what was left
    muted_ms long: how long the connection is muted by it, ms; null = `throttle_time_ms` says it
    answer_ms long: event told: how long after the charge the answer came, ms; null = not known
    source string: log or journal
    event string: of a journal: record (charged, then checked), strict (checked, then charged unless
        refused), norecord (no quota of the type), unrecord (taken back), told (the answer to a
        throttled request), or one that is no charge: bound (a limit changed), connection
        (accepted), producer_id (given out), malformed (an unreadable line); null from logs
    worker_id string: gateway worker (journals)
    seq long: order within the source: byte offset in the file, or the journal's seq
    file string: file (or topic-partition) it was read from
    """,
    Column(
        "recorded",
        "struct",
        "what a journal says about the quota it was charged to, so that a replay decides as the "
        "gateway did; null from logs, and where nothing is charged",
        RECORDED.columns,
    ),
    Column(
        "bytes_by_topic",
        "list",
        "what `bytes_charged` consists of: an entry for each topic, and one whose `topic` is '' "
        "for what belongs to none (headers, names, partitions' fields). Of Metadata and "
        "CreateTopics: topics' names with their ids. Null where it isn't known: topics weren't "
        "asked for, the log lacks their sizes, or the row is of a journal",
        (
            Column("topic", "string", "topic's name; null = the request gives its id only"),
            Column("topic_id", "string", "topic's id, as Kafka prints it; null = not given"),
            Column("bytes", "long", "bytes of its record batches, as logged"),
        ),
    ),
)

USAGE: Final = make_table(
    "usage",
    "One row per (quota_type, quota_id, broker_id, second_ms). Every charged request is counted in "
    "exactly one row, that of the quota type it's charged to, so sums over the table are sums over "
    "the log; only `amount` of request_percentage rows covers all of a client's requests. "
    "Seconds without requests are absent.",
    _QUOTA_ID,
    """
    broker_id int: broker
    second_ms long: start of the second, epoch ms
    requests long: requests
    bytes long: bytes charged
    bytes_estimated long: of these, bytes of rows with bytes_exact = false
    amount double: charged in the quota's own unit: bytes, percent x s, partitions, ids
    handler_ms double: handler thread time, ms
    throttle_time_ms long: throttle time told, summed, ms
    throttled_requests long: requests told a throttle time > 0
    max_throttle_time_ms long: largest throttle time told, ms
    quota double: limit per broker in the quota's unit per second; null = unlimited
    quota_source string: entity the limit comes from, as printed: {user=alice}; journal: a gateway's
        own limit, which the quotas given don't tell
    """,
)

_ROLLUP: Final = (
    _QUOTA_ID,
    """
    broker_id int: broker
    period_ms long: start of the hour or UTC day, epoch ms
    requests long: requests
    bytes long: bytes charged
    amount double: charged in the quota's own unit
    handler_ms double: handler thread time, ms
    throttle_time_ms long: throttle time told, summed, ms
    throttled_requests long: requests told a throttle time > 0
    active_seconds long: seconds with at least one request
    peak_per_s double: largest amount of one second
    p50_per_s double: median of amount over active seconds
    p95_per_s double: 95th percentile of amount over active seconds
    p99_per_s double: 99th percentile of amount over active seconds
    quota double: limit per broker, unit per second; null = unlimited
    """,
)
USAGE_HOUR: Final = make_table(
    "usage_hour", "One row per (quota_type, quota_id, broker_id, hour).", *_ROLLUP
)
USAGE_DAY: Final = make_table(
    "usage_day", "One row per (quota_type, quota_id, broker_id, UTC day).", *_ROLLUP
)

_BY_TOPIC: Final = """
    topic string: its name, or its id if nothing tells the name; '' = framing; null = not known
    requests long: requests that named it; a request of several topics counts in each
    bytes long: bytes charged: of a topic, those of its record batches as logged
    bytes_estimated long: of these, bytes of requests with bytes_exact = false
"""
USAGE_BY_TOPIC: Final = make_table(
    "usage_by_topic",
    "One row per (quota_type, quota_id, broker_id, second_ms, topic) of byte rates. What a request "
    "was charged beside record batches (headers, names, partitions' fields) belongs to no topic: "
    "it's the row whose topic is '' (framing). Bytes of which no topic is known (of a journal, of "
    "a log without sizes) are the row whose topic is null. So the rows of a quota-id and second "
    "add up to its `bytes` in table `usage`, to the byte.",
    _QUOTA_ID,
    "broker_id int: broker\nsecond_ms long: start of the second, epoch ms",
    _BY_TOPIC,
)
_TOPIC_ROLLUP: Final = (
    _QUOTA_ID,
    "broker_id int: broker\nperiod_ms long: start of the hour or UTC day, epoch ms",
    _BY_TOPIC,
    "active_seconds long: seconds with a request\npeak_bps long: most bytes of one second",
)
USAGE_BY_TOPIC_HOUR: Final = make_table(
    "usage_by_topic_hour", "Table `usage_by_topic` by hour.", *_TOPIC_ROLLUP
)
USAGE_BY_TOPIC_DAY: Final = make_table(
    "usage_by_topic_day", "Table `usage_by_topic` by UTC day.", *_TOPIC_ROLLUP
)

REPLAY: Final = make_table(
    "replay",
    "One row per row of `requests`: all its columns, and what Kafka's sensor would have decided.",
    *REQUESTS.columns,
    """
    quota_id string: who shares the quota: `<sanitised user>:<client-id>`; null where the row is no
        charge
    quota_user string: user tag of the quota-id, raw
    quota_client_id string: client-id tag of the quota-id, raw
    quota_bps double: limit in force, in the quota's unit per second; null = unlimited
    logged_throttle_time_ms long: throttle time of this quota that the log or journal holds, ms
    replayed_throttle_time_ms long: throttle time Kafka's sensor gives, ms; null where replayable is
        false
    replayable bool: false where a log can't tell: a throttled fetch (its size isn't logged; its
        charge was taken back), request percentage, mutations, and what is charged to nobody
    """,
)

WHAT_IF: Final = make_table(
    "what_if",
    "One row per (plan, quota_type, quota_id, broker_id, principal, client_id); plan `logged` is "
    "what the log itself says. Charges that a plan also holds to a cluster-wide rate or to shares "
    "have a second row, of type `producer_byte_rate:bps` or `:shares`. Each row's throttling is "
    "that of its own limit; a client is told the longest of a request's, so rows of several limits "
    "of the same requests add up to an upper bound. Open-loop: a throttled client would have "
    "sent later.",
    ("plan", "string", "plan's name: the quotas file's stem, or `logged`"),
    _QUOTA_ID,
    """
    broker_id int: broker
    principal string: name part of the principal, raw
    client_id string: client-id, raw
    quota double: limit per broker under this plan; null = unlimited
    quota_source string: entity the limit comes from
    requests long: requests
    bytes long: bytes charged
    throttled_requests long: requests with a throttle time > 0
    throttle_time_ms long: throttle time, summed, ms
    max_throttle_time_ms long: largest throttle time, ms
    delayed_bytes long: bytes of the throttled requests
    delayed_share double: delayed_bytes / bytes, 0..1; 0 without bytes
    first_ms long: first request, epoch ms
    last_ms long: last request, epoch ms
    withheld_requests long: fetches that a broker's log says were throttled: it holds no bytes of
        them, so no plan is charged with them; 0 of other types, and of journals
    least_throttle_time_ms long: what the throttling is at least: throttle_time_ms; under a limit
        not above the one in force what the log says about withheld fetches, if that's more
    most_throttle_time_ms long: what it is at most: equal to the least without withheld fetches and
        under the limit in force; above that limit what the log says, if that's more; null = nothing
        tells
    """,
)

DEMAND: Final = make_table(
    "demand",
    "One row per (plan, quota_type, quota_id, broker_id) of byte rates: what its clients want, and "
    "how they'd fare under the plan's limit. Closed-loop: a client that waits sends later. A "
    "figure is null where it can't be known; then its interval holds it, and `reason` says why.",
    ("plan", "string", "plan's name: the quotas file's stem"),
    _QUOTA_ID,
    """
    broker_id int: broker
    quota double: limit per broker under this plan, bytes/s; null = unlimited
    connections int: connections; those of a client that follow each other count once
    kind string: saturated (sends as soon as it may), rate-bound (sends at its own rate), fixed work
        (a job that ended; a consumer that caught up), mixed (its connections differ) or unknown
    first_ms long: first charge, epoch ms
    span_s double: from then to the broker's last request, s
    seen_per_s double: charged in that time, or until its clients ended, bytes/s
    seen_throttle_time_ms long: throttle time decided in that time, summed, ms
    wanted_per_s double: what its clients would send without a limit, bytes/s
    wanted_least_per_s double: what that is at least
    wanted_most_per_s double: what that is at most; null = nothing bounds it
    rate_per_s double: rate under the plan, over span_s or until all ended, bytes/s
    rate_least_per_s double: what that is at least, in 95 of 100 cases
    rate_most_per_s double: what that is at most; null = nothing bounds it
    throttle_s double: throttle time told in that time, summed over requests, s
    throttle_least_s double: what that is at least
    throttle_most_s double: what that is at most; null = nothing bounds it
    finish_s double: when fixed work is done, s after first_ms; null too where none is
    finish_least_s double: what that is at least
    finish_most_s double: what that is at most; null = nothing bounds it
    reason string: why a figure can't be known; null where it can
    """,
)

RECOMMEND: Final = make_table(
    "recommend",
    "One row per recommendation; `action` says what to do with the entity.",
    """
    quota_type string: quota type
    entity string: entity as printed: {user=alice, client-id=<default>}
    user string: user of the entity, raw; '<default>' when is_default_user; null = no part
    client_id string: client-id of the entity, raw; null = not part
    is_default_user bool: the user part is the default entity
    is_default_client_id bool: the client-id part is the default entity
    action string: set, keep, default, split, merge, remove, or wait: too little was seen for a
        figure
    current double: limit in force per broker; null = unlimited
    recommended double: limit per broker to set; null where the action sets none
    observed_percentile double: the chosen percentile of the rate over the quota window, in the
        type's unit per second
    observed_peak double: the highest rate over the quota window
    growth_per_day double: relative growth of daily use used in the figure, 0.01 = 1 %/day
    headroom double: factor applied on top, 1.2 = 20 %
    throttled_requests_current long: requests in this data that the quotas in force throttle, of all
        clients that the row concerns; null where it can't be replayed, or where another limit was
        in force for a part of the time
    throttle_time_ms_current long: their throttle time, ms; in a closed loop where another limit was
        in force for a part of the time; null where it can't be known
    throttled_requests_recommended long: the same with the row's advice taken: all values set and
        kept together, each other kind of action alone; null where somebody waits before or after,
        for then a client would have sent at other times
    throttle_time_ms_recommended long: their throttle time, ms, in a closed loop: a client that
        waits sends later; null where it can't be known
    held_share double: share of the time, 0..1, in which the client was told to wait: of those that
        the row concerns the largest; between first and last second with requests, on its busiest
        broker
    demand string: what its clients are, as in table `demand`, where they waited a twentieth of the
        time or more: saturated, rate-bound, ...; null else
    wanted_per_s double: what they'd send without a limit, bytes/s; null = not known
    wanted_least_per_s double: what that is at least; null = not inferred
    wanted_most_per_s double: what that is at most; null = nothing bounds it
    reason string: one line that explains the numbers
    """,
)

CHARGEBACK: Final = make_table(
    "chargeback",
    "One row per (principal, period_ms).",
    """
    principal string: name part of the principal, raw
    period string: hour, day or month
    period_ms long: start of the period in UTC, epoch ms
    requests long: requests
    bytes_in long: bytes produced (charged)
    bytes_out long: bytes fetched (charged)
    handler_ms double: handler thread time, ms
    throttle_time_ms long: throttle time told, summed, ms
    throttled_requests long: requests told a throttle time > 0
    peak_in_bps double: largest second of bytes produced, all brokers together
    peak_out_bps double: largest second of bytes fetched, all brokers together
    peak_in_quota_share double: largest (second's bytes / produce limit); null = no limit
    peak_out_quota_share double: largest (second's bytes / fetch limit); null = no limit
    cluster_share double: share of the cluster's bytes in the period, 0..1
    price_in double: price of bytes_in, in `currency`
    price_out double: price of bytes_out
    price_requests double: price of requests
    price_handler double: price of handler time
    price_fixed double: price per principal and period
    price double: their sum
    currency string: currency of the price file; null without one
    """,
)

STORMS: Final = make_table(
    "storms",
    "One row per storm: a run of seconds in which something was made faster than the threshold.",
    """
    kind string: connection, producer_id or request
    client_ip string: peer address (connection storms)
    listener string: listener (connection storms)
    principal string: user (producer-id and request storms)
    client_id string: client-id (request storms)
    broker_id int: broker
    start_ms long: first second of the storm, epoch ms
    end_ms long: end of its last second, epoch ms
    count long: connections, producer ids or requests in it
    peak_per_s double: largest count of one second
    mean_per_s double: count / duration
    usual_per_s double: the source's median per second outside of storms
    quota_type string: quota that would have held it
    entity string: entity to set it on, as printed
    quota double: value that would have held it to its usual pace, in the type's unit per second; of
        a request storm a lower bound, as a log doesn't hold the network threads' time
    reason string: one line that explains the value
    """,
)

EFFECTIVE: Final = make_table(
    "effective",
    "One row per (kind, quota key, who, and limit where `--quotas` has a history). kind `applied`: "
    "the quota that applied to this principal and client-id; kind `dead`: a configured quota that "
    "nobody in the data matched.",
    """
    kind string: applied or dead
    quota_key string: key with its unit: producer_byte_rate:broker_bps
    principal string: name part of the principal, raw; null for dead quotas
    client_id string: client-id, raw; null for dead quotas
    quota_id string: quota-id; null for dead quotas
    value double: the limit; null = unlimited
    source string: entity it comes from, as printed; null = none
    overridden string: less specific entries it hides, in order, as `entity=value; ...`
    requests long: requests that it applied to; 0 for dead quotas
    bytes long: bytes that it applied to
    note string: why a quota is dead, or what to know of it; null = nothing
    """,
)

BAD_LINES: Final = make_table(
    "bad_lines",
    "One row per line that holds a request but can't be read (or is cut off), with its reason; "
    "nothing is dropped silently.",
    """
    file string: file (or topic-partition)
    offset long: byte offset of the line in the (uncompressed) file, or topic offset
    reason string: why, in words
    line string: its first 2,000 characters
    """,
)

SUMMARY: Final = make_table(
    "summary",
    "One row per (command, name): the figures of a run's closing table, for the report.",
    """
    command string: usage, replay, what-if, ...
    name string: figure's name, e.g. lines, bad_lines, equal_decisions_share
    value double: the figure, if a number
    text string: the figure, if words; e.g. the time zone assumed
    unit string: bytes, ms, requests, share, s, ...; null for words
    note string: what it means, in one line
    """,
)

TABLES: Final[dict[str, Table]] = {
    t.name: t
    for t in (
        REQUESTS,
        USAGE,
        USAGE_HOUR,
        USAGE_DAY,
        *(USAGE_BY_TOPIC, USAGE_BY_TOPIC_HOUR, USAGE_BY_TOPIC_DAY),
        REPLAY,
        WHAT_IF,
        DEMAND,
        RECOMMEND,
        CHARGEBACK,
        LOG_DIRS,
        FOCUS,
        STORMS,
        EFFECTIVE,
        BAD_LINES,
        SUMMARY,
    )
}


def reference() -> str:
    """Return the tables' part of docs/reference/pipeline.md; a test holds the page to it."""
    return "\n".join(table.timed.markdown() for table in TABLES.values())
