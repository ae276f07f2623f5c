"""
InitProducerId 22: counted for the storms report, never charged.

Source: Apache Kafka's ``InitProducerId*.json``.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.wire.apis import INIT_PRODUCER_ID
from headgate.wire.fields import Buffer, read_int16, read_int64
from headgate.wire.header import response_body_offset
from headgate.wire.schema import Int16, Int32, Int64, Struct, message, struct, versions


@message()
class InitProducerIdRequest:
    """Ask for a producer id."""

    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = versions(-1, since=3)
    producer_epoch: Int16 = versions(-1, since=3)
    enable_2pc: bool = versions(False, since=6)
    keep_prepared_txn: bool = versions(False, since=6)


@message("throttle_time_ms")
class InitProducerIdResponse:
    """The producer id given."""

    error_code: Int16
    producer_id: Int64
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = versions(-1, since=6)
    ongoing_txn_producer_epoch: Int16 = versions(-1, since=6)
    throttle_time_ms: Int32 = 0


REQUESTS: Final[dict[int, Struct[Any]]] = {
    INIT_PRODUCER_ID: struct(InitProducerIdRequest),
}
RESPONSES: Final[dict[int, Struct[Any]]] = {
    INIT_PRODUCER_ID: struct(InitProducerIdResponse),
}


def init_producer_id_response(frame: Buffer, version: int) -> tuple[int, int, int]:
    """Return (error code, producer id, epoch) of an InitProducerId response."""
    at = response_body_offset(INIT_PRODUCER_ID, version, frame) + 4
    error, at = read_int16(frame, at)
    producer_id, at = read_int64(frame, at)
    epoch, _ = read_int16(frame, at)
    return error, producer_id, epoch
