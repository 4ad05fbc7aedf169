// Datasets of the caller.

import { type Connection, get, post, type Request, segment, workTimeout } from "./connection.js";
import { pages } from "./listing.js";
import {
  type DatasetInfo,
  dataset,
  type Json,
  type JsonObject,
  type QueryResult,
} from "./models.js";

export interface LoadOptions {
  format?: string;
  delimiter?: string;
  encoding?: string;
  header?: boolean;
  sheet?: string;
  pages?: string;
  timeout?: number;
}

export interface QueryOptions {
  limit?: number;
  offset?: number;
  /** Whether the reply has the number of all rows. */
  count?: boolean;
  timeout?: number;
}

/** Datasets: tables of the caller, which SQL can name and all sessions can read. */
export class Datasets {
  constructor(
    private readonly sessionId: string,
    private readonly connection: Connection,
  ) {}

  /** Loads a file of the session as a dataset; one of the same name is replaced. */
  async load(path: string, name?: string, options: LoadOptions = {}): Promise<DatasetInfo> {
    const json = { file_path: path, dataset_name: name, session_id: this.sessionId, ...options };
    const request = post("/api/v1/datasets", json);
    return dataset(
      await this.connection.json({ ...request, timeout: workTimeout(options.timeout) }),
    );
  }

  /** Rows of one SQL statement that reads. `parameters` are for `?` or `$name`. */
  async query(sql: string, parameters?: Json, options: QueryOptions = {}): Promise<QueryResult> {
    const reply: JsonObject = await this.connection.json(reads({ sql, parameters, ...options }));
    const { data: rows, columns, types, has_more: hasMore, total } = reply;
    return { rows, columns, types, hasMore, total };
  }

  /** The result of a query as bytes: a file of Arrow, Parquet or CSV. */
  async export(
    sql: string,
    format: "arrow" | "parquet" | "csv" = "arrow",
    parameters?: Json,
    options: Omit<QueryOptions, "count"> = {},
  ): Promise<Uint8Array> {
    return this.connection.bytes(reads({ sql, parameters, format, ...options }));
  }

  /** The caller's datasets, by name. */
  async list(): Promise<DatasetInfo[]> {
    const rows = (page: JsonObject): DatasetInfo[] => page["datasets"].map(dataset);
    return pages(this.connection, "/api/v1/datasets", {}, rows);
  }

  async get(name: string): Promise<DatasetInfo> {
    return dataset(await this.connection.json(get(`/api/v1/datasets/${segment(name)}`)));
  }

  /** Statistics of the columns of a dataset, and some of its rows. */
  async describe(name: string): Promise<{ statistics: JsonObject[]; samples: JsonObject[] }> {
    const request = get(`/api/v1/datasets/${segment(name)}/description`);
    const reply: JsonObject = await this.connection.json({
      ...request,
      timeout: workTimeout(undefined),
    });
    return { statistics: reply["statistics"], samples: reply["samples"] };
  }

  async drop(name: string): Promise<void> {
    const path = `/api/v1/datasets/${segment(name)}`;
    await this.connection.whole({ method: "DELETE", path, repeatable: true });
  }
}

function reads(json: JsonObject): Request {
  return {
    ...post("/api/v1/queries", json),
    repeatable: true,
    timeout: workTimeout(json["timeout"]),
  };
}
