// What every client in JavaScript must see of the server, whichever way it is connected.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { crc32 } from 'node:zlib';

const TOOLS = [
  'execute_code', 'create_session', 'list_sessions', 'delete_session',
  'interrupt_session', 'reset_session', 'get_sandbox_info', 'read_output'
];
const HINTS = ['readOnlyHint', 'destructiveHint', 'idempotentHint', 'openWorldHint'];
const REPLY = [
  'success', 'result', 'stdout', 'stderr', 'outcome', 'exit_code', 'error_message', 'error_traceback',
  'error', 'variables', 'charts', 'session_id', 'session_created'
];
const CHART = `
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [1, 4, 9])
plt.title("squares")
plt.show()
`;

const step = (name) => console.log(`- ${name}`);
const text = (value) => JSON.stringify(value, null, 1);

/** The structured reply, beside a text for clients that see only text. */
function reply(result) {
  const [first] = result.content;
  assert.equal(first.type, 'text');
  assert.notEqual(first.text, '');
  return result.structuredContent;
}

function outcome(result, success = true) {
  const answer = reply(result);
  for (const [field, value] of Object.entries(answer)) {
    assert.ok(REPLY.includes(field), `unknown ${field} in ${text(answer)}`);
    assert.ok(value !== null && value !== '', `empty ${field} in ${text(answer)}`);
  }
  assert.equal(answer.success, success, text(answer));
  assert.equal(result.isError ?? false, !success, 'isError does not follow success');
  const [{ text: told }] = result.content;
  assert.ok(told.startsWith((answer.stdout ?? '').trimEnd()), `${told}\n${text(answer)}`);
  assert.equal(told.includes('Out: '), 'result' in answer, `${told}\n${text(answer)}`);
  return answer;
}

/** Width and height of a whole and undamaged PNG. */
function png(block) {
  assert.equal(block.mimeType, 'image/png');
  const data = Buffer.from(block.data, 'base64');
  assert.equal(data.toString('base64'), block.data, 'not clean base64');
  assert.equal(data.subarray(0, 8).toString('latin1'), '\x89PNG\r\n\x1a\n');
  const kinds = [];
  for (let at = 8; at < data.length; ) {
    const length = data.readUInt32BE(at);
    const body = data.subarray(at + 4, at + 8 + length);
    assert.equal(crc32(body), data.readUInt32BE(at + 8 + length), `after ${kinds}`);
    kinds.push(body.subarray(0, 4).toString('latin1'));
    at += 12 + length;
  }
  assert.equal(kinds[0], 'IHDR');
  assert.ok(kinds.includes('IDAT'));
  assert.equal(kinds.at(-1), 'IEND');
  return [data.readUInt32BE(16), data.readUInt32BE(20)];
}

/**
 * `client` has `listTools()`, and `call(params, options)` where options are the library's own:
 * `onprogress` and `signal`.
 */
export async function allChecks(client) {
  const execute = (code, session_id, options) =>
    client.call({ name: 'execute_code', arguments: { code, session_id } }, options);
  const tool = (name, given) => client.call({ name, arguments: given });

  await toolsAreListed(client);
  // It takes seconds, and the other calls must not wait for it.
  const long = longCallReportsProgress(execute);
  await Promise.all([long, inOrder()]);

  async function inOrder() {
    await stateSurvives(execute);
    await failureIsTold(execute);
    await chartArrives(execute);
    await cancellationInterrupts(execute);
    await sessionsAreManaged(execute, tool);
  }
}

async function toolsAreListed(client) {
  step('the tools are listed');
  const { tools } = await client.listTools();
  const names = tools.map((tool) => tool.name);
  for (const name of TOOLS) assert.ok(names.includes(name), `${name} is not among ${names}`);
  for (const tool of tools) {
    assert.ok(tool.description, tool.name);
    assert.equal(tool.inputSchema.type, 'object', tool.name);
    assert.equal(tool.outputSchema?.type, 'object', tool.name);
    for (const hint of HINTS) assert.equal(typeof tool.annotations?.[hint], 'boolean', `${tool.name}: ${hint}`);
  }
}

async function stateSurvives(execute) {
  step('two calls in one session share its variables');
  const session = `state-${randomUUID()}`;
  const first = outcome(await execute('kept = 40', session));
  assert.deepEqual(first.variables, { kept: 'int' });
  const second = outcome(await execute("print('seen', kept)\nkept + 2", session));
  assert.equal(second.result, 42, text(second));
  assert.equal(second.stdout, 'seen 40\n');
  assert.ok(!('exit_code' in second), text(second));
}

async function failureIsTold(execute) {
  step('code that fails is an error with its traceback and its output so far');
  const code = "print('so far')\ndef divide():\n    return 1 / 0\ndivide()";
  const result = await execute(code, `fail-${randomUUID()}`);
  const answer = outcome(result, false);
  for (const wanted of ['Traceback', 'ZeroDivisionError', 'divide', 'division by zero'])
    assert.ok(result.content[0].text.includes(wanted), `no ${wanted} in ${text(answer)}`);
  assert.equal(answer.stdout, 'so far\n');
  assert.equal(answer.exit_code, 1);
}

async function chartArrives(execute) {
  step('a chart arrives as a picture');
  const result = await execute(CHART, `plot-${randomUUID()}`);
  outcome(result);
  const pictures = result.content.filter((block) => block.type === 'image');
  assert.equal(pictures.length, 1, text(result.content.map((block) => block.type)));
  const [width, height] = png(pictures[0]);
  assert.ok(width > 100 && height > 100, `${width} × ${height}`);
}

async function longCallReportsProgress(execute) {
  step('a long call reports progress, at once and every three seconds');
  const seen = [];
  const started = performance.now();
  const onprogress = ({ progress }) => seen.push({ after: performance.now() - started, progress });
  const result = await execute("import time\ntime.sleep(4)\n'rested'", `long-${randomUUID()}`, { onprogress });
  assert.equal(outcome(result).result, 'rested');
  assert.ok(seen.length >= 2, `${seen.length} notifications: ${text(seen)}`);
  assert.ok(seen[0].after < 2000, `the first notification came late: ${text(seen)}`);
  for (let i = 1; i < seen.length; i++) assert.ok(seen[i - 1].progress < seen[i].progress, text(seen));
}

async function cancellationInterrupts(execute) {
  step('a call that is given up is interrupted, and its session goes on');
  const session = `loop-${randomUUID()}`;
  outcome(await execute('rounds = 0', session));
  const giveUp = new AbortController();
  const { promise: begun, resolve: onprogress } = Promise.withResolvers();
  const loop = execute('while True:\n    rounds += 1', session, { onprogress, signal: giveUp.signal });
  const ended = loop.then(
    (result) => assert.fail(`it ended: ${text(result)}`),
    (error) => error
  );
  const late = sleep(5000, 'late', { ref: false });
  assert.notEqual(await Promise.race([begun, ended, late]), 'late', 'no progress within 5 s');
  // The loop's own time: it must be running, not merely admitted.
  await sleep(500);
  const givenUp = performance.now();
  giveUp.abort('given up');
  // Calls of one session are served in order, so an answer means that the loop is gone.
  const answer = outcome(await execute('rounds', session, { timeout: 10_000 }));
  const took = performance.now() - givenUp;
  await ended;
  assert.ok(answer.result > 0, text(answer));
  assert.ok(took < 2000, `the loop went on for ${Math.round(took)} ms`);
}

async function sessionsAreManaged(execute, tool) {
  step('sessions are made, listed, reset and deleted');
  const { session_id } = reply(await tool('create_session', {}));
  const listed = async () => JSON.stringify(reply(await tool('list_sessions', {})));
  outcome(await execute('here = 1', session_id));
  assert.ok((await listed()).includes(session_id));
  reply(await tool('reset_session', { session_id }));
  outcome(await execute('here', session_id), false);
  reply(await tool('interrupt_session', { session_id }));
  reply(await tool('delete_session', { session_id }));
  assert.ok(!(await listed()).includes(session_id));
  reply(await tool('get_sandbox_info', {}));
}
