"""What needs rewriting, and what may not pass at all."""

import pytest

from headgate.errors import RemoteProtocolError
from headgate.gateway.session.rewrite import (
    AddressBook,
    Addresses,
    Rewritten,
    rewriting,
)
from headgate.steps import finish
from headgate.wire import apis
from headgate.wire.header import build_response
from headgate.wire.messages.addresses import REWRITERS

BOOK = {1: ("gate.example", 19001)}


def rewrite(key: int, version: int, frame: bytes, book: AddressBook) -> Rewritten:
    return finish(rewriting(key, version, frame, book))


def test_every_api_with_addresses_is_rewritten_or_narrowed() -> None:
    for api in apis.API.values():
        if api.has_addresses:
            assert api.passes_until is not None
            assert api.key in REWRITERS, api.name
        else:
            assert api.key not in REWRITERS, api.name


def test_an_answer_without_addresses_is_the_same_object() -> None:
    frame = build_response(apis.PRODUCE, 9, 1, b"\x01\0\0\0\0\0")
    assert rewrite(apis.PRODUCE, 9, frame, BOOK) == (frame, (), 10)
    assert rewrite(apis.PRODUCE, 9, frame, BOOK).frame is frame
    beaten = build_response(12, 4, 1, b"\0\0\0\5anything")
    assert rewrite(12, 4, beaten, BOOK) == (beaten, (), 9)


def test_an_unknown_broker_waits_unexposed_and_is_reported() -> None:
    broker = b"\0\0\0\x02\0\x08upstream\0\0\x23\x84"
    ours = b"\0\0\0\x01\0\x08upstream\0\0\x23\x84"
    frame = build_response(apis.METADATA, 0, 1, b"\0\0\0\x02" + broker + ours + b"\0\0\0\0")
    out = rewrite(apis.METADATA, 0, frame, BOOK)
    assert out.hidden == (2,)
    assert b"upstream" not in out.frame
    assert out.frame[8:] == b"\0\0\0\x01\0\0\0\x01\0\x0cgate.example\0\0\x4a\x39\0\0\0\0"


def test_where_any_broker_hands_on_all_are_told_of_one_controller() -> None:
    def node(id: int, host: bytes, port: bytes) -> bytes:
        return id.to_bytes(4, "big") + len(host).to_bytes(2, "big") + host + port + b"\xff\xff"

    def answer(*nodes: bytes, controller: int) -> bytes:
        body = len(nodes).to_bytes(4, "big") + b"".join(nodes)
        return build_response(
            apis.METADATA, 1, 1, body + controller.to_bytes(4, "big") + b"\0\0\0\0"
        )

    frame = answer(*(node(n, b"upstream", b"\0\0\x23\x84") for n in (3, 2)), controller=3)
    book = Addresses({2: ("gate", 19_002), 3: ("gate", 19_003)})
    ours = [node(3, b"gate", b"\0\0\x4a\x3b"), node(2, b"gate", b"\0\0\x4a\x3a")]
    assert rewrite(apis.METADATA, 1, frame, book).frame == answer(*ours, controller=3)
    book.any_controller = True
    assert rewrite(apis.METADATA, 1, frame, book).frame == answer(*ours, controller=2)


def test_what_cannot_be_read_cannot_pass() -> None:
    with pytest.raises(RemoteProtocolError):
        rewrite(apis.METADATA, 9, build_response(apis.METADATA, 9, 1, b"\0\0"), BOOK)
    with pytest.raises(RemoteProtocolError):
        rewrite(apis.DESCRIBE_QUORUM, 2, build_response(55, 2, 1, b"\0\0\0\2"), BOOK)


def test_a_book_is_a_mapping() -> None:
    book: AddressBook = BOOK
    assert book[1] == ("gate.example", 19001)
