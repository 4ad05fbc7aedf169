"""Exceptions: one for each code of the server's errors, and those of the client itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._execution import Execution

TEXT_CHARS_MAX = 500


class WomaError(Exception):
    """Base of every exception of this package."""


class ServerStartError(WomaError):
    """The private server could not be started; the message has the end of its log."""


class ConnectionFailed(WomaError):
    """The server could not be reached, or the connection broke."""


class RequestTimedOut(ConnectionFailed):
    """The server did not answer in time. It may still carry out the request."""


class JobWaitTimedOut(WomaError):
    """A job had not ended after the time that its caller would wait. It goes on."""


class ExecutionFailed(WomaError):
    """Code failed, and its caller had asked for an exception by `check=True`."""

    def __init__(self, execution: Execution) -> None:
        error = execution.error
        super().__init__(str(error) if error else f"the run ended as {execution.outcome}")
        self.execution = execution


class ApiError(WomaError):
    """The server refused or failed a request.

    `code` is stable, `message` is for people, and `hint` names a remedy if one is known.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        status: int = 0,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status
        self.retry_after = retry_after
        self.request_id = request_id


class InvalidArgumentError(ApiError):
    """The request is invalid; the message says why."""


class UnauthenticatedError(ApiError):
    """The server needs a key, and there was none or no valid one."""


class ForbiddenError(ApiError):
    """The key lacks a scope, or the host or the address is not allowed."""


class NotFoundError(ApiError):
    """The session, file, job, dataset or execution does not exist, or belongs to another key."""


class MethodNotAllowedError(ApiError):
    """The route has no such method: the server is older or newer than this package."""


class NotAcceptableError(ApiError):
    """The server has no format that the client reads."""


class UploadTimeoutError(ApiError):
    """The body of the request was not complete in time."""


class CancelledRequestError(ApiError):
    """The request was given up before its code began to run."""


class ConflictError(ApiError):
    """The request conflicts with what is there."""


class GoneError(ApiError):
    """The address of the file has expired."""


class IdempotencyMismatchError(ApiError):
    """An idempotency key was used with another request."""


class TooLargeError(ApiError):
    """A body, code, variables or a file are beyond their limit."""


class RateLimitedError(ApiError):
    """Too many requests in a minute."""


class QuotaExceededError(ApiError):
    """The caller has reached its quota of sessions or bytes."""


class InternalServerError(ApiError):
    """A fault of the server; its log has the details."""


class TimedOutError(ApiError):
    """A load or a query reached its time limit."""


class FetchFailedError(ApiError):
    """The server of a requested address failed."""


class BusyError(ApiError):
    """All places of the server are taken."""


class InsufficientStorageError(ApiError):
    """The disk of the server is full, or below its reserve."""


class UnavailableError(ApiError):
    """The server is shutting down, or a part of it does not answer."""


ERRORS: Mapping[str, type[ApiError]] = {
    "invalid_argument": InvalidArgumentError,
    "unauthenticated": UnauthenticatedError,
    "forbidden": ForbiddenError,
    "not_found": NotFoundError,
    "method_not_allowed": MethodNotAllowedError,
    "not_acceptable": NotAcceptableError,
    "request_timeout": UploadTimeoutError,
    "cancelled": CancelledRequestError,
    "conflict": ConflictError,
    "gone": GoneError,
    "idempotency_mismatch": IdempotencyMismatchError,
    "too_large": TooLargeError,
    "rate_limited": RateLimitedError,
    "quota_exceeded": QuotaExceededError,
    "internal": InternalServerError,
    "timed_out": TimedOutError,
    "fetch_failed": FetchFailedError,
    "busy": BusyError,
    "insufficient_storage": InsufficientStorageError,
    "unavailable": UnavailableError,
}


def api_error(status: int, headers: Mapping[str, str], body: object, text: str) -> ApiError:
    """The exception of an error reply; one that is not the server's own has the code `unknown`."""
    fields: Mapping[str, Any] = body if isinstance(body, dict) else {}
    code = fields.get("code")
    message = fields.get("message")
    if not isinstance(code, str) or not isinstance(message, str):
        code = "unknown"
        message = f"the server answered with status {status}: {text[:TEXT_CHARS_MAX].strip()}"
    hint = fields.get("hint")
    return ERRORS.get(code, ApiError)(
        code,
        message,
        hint=hint if isinstance(hint, str) else None,
        status=status,
        retry_after=seconds(headers.get("retry-after")),
        request_id=headers.get("x-request-id"),
    )


def seconds(text: str | None) -> float | None:
    """The value of `Retry-After`, if it is a number."""
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None
