"""
The errors of Headgate, by where the fault lies.

::

    HeadgateError
    ├── InvalidQuota            the caller's input: an entity, key, value or file of quotas
    ├── ConfigError             the operator's file or flags; carries every mistake at once
    │   └── BadArgument         an argument of a function of the library; a ValueError too
    ├── StoreError              a store can't be reached, or refused a change; ``retriable`` says
    │   │                       whether trying again can help
    │   ├── StoreSilent         the store doesn't answer; trying again can help
    │   ├── Unanswered          a server takes connections and doesn't answer in time
    │   ├── StoreReplaced       the store at this address isn't the known one, or was emptied, or is
    │   │                       an older copy of it
    │   └── StoreMovedOn        the store changed after the caller read it
    ├── ApiError                an answer with one of Kafka's error codes and its text
    ├── RemoteProtocolError     the peer broke the protocol
    └── LocalProtocolError      our own code was about to break it
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Final

MALFORMED: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""
What reading JSON or YAML of an unexpected form raises.

For example, ``int`` of an infinite number is an OverflowError, and brackets that are nested deeper
than the stack are a RecursionError.
"""
BAD_PATTERN: Final = (re.error, OverflowError, RecursionError)
"""What compiling somebody's regular expression raises: bad syntax, a number or depth too great."""


class KafkaError(enum.IntEnum):
    """The Kafka error codes Headgate sends or tells apart (Errors.java)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    NETWORK_EXCEPTION = 13
    COORDINATOR_NOT_AVAILABLE = 15
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    SASL_AUTHENTICATION_FAILED = 58
    THROTTLING_QUOTA_EXCEEDED = 89

    @property
    def generic_message(self) -> str | None:
        """Kafka's text for the code, used where no particular message is given (Errors.message)."""
        return _GENERIC.get(self)


_GENERIC: dict[KafkaError, str] = {
    KafkaError.UNKNOWN_SERVER_ERROR: (
        "The server experienced an unexpected error when processing the request."
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    KafkaError.UNSUPPORTED_VERSION: "The version of API is not supported.",
    KafkaError.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
    KafkaError.INVALID_REQUEST: (
        "This most likely occurs because of a request being malformed by the client library or "
        "the message was sent to an incompatible broker. See the broker logs for more details."
    ),
    KafkaError.THROTTLING_QUOTA_EXCEEDED: "The throttling quota has been exceeded.",
    KafkaError.INVALID_CONFIG: "Configuration is invalid.",
}


class HeadgateError(Exception):
    """Base of every error Headgate raises on purpose."""


class InvalidQuota(HeadgateError, ValueError):
    """An entity, key, value or quotas file is invalid; says what, where and the way out."""


class ConfigError(HeadgateError):
    """
    Mistakes in a settings file or in flags, all reported at once.

    Args:
        problems: one sentence each, with its line where there is one.
    """

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (
            (problems,) if isinstance(problems, str) else tuple(problems)
        )
        super().__init__("\n".join(self.problems))


class BadArgument(ConfigError, ValueError):
    """An argument of a function of the pipeline's library makes no sense; says what would."""


class StoreError(HeadgateError):
    """
    A store can't be reached, or refused a change.

    Attributes:
        kafka_code: what a gateway's clients are told.
        missing: what isn't there, where there is no store yet; else empty.
    """

    kafka_code = KafkaError.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable
        self.missing = ""


def store_missing(missing: str) -> StoreError:
    """Return the error of a store that isn't there yet."""
    error = StoreError(f"{missing}; a command that changes quotas makes one")
    error.missing = missing
    return error


class Unanswered(StoreError):
    """A server takes connections and doesn't answer in time."""


class StoreSilent(StoreError):
    """
    The store doesn't answer, or not in time; trying again can help.

    Args:
        silence: what doesn't answer.
        became: what became of the change that was asked for.
    """

    kafka_code = KafkaError.REQUEST_TIMED_OUT

    def __init__(self, silence: str, became: str = "") -> None:
        super().__init__(f"{silence}. {became}" if became else silence, retriable=True)
        self.silence = silence
        self.became = became


class StoreReplaced(StoreError):
    """The store at this address isn't the known one, or was emptied, or is an older copy of it."""

    kafka_code = KafkaError.REQUEST_TIMED_OUT  # once it is back, or accepted, the change is made


class StoreMovedOn(StoreError):
    """The store changed after the caller read the quotas that its own change is based on."""


class ApiError(HeadgateError):
    """
    An answer that carries one of Kafka's error codes.

    Args:
        code: Kafka's error code.
        message: the text sent with it; None sends none.
        throttle_time_ms: the delay told with the refusal (THROTTLING_QUOTA_EXCEEDED).
    """

    def __init__(
        self, code: KafkaError | int, message: str | None = None, *, throttle_time_ms: int = 0
    ) -> None:
        self.code = KafkaError(code) if code in KafkaError._value2member_map_ else code
        self.message = message
        self.throttle_time_ms = throttle_time_ms
        name = self.code.name if isinstance(self.code, KafkaError) else f"error {int(code)}"
        super().__init__(message if message is not None else name)

    @classmethod
    def generic(cls, code: KafkaError | int, *, throttle_time_ms: int = 0) -> ApiError:
        """Return a new error with Kafka's own text for its code, if it has one."""
        known = code in KafkaError._value2member_map_
        text = KafkaError(code).generic_message if known else None
        return cls(code, text, throttle_time_ms=throttle_time_ms)

    @property
    def name(self) -> str:
        """Kafka's name of the code, such as ``INVALID_REQUEST``."""
        return self.code.name if isinstance(self.code, KafkaError) else f"UNKNOWN({int(self.code)})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ApiError)
            and int(self.code) == int(other.code)
            and self.message == other.message
        )

    def __hash__(self) -> int:
        return hash((int(self.code), self.message))


def invalid_request(text: str) -> ApiError:
    """Return a new INVALID_REQUEST with a text."""
    return ApiError(KafkaError.INVALID_REQUEST, text)


class RemoteProtocolError(HeadgateError):
    """The peer sent bytes that the protocol forbids; its connection is closed and counted."""

    def __init__(self, message: str, *, reason: str = "malformed") -> None:
        super().__init__(message)
        self.reason = reason


class LocalProtocolError(HeadgateError):
    """Our own code asked for something that the protocol forbids: a bug."""
