// The package against the server at WOMA_URL, and private servers by WOMA_BIN and WOMA_ENV.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, connect as connectTo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";

import {
  ApiError,
  ConnectionFailed,
  ExecutionFailed,
  JobWaitTimedOut,
  RequestTimedOut,
  Sandbox,
  ServerStartError,
} from "woma-sdk";

for (const name of ["WOMA_URL", "WOMA_BIN", "WOMA_ENV"]) {
  assert.ok(process.env[name], `${name} must be set; \`make test\` sets it`);
}
const URL_OF_SERVER = process.env.WOMA_URL;
let sandbox;
before(async () => {
  sandbox = await Sandbox.create();
});
after(() => sandbox.close());

const isPng = (content) => Buffer.from(content.slice(1, 4)).toString() === "PNG";

/** A proxy that cuts the first `breaks` connections when the server begins to answer. */
async function proxy(breaks) {
  const target = new URL(URL_OF_SERVER);
  const seen = { connections: 0 };
  const listener = createServer((client) => {
    seen.connections += 1;
    const isCut = seen.connections <= breaks;
    const server = connectTo(Number(target.port), target.hostname);
    client.on("error", () => server.destroy()).on("close", () => server.destroy());
    server.on("error", () => client.destroy()).on("close", () => client.destroy());
    client.pipe(server);
    if (isCut) server.once("data", () => client.destroy());
    else server.pipe(client);
  });
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
  return {
    seen,
    url: `http://127.0.0.1:${listener.address().port}`,
    close: () => listener.close(),
  };
}

test("runs return values, output, charts, tables and files", async () => {
  const code = `
import pandas as pd, matplotlib.pyplot as plt, sys
print("out"); print("err", file=sys.stderr); print(input(), y)
plt.plot([1, 4]); plt.title("Squares"); plt.show()
open("made.txt", "w").write("made")
frame = pd.DataFrame({"city": ["Bern", None], "n": [1, 2]})
frame`;
  const execution = await sandbox.run(code, { stdin: "typed\n", variables: { y: 2 }, check: true });
  assert.equal(execution.stdout, "out\ntyped 2\n");
  assert.equal(execution.stderr, "err\n");
  assert.equal(execution.charts.length, 1);
  assert.ok(isPng(execution.charts[0].png));
  assert.equal(execution.charts[0].spec.axes[0].title, "Squares");
  assert.deepEqual(execution.tables[0].rows, [
    { city: "Bern", n: 1 },
    { city: null, n: 2 },
  ]);
  assert.match(execution.text, /Bern/);
  const file = execution.files.find(({ path }) => path === "made.txt");
  assert.equal(await (await fetch(file.url)).text(), "made");
  assert.equal((await sandbox.run("len(frame) + y")).result, 4);
});

test("output arrives while the code runs", async () => {
  const [out, shown, told] = [[], [], []];
  const code = `
import os, time
print("first")
while not os.path.exists("go"): time.sleep(0.01)
progress(1)
7`;
  const execution = await sandbox.run(code, {
    onStdout: async (text) => {
      out.push(text);
      await sandbox.files.write("go", "");
    },
    onDisplay: (display) => shown.push(display),
    onProgress: (progress) => told.push(progress),
  });
  assert.deepEqual(out, ["first\n"]);
  assert.deepEqual(shown, [{ mimeType: "text/plain", data: "7", isResult: true }]);
  assert.deepEqual(told, [{ fraction: 1, message: "" }]);
  assert.equal(execution.result, 7);
});

test("pictures and output that a reply has no room for are fetched", async () => {
  const code = `
import numpy as np, matplotlib.pyplot as plt
for number in range(2):
    plt.figure(); plt.imshow(np.random.default_rng(number).random((700, 700, 3))); plt.show()
print("x" * 1_200_000)`;
  const execution = await sandbox.run(code, { check: true });
  const sizes = execution.charts.map(({ png }) => png.length);
  assert.equal(sizes.length, 2);
  assert.ok(
    sizes.every((size) => size > 200_000),
    String(sizes),
  );
  assert.equal(execution.truncated[0].stream, "stdout");
  assert.equal(await sandbox.output(execution), `${"x".repeat(1_200_000)}\n`);
});

test("failures are objects, or exceptions if that is asked for", async () => {
  const { error, success } = await sandbox.run("a = 1\na / 0");
  assert.equal(success, false);
  assert.deepEqual([error.name, error.line, error.category], ["ZeroDivisionError", 2, "runtime"]);
  await assert.rejects(sandbox.run("1 / 0", { check: true }), ExecutionFailed);
  const late = await sandbox.run("while True: pass", { timeout: 1 });
  assert.equal(late.error.name, "timed_out");
  await assert.rejects(sandbox.run("x", { variables: { "not a name": 1 } }), (refusal) => {
    assert.ok(refusal instanceof ApiError);
    assert.deepEqual([refusal.code, refusal.status], ["invalid_argument", 400]);
    return refusal.requestId !== undefined;
  });
});

test("a signal or an exception of a callback stops the code", async () => {
  const stopped = new Error("enough");
  const code = "open('on', 'w').close()\nprint('on')\nimport time\ntime.sleep(600)";
  const fail = () => {
    throw stopped;
  };
  await assert.rejects(sandbox.run(code, { onStdout: fail, timeout: 600 }), stopped);
  const streamed = new AbortController();
  const onStdout = () => streamed.abort(stopped);
  const run = sandbox.run(code, { onStdout, signal: streamed.signal, timeout: 600 });
  await assert.rejects(run, stopped);
  await sandbox.run("import os; os.remove('on')", { check: true });
  const keyed = new AbortController();
  const waiting = sandbox.run(code, { signal: keyed.signal, timeout: 600 });
  const outcome = assert.rejects(waiting, stopped);
  const paths = async () => (await sandbox.files.list()).map(({ path }) => path);
  while (!(await paths()).includes("on"));
  keyed.abort(stopped);
  await outcome;
  assert.equal((await sandbox.run("'free'")).result, "free");
});

test("files are written, read, listed, moved and deleted", async () => {
  const folder = await mkdtemp(join(tmpdir(), "woma-sdk-"));
  try {
    const content = new Uint8Array(300_000).map((_, index) => index % 251);
    await writeFile(join(folder, "local.bin"), content);
    const session = await Sandbox.connect(`t-${randomUUID()}`);
    assert.equal((await session.files.write("a/text é.txt", "höy")).size, 4);
    assert.equal(await session.files.readText("a/text é.txt"), "höy");
    await session.files.upload(join(folder, "local.bin"));
    assert.deepEqual(await session.files.read("local.bin"), content);
    const paths = (await session.files.list()).map(({ path }) => path);
    assert.deepEqual(paths, ["a/text é.txt", "local.bin"]);
    await session.files.download("local.bin", join(folder, "copy.bin"));
    assert.deepEqual(new Uint8Array(await readFile(join(folder, "copy.bin"))), content);
    await session.files.delete("local.bin");
    const missing = (error) => error instanceof ApiError && error.code === "not_found";
    await assert.rejects(session.files.read("local.bin"), missing);
    await assert.rejects(session.files.download("local.bin", join(folder, "none.bin")), missing);
    assert.deepEqual((await readdir(folder)).sort(), ["copy.bin", "local.bin"]);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("a named session stays and an own one goes", async () => {
  const name = `t-${randomUUID()}`;
  const first = await Sandbox.connect(name);
  await first.run("x = 5");
  await first.close();
  const second = await Sandbox.connect(name);
  assert.equal((await second.run("x")).result, 5);
  await second.reset();
  assert.equal((await second.run("x")).error.name, "NameError");
  const own = await Sandbox.create();
  await own.run("1");
  await own.close();
  const { status } = await fetch(`${URL_OF_SERVER}/api/v1/sessions/${own.sessionId}`);
  assert.equal(status, 404);
});

test("jobs are followed, waited for and cancelled", async () => {
  await sandbox.run("n = 40");
  const job = await sandbox.jobs.submit("print('begun', flush=True)\nprogress(0.5, 'half')\nn + 2");
  let text = "";
  const told = [];
  for await (const event of job.stream()) {
    if ("text" in event) text += event.text;
    else told.push(event.progress);
  }
  assert.ok(text.startsWith("begun\n"), text);
  assert.deepEqual(told, [{ fraction: 0.5, message: "half" }]);
  assert.equal((await job.result({ check: true })).result, 42);
  assert.equal((await sandbox.jobs.get(job.id)).status, "completed");
  const long = await sandbox.jobs.submit("import time\ntime.sleep(600)", { timeout: 900 });
  await assert.rejects(long.wait(0.1), JobWaitTimedOut);
  await long.cancel();
  assert.equal((await long.wait(60)).status, "cancelled");
  assert.equal((await long.result()).success, false);
  assert.deepEqual(
    (await sandbox.jobs.list("cancelled")).map(({ id }) => id),
    [long.id],
  );
});

test("datasets are loaded, queried and dropped", async () => {
  const name = `t${randomUUID().slice(0, 8)}`;
  await sandbox.files.write("sales.csv", "city,amount\nBern,3\nOslo,5\nBern,8\n");
  const loaded = await sandbox.datasets.load("sales.csv", name);
  assert.deepEqual([loaded.rowCount, loaded.columns.length], [3, 2]);
  const sql = `SELECT city, sum(amount) AS total FROM ${name} GROUP BY city ORDER BY city`;
  const result = await sandbox.datasets.query(sql, undefined, { count: true });
  assert.deepEqual(result.rows, [
    { city: "Bern", total: 11 },
    { city: "Oslo", total: 5 },
  ]);
  assert.equal(result.total, 2);
  const parquet = await sandbox.datasets.export(sql, "parquet");
  assert.equal(Buffer.from(parquet.slice(0, 4)).toString(), "PAR1");
  assert.ok((await sandbox.datasets.list()).some((one) => one.name === name));
  assert.equal((await sandbox.datasets.get(name)).rowCount, 3);
  assert.equal((await sandbox.datasets.describe(name)).statistics.length, 2);
  await sandbox.datasets.drop(name);
  await assert.rejects(sandbox.datasets.get(name), ApiError);
});

test("a lost reply is asked for again, and the code runs once", async () => {
  const breaking = await proxy(2);
  const through = await Sandbox.create({ url: breaking.url });
  try {
    const code = "count = globals().get('count', 0) + 1\ncount";
    assert.equal((await through.run(code)).result, 1);
    assert.equal(breaking.seen.connections, 3);
    assert.equal((await through.run(code)).result, 2);
  } finally {
    await through.close();
    breaking.close();
  }
});

test("a server that is away or silent is an error", async () => {
  const listener = createServer(() => undefined);
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${listener.address().port}`;
  const silent = await Sandbox.create({ url, timeout: 0.2, retries: 0 });
  await assert.rejects(silent.health(), RequestTimedOut);
  listener.close();
  listener.closeAllConnections?.();
  const away = await Sandbox.create({ url: "http://127.0.0.1:1", retries: 0 });
  await assert.rejects(away.health(), ConnectionFailed);
  await away.close();
});

test("a private server works, and does not outlive a process that is killed", async () => {
  const program = `
import { Sandbox } from "woma-sdk";
const sandbox = await Sandbox.create();
const { result } = await sandbox.run("6 * 7");
console.log(JSON.stringify({ url: sandbox.url, result }));
setInterval(() => undefined, 1000);`;
  // The environment of sessions is found by its data folder, as `woma env create` finds it.
  const { WOMA_URL, WOMA_ENV, ...env } = process.env;
  env.WOMA_DATA_DIR = dirname(dirname(WOMA_ENV));
  // Of other programs: a server that obeyed it would not start.
  env.DATABASE_URL = "postgresql://127.0.0.1:1/none";
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], {
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const line = await new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).once("line", resolve);
    child.once("exit", (code) => reject(new Error(`it ended with ${code}`)));
  });
  const { url, result } = JSON.parse(line);
  assert.equal(result, 42);
  assert.notEqual(url, URL_OF_SERVER);
  assert.equal((await fetch(`${url}/api/v1/sessions`)).status, 401);
  child.removeAllListeners("exit");
  child.kill("SIGKILL");
  const isThere = () =>
    fetch(`${url}/livez`).then(
      () => true,
      () => false,
    );
  for (const deadline = Date.now() + 60_000; await isThere();) assert.ok(Date.now() < deadline);
});

test("a server that cannot start is told with its log", async () => {
  const { WOMA_URL, WOMA_PORTT } = process.env;
  delete process.env.WOMA_URL;
  process.env.WOMA_PORTT = "1";
  try {
    await assert.rejects(Sandbox.create(), (error) => {
      assert.ok(error instanceof ServerStartError);
      return error.message.includes("WOMA_PORTT");
    });
  } finally {
    process.env.WOMA_URL = WOMA_URL;
    if (WOMA_PORTT === undefined) delete process.env.WOMA_PORTT;
  }
});
