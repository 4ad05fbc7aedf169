// Exceptions: those of the server by their codes, and those of the client itself.

import type { Execution } from "./models.js";

/** Codes of the server's errors; `unknown` is a reply that is not the server's own. */
export type ErrorCode =
  | "invalid_argument"
  | "unauthenticated"
  | "forbidden"
  | "not_found"
  | "method_not_allowed"
  | "not_acceptable"
  | "request_timeout"
  | "cancelled"
  | "conflict"
  | "gone"
  | "idempotency_mismatch"
  | "too_large"
  | "rate_limited"
  | "quota_exceeded"
  | "internal"
  | "timed_out"
  | "fetch_failed"
  | "busy"
  | "insufficient_storage"
  | "unavailable"
  | "unknown";

const TEXT_CHARS_MAX = 500;

/** Base of every exception of this package. */
export class WomaError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The private server could not be started; the message has the end of its log. */
export class ServerStartError extends WomaError {}

/** The server could not be reached, or the connection broke. */
export class ConnectionFailed extends WomaError {}

/** The server did not answer in time. It may still carry out the request. */
export class RequestTimedOut extends ConnectionFailed {}

/** A job had not ended after the time that its caller would wait. It goes on. */
export class JobWaitTimedOut extends WomaError {}

/** Code failed, and its caller had asked for an exception by `check: true`. */
export class ExecutionFailed extends WomaError {
  constructor(readonly execution: Execution) {
    const error = execution.error;
    super(error ? `${error.name}: ${error.message}` : `the run ended as ${execution.outcome}`);
  }
}

/** The server refused or failed a request. `code` is stable, `hint` names a remedy if one is known. */
export class ApiError extends WomaError {
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly status: number;
  readonly retryAfter: number | undefined;
  readonly requestId: string | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    details: { hint?: string | undefined; status?: number; headers?: Headers } = {},
  ) {
    super(details.hint ? `${message} (${details.hint})` : message);
    const retryAfter = Number.parseFloat(details.headers?.get("retry-after") ?? "");
    this.code = code;
    this.hint = details.hint;
    this.status = details.status ?? 0;
    this.retryAfter = Number.isFinite(retryAfter) ? retryAfter : undefined;
    this.requestId = details.headers?.get("x-request-id") ?? undefined;
  }
}

/** The exception of an error reply. */
export function apiError(status: number, headers: Headers, text: string): ApiError {
  let body: { code?: unknown; message?: unknown; hint?: unknown } = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (parsed !== null && typeof parsed === "object") body = parsed;
  } catch {
    // It is told below as it is.
  }
  if (typeof body.code !== "string" || typeof body.message !== "string") {
    const said = text.slice(0, TEXT_CHARS_MAX).trim();
    const message = `the server answered with status ${status}: ${said}`;
    return new ApiError("unknown", message, { status, headers });
  }
  const hint = typeof body.hint === "string" ? body.hint : undefined;
  return new ApiError(body.code as ErrorCode, body.message, { hint, status, headers });
}
