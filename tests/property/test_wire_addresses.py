"""No upstream address passes: every answer that names brokers, rewritten, judged by kio."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from headgate.errors import RemoteProtocolError
from headgate.gateway.session.rewrite import rewriting
from headgate.steps import finish
from headgate.wire import apis
from headgate.wire.header import correlation_id, parse_request_header, response_body_offset
from headgate.wire.messages import addresses, api_versions, fetch, produce
from headgate.wire.throttle import throttle_offset
from kit.wire_oracles import (
    QUICK,
    kafka_python_decode,
    kio_decode,
    kio_request,
    kio_response,
    kio_values,
    kio_versions,
)

BOOK = {n: (f"gate-{n}.example", 19000 + n) for n in range(4)}
NODES = [
    (key, version)
    for key in (apis.METADATA, apis.DESCRIBE_CLUSTER, apis.SHARE_FETCH, apis.SHARE_ACKNOWLEDGE)
    for version in kio_versions(key)
]
ENDPOINTS = [(apis.PRODUCE, v) for v in range(3, 14)] + [(apis.FETCH, v) for v in range(4, 19)]
NODE_FIELD = {3: "brokers", 60: "brokers", 78: "node_endpoints", 79: "node_endpoints"}


def _id_field(node: Any) -> str:
    return "broker_id" if hasattr(node, "broker_id") else "node_id"


def _known_or_not(value: Any, field: str, seed: int) -> Any:
    """Give the nodes ids of which some are in the book and some aren't."""
    nodes = tuple(
        dataclasses.replace(
            node, **{_id_field(node): type(getattr(node, _id_field(node)))((seed + n) % 7)}
        )
        for n, node in enumerate(getattr(value, field))
    )
    return dataclasses.replace(value, **{field: nodes})


def _expected(value: Any, field: str) -> tuple[Any, list[int]]:
    kept, hidden = [], []
    for node in getattr(value, field):
        node_id = int(getattr(node, _id_field(node)))
        if node_id in BOOK:
            host, port = BOOK[node_id]
            kept.append(dataclasses.replace(node, host=host, port=type(node.port)(port)))
        else:
            hidden.append(node_id)
    return dataclasses.replace(value, **{field: tuple(kept)}), hidden


def _rewritten(key: int, version: int, frame: bytes) -> tuple[Any, list[int], bytes]:
    read = finish(rewriting(key, version, frame, BOOK))
    out = bytes(read.frame)
    assert read.throttle_at == throttle_offset(key, version, out)
    assert int.from_bytes(out[:4], "big") == len(out) - 4
    assert correlation_id(out) == correlation_id(frame)
    body = out[response_body_offset(key, version, out) :]
    return kio_decode(key, version, True, body), list(read.hidden), body


@pytest.mark.parametrize(("key", "version"), NODES)
@QUICK
@given(data=st.data(), seed=st.integers(0, 6))
def test_lists_of_brokers_hold_ours_only(
    key: int, version: int, data: st.DataObject, seed: int
) -> None:
    field = NODE_FIELD[key]
    value = _known_or_not(data.draw(kio_values(key, version, True)), field, seed)
    if key == apis.DESCRIBE_CLUSTER and version >= 1:
        value = dataclasses.replace(value, endpoint_type=type(value.endpoint_type)(1))
    want, hidden = _expected(value, field)
    got, told, body = _rewritten(key, version, kio_response(value))
    assert got == want
    assert told == hidden
    if key in (apis.METADATA, apis.DESCRIBE_CLUSTER):
        name = apis.API[key].name + "Response"
        theirs = kafka_python_decode(name, version, body)
        assert [(b.host, b.port) for b in theirs.brokers] == [
            (n.host, n.port) for n in getattr(want, field)
        ]


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, version) for key, version in NODES if key in (apis.METADATA, apis.DESCRIBE_CLUSTER)],
)
@QUICK
@given(data=st.data(), seed=st.integers(0, 6))
def test_the_least_broker_can_be_named_the_controller(
    key: int, version: int, data: st.DataObject, seed: int
) -> None:
    value = _known_or_not(data.draw(kio_values(key, version, True)), "brokers", seed)
    frame = kio_response(value)
    out = bytes(finish(addresses.name_controller(key, version, frame)))
    ids = [int(getattr(node, _id_field(node))) for node in value.brokers]
    names_none = not hasattr(value, "controller_id") or getattr(value, "endpoint_type", 1) == 2
    if not ids or names_none:
        assert out == frame
    else:
        least = type(value.controller_id)(min(ids))
        body = out[response_body_offset(key, version, out) :]
        assert kio_decode(key, version, True, body) == dataclasses.replace(
            value, controller_id=least
        )


@pytest.mark.parametrize(("key", "version"), ENDPOINTS)
@QUICK
@given(data=st.data(), seed=st.integers(0, 6))
def test_endpoints_in_the_tail_are_ours_or_none(
    key: int, version: int, data: st.DataObject, seed: int
) -> None:
    value = data.draw(kio_values(key, version, True))
    hidden: list[int] = []
    if hasattr(value, "node_endpoints"):
        value = _known_or_not(value, "node_endpoints", seed)
        value, hidden = (value, _expected(value, "node_endpoints"))
        want, hidden = hidden
    else:
        want = value
    got, told, _ = _rewritten(key, version, kio_response(value))
    assert got == want
    assert told == hidden


@pytest.mark.parametrize("version", range(16, 19))
@QUICK
@given(data=st.data(), step=st.sampled_from((1, 3, 17, 500)))
def test_a_fetch_that_passes_in_pieces_shows_no_endpoint(
    version: int, data: st.DataObject, step: int
) -> None:
    value = data.draw(kio_values(apis.FETCH, version, True))
    nodes = tuple(dataclasses.replace(n, host="upstream.example") for n in value.node_endpoints)
    value = dataclasses.replace(value, node_endpoints=nodes)
    frame = kio_response(value)
    masker = fetch.EndpointMasker(version)
    out = b"".join(bytes(masker.feed(frame[at : at + step])) for at in range(0, len(frame), step))
    masker.finish()
    assert len(out) == len(frame)
    assert masker.masked == bool(value.node_endpoints)
    assert (b"upstream.example" in frame) == masker.masked
    assert b"upstream.example" not in out
    tail = fetch.tail_offset(frame, version)  # all before it is as it came
    assert out[: tail + masker.masked] == frame[: tail + masker.masked]
    body = out[response_body_offset(apis.FETCH, version, out) :]
    read = kafka_python_decode("FetchResponse", version, body)
    assert not read.node_endpoints
    assert len(read.responses) == len(value.responses)


@pytest.mark.parametrize("version", range(7))
@QUICK
@given(data=st.data(), node=st.integers(0, 6), error=st.sampled_from((0, 15, 16)))
def test_coordinators_are_ours_or_not_available(
    version: int, data: st.DataObject, node: int, error: int
) -> None:
    value = data.draw(kio_values(apis.FIND_COORDINATOR, version, True))

    def point(item: Any, number: int) -> Any:
        return dataclasses.replace(
            item,
            node_id=type(item.node_id)(number),
            error_code=ErrorCode(error),
            host="upstream.example",
        )

    if version >= 4:
        value = dataclasses.replace(
            value,
            coordinators=tuple(point(c, (node + i) % 7) for i, c in enumerate(value.coordinators)),
        )
    else:
        value = point(value, node)
    got, told, body = _rewritten(apis.FIND_COORDINATOR, version, kio_response(value))
    assert b"upstream.example" not in body
    before = value.coordinators if version >= 4 else (value,)
    after = got.coordinators if version >= 4 else (got,)
    hidden = []
    for old, new in zip(before, after, strict=True):
        number = int(old.node_id)
        if number in BOOK:
            assert (new.node_id, (new.host, new.port)) == (number, BOOK[number])
            assert new.error_code == error
        elif error:
            assert (new.host, new.port, new.error_code) == ("", -1, error)
        else:
            hidden.append(number)
            assert (new.node_id, new.host, new.port, new.error_code) == (-1, "", -1, 15)
        if version >= 1:
            assert new.error_message == old.error_message
    assert told == hidden


@pytest.mark.parametrize("version", (1, 2))
@QUICK
@given(data=st.data())
def test_addresses_of_controllers_are_left_out(version: int, data: st.DataObject) -> None:
    value = data.draw(kio_values(apis.DESCRIBE_CLUSTER, version, True))
    value = dataclasses.replace(value, endpoint_type=type(value.endpoint_type)(2))
    got, _, _ = _rewritten(apis.DESCRIBE_CLUSTER, version, kio_response(value))
    assert got == dataclasses.replace(value, brokers=())


@pytest.mark.parametrize("version", range(3))
@QUICK
@given(data=st.data())
def test_a_quorum_is_told_without_addresses(version: int, data: st.DataObject) -> None:
    value = data.draw(kio_values(apis.DESCRIBE_QUORUM, version, True))
    got, told, _ = _rewritten(apis.DESCRIBE_QUORUM, version, kio_response(value))
    if version >= 2:
        nodes = tuple(dataclasses.replace(node, listeners=()) for node in value.nodes)
        value = dataclasses.replace(value, nodes=nodes)
    assert got == value
    assert told == []


@pytest.mark.parametrize("version", range(5))
@QUICK
@given(data=st.data())
def test_api_versions_keeps_all_but_what_may_not_pass(version: int, data: st.DataObject) -> None:
    value = data.draw(kio_values(apis.API_VERSIONS, version, True))
    keys = tuple(
        dataclasses.replace(
            item, api_key=type(item.api_key)(n * 5), min_version=type(item.min_version)(0)
        )
        for n, item in enumerate(value.api_keys * 30)
    )
    value = dataclasses.replace(value, api_keys=keys, error_code=ErrorCode(0))
    out = api_versions.narrow_response(kio_response(value), version)
    got = kio_decode(apis.API_VERSIONS, version, True, out[8:])
    want = [
        (key.api_key, 0, min(key.max_version, apis.API[key.api_key].passes_until or 32767))
        for key in keys
        if key.api_key in apis.API and apis.API[key.api_key].proxied
        if key.max_version >= 0 or apis.API[key.api_key].passes_until is None
    ]
    assert [(k.api_key, k.min_version, k.max_version) for k in got.api_keys] == want
    assert dataclasses.replace(got, api_keys=()) == dataclasses.replace(value, api_keys=())


@pytest.mark.parametrize("version", range(3, 14))
@QUICK
@given(data=st.data())
def test_a_produce_request_is_read_as_kio_wrote_it(version: int, data: st.DataObject) -> None:
    value = data.draw(kio_values(apis.PRODUCE, version, False))
    frame = kio_request(value)
    body = parse_request_header(frame)[4]
    assert produce.acks(frame, version, body) == value.acks
    found = produce.producer_ids(frame, version, body)
    walker = produce.IdWalker(version)
    walker.feed(frame[body:])
    assert walker.end() == found
    with pytest.raises(RemoteProtocolError):
        produce.producer_ids(frame[:-1], version, body)


@pytest.mark.parametrize("version", range(4, 19))
@QUICK
@given(data=st.data(), limit=st.integers(0, 2**31 - 1))
def test_a_fetch_request_is_capped_in_place(version: int, data: st.DataObject, limit: int) -> None:
    value = data.draw(kio_values(apis.FETCH, version, False))
    frame = kio_request(value)
    body = parse_request_header(frame)[4]
    head = fetch.read_request(frame, version, body)
    assert (head.min_bytes, head.max_bytes) == (value.min_bytes, value.max_bytes)
    if version >= 7:
        assert (head.session_id, head.session_epoch) == (value.session_id, value.session_epoch)
    capped = bytearray(frame)
    assert fetch.cap_request(capped, version, body, limit) is capped
    got = kio_decode(apis.FETCH, version, False, bytes(capped[body:]))
    kind = type(value.min_bytes)
    assert got == dataclasses.replace(
        value,
        min_bytes=kind(min(value.min_bytes, limit)),
        max_bytes=kind(min(value.max_bytes, limit)),
    )
    if version >= 7:
        out = bytes(fetch.set_session(frame, version, body, 99, 3))
        got = kio_decode(apis.FETCH, version, False, out[body:])
        assert got == dataclasses.replace(value, session_id=kind(99), session_epoch=kind(3))


@pytest.mark.parametrize("version", range(4, 19))
@QUICK
@given(data=st.data())
def test_a_fetch_responses_session_and_emptied_answer(version: int, data: st.DataObject) -> None:
    value = data.draw(kio_values(apis.FETCH, version, True))
    frame = kio_response(value)
    error, session = fetch.response_session(frame, version)
    if version >= 7:
        assert (error, session) == (value.error_code, value.session_id)
    out = fetch.empty_response(version, 5, 1234, session)
    empty = kio_decode(
        apis.FETCH, version, True, out[response_body_offset(apis.FETCH, version, out) :]
    )
    assert empty.responses == ()
    assert round(empty.throttle_time.total_seconds() * 1000) == 1234
    if version >= 7:
        assert (empty.error_code, empty.session_id) == (0, session)


@pytest.mark.parametrize("version", (1, 2))
@QUICK
@given(data=st.data(), limit=st.integers(0, 2**31 - 1))
def test_a_share_fetch_request_is_capped_in_place(
    version: int, data: st.DataObject, limit: int
) -> None:
    from headgate.wire.messages import share

    value = data.draw(kio_values(apis.SHARE_FETCH, version, False))
    frame = kio_request(value)
    body = parse_request_header(frame)[4]
    out = bytes(share.cap_request(frame, version, body, limit))
    kind = type(value.min_bytes)
    assert kio_decode(apis.SHARE_FETCH, version, False, out[body:]) == dataclasses.replace(
        value,
        min_bytes=kind(min(value.min_bytes, limit)),
        max_bytes=kind(min(value.max_bytes, limit)),
    )
