// Requests to one server: time limits, retries where they are harmless, errors as exceptions.

import { randomUUID } from "node:crypto";

import { ApiError, apiError, ConnectionFailed, RequestTimedOut, WomaError } from "./errors.js";
import type { Json, JsonObject } from "./models.js";
import type { PrivateServer } from "./server.js";

export const RETRIES = 2;
export const TIMEOUT = 60;
/** Seconds without a byte after which a stream counts as dead; the server sends one every ten. */
const STREAM_SILENCE = 60;
const RETRY_WAIT_MAX = 30;

export interface Request {
  method: string;
  path: string;
  query?: Record<string, string | number | boolean | undefined>;
  json?: JsonObject;
  content?: string | Uint8Array | Blob;
  headers?: Record<string, string>;
  /** Whether a repetition is harmless after the request may have arrived. */
  repeatable?: boolean;
  /** Seconds. */
  timeout?: number;
  signal?: AbortSignal | undefined;
}

export function get(path: string, query: NonNullable<Request["query"]> = {}): Request {
  return { method: "GET", path, query, repeatable: true };
}

export function post(path: string, json: JsonObject = {}): Request {
  return { method: "POST", path, json };
}

/** A request that the server carries out once, however often it arrives. */
export function keyed(path: string, json: JsonObject): Request {
  const headers = { "Idempotency-Key": randomUUID() };
  return { method: "POST", path, json, headers, repeatable: true };
}

/** Seconds that a client waits for a reply to work with a time limit of its own. */
export function workTimeout(timeout: number | undefined): number {
  return (timeout ?? 600) + 60;
}

export const segment = encodeURIComponent;

export function filePath(session: string, path: string): string {
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  return `/api/v1/sessions/${segment(session)}/files/${parts.map(segment).join("/")}`;
}

/** A reply whose body is still to be read; `done` must be called in the end. */
interface Begun {
  response: Response;
  touch(): void;
  done(): void;
  explain(error: unknown): Error;
}

export class Connection {
  constructor(
    readonly url: string,
    private readonly apiKey: string | undefined,
    readonly timeout: number,
    readonly retries: number,
    readonly server?: PrivateServer,
  ) {}

  async json(request: Request): Promise<Json> {
    const [response, body] = await this.whole(request);
    const text = new TextDecoder().decode(body);
    try {
      return JSON.parse(text);
    } catch {
      throw apiError(response.status, response.headers, text);
    }
  }

  async bytes(request: Request): Promise<Uint8Array> {
    return (await this.whole(request))[1];
  }

  /** Sends a request and reads the whole reply. */
  async whole(request: Request): Promise<[Response, Uint8Array]> {
    return this.retried(request, async () => {
      const begun = await this.begin(request, request.timeout ?? this.timeout);
      try {
        const body = new Uint8Array(await begun.response.arrayBuffer());
        return [begun.response, body] as [Response, Uint8Array];
      } catch (error) {
        throw begun.explain(error);
      } finally {
        begun.done();
      }
    });
  }

  /** Sends a request whose reply is lines of JSON; ends the request when the caller leaves. */
  async *lines(request: Request): AsyncGenerator<JsonObject> {
    const begun = await this.retried(request, () => this.begin(request, STREAM_SILENCE));
    const decoder = new TextDecoder();
    let rest = "";
    try {
      const body = begun.response.body as AsyncIterable<Uint8Array> | null;
      for await (const piece of body ?? []) {
        begun.touch();
        const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) if (line.trim()) yield JSON.parse(line) as JsonObject;
      }
    } catch (error) {
      throw error instanceof WomaError ? error : begun.explain(error);
    } finally {
      begun.done();
    }
  }

  /** Repeats a request as long as that is harmless and worth it. */
  private async retried<T>(request: Request, attempt: () => Promise<T>): Promise<T> {
    for (let count = 0, left = this.retries; ;) {
      try {
        return await attempt();
      } catch (error) {
        if (request.signal?.aborted) throw error;
        let pause: number | undefined;
        const isRepeated = count > 0 && "Idempotency-Key" in (request.headers ?? {});
        if (error instanceof ApiError) {
          if (error.code === "conflict" && error.retryAfter !== undefined && isRepeated) {
            // The first request has arrived and is still worked on: its reply is waited for.
            await sleep(error.retryAfter);
            continue;
          }
          // After these, the server has done nothing.
          const isPassing = error.status === 503 || error.code === "rate_limited";
          pause = isPassing ? (error.retryAfter ?? 0) : undefined;
        } else if (error instanceof ConnectionFailed) {
          pause = request.repeatable || isUnsent(error) ? 0 : undefined;
        }
        if (pause === undefined || left <= 0 || pause > RETRY_WAIT_MAX) throw error;
        left -= 1;
        count += 1;
        await sleep(Math.max(pause, 0.2 * 2 ** (count - 1) * (0.75 + Math.random() / 2)));
      }
    }
  }

  private async begin(request: Request, silence: number): Promise<Begun> {
    const control = new AbortController();
    let isLate = false;
    const late = () => {
      isLate = true;
      control.abort();
    };
    let timer = setTimeout(late, silence * 1000);
    const leave = () => control.abort();
    request.signal?.addEventListener("abort", leave);
    const begun = {
      touch: () => {
        clearTimeout(timer);
        timer = setTimeout(late, silence * 1000);
      },
      done: () => {
        clearTimeout(timer);
        request.signal?.removeEventListener("abort", leave);
        control.abort();
      },
      explain: (error: unknown) => this.explain(request, error, isLate),
    };
    try {
      request.signal?.throwIfAborted();
      const response = await fetch(this.address(request), this.init(request, control.signal));
      if (!response.ok) throw apiError(response.status, response.headers, await response.text());
      return { response, ...begun };
    } catch (error) {
      begun.done();
      throw error instanceof ApiError ? error : begun.explain(error);
    }
  }

  private address(request: Request): string {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(request.query ?? {})) {
      if (value !== undefined) query.set(name, String(value));
    }
    const text = query.toString();
    return this.url + request.path + (text ? `?${text}` : "");
  }

  private init(request: Request, signal: AbortSignal): RequestInit {
    const headers: Record<string, string> = { Accept: "application/json", ...request.headers };
    if (this.apiKey) headers["Authorization"] = `Bearer ${this.apiKey}`;
    const init: RequestInit = {
      method: request.method,
      headers,
      signal,
      // The server sends none, and another address is not told the key.
      redirect: "manual",
    };
    if (request.json !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(request.json);
    } else if (request.content !== undefined) {
      headers["Content-Type"] = "application/octet-stream";
      init.body = request.content as NonNullable<RequestInit["body"]>;
    }
    return init;
  }

  private explain(request: Request, error: unknown, isLate: boolean): Error {
    if (request.signal?.aborted) return request.signal.reason as Error;
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const said = isLate ? "the server did not answer in time" : String(cause);
    let message = `${request.method} ${this.url}${request.path} failed: ${said}`;
    const log = this.server?.log.join("\n");
    if (log) message += `\nthe server has said last:\n${log}`;
    return new (isLate ? RequestTimedOut : ConnectionFailed)(message, { cause });
  }
}

/** Whether a request has certainly not arrived. */
function isUnsent(error: ConnectionFailed): boolean {
  const code = (error.cause as { code?: unknown } | undefined)?.code;
  return code === "ECONNREFUSED" || code === "ENOTFOUND" || code === "UND_ERR_CONNECT_TIMEOUT";
}

function sleep(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}
