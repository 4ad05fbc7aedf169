// The sandbox: one session, and runs in it.

import { randomUUID } from "node:crypto";

import {
  Connection,
  get,
  keyed,
  post,
  type Request,
  RETRIES,
  segment,
  TIMEOUT,
  workTimeout,
} from "./connection.js";
import { Datasets } from "./datasets.js";
import { ApiError, apiError, ConnectionFailed } from "./errors.js";
import { Files } from "./files.js";
import { finished } from "./finished.js";
import { Jobs } from "./jobs.js";
import {
  type Display,
  display,
  type Execution,
  type Health,
  type JsonObject,
  type Progress,
  progress,
} from "./models.js";
import { PrivateServer } from "./server.js";

export interface SandboxOptions {
  /** Address of the server; `WOMA_URL` if absent. Without one, a private server is started. */
  url?: string;
  /** `WOMA_API_KEY` if absent. */
  apiKey?: string;
  /** Seconds for a request; work with a time limit of its own may take longer. */
  timeout?: number;
  /** How often a request is repeated where that is harmless. */
  retries?: number;
}

export interface RunOptions {
  /** Seconds. */
  timeout?: number;
  stdin?: string;
  variables?: JsonObject;
  memoryLimit?: string | number;
  allowedImports?: string[];
  onStdout?: (text: string) => unknown;
  onStderr?: (text: string) => unknown;
  onDisplay?: (display: Display) => unknown;
  onProgress?: (progress: Progress) => unknown;
  /** Stops the code. */
  signal?: AbortSignal;
  /** Throw `ExecutionFailed` if the code fails. */
  check?: boolean;
}

/** A Python session on a server: its variables and files, jobs and datasets. */
export class Sandbox {
  readonly files: Files;
  readonly jobs: Jobs;
  readonly datasets: Datasets;

  private constructor(
    readonly sessionId: string,
    private readonly connection: Connection,
    private readonly isKept: boolean,
  ) {
    this.files = new Files(sessionId, connection);
    this.jobs = new Jobs(sessionId, connection);
    this.datasets = new Datasets(sessionId, connection);
  }

  /** A new session, which is deleted when the sandbox is closed. */
  static async create(options: SandboxOptions = {}): Promise<Sandbox> {
    return new Sandbox(`sdk-${randomUUID()}`, await connect(options), false);
  }

  /** A session by its id, which is made if it does not exist, and stays. */
  static async connect(sessionId: string, options: SandboxOptions = {}): Promise<Sandbox> {
    const connection = await connect(options);
    try {
      const path = `/api/v1/sessions/${segment(sessionId)}`;
      await connection
        .json({ method: "PATCH", path, json: {}, repeatable: true })
        .catch((error: unknown) => {
          if (!(error instanceof ApiError) || error.code !== "not_found") throw error;
          return connection.json({ method: "PUT", path, json: {}, repeatable: true });
        });
      return new Sandbox(sessionId, connection, true);
    } catch (error) {
      await connection.server?.stop();
      throw error;
    }
  }

  /** The address of the server. */
  get url(): string {
    return this.connection.url;
  }

  /** Deletes a new session, and stops the private server, if there is one. */
  async close(): Promise<void> {
    try {
      const request = { method: "DELETE", path: this.path(), repeatable: true };
      if (!this.isKept) await this.connection.whole(request);
    } catch (error) {
      // A sandbox that has run nothing has no session.
      if (!(error instanceof ApiError) && !(error instanceof ConnectionFailed)) throw error;
    } finally {
      await this.connection.server?.stop();
    }
  }

  private path(): string {
    return `/api/v1/sessions/${segment(this.sessionId)}`;
  }

  /**
   * Runs code in the session. Code that fails is no exception, but `execution.error`, unless `check`
   * is true. With a callback the output is streamed; an exception in a callback stops the code. A run
   * without callbacks survives a broken connection: the request is sent again, and the server carries
   * it out once.
   */
  async run(code: string, options: RunOptions = {}): Promise<Execution> {
    const { timeout, stdin, variables, signal } = options;
    const json = {
      code,
      session_id: this.sessionId,
      timeout,
      stdin,
      variables,
      memory_limit: options.memoryLimit,
      allowed_imports: options.allowedImports,
    };
    const path = "/api/v1/executions";
    const { onStdout, onStderr, onDisplay, onProgress } = options;
    let reply: JsonObject;
    if (onStdout || onStderr || onDisplay || onProgress) {
      reply = await this.streamed({ ...post(path, json), signal }, options);
    } else {
      try {
        reply = await this.connection.json({
          ...keyed(path, json),
          timeout: workTimeout(timeout),
          signal,
        });
      } catch (error) {
        // The server goes on with a request that has a key when its client leaves.
        if (signal?.aborted) await this.interrupt().catch(() => false);
        throw error;
      }
    }
    return finished(this.connection, reply, options.check);
  }

  private async streamed(request: Request, options: RunOptions): Promise<JsonObject> {
    request.headers = { Accept: "application/x-ndjson" };
    for await (const event of this.connection.lines(request)) {
      if ("done" in event) {
        const done: JsonObject = event["done"];
        if (!("success" in done)) throw apiError(500, new Headers(), JSON.stringify(done));
        return done;
      }
      if (event["stream"] === "stdout") await options.onStdout?.(event["text"]);
      else if (event["stream"] === "stderr") await options.onStderr?.(event["text"]);
      else if ("progress" in event) await options.onProgress?.(progress(event["progress"]));
      else {
        const shown = display(event);
        if (shown !== undefined) await options.onDisplay?.(shown);
      }
    }
    throw new ConnectionFailed("the stream of the run ended before its reply");
  }

  /** The whole of a text that is shortened in its execution: see `Execution.truncated`. */
  async output(from: Execution | string, stream = "stdout"): Promise<string> {
    const id = typeof from === "string" ? from : from.id;
    const path = `/api/v1/executions/${segment(id)}/output`;
    let text = "";
    for (let offset: number | null = 0; offset !== null;) {
      const page: JsonObject = await this.connection.json(get(path, { stream, offset }));
      text += page["text"];
      offset = page["next_offset"] ?? null;
    }
    return text;
  }

  /** Interrupts the running code; variables are kept. False if none was running. */
  async interrupt(): Promise<boolean> {
    return (await this.connection.json(post(`${this.path()}/interrupt`)))["interrupted"];
  }

  /** Deletes all variables and files of the session. */
  async reset(): Promise<void> {
    await this.connection.json(post(`${this.path()}/reset`));
  }

  /** Health of the server. */
  async health(): Promise<Health> {
    const raw: JsonObject = await this.connection.json(get("/health"));
    return { status: raw["status"], version: raw["version"], problems: raw["problems"] ?? [], raw };
  }
}

async function connect(options: SandboxOptions): Promise<Connection> {
  const { timeout = TIMEOUT, retries = RETRIES } = options;
  const url = options.url ?? (process.env["WOMA_URL"] || undefined);
  if (url !== undefined) {
    const key = options.apiKey ?? (process.env["WOMA_API_KEY"] || undefined);
    return new Connection(url.replace(/\/+$/, ""), key, timeout, retries);
  }
  const server = await PrivateServer.start();
  return new Connection(server.url, server.apiKey, timeout, retries, server);
}
