// Connects the second line of the JavaScript client and checks what it sees.
//
//     with_client2.mjs http|sse URL modern|legacy
//     with_client2.mjs stdio modern|legacy COMMAND ARGUMENT...

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { allChecks } from './checks.mjs';

// The packages lie where scripts/clients put them, not beside this file.
const require = createRequire(join(process.env.WOMA_TEST_CLIENTS, 'package.json'));
const { Client, SSEClientTransport, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const VERSIONS = { modern: '2026-07-28', legacy: '2025-11-25' };

function connection([kind, ...rest]) {
  if (kind === 'stdio') {
    const [era, command, ...args] = rest;
    return [new StdioClientTransport({ command, args }), era];
  }
  const [url, era] = rest;
  const Transport = { http: StreamableHTTPClientTransport, sse: SSEClientTransport }[kind];
  return [new Transport(new URL(url)), era];
}

const [transport, era] = connection(process.argv.slice(2));
const mode = era === 'modern' ? 'auto' : 'legacy';
const client = new Client({ name: 'woma-tests', version: '1.0.0' }, { versionNegotiation: { mode } });
await client.connect(transport);
assert.equal(client.getNegotiatedProtocolVersion(), VERSIONS[era]);
await allChecks({
  listTools: () => client.listTools(),
  call: (params, options) => client.callTool(params, options)
});
await client.close();
