// Listings in pages.

import { type Connection, get, type Request } from "./connection.js";
import type { JsonObject } from "./models.js";

/** Rows of all pages of a listing. */
export async function pages<T>(
  connection: Connection,
  path: string,
  query: NonNullable<Request["query"]>,
  rows: (page: JsonObject) => T[],
): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | undefined;
  do {
    const page: JsonObject = await connection.json(get(path, { ...query, limit: 1000, cursor }));
    found.push(...rows(page));
    cursor = page["next"];
  } while (cursor !== undefined);
  return found;
}
