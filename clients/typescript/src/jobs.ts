// Jobs of a session.

import { type Connection, get, keyed, post, segment } from "./connection.js";
import { ApiError, ConnectionFailed, JobWaitTimedOut } from "./errors.js";
import { finished } from "./finished.js";
import { pages } from "./listing.js";
import {
  type Execution,
  type JobStatus,
  type JsonObject,
  type Progress,
  progress,
} from "./models.js";

/** Longest wait that one request asks the server for, in seconds. */
const JOB_WAIT = 20;

export interface JobOptions {
  /** Seconds. */
  timeout?: number;
  stdin?: string;
  variables?: JsonObject;
  memoryLimit?: string | number;
  priority?: number;
  retries?: number;
  runAt?: Date;
  webhook?: string;
  webhookSecret?: string;
}

/** A piece of a job's output, or how far the job is. */
export type JobEvent =
  { text: string; offset: number; nextOffset: number } | { progress: Progress };

/** Code that runs beside the session. `raw` is what the server said of it last. */
export class Job {
  constructor(
    private readonly connection: Connection,
    public raw: JsonObject,
  ) {}

  get id(): string {
    return this.raw["job_id"];
  }

  get status(): JobStatus {
    return this.raw["status"];
  }

  get isFinal(): boolean {
    return this.status !== "pending" && this.status !== "running";
  }

  private path(part = ""): string {
    return `/api/v1/jobs/${segment(this.id)}${part}`;
  }

  /** Waits for its end, `timeout` seconds at most. */
  async wait(timeout = Number.POSITIVE_INFINITY): Promise<this> {
    for (let left = timeout; !this.isFinal; left -= JOB_WAIT) {
      if (left <= 0) {
        throw new JobWaitTimedOut(`job ${this.id} is still ${this.status} after ${timeout} s`);
      }
      const wait = Math.min(JOB_WAIT, left);
      const request = { ...get(this.path(), { wait }), timeout: this.connection.timeout + wait };
      this.raw = await this.connection.json(request);
    }
    return this;
  }

  /** Waits for its end, and returns what became of the code. */
  async result(options: { timeout?: number; check?: boolean } = {}): Promise<Execution> {
    await this.wait(options.timeout);
    const reply: JsonObject = await this.connection.json(get(this.path("/result")));
    return finished(this.connection, reply, options.check);
  }

  /** Its output and progress as they come, until its end. It survives a broken connection. */
  async *stream(offset = 0): AsyncGenerator<JobEvent> {
    for (let breaks = 0; ;) {
      const request = get(this.path("/stream"), { offset });
      request.headers = { Accept: "application/x-ndjson" };
      try {
        for await (const event of this.connection.lines(request)) {
          if ("job_id" in event) {
            this.raw = event;
            return;
          }
          if ("error" in event) throw new ApiError("unknown", event["error"]);
          if ("text" in event) {
            breaks = 0;
            offset = event["next_offset"];
            yield { text: event["text"], offset: event["offset"], nextOffset: offset };
          } else if ("progress" in event) yield { progress: progress(event["progress"]) };
        }
        throw new ConnectionFailed("the stream of the job ended before the job");
      } catch (error) {
        breaks += 1;
        if (!(error instanceof ConnectionFailed) || breaks > this.connection.retries) throw error;
      }
    }
  }

  /** Cancels it; its processes are killed. A job that has ended stays as it is. */
  async cancel(): Promise<this> {
    this.raw = await this.connection.json(post(this.path("/cancel")));
    return this;
  }
}

/** Jobs: runs that go on by themselves, with a copy of the session's variables and its files. */
export class Jobs {
  constructor(
    private readonly sessionId: string,
    private readonly connection: Connection,
  ) {}

  async submit(code: string, options: JobOptions = {}): Promise<Job> {
    const { timeout, stdin, variables, priority, retries, webhook } = options;
    const json = {
      code,
      session_id: this.sessionId,
      timeout,
      stdin,
      variables,
      memory_limit: options.memoryLimit,
      priority,
      retries,
      run_at: options.runAt?.toISOString(),
      webhook,
      webhook_secret: options.webhookSecret,
    };
    return new Job(this.connection, await this.connection.json(keyed("/api/v1/jobs", json)));
  }

  async get(id: string): Promise<Job> {
    return new Job(this.connection, await this.connection.json(get(`/api/v1/jobs/${segment(id)}`)));
  }

  /** Jobs of the session, the latest first. */
  async list(status?: JobStatus): Promise<Job[]> {
    const query = { session_id: this.sessionId, status };
    const jobs = (page: JsonObject): Job[] =>
      page["jobs"].map((job: JsonObject) => new Job(this.connection, job));
    return pages(this.connection, "/api/v1/jobs", query, jobs);
  }
}
