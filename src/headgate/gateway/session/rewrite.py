"""
Which answers name brokers, and how their addresses are replaced.

A client learns brokers' addresses only from answers. So no client bypasses a gateway that rewrites
every address. A broker whose id has no address here isn't shown to clients.
"""

from __future__ import annotations

from typing import NamedTuple

from headgate.wire.apis import NEVER
from headgate.wire.fields import Buffer
from headgate.wire.messages.addresses import REWRITERS, SINCE, Book, name_controller

AddressBook = Book


class Addresses(dict[int, tuple[str, int]]):
    """
    Broker id to the host and port clients shall use.

    Attributes:
        any_controller: in KRaft any broker forwards requests for the controller, and each answer
            may name another broker as the controller. Then all clients are told the same one.
    """

    any_controller = False


class Rewritten(NamedTuple):
    """
    An answer fit for a client.

    Attributes:
        frame: the answer; the same object where nothing had to change.
        hidden: ids of brokers that it named and that are left out, in order.
    """

    frame: Buffer
    hidden: tuple[int, ...]


def needs_rewrite(api_key: int, version: int) -> bool:
    """Whether an answer of this API and version may name a broker's address."""
    return version >= SINCE.get(api_key, NEVER)


def rewrite_response(api_key: int, version: int, frame: Buffer, book: AddressBook) -> Rewritten:
    """
    Replace every broker's address in an answer.

    Args:
        api_key: of the request answered.
        version: of the request answered; at most what ApiVersions advertised.
        frame: the whole answer with its length prefix.
        book: broker id to the host and port clients shall use.

    Raises:
        RemoteProtocolError: the answer doesn't parse; it must not pass.
    """
    if version < SINCE.get(api_key, NEVER):
        return Rewritten(frame, ())
    hidden: list[int] = []
    answer = REWRITERS[api_key](frame, version, book, hidden)
    if isinstance(book, Addresses) and book.any_controller:
        # Differs: in KRaft clients see one controller, so that one bucket counts mutations.
        answer = name_controller(api_key, version, answer)
    return Rewritten(answer, tuple(hidden))
