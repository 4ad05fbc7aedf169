// Files of a session.

import { randomUUID } from "node:crypto";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

import { type Connection, filePath, get, segment } from "./connection.js";
import { pages } from "./listing.js";
import { type FileInfo, fileInfo } from "./models.js";

/** Files of the session. Paths are relative to its working directory. */
export class Files {
  constructor(
    private readonly sessionId: string,
    private readonly connection: Connection,
  ) {}

  private path(path: string): string {
    return filePath(this.sessionId, path);
  }

  async write(path: string, content: string | Uint8Array | Blob): Promise<FileInfo> {
    const request = { method: "PUT", path: this.path(path), content, repeatable: true };
    return fileInfo(await this.connection.json(request));
  }

  async read(path: string): Promise<Uint8Array> {
    return this.connection.bytes(get(this.path(path)));
  }

  async readText(path: string): Promise<string> {
    return new TextDecoder().decode(await this.read(path));
  }

  /** All files of the session, by path; hidden ones are left out. */
  async list(): Promise<FileInfo[]> {
    const path = `/api/v1/sessions/${segment(this.sessionId)}/files`;
    return pages(this.connection, path, {}, (page) => page["files"].map(fileInfo));
  }

  async delete(path: string): Promise<void> {
    await this.connection.whole({ method: "DELETE", path: this.path(path), repeatable: true });
  }

  /** Uploads a local file; by default it keeps its name. */
  async upload(local: string, path = basename(local)): Promise<FileInfo> {
    return this.write(path, new Uint8Array(await readFile(local)));
  }

  /** Writes a file of the session into a local one, which appears complete or not at all. */
  async download(path: string, local = basename(path)): Promise<string> {
    const aside = join(dirname(local), `.${basename(local)}.${randomUUID()}.part`);
    try {
      await writeFile(aside, await this.read(path));
      await rename(aside, local);
    } finally {
      await rm(aside, { force: true });
    }
    return local;
  }
}
