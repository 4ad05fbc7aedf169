"""Random state that libraries create at import, and that every session must renew.

Forks of one parent share the state of every generator: a session that knows its own would know
those of the others. The generators are found by a search of all objects, not from a list: other
libraries bring other generators.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import sys
from typing import Any

# Seeds that a library may have chosen for reproducible results; such a generator is not renewed,
# because it is the same in every Python.
_LIKELY_SEEDS = (*range(200), 1234, 12345, 123456)

_MT_WORDS = 624  # of the state of a Mersenne Twister

_renewed_in = 0  # the process
_plain: list[random.Random] = []
_numpy: list[Any] = []  # without those of the lists below
# Memory of the states of numpy's generators. To set their `state` instead would copy forty pages of
# the parent into every session.
_twisters: list[tuple[ctypes.Array[Any], ctypes.c_int]] = []  # key, position
_congruential: list[tuple[ctypes.Array[Any], ctypes.Array[Any]]] = []  # state, leftover


def find() -> None:
    """Remember the randomly seeded generators. Called once, in the parent."""
    global _renewed_in
    _renewed_in = 0
    for remembered in (_plain, _numpy, _twisters, _congruential):
        remembered.clear()  # type: ignore[attr-defined]
    fixed = {random.Random(seed).getstate() for seed in _LIKELY_SEEDS}
    for found in gc.get_objects():
        if isinstance(found, random.Random) and not isinstance(found, random.SystemRandom):
            if found.getstate() not in fixed:
                _plain.append(found)
    if numpy := sys.modules.get("numpy.random"):
        kinds = (numpy.MT19937, numpy.PCG64, numpy.PCG64DXSM)
        for found in gc.get_objects():
            if isinstance(found, kinds) and not _is_fixed(numpy, found):
                if not _locate(found):
                    _numpy.append(found)


def _locate(generator: Any) -> bool:
    """Remember where the state of a generator of numpy lies. False if it is not laid out as here."""
    address = generator.ctypes.state_address
    state = generator.state
    if "key" in state["state"]:
        key = (ctypes.c_char * (4 * _MT_WORDS)).from_address(address)
        position = ctypes.c_int.from_address(address + 4 * _MT_WORDS)
        if key.raw != state["state"]["key"].tobytes() or position.value != state["state"]["pos"]:
            return False
        _twisters.append((key, position))
        return True
    own = (ctypes.c_char * 32).from_address(ctypes.c_void_p.from_address(address).value or 0)
    leftover = (ctypes.c_char * 8).from_address(address + ctypes.sizeof(ctypes.c_void_p))
    numbers = state["state"]
    if own.raw != b"".join(numbers[name].to_bytes(16, "little") for name in ("state", "inc")):
        return False
    if leftover.raw[:4] != state["has_uint32"].to_bytes(4, "little"):
        return False
    _congruential.append((own, leftover))
    return True


def _is_fixed(numpy: Any, generator: Any) -> bool:
    if isinstance(generator, numpy.MT19937):
        key = generator.state["state"]["key"]
        return any((numpy.RandomState(seed).get_state()[1] == key).all() for seed in _LIKELY_SEEDS)
    entropy = getattr(generator.seed_seq, "entropy", None)
    # Random seeds have 128 bits; people type fewer.
    return isinstance(entropy, int) and entropy < 1 << 64


def renew() -> None:
    """Reseed each of them. Called in every fork; a second call does nothing."""
    global _renewed_in
    if _renewed_in == os.getpid():
        return
    _renewed_in = os.getpid()
    for generator in _plain:
        generator.seed()
    for key, position in _twisters:
        key.raw, position.value = os.urandom(4 * _MT_WORDS), _MT_WORDS
    for own, leftover in _congruential:
        fresh = bytearray(os.urandom(32))
        fresh[16] |= 1  # the increment is odd
        own.raw, leftover.raw = bytes(fresh), bytes(8)
    for generator in _numpy:
        state = generator.state
        if "key" in state["state"]:
            key = os.urandom(state["state"]["key"].nbytes)
            state["state"]["key"] = sys.modules["numpy"].frombuffer(key, dtype="uint32")
            state["state"]["pos"] = 624
        else:
            state["state"] = {
                "state": int.from_bytes(os.urandom(16), "little"),
                "inc": int.from_bytes(os.urandom(16), "little") | 1,
            }
            state["has_uint32"] = state["uinteger"] = 0
        generator.state = state
    # Processes that know it may send each other pickles.
    if module := sys.modules.get("multiprocessing.process"):
        module.current_process().authkey = os.urandom(32)
