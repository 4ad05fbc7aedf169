"""The loop of a session: receive a RUN with its two pipes, run it, answer with DONE.

Between runs the host may ask for a checkpoint of the variables, or bring one back.
"""

from __future__ import annotations

import builtins
import ctypes
import fcntl
import gc
import os
import platform
import socket
import struct
import sys
from _signal import SIG_IGN, SIGINT, default_int_handler
from _signal import signal as set_signal  # the bare one: signal.signal wraps each value in enums
from collections.abc import Callable
from contextlib import suppress
from os import close, dup2, getcwd, getpid
from typing import Any, NoReturn

from . import checkpoint, errors, figures, frames, mainfile, pages, paths, restore, results
from .channels import STDERR, STDOUT, Stream, channels
from .guard import Guard
from .magics import timed, without_time_magic
from .shell import Shell

HIGH = 64
RECEIVE_BYTES = 16 * 1024
_FDS = {kind: struct.Struct("2i" if kind == frames.RUN else "i") for kind in frames.TO_KERNEL}
_ANCILLARY_BYTES = socket.CMSG_SPACE(_FDS[frames.RUN].size)
_BUILTINS = dict(vars(builtins))
_BUILTIN_NAMES = frozenset(_BUILTINS)
_builtins, _sys = vars(builtins), vars(sys)
_AFTER_RUN = (("post_execute", ()), ("post_run_cell", (None,)))
_READY = frames.encode(
    frames.READY, {"protocol": frames.PROTOCOL, "python": platform.python_version()}
)
_NOTHING_TO_DO = "import sys\nprint()"
_EVERY_WAY = (_NOTHING_TO_DO, "import sys", "print()", "1 + 1", "[1, 'x']")
_flush = ctypes.CDLL(None).fflush
_stdout, _stderr = Stream(STDOUT, "<stdout>"), Stream(STDERR, "<stderr>")
_STREAMS = {"stdout": _stdout, "__stdout__": _stdout, "stderr": _stderr, "__stderr__": _stderr}


def serve(socket_fd: int, log_fd: int) -> NoReturn:
    """Answers frames until the host closes the socket. Called in a fresh fork, once."""
    set_signal(SIGINT, SIG_IGN)
    channels.log_fd = _out_of_the_way(log_fd)
    channels.socket = link = socket.socket(fileno=_out_of_the_way(socket_fd))
    channels.pid = os.getpid()
    _point_at_log()
    _separate_from_siblings()
    gc.enable()
    shell: Shell = Shell.instance()
    mainfile.begin_session(shell.user_module)
    paths.begin_session()
    if "" not in sys.path:
        sys.path.insert(0, "")
    sys.dont_write_bytecode = True  # two versions of a module in one second look alike to a .pyc
    channels.send(_READY)
    kind, body, fds = _receive(link)
    # The host may have put another folder in the place of the one that we stand in.
    with suppress(OSError):
        os.chdir(os.getcwd())
    while True:
        if kind == frames.RUN:
            if checkpoint.pending:
                checkpoint.settle()
            _answer(shell, body, fds, _flush)
        else:
            _keep(shell, kind, body, fds[0])
        kind, body, fds = _receive(link)


def warm_up(times: int) -> None:
    """Takes each way through a run often enough for the interpreter to have settled on it."""
    for _ in range(times):
        for source in _EVERY_WAY:
            limber_up(source)


def limber_up(source: str = _NOTHING_TO_DO) -> None:
    """Answers a run that nobody sent, and forgets it.

    In a fork, the first write to each page of memory costs a fault, and the first run makes some
    four hundred of them. A child that waits for its session anyway can have them behind it.
    """
    ours, theirs = socket.socketpair()
    null = os.open(os.devnull, os.O_RDWR)
    saved = [os.dup(fd) for fd in (STDOUT, STDERR)]
    channels.socket, channels.log_fd, channels.pid = ours, null, os.getpid()
    shell: Shell = Shell.instance()
    before = set(shell.user_ns)
    _separate_from_siblings()
    run = frames.encode(frames.RUN, {"run": 0, "source": source, "figures_max": 1})
    socket.send_fds(theirs, [run], [null, null])
    _answer(shell, *_receive(ours)[1:], _flush)
    for name in set(shell.user_ns) - before:
        del shell.user_ns[name]
    shell.execution_count = 1
    for history in (shell.history_manager.input_hist_parsed, shell.history_manager.input_hist_raw):
        del history[1:]
    mainfile.forget()
    if source is not _NOTHING_TO_DO:
        shell.displayhook.forget()
    for fd, target in zip(saved, (STDOUT, STDERR), strict=True):
        os.dup2(fd, target)
        os.close(fd)
    os.close(null)
    ours.close()
    theirs.close()


def _answer(
    shell: Shell, run: dict[str, Any], fds: tuple[int, ...], flush: Callable[[Any], Any]
) -> None:
    out, err = fds
    dup2(out, STDOUT)
    dup2(err, STDERR)
    close(out)
    close(err)
    channels.begin()
    figures.begin_run(run["figures_max"])
    pages.begin_run()
    _sys.update(_STREAMS)
    hook = shell.displayhook
    shell.shown_error = hook.text = hook.value = None
    sys.displayhook = hook
    shell.user_ns.pop("__warningregistry__", None)  # a warning is shown again in a new run
    cell = f"<cell {shell.execution_count}>"
    error: BaseException | None = None
    try:
        try:
            set_signal(SIGINT, default_int_handler)
            if "variables" in run:
                shell.user_ns.update(run["variables"])
            if shell.guard is not None or "guard" in run:
                shell.guard = shell.guard or Guard(shell)
                shell.guard.begin(run.get("guard"), cell)
            _run(shell, run["source"], cell)
        finally:
            set_signal(SIGINT, SIG_IGN)
    except BaseException as raised:
        set_signal(SIGINT, SIG_IGN)
        error = raised
    if not _builtins.keys() >= _BUILTIN_NAMES:  # somebody deleted what everybody needs
        _builtins.update({name: _BUILTINS[name] for name in _BUILTIN_NAMES - _builtins.keys()})
    error = error or shell.shown_error
    if getpid() != channels.pid:
        _leave(error)
    try:
        done = results.done(shell, run["run"], cell, error)
    except BaseException as failure:  # the reply is owed whatever user objects do
        done = {
            "run": run["run"],
            "status": "raised",
            "exit_code": None,
            "error": errors.describe(failure, cell),
            "result": None,
            "execution_count": shell.execution_count,
            "variables": [],
        }
    shell.shown_error = error = None  # and the frames it holds
    shell.execution_count += 1
    frame = _encode_done(done)
    for name in ("stdout", "stderr"):
        stream = _sys.get(name)  # unless somebody has deleted it
        if stream is not _stdout and stream is not _stderr:
            with suppress(BaseException):
                stream.flush()
    flush(None)
    mainfile.end_run()
    # The host wakes when its pipes are closed; what it waits for should be there by then.
    held = channels.end()
    _point_at_log()
    channels.send(held + frame)


def _keep(shell: Shell, kind: int, wanted: dict[str, Any], fd: int) -> None:
    """Variables leave or come back. Neither may be the end of the session."""
    fd = _out_of_the_way(fd)
    try:
        if kind == frames.CHECKPOINT:
            with suppress(BaseException):
                checkpoint.begin(shell, wanted, fd)
        else:
            said = restore.restore(shell, wanted, fd)
            channels.send(frames.encode(frames.RESTORED, said))
    finally:
        os.close(fd)
        _point_at_log()


def _encode_done(done: dict[str, Any]) -> bytes:
    try:
        if done["error"] is None:
            return frames.encode_own(frames.DONE, done)
        return frames.encode(frames.DONE, done)
    except frames.Malformed:  # a traceback whose lines are books
        error = done["error"]
        if error is not None:
            error = {**error, "message": error["message"][:1000], "traceback": []}
        return frames.encode(frames.DONE, {**done, "error": error, "result": None, "variables": []})


def _run(shell: Shell, source: str, cell: str) -> None:
    try:
        finder = sys.path_importer_cache.get(getcwd())
        if finder is not None:  # a module written a moment ago is younger than the clock can tell
            finder.invalidate_caches()  # type: ignore[attr-defined]
    except OSError:  # the working directory was deleted
        pass
    source, is_timed = without_time_magic(source)
    try:
        if is_timed:
            with timed():
                shell.run(source, cell)
        else:
            shell.run(source, cell)
    finally:
        figures.end_run()
        for event, arguments in _AFTER_RUN:
            if shell.events.callbacks[event]:
                channels.release()
                shell.events.trigger(event, *arguments)


def _receive(link: socket.socket) -> tuple[int, dict[str, Any], tuple[int, ...]]:
    """The next frame. A host that is gone or does not speak the protocol is the end."""
    try:
        # Descriptors come with every frame, and no call takes bytes past those that came with some.
        data, ancillary, _, _ = link.recvmsg(
            RECEIVE_BYTES, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
        )
        while len(data) < frames.HEADER_BYTES:
            data += _some(link, frames.HEADER_BYTES - len(data))
        kind, length = frames.decode_header(data[: frames.HEADER_BYTES])
        chunks = [data[frames.HEADER_BYTES :]]
        left = length - len(chunks[0])
        while left > 0:
            chunks.append(_some(link, left))
            left -= len(chunks[-1])
        if left:
            raise frames.Malformed("a frame without descriptors of its own")
        body = frames.decode_body(kind, b"".join(chunks))
        return kind, body, _FDS[kind].unpack(ancillary[0][2])
    except (OSError, EOFError, IndexError, struct.error):
        os._exit(0)
    except frames.Malformed as error:
        os.write(channels.log_fd, f"the host broke the protocol: {error}\n".encode())
        os._exit(1)


def _some(link: socket.socket, size_max: int) -> bytes:
    data = link.recv(size_max)
    if not data:
        raise EOFError
    return data


def _leave(error: BaseException | None) -> NoReturn:
    """The end of a child that the cell forked and that ran past the end of the cell."""
    with suppress(BaseException):
        if error is not None and not isinstance(error, SystemExit):
            errors.report(error)
        sys.stdout.flush()
    code = results.exit_code(error) if isinstance(error, SystemExit) else int(error is not None)
    os._exit(code & 0xFF)


def _point_at_log() -> None:
    dup2(channels.log_fd, STDOUT)
    dup2(channels.log_fd, STDERR)


def _out_of_the_way(fd: int) -> int:
    """A high number, so that code which closes "all" or guesses descriptors does not hit it."""
    if fd >= HIGH:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.close(fd)
    return moved


def _separate_from_siblings() -> None:
    """Forks of one parent share the state of every generator; each must draw its own numbers.

    OpenSSL compares process ids: ours is never the zygote's.
    """
    loaded: Callable[[str], Any] = sys.modules.get
    if module := loaded("random"):
        module.seed()
    if module := loaded("numpy.random"):
        # Twenty times cheaper than seed(), and no less random.
        key = loaded("numpy").frombuffer(os.urandom(624 * 4), dtype="uint32")
        module.set_state(("MT19937", key, 624, 0, 0.0))
    if module := loaded("tempfile"):
        module._name_sequence = None
        module.tempdir = None
    if module := loaded("uuid"):
        module._node = module._last_timestamp = None
