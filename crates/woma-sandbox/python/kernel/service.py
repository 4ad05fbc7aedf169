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
from contextlib import nullcontext, suppress
from typing import Any, NoReturn

from . import checkpoint, errors, figures, frames, mainfile, pages, paths, restore, results
from .channels import STDERR, STDOUT, Stream, channels
from .guard import Guard
from .magics import timed, without_time_magic
from .shell import Shell

HIGH = 64
_FDS = {kind: struct.Struct("2i" if kind == frames.RUN else "i") for kind in frames.TO_KERNEL}
_ANCILLARY_BYTES = socket.CMSG_SPACE(_FDS[frames.RUN].size)
_BUILTINS = dict(vars(builtins))
_BUILTIN_NAMES = frozenset(_BUILTINS)
_builtins = vars(builtins)
_AFTER_RUN = (("post_execute", ()), ("post_run_cell", (None,)))
_READY = frames.encode(
    frames.READY, {"protocol": frames.PROTOCOL, "python": platform.python_version()}
)
_NOTHING_TO_DO = frames.encode(
    frames.RUN, {"run": 0, "source": "import sys\nprint()", "figures_max": 1}
)
_flush = ctypes.CDLL(None).fflush
_stdout, _stderr = Stream(STDOUT, "<stdout>"), Stream(STDERR, "<stderr>")


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


def limber_up() -> None:
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
    socket.send_fds(theirs, [_NOTHING_TO_DO], [null, null])
    _answer(shell, *_receive(ours)[1:], _flush)
    for name in set(shell.user_ns) - before:
        del shell.user_ns[name]
    shell.execution_count = 1
    for history in (shell.history_manager.input_hist_parsed, shell.history_manager.input_hist_raw):
        del history[1:]
    mainfile.forget()
    for fd, target in zip(saved, (STDOUT, STDERR), strict=True):
        os.dup2(fd, target)
        os.close(fd)
    os.close(null)
    ours.close()
    theirs.close()


def _answer(
    shell: Shell, run: dict[str, Any], fds: tuple[int, ...], flush: Callable[[Any], Any]
) -> None:
    for fd, target in zip(fds, (STDOUT, STDERR), strict=True):
        os.dup2(fd, target)
        os.close(fd)
    channels.begin()
    figures.begin_run(run["figures_max"])
    pages.begin_run()
    vars(sys).update(stdout=_stdout, __stdout__=_stdout, stderr=_stderr, __stderr__=_stderr)
    shell.shown_error = shell.displayhook.text = shell.displayhook.value = None
    sys.displayhook = shell.displayhook
    shell.user_ns.pop("__warningregistry__", None)  # a warning is shown again in a new run
    cell = f"<cell {shell.execution_count}>"
    error: BaseException | None = None
    try:
        try:
            set_signal(SIGINT, default_int_handler)
            shell.user_ns.update(run.get("variables", ()))
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
    if os.getpid() != channels.pid:
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
    for stream in (sys.stdout, sys.stderr):
        if stream is not _stdout and stream is not _stderr:
            with suppress(BaseException):
                stream.flush()
    flush(None)
    mainfile.end_run()
    channels.end()
    _point_at_log()
    channels.send(_encode_done(done))


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
        return frames.encode(frames.DONE, done)
    except frames.Malformed:  # a traceback whose lines are books
        error = done["error"]
        if error is not None:
            error = {**error, "message": error["message"][:1000], "traceback": []}
        return frames.encode(frames.DONE, {**done, "error": error, "result": None, "variables": []})


def _run(shell: Shell, source: str, cell: str) -> None:
    try:
        finder = sys.path_importer_cache.get(os.getcwd())
        if finder is not None:  # a module written a moment ago is younger than the clock can tell
            finder.invalidate_caches()  # type: ignore[attr-defined]
    except OSError:  # the working directory was deleted
        pass
    source, is_timed = without_time_magic(source)
    try:
        with timed() if is_timed else nullcontext():
            shell.run(source, cell)
    finally:
        figures.end_run()
        for event, arguments in _AFTER_RUN:
            if shell.events.callbacks[event]:
                shell.events.trigger(event, *arguments)


def _receive(link: socket.socket) -> tuple[int, dict[str, Any], tuple[int, ...]]:
    """The next frame. A host that is gone or does not speak the protocol is the end."""
    try:
        header, ancillary, _, _ = link.recvmsg(
            frames.HEADER_BYTES, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
        )
        while 0 < len(header) < frames.HEADER_BYTES:
            header += _some(link, frames.HEADER_BYTES - len(header))
        kind, left = frames.decode_header(header)
        chunks = []
        while left:
            chunks.append(_some(link, left))
            left -= len(chunks[-1])
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
    os.dup2(channels.log_fd, STDOUT)
    os.dup2(channels.log_fd, STDERR)


def _out_of_the_way(fd: int) -> int:
    """A high number, so that code which closes "all" or guesses descriptors does not hit it."""
    if fd >= HIGH:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.close(fd)
    return moved


def _separate_from_siblings() -> None:
    """Forks of one parent share the state of every generator; each must draw its own numbers.

    `random` sees to itself, and OpenSSL compares process ids: ours is never the zygote's.
    """
    loaded: Callable[[str], Any] = sys.modules.get
    if module := loaded("numpy.random"):
        # Twenty times cheaper than seed(), and no less random.
        key = loaded("numpy").frombuffer(os.urandom(624 * 4), dtype="uint32")
        module.set_state(("MT19937", key, 624, 0, 0.0))
    if module := loaded("tempfile"):
        module._name_sequence = None
        module.tempdir = None
    if module := loaded("uuid"):
        module._node = module._last_timestamp = None
