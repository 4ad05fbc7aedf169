"""What every client in Python must see of the server, whichever way it is connected."""

import base64
import json
import struct
import time
import uuid
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio

Json = dict[str, Any]
OnProgress = Callable[[float], None]

TOOLS = {
    "execute_code",
    "create_session",
    "list_sessions",
    "delete_session",
    "interrupt_session",
    "reset_session",
    "get_sandbox_info",
    "read_output",
}
HINTS = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
REPLY = {
    "success",
    "result",
    "stdout",
    "stderr",
    "outcome",
    "exit_code",
    "error_message",
    "error_traceback",
    "error",
    "variables",
    "charts",
    "session_id",
    "session_created",
}

CHART = """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [1, 4, 9])
plt.title("squares")
plt.show()
"""


@dataclass
class Client:
    """One connected client; results are the protocol's JSON, whatever the library's own types are."""

    tools: Callable[[], Awaitable[list[Json]]]
    call: Callable[..., Awaitable[Json]]
    """`call(tool, arguments, on_progress=None)`"""
    call_and_cancel: Callable[..., Awaitable[None]]
    """`call_and_cancel(tool, arguments, on_progress, event)`: gives the call up when the event is set."""


def step(name: str) -> None:
    print(f"- {name}", flush=True)


def reply(result: Json) -> Json:
    """The structured reply, beside a text for clients that see only text."""
    text = result["content"][0]
    assert text["type"] == "text", f"the first block is {text['type']}"
    assert text["text"], result
    structured: Json = result["structuredContent"]
    return structured


def outcome(result: Json, *, success: bool = True) -> Json:
    answer = reply(result)
    assert not answer.keys() - REPLY, f"unknown {answer.keys() - REPLY} in {answer}"
    empty = [name for name, value in answer.items() if value in (None, "", [], {})]
    assert not empty, f"empty {empty} in {answer}"
    assert answer["success"] is success, answer
    assert bool(result.get("isError")) is not success, f"isError does not follow success: {answer}"
    text = result["content"][0]["text"]
    assert text.startswith(answer.get("stdout", "").rstrip("\n")), f"text: {text}\nstructured: {answer}"
    assert ("Out: " in text) is ("result" in answer), f"text: {text}\nstructured: {answer}"
    return answer


def png(block: Json) -> tuple[int, int]:
    """Width and height of a whole and undamaged PNG."""
    assert block["mimeType"] == "image/png", block["mimeType"]
    data = base64.b64decode(block["data"], validate=True)
    assert data[:8] == b"\x89PNG\r\n\x1a\n", data[:8]
    at, kinds = 8, []
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        body = data[at + 4 : at + 8 + length]
        assert zlib.crc32(body) == struct.unpack_from(">I", data, at + 8 + length)[0], kinds
        kinds.append(body[:4])
        at += 12 + length
    assert kinds[0] == b"IHDR" and b"IDAT" in kinds and kinds[-1] == b"IEND", kinds
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


async def all_checks(client: Client) -> None:
    async with anyio.create_task_group() as group:
        # It takes seconds, and the other calls must not wait for it.
        group.start_soon(long_call_reports_progress, client)
        await tools_are_listed(client)
        await state_survives(client)
        await failure_is_told(client)
        await chart_arrives(client)
        await cancellation_interrupts(client)
        await sessions_are_managed(client)


async def tools_are_listed(client: Client) -> None:
    step("the tools are listed")
    tools = await client.tools()
    names = {tool["name"] for tool in tools}
    assert not TOOLS - names, f"not listed: {TOOLS - names}"
    for tool in tools:
        assert tool["description"], tool["name"]
        assert tool["inputSchema"]["type"] == "object", tool
        assert tool["outputSchema"]["type"] == "object", f"{tool['name']} has no output schema"
        missing = HINTS - (tool.get("annotations") or {}).keys()
        assert not missing, f"{tool['name']} lacks {missing}"


async def state_survives(client: Client) -> None:
    step("two calls in one session share its variables")
    session = f"state-{uuid.uuid4()}"
    first = await client.call("execute_code", {"code": "kept = 40", "session_id": session})
    assert outcome(first)["variables"] == {"kept": "int"}, first
    code = "print('seen', kept)\nkept + 2"
    second = outcome(await client.call("execute_code", {"code": code, "session_id": session}))
    assert (second["result"], second["stdout"]) == (42, "seen 40\n"), second
    assert "exit_code" not in second, second


async def failure_is_told(client: Client) -> None:
    step("code that fails is an error with its traceback and its output so far")
    code = "print('so far')\ndef divide():\n    return 1 / 0\ndivide()"
    result = await client.call("execute_code", {"code": code, "session_id": f"fail-{uuid.uuid4()}"})
    answer = outcome(result, success=False)
    text = result["content"][0]["text"]
    for wanted in ("Traceback", "ZeroDivisionError", "divide", "division by zero"):
        assert wanted in text, f"no {wanted} in {text}"
    assert answer["stdout"] == "so far\n", answer
    assert answer["exit_code"] == 1, answer


async def chart_arrives(client: Client) -> None:
    step("a chart arrives as a picture")
    result = await client.call("execute_code", {"code": CHART, "session_id": f"plot-{uuid.uuid4()}"})
    outcome(result)
    pictures = [block for block in result["content"] if block["type"] == "image"]
    assert len(pictures) == 1, [block["type"] for block in result["content"]]
    width, height = png(pictures[0])
    assert width > 100 and height > 100, (width, height)


async def long_call_reports_progress(client: Client) -> None:
    step("a long call reports progress, at once and every three seconds")
    seen: list[tuple[float, float]] = []
    started = time.monotonic()
    result = await client.call(
        "execute_code",
        {"code": "import time\ntime.sleep(4)\n'rested'", "session_id": f"long-{uuid.uuid4()}"},
        lambda progress: seen.append((time.monotonic() - started, progress)),
    )
    assert outcome(result)["result"] == "rested", result
    assert len(seen) >= 2, f"{len(seen)} notifications: {seen}"
    assert seen[0][0] < 2, f"the first notification came late: {seen}"
    values = [progress for _, progress in seen]
    assert all(one < next_one for one, next_one in zip(values, values[1:])), f"not rising: {values}"


async def cancellation_interrupts(client: Client) -> None:
    step("a call that is given up is interrupted, and its session goes on")
    session = {"session_id": f"loop-{uuid.uuid4()}"}
    outcome(await client.call("execute_code", {"code": "rounds = 0", **session}))
    begun, give_up = anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as group:
        loop = {"code": "while True:\n    rounds += 1", "timeout": 60, **session}
        group.start_soon(
            client.call_and_cancel, "execute_code", loop, lambda _: begun.set(), give_up
        )
        with anyio.fail_after(5):
            await begun.wait()
        # The loop's own time: it must be running, not merely admitted.
        await anyio.sleep(0.5)
        given_up = time.monotonic()
        give_up.set()
        # Calls of one session are served in order, so an answer means that the loop is gone.
        with anyio.fail_after(10):
            answer = outcome(await client.call("execute_code", {"code": "rounds", **session}))
        took = time.monotonic() - given_up
    assert answer["result"] > 0, answer
    assert took < 2, f"the loop went on for {took:.1f} s"


async def sessions_are_managed(client: Client) -> None:
    step("sessions are made, listed, reset and deleted")
    session = reply(await client.call("create_session", {}))["session_id"]
    named = {"session_id": session}
    outcome(await client.call("execute_code", {"code": "here = 1", **named}))
    assert session in json.dumps(reply(await client.call("list_sessions", {}))), session
    reply(await client.call("reset_session", named))
    outcome(await client.call("execute_code", {"code": "here", **named}), success=False)
    reply(await client.call("interrupt_session", named))
    reply(await client.call("delete_session", named))
    assert session not in json.dumps(reply(await client.call("list_sessions", {}))), session
    reply(await client.call("get_sandbox_info", {}))
