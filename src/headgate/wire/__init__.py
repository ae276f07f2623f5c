"""
Bytes to messages and back, without sockets, clock or log.

A map for who builds on it (all of it is pure; nothing here raises anything but
``RemoteProtocolError`` for what a peer sent and ``LocalProtocolError`` for what we would send).

Words
    *frame*: one Kafka message **with its 4-byte length prefix**. Every offset in this package
    counts from the first byte of that prefix. ``Buffer`` is ``bytes | bytearray | memoryview``.
    A function that changes a frame returns the new one; given a ``bytearray`` (or a writable
    memoryview) and a change that keeps the size, it writes in place and returns the same object.

``header``
    ``parse_request_header(frame, pos=4) -> (api_key, api_version, correlation_id, client_id,
    body_offset)`` (plain tuple; client_id None when null); ``peek_request(frame) -> (api_key,
    api_version, correlation_id)``; ``correlation_id(response_frame)``;
    ``response_body_offset(api_key, version, frame) -> int``;
    ``is_flexible(api_key, version)``; ``build_request(api_key, version, correlation_id, client_id,
    body) -> bytes``; ``build_response(api_key, version, correlation_id, body) -> bytes`` (frames).

``apis``
    ``API: Mapping[int, Api]``; ``Api(key, name, min_version, max_version, flexible_since,
    throttle_since, client_throttles_since, cluster_action, forwardable, has_addresses, charged,
    proxied)``; ``max_version`` is the newest this package can parse when the API carries addresses
    or is charged, else the newest known. Constants ``PRODUCE``, ``FETCH``, ``METADATA``, ...
    ``has_throttle(key, version)``, ``client_pauses(key, version)``.

``throttle`` (the field, not the sensors)
    ``patch_throttle(key, version, frame, ms) -> Buffer``; ``read_throttle(key, version, frame) ->
    int`` (0 where there is no field); ``throttle_offset(key, version, frame) -> int | None`` (a
    frame's HEAD piece is enough except for Produce, ApiVersions, 38-41, 47);
    ``pack_throttle(ms) -> bytes`` clamps to int32.

``messages``: ``decode_request(key, version, frame, body_offset)``, ``encode_request``,
    ``decode_response(key, version, frame)``, ``encode_response(key, version, correlation_id,
    message)`` for whole messages off the hot path (17, 18, 19, 20, 22, 32, 33, 36, 37, 44, 48, 49;
    dataclasses in the modules); ``messages.draft`` has the same four for KIP-546's 48, 49, 50.
``messages.api_versions``
    ``parse_response(frame, version) -> ApiVersions(error, ranges, version, tail)``;
    ``narrow_response(frame, version, pass_unknown=False, own=None) -> bytes`` (hide and clamp per
    ``apis``, add ours); ``admin_response(correlation_id, version, keys)``;
    ``unsupported_response(correlation_id)``.
``messages.produce``
    ``acks(frame, version, body_offset) -> int``; ``walk(frame, version, body_offset) ->
    ProduceWalk(transactional_id, acks, partitions, batches, records, records_bytes,
    producer_ids)``;
``messages.fetch``
    ``read_request(frame, version, body_offset) -> FetchHead(replica_id, max_wait_ms, min_bytes,
    max_bytes, session_id, session_epoch)``; ``cap_request(frame, version, body_offset, limit) ->
    Buffer`` (MaxBytes and MinBytes, never raises them); ``set_session(frame, version, body_offset,
    session_id, session_epoch) -> Buffer``;
    ``response_session(frame, version) -> (error, session_id)``;
    ``charged_bytes(frame_bytes, version, endpoints_bytes=0) -> int``; ``empty_response(version,
    correlation_id, throttle_ms, session_id=0) -> bytes``; ``EndpointMasker(version)``:
    ``feed(view) -> Buffer`` for a Fetch v16+ answer that passes in pieces: makes NodeEndpoints an
    unknown tag, same size, so that no upstream address passes.
``messages.share``: ``cap_request`` for ShareFetch. ``messages.addresses``: what
    ``gateway.rewrite`` dispatches to.
``messages.mutation``
    ``mutations(key, version, frame, body_offset, current=, default_partitions=) ->
    Mutations(topics, partitions, validate_only, strict)``;
    ``keep(key, version, frame, refused) -> bytes`` (the request without them);
    ``refuse(key, version, correlation_id, refused, throttle_ms) -> bytes``;
    ``merge(key, version, response_frame, refused) -> bytes`` (error 89 for the refused ones).
``messages.sasl``: ``parse_handshake``, ``handshake_response``, ``parse_authenticate``,
    ``authenticate_response`` on frames; ``build_*`` return bodies.
``messages.transactions``: ``init_producer_id_response(frame, version) -> (error, producer_id,
    epoch)``.
``sasl_client``: ``plain``, ``scram``, ``oauthbearer``: our own logins, as generators of messages.
``skim``: walks over messages that pass in pieces. ``schema``: messages as data.

``headgate.gateway.session.rewrite``: ``AddressBook(Mapping[int, (host, port)])``;
    ``rewrite_response(api_key, version, frame, book) -> Rewritten(frame, hidden: tuple[int,
    ...])``;
    ``needs_rewrite(api_key, version) -> bool``. Brokers not in the book are hidden, never leaked.
"""
