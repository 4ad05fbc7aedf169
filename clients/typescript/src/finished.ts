// Replies to runs, with the pictures that were too long for them.

import { type Connection, get } from "./connection.js";
import { ApiError, ExecutionFailed } from "./errors.js";
import {
  type Execution,
  execution,
  type JsonObject,
  missingPictures,
  type Picture,
} from "./models.js";

/** The reply as an object, with the pictures that were too long for it. */
export async function finished(
  connection: Connection,
  reply: JsonObject,
  check: boolean | undefined,
): Promise<Execution> {
  const count = missingPictures(reply);
  const pictures: Picture[] = [];
  for (let number = 1; number <= count; number += 1) {
    const path = `/api/v1/executions/${reply["execution_id"]}/images/${number}`;
    try {
      const [response, body] = await connection.whole(get(path));
      const mimeType = response.headers.get("content-type") ?? "";
      pictures.push([mimeType.split(";", 1)[0] ?? "", body]);
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== "not_found") throw error;
      reply["warnings"].push(`the server has no longer picture ${number} of ${count}`);
    }
  }
  const found = execution(reply, count > 0 ? pictures : undefined);
  if (check && !found.success) throw new ExecutionFailed(found);
  return found;
}
