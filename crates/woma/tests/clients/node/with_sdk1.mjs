// Connects the first line of the JavaScript SDK and checks what it sees.
//
//     with_sdk1.mjs http|sse URL
//     with_sdk1.mjs stdio COMMAND ARGUMENT...

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { allChecks } from './checks.mjs';

// The packages lie where scripts/clients put them, not beside this file.
const require = createRequire(join(process.env.WOMA_TEST_CLIENTS, 'package.json'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');

function transport([kind, target, ...rest]) {
  switch (kind) {
    case 'http': return new StreamableHTTPClientTransport(new URL(target));
    case 'sse': return new SSEClientTransport(new URL(target));
    case 'stdio': return new StdioClientTransport({ command: target, args: rest });
    default: throw new Error(`unknown transport ${kind}`);
  }
}

const client = new Client({ name: 'woma-tests', version: '1.0.0' });
await client.connect(transport(process.argv.slice(2)));
assert.ok(client.getServerVersion()?.name);
await allChecks({
  listTools: () => client.listTools(),
  call: (params, options) => client.callTool(params, undefined, options)
});
await client.close();
