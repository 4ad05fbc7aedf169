"""The loop of a session: receive a RUN with its two pipes, run it, reply with DONE.

Between runs the host may request a checkpoint of the variables, or restore one.
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

from . import (
    ceiling,
    checkpoint,
    entropy,
    errors,
    figures,
    first_imports,
    frames,
    mainfile,
    network,
    pages,
    paths,
    restore,
    results,
    stdin,
    variables,
    vega,
)
from .channels import STDERR, STDOUT, Stream, channels
from .guard import Guard
from .magics import timed, without_time_magic
from .shell import Shell

HIGH = 64
RECEIVE_BYTES = 16 * 1024
_ONE, _TWO, _THREE = (struct.Struct(f"{count}i") for count in (1, 2, 3))
_ANCILLARY_BYTES = socket.CMSG_SPACE(_THREE.size)
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


def serve(socket_fd: int, log_fd: int, memory: dict[str, int] | None) -> NoReturn:
    """Serve frames until the host closes the socket. Called once in a fresh fork."""
    set_signal(SIGINT, SIG_IGN)
    ceiling.begin_session(memory)
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
    sys.dont_write_bytecode = True  # a .pyc cannot tell two versions within one second
    channels.send(_READY)
    kind, body, fds = _receive(link)
    # The host may have mounted another folder over the current directory.
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
    """Run each code path often enough for the interpreter to specialize it."""
    sources = (*_EVERY_WAY, first_imports.example())
    for _ in range(times):
        for source in sources:
            limber_up(source)


def limber_up(source: str = _NOTHING_TO_DO) -> None:
    """Answer a run that was not sent, and discard it.

    In a fork, the first write to each page of memory costs a fault, and the first run causes some
    four hundred of them. A child that waits for its session can take them ahead of time.
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
    first_imports.forget()
    variables.forget()
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
    out, err, *pipes = fds
    dup2(out, STDOUT)
    dup2(err, STDERR)
    close(out)
    close(err)
    channels.begin()
    figures.begin_run(run["figures_max"])
    pages.begin_run()
    network.begin_run()
    vega.begin_run()
    ceiling.begin_run(run.get("memory"))
    _sys.update(_STREAMS)
    hook = shell.displayhook
    shell.shown_error = hook.text = hook.value = None
    sys.displayhook = hook
    shell.user_ns.pop("__warningregistry__", None)  # a warning is shown again in a new run
    script = run.get("script")
    name = None if script is None else script.get("name")
    cell = f"<cell {shell.execution_count}>" if name is None else name
    error: BaseException | None = None
    try:
        try:
            set_signal(SIGINT, default_int_handler)
            ceiling.is_running = True
            if pipes:
                stdin.begin_piped_run(pipes[0])
            elif "stdin" in run:
                stdin.begin_run(run["stdin"])
            if "environ" in run:
                _set_environ(run["environ"])
            if "variables" in run:
                shell.user_ns.update(run["variables"])
            if shell.guard is not None or "guard" in run:
                shell.guard = shell.guard or Guard(shell)
                shell.guard.begin(run.get("guard"), cell)
            if script is not None:
                mainfile.begin_script(shell.user_module, script)
            _run(shell, run["source"], cell, is_script=name is not None)
        finally:
            ceiling.is_running = False
            set_signal(SIGINT, SIG_IGN)
    except BaseException as raised:
        ceiling.is_running = False
        ceiling.end_code(raised)
        set_signal(SIGINT, SIG_IGN)
        error = raised
    if not _builtins.keys() >= _BUILTIN_NAMES:  # the user deleted a builtin
        _builtins.update({name: _BUILTINS[name] for name in _BUILTIN_NAMES - _builtins.keys()})
    error = error or shell.shown_error
    ceiling.end_code(error)
    if getpid() != channels.pid:
        _leave(error)
    try:
        network.end_run(error)
        done = results.done(shell, run["run"], cell, error)
    except BaseException as failure:  # the reply must be sent whatever user objects do
        ceiling.make_room()
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
        stream = _sys.get(name)  # unless the user has deleted it
        if stream is not _stdout and stream is not _stderr:
            with suppress(BaseException):
                stream.flush()
    flush(None)
    stdin.end_run()
    mainfile.end_run()
    ceiling.give_back()
    # Closing its pipes wakes the host; the reply should be there by then.
    held = channels.end()
    _point_at_log()
    channels.send(held + frame)
    ceiling.end_run()


def _set_environ(wanted: dict[str, str | None]) -> None:
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _keep(shell: Shell, kind: int, wanted: dict[str, Any], fd: int) -> None:
    """Save or restore variables. Neither may end the session."""
    fd = _out_of_the_way(fd)
    try:
        if kind == frames.CHECKPOINT:
            with suppress(BaseException):
                checkpoint.begin(shell, wanted, fd)
        else:
            said = restore.restore(shell, wanted, fd)
            channels.send(frames.encode(frames.RESTORED, said))
            ceiling.end_run()
    finally:
        os.close(fd)
        _point_at_log()


def _encode_done(done: dict[str, Any]) -> bytes:
    try:
        if done["error"] is None:
            return frames.encode_own(frames.DONE, done)
        return frames.encode(frames.DONE, done)
    except frames.Malformed:  # a traceback with huge lines
        error = done["error"]
        if error is not None:
            error = {**error, "message": error["message"][:1000], "traceback": []}
        left_out = done.get("variables_left_out", 0) + len(done["variables"])
        less = {"error": error, "result": None, "variables": [], "variables_left_out": left_out}
        return frames.encode(frames.DONE, {**done, **less})


def _run(shell: Shell, source: str, cell: str, is_script: bool) -> None:
    try:
        finder = sys.path_importer_cache.get(getcwd())
        if finder is not None:  # a module written just now is newer than the clock can tell
            finder.invalidate_caches()  # type: ignore[attr-defined]
    except OSError:  # the working directory was deleted
        pass
    is_timed = False
    if not is_script:
        source, is_timed = without_time_magic(source)
    has_failed = True
    try:
        if is_script:
            shell.run_script(source, cell)
        elif is_timed:
            with timed():
                shell.run(source, cell)
        else:
            shell.run(source, cell)
        has_failed = shell.shown_error is not None
    except BaseException as error:
        ceiling.end_code(error)  # before anything else that needs memory
        raise
    finally:
        if first_imports.aside:
            first_imports.end_run()
        figures.end_run(has_failed)
        for event, arguments in _AFTER_RUN:
            if shell.events.callbacks[event]:
                channels.release()
                shell.events.trigger(event, *arguments)


def _receive(link: socket.socket) -> tuple[int, dict[str, Any], tuple[int, ...]]:
    """Receive the next frame. If the host is gone or violates the protocol, exit."""
    try:
        # Every frame comes with descriptors, and no read returns bytes beyond those they came with.
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
        fds = ancillary[0][2]
        if kind != frames.RUN:
            return kind, body, _ONE.unpack(fds)
        return kind, body, (_TWO if len(fds) == _TWO.size else _THREE).unpack(fds)
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
    """Exit a child that the cell forked and that ran past the end of the cell."""
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
    """Reseed all generators, whose state is shared by the forks of one parent.

    OpenSSL compares process ids: ours is never the zygote's.
    """
    loaded: Callable[[str], Any] = sys.modules.get
    entropy.renew()
    if module := loaded("tempfile"):
        module._name_sequence = None
        module.tempdir = None
    if module := loaded("uuid"):
        module._node = module._last_timestamp = None
