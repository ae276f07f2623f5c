"""
kafka-configs: errors as Java prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headgate.errors import ApiError, HeadgateError, KafkaError

_EXCEPTIONS: Final[Mapping[int, str]] = {
    KafkaError.INVALID_REQUEST: "InvalidRequestException",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
    KafkaError.UNSUPPORTED_VERSION: "UnsupportedVersionException",
    KafkaError.INVALID_CONFIG: "InvalidConfigurationException",
    KafkaError.NOT_CONTROLLER: "NotControllerException",
    KafkaError.REQUEST_TIMED_OUT: "TimeoutException",
    KafkaError.POLICY_VIOLATION: "PolicyViolationException",
    KafkaError.SASL_AUTHENTICATION_FAILED: "SaslAuthenticationException",
    KafkaError.THROTTLING_QUOTA_EXCEEDED: "ThrottlingQuotaExceededException",
    KafkaError.UNKNOWN_SERVER_ERROR: "UnknownServerException",
}


def java_exception(error: ApiError) -> str:
    """Return an error as Java prints it, class and text."""
    name = _EXCEPTIONS.get(int(error.code), "ApiException")
    return f"org.apache.kafka.common.errors.{name}: {error}"


def java_text(error: BaseException) -> str:
    """Return what stands below "Error while executing config command", without the stack."""
    if isinstance(error, ApiError):
        return f"java.util.concurrent.ExecutionException: {java_exception(error)}"
    if isinstance(error, HeadgateError):
        return str(error)
    return f"{type(error).__name__}: {error}"
