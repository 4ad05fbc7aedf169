// One of two clients that share a data folder, each with a server of its own, at the same time.
//
//     neighbour.mjs MEETING COMMAND ARGUMENT...
//
// The other one is neighbour.py. Both meet after each step: in MEETING, a file per step.

import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const require = createRequire(join(process.env.WOMA_TEST_CLIENTS, 'package.json'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');

const [meeting, command, ...args] = process.argv.slice(2);
const [own, other] = ['javascript', 'python'];

async function meet(step) {
  writeFileSync(join(meeting, `${own}-${step}`), '');
  while (!existsSync(join(meeting, `${other}-${step}`))) await sleep(20);
}

const client = new Client({ name: 'woma-tests', version: '1.0.0' });
await client.connect(new StdioClientTransport({ command, args }));
const run = async (code) => {
  const result = await client.callTool({ name: 'execute_code', arguments: { code } });
  return result.content[0].text;
};

await meet('connected');
await run(`x = '${own}'\nopen('a.txt', 'w').write(x)`);
await meet('written');
const seen = "import os\n[x, open('a.txt').read(), os.listdir()]";
const expected = `Out: ['${own}', '${own}', ['a.txt']]`;
assert.equal(await run(seen), expected);
await meet('read');
// The other one resets its session now.
await meet('reset');
assert.equal(await run(seen), expected);
await meet('done');
await client.close();
