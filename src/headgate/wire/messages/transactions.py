"""
InitProducerId 22: counted for the storms report, never charged.

Source: Apache Kafka's ``InitProducerId*.json``.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.wire.apis import INIT_PRODUCER_ID
from headgate.wire.fields import Buffer, read_int16, read_int64
from headgate.wire.header import response_body_offset
from headgate.wire.schema import BOOL, INT16, INT32, INT64, NULLABLE_STRING, Field, Struct


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """Ask for a producer id."""

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = -1
    producer_epoch: int = -1
    enable_2pc: bool = False
    keep_prepared_txn: bool = False


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    """The producer id given."""

    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int = -1
    ongoing_txn_producer_epoch: int = -1
    throttle_time_ms: int = 0


REQUESTS = {
    INIT_PRODUCER_ID: Struct(
        InitProducerIdRequest,
        Field("transactional_id", NULLABLE_STRING),
        Field("transaction_timeout_ms", INT32),
        Field("producer_id", INT64, since=3),
        Field("producer_epoch", INT16, since=3),
        Field("enable_2pc", BOOL, since=6),
        Field("keep_prepared_txn", BOOL, since=6),
    ),
}
RESPONSES = {
    INIT_PRODUCER_ID: Struct(
        InitProducerIdResponse,
        Field("throttle_time_ms", INT32),
        Field("error_code", INT16),
        Field("producer_id", INT64),
        Field("producer_epoch", INT16),
        Field("ongoing_txn_producer_id", INT64, since=6),
        Field("ongoing_txn_producer_epoch", INT16, since=6),
    ),
}


def init_producer_id_response(frame: Buffer, version: int) -> tuple[int, int, int]:
    """Return (error code, producer id, epoch) of an InitProducerId response."""
    at = response_body_offset(INIT_PRODUCER_ID, version, frame) + 4
    error, at = read_int16(frame, at)
    producer_id, at = read_int64(frame, at)
    epoch, _ = read_int16(frame, at)
    return error, producer_id, epoch
