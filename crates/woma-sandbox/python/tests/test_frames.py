"""The golden frames, which the host's tests read too; and the encoding of user values."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Malformed, decode

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from _woma_kernel import frames  # noqa: E402

GOLDEN = json.loads((HERE / "../../tests/golden/golden.json").read_text())
KINDS = {name: getattr(frames, name) for name in ("READY", "DONE", "NOTE", "RESTORED")}
NAMES = {frames.RUN: "RUN", frames.CHECKPOINT: "CHECKPOINT", frames.RESTORE: "RESTORE"}


@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: entry["name"])
def test_golden(entry: dict[str, Any]) -> None:
    data = bytes.fromhex(entry["hex"])
    from_kernel = entry["direction"] == "kernel-to-host"
    read = decode if from_kernel else _decode_to_kernel
    if not entry["ok"]:
        with pytest.raises((Malformed, frames.Malformed)):
            read(data)
        return
    frame = read(data)
    if "parts" in frame:
        frame["parts"] = [part.hex() for part in frame["parts"]]
    assert frame == entry["frame"]
    if from_kernel:
        assert _encode(entry["frame"]) == data


def _decode_to_kernel(data: bytes) -> dict[str, Any]:
    kind, left = frames.decode_header(data[: frames.HEADER_BYTES])
    body = data[frames.HEADER_BYTES :]
    assert len(body) == left
    return {"kind": NAMES[kind], "body": frames.decode_body(kind, body)}


def _encode(frame: dict[str, Any]) -> bytes:
    if frame["kind"] == "DISPLAY":
        return frames.encode_display(frame["body"], [bytes.fromhex(p) for p in frame["parts"]])
    if frame["kind"] == "READ":
        return frames.READ_FRAME
    return frames.encode(KINDS[frame["kind"]], frame["body"])


class Rude:
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": float("nan"), "b": [float("inf"), 1.5]}, '{"a":null,"b":[null,1.5]}'),
        ({1: (2, {3})}, '{"1":[2,[3]]}'),
        ({(1, 2): object}, '{"(1, 2)":"<class \'object\'>"}'),
        (Rude(), '"<Rude>"'),
        ("a\ud800b", '"a?b"'),
        ("ü☃", '"ü☃"'),
    ],
    ids=repr,
)
def test_unusual_values_become_json(value: object, text: str) -> None:
    assert frames.to_json(value).decode() == text


def test_a_frame_has_a_limit() -> None:
    room = frames.SMALL_FRAME_BYTES_MAX - 1 - 2  # the kind and two quotes
    assert frames.encode(frames.NOTE, "x" * room)
    with pytest.raises(frames.Malformed):
        frames.encode(frames.NOTE, "x" * (room + 1))
    part = b"x" * (frames.FRAME_BYTES_MAX - 100)
    assert frames.encode_display({"binary": []}, [part])
    with pytest.raises(frames.Malformed):
        frames.encode_display({"binary": []}, [part, b"x" * 100])
    with pytest.raises(frames.Malformed):
        frames.encode_display({"data": "x" * frames.DISPLAY_HEADER_BYTES_MAX}, [])
