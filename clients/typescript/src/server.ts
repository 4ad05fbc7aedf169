// A private server: a process of `woma serve` that lives as long as its sandbox.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { access, constants, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

import { ServerStartError } from "./errors.js";

const START_TIMEOUT = 60_000;
const STOP_TIMEOUT = 20_000;
const LOG_LINES = 40;
const LISTENING = /listening on (http:\/\/[0-9.]+:[0-9]+)/;
// Settings of the caller's other programs, such as DATABASE_URL, are not meant for this server.
const PASSED = ["PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LC_ALL"];
// Those that the package reads itself, or sets.
const OWN = ["WOMA_BIN", "WOMA_URL", "WOMA_API_KEY", "WOMA_API_KEY_FILE", "WOMA_HOST", "WOMA_PORT"];
// The shell stops the server when its standard input ends, so that the server does not outlive a
// process that was killed.
const SUPERVISOR = `
folder=$1; shift
"$@" </dev/null >/dev/null &
server=$!
exec 2>/dev/null
read -r line
kill -TERM "$server"
wait "$server"
rm -rf -- "$folder"
`;

/** The server's program: `WOMA_BIN`, else on the search path. */
async function findBinary(): Promise<string> {
  const named = process.env["WOMA_BIN"];
  if (named) return named;
  for (const folder of (process.env["PATH"] ?? "").split(delimiter).filter(Boolean)) {
    const found = join(folder, "woma");
    if (
      await access(found, constants.X_OK).then(
        () => true,
        () => false,
      )
    )
      return found;
  }
  throw new ServerStartError(
    "there is no server: set WOMA_URL or pass `url`, or install the program `woma` on the search " +
      "path (WOMA_BIN names it elsewhere)",
  );
}

function environment(): Record<string, string> {
  const variables: Record<string, string> = {};
  for (const [name, value] of Object.entries(process.env)) {
    const isOwn = name.startsWith("WOMA_") && !OWN.includes(name);
    if (value !== undefined && (isOwn || PASSED.includes(name))) variables[name] = value;
  }
  return variables;
}

/** The Python environment of sessions. The first time, it is made, which takes minutes. */
async function makeEnvironment(binary: string): Promise<string> {
  // It downloads packages, with the settings of proxies and of uv.
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !OWN.includes(name)),
  );
  try {
    const made = await promisify(execFile)(binary, ["env", "create"], { env });
    return made.stdout.trim();
  } catch (error) {
    throw new ServerStartError(`\`${binary} env create\` failed: ${error}`, { cause: error });
  }
}

export class PrivateServer {
  private constructor(
    private readonly child: ChildProcess,
    private readonly folder: string,
    readonly url: string,
    readonly apiKey: string,
    readonly log: string[],
  ) {}

  /** Starts a server on a free port of this machine, with a key that only this process knows. */
  static async start(): Promise<PrivateServer> {
    const binary = await findBinary();
    const variables = environment();
    const prefix = variables["WOMA_ENV"] ?? (await makeEnvironment(binary));
    const folder = await mkdtemp(join(tmpdir(), "woma-sandbox-"));
    const apiKey = randomBytes(24).toString("hex");
    const serve = ["serve", "--host", "127.0.0.1", "--port", "0"];
    const command = [binary, "--data-dir", folder, "--env", prefix, ...serve];
    const child = spawn("/bin/sh", ["-c", SUPERVISOR, "woma-sandbox", folder, ...command], {
      // No `.env` of the caller's project is read.
      cwd: folder,
      env: { WOMA_PRELOAD: "base", ...variables, WOMA_API_KEY: apiKey },
      stdio: ["pipe", "ignore", "pipe"],
      // Ctrl-C is for the caller: the server ends when the sandbox is closed.
      detached: true,
    });
    const log: string[] = [];
    try {
      const url = await listening(child, log);
      // A program that has nothing else to do may end.
      for (const part of [child, child.stdin, child.stderr] as { unref?: () => void }[]) {
        part.unref?.();
      }
      return new PrivateServer(child, folder, url, apiKey, log);
    } catch (error) {
      await stop(child, folder);
      throw error;
    }
  }

  /** Stops it, and removes its data. */
  async stop(): Promise<void> {
    await stop(this.child, this.folder);
  }
}

function listening(child: ChildProcess, log: string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const fail = (why: string) => {
      clearTimeout(timer);
      const said = log.join("\n") || "it has said nothing";
      reject(new ServerStartError(`the server did not begin to listen: ${why}\n${said}`));
    };
    const timer = setTimeout(() => fail("it takes too long"), START_TIMEOUT);
    child.once("error", (error) => fail(error.message));
    if (child.stderr === null) return fail("its log cannot be read");
    // Read to its end: a full pipe would stop the server.
    const lines = createInterface({ input: child.stderr });
    lines.on("line", (line) => {
      log.push(line);
      if (log.length > LOG_LINES) log.shift();
      const found = LISTENING.exec(line)?.[1];
      if (found === undefined) return;
      clearTimeout(timer);
      resolve(found);
    });
    lines.once("close", () => fail("it has ended"));
  });
}

/** Ends the supervisor's input, upon which it stops the server; kills both if it does not. */
async function stop(child: ChildProcess, folder: string): Promise<void> {
  if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) {
    child.ref();
    const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    const group = -child.pid;
    const timer = setTimeout(() => process.kill(group, "SIGKILL"), STOP_TIMEOUT);
    child.stdin?.on("error", () => undefined).end();
    await ended;
    clearTimeout(timer);
  }
  await rm(folder, { recursive: true, force: true });
}
