// The examples of the documents: they compile with strict types, run, and print what they say.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const here = dirname(fileURLToPath(import.meta.url));
const root = dirname(here);
const documents = [
  join(root, "README.md"),
  process.env.SDK_PAGE ?? join(root, "../../docs/SDK.md"),
];
const run = promisify(execFile);

test("every example compiles, runs and prints what it says", async () => {
  const build = join(root, "build");
  await rm(build, { recursive: true, force: true });
  await mkdir(build);
  const names = [];
  for (const document of documents) {
    const blocks = [...(await readFile(document, "utf8")).matchAll(/^```ts\n(.*?)^```/gms)];
    assert.ok(blocks.length > 0, `${document} has no example`);
    for (const [index, [, code]] of blocks.entries()) {
      const name = `${basename(document, ".md")}-${index + 1}`;
      await writeFile(join(build, `${name}.mts`), code);
      names.push([name, code]);
    }
  }
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const options = [
    "--strict",
    "--noUncheckedIndexedAccess",
    "--target",
    "ES2022",
    "--types",
    "node",
  ];
  const modules = ["--module", "NodeNext", "--moduleResolution", "NodeNext"];
  const sources = names.map(([name]) => `${name}.mts`);
  await run(process.execPath, [tsc, ...options, ...modules, ...sources], { cwd: build }).catch(
    (error) => assert.fail(error.stdout),
  );
  for (const [name, code] of names) {
    const { stdout } = await run(process.execPath, [`${name}.mjs`], { cwd: build });
    const printed = stdout.split("\n");
    for (const [, expected] of code.matchAll(/^ *(?:if .*)?console\.log\(.*\); \/\/ (.+)$/gm)) {
      assert.ok(printed.includes(expected), `${name} does not print ${expected}:\n${stdout}`);
    }
  }
});
