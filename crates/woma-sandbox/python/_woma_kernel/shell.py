"""The shell: IPython's namespace, magics and formatters around a faster way to run a cell.

IPython's own `run_cell` costs about as much as everything else here, and reports errors by printing
them. `Shell.run` does the same (transform, compile, await, display, `_` and `Out`) and lets
exceptions propagate.
"""

from __future__ import annotations
import __future__

import ast
import atexit
import builtins
import functools
import inspect
import linecache
import operator
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from IPython.core.autocall import ExitAutocall
from IPython.core.displayhook import DisplayHook
from IPython.core.formatters import JSONFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Type
from traitlets.config import Config

from . import (
    charts,
    errors,
    figures,
    first_imports,
    formats,
    habits,
    imports,
    loops,
    mainfile,
    mending,
    network,
    packages,
    paths,
    printing,
    progress,
    stdin,
    tables,
)
from .datasets.name import datasets
from .guard import Guard
from .magics import ShellCommands
from .publish import Publisher, note, publish
from .rules import state

OUT_MAX = 20
PRETTY_COLUMNS = 120
PIP_LINES_MAX = 20
_BUILTINS = vars(builtins)

_FUTURES = functools.reduce(
    operator.or_,
    (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names),
)
_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
Piece = ast.Module | ast.Expression
Compiled = list[tuple[types.CodeType, bool]]
_FIRST_WORD = re.compile(r"\w+")
# Starts of a line without `;` that can only be a statement, or is most likely an expression.
_STATEMENT = re.compile(r"[^\W\d]\w*\s*=(?!=)|(?:import|from|del)\s")
_VALUE = re.compile(r"""\w+\s*(?:[(\[."']|[-+*/%<>]+(?!=)|$)|["'(\[{]""")


class Exit(ExitAutocall):
    """`exit`, `exit()`, `quit(3)`: end the run, not the session."""

    def __call__(self, code: object = None) -> None:
        raise SystemExit(code)


class Hook(DisplayHook):
    """Value of a last expression: displayed, kept as `_`, and remembered for the reply."""

    text: str | None = None
    value: object = None
    is_last = False  # whether nothing of the cell is left to run
    shell: Any
    _: Any
    __: Any
    ___: Any

    def __call__(self, result: object = None) -> None:
        if result is None:
            return
        self.value = result
        self.text = f"<{type(result).__name__}>"
        shell = self.shell
        formatter = shell.display_formatter
        data, metadata = formats.of_plain(formatter, result) or formatter.format(result)
        self._keep(result, shell.user_ns, shell.execution_count)
        if data:  # empty if the object has displayed itself
            self.text = data.get("text/plain", self.text)
            publish(data, metadata, role="result", is_last=self.is_last)

    def _keep(self, result: object, names: dict[str, Any], number: int) -> None:
        """Set IPython's names for results, but only a few: values can be large and sessions
        long.
        """
        if names.get("_", self._) is self._ and "_" not in builtins.__dict__:
            self.___, self.__, self._ = self.__, self._, result
            names.update({"_": self._, "__": self.__, "___": self.___})
        out = names.get("_oh")
        if isinstance(out, dict) and result is not out:
            out[number] = names[f"_{number}"] = result
            while len(out) > OUT_MAX:
                oldest = next(iter(out))
                del out[oldest]
                names.pop(f"_{oldest}", None)

    def forget(self) -> None:
        """Reset, as if nothing had been displayed yet."""
        self._ = self.__ = self.___ = ""
        names = self.shell.user_ns
        names.update({"_": self._, "__": self.__, "___": self.___})
        names["_oh"].clear()


class AsData(JSONFormatter):  # type: ignore[misc]
    """An additional representation for programs; `describe` returns `None` if there is none."""

    def __init__(self, mime: str, describe: Callable[[Any], dict[str, Any] | None]) -> None:
        super().__init__(format_type=mime)
        self._describe = describe

    def __call__(self, value: Any) -> dict[str, Any] | None:
        return self._describe(value)


class Shell(ShellCommands, InteractiveShell):
    """One per process. `shown_error` is an error that a magic printed instead of raising."""

    displayhook: Hook
    display_formatter: Any
    history_manager: Any
    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)
    shown_error: BaseException | None = None
    guard: Guard | None = None  # set by the first run with a guard
    _tree: ast.Module | None = None
    _text: str | None = None  # of the cell, once it is known to be Python
    _count = 1

    @property
    def execution_count(self) -> int:
        """Plain attribute: IPython's own validates every change and notifies observers."""
        return self._count

    @execution_count.setter
    def execution_count(self, value: int) -> None:
        self._count = int(operator.index(value))

    def run(self, source: str, cell: str) -> None:
        """Run the source; exceptions propagate unchanged."""
        self._tree = self._text = None
        self.displayhook.is_last = False
        if self.events.callbacks["pre_run_cell"]:
            self.events.trigger("pre_run_cell", types.SimpleNamespace(raw_cell=source))
        if source.lstrip()[:1] == "{" and '"cell_type"' in source and not state.rules:
            code = mending.notebook(source, self.transform_cell)
            if code is not None:
                source = code
                note("mended", "The code cells of the notebook were run, one after another.")
        pieces = self._compile_line(source, cell) or self._compile_cell(source, cell)
        if self._text is not None and "import" in self._text:
            first_imports.begin_cell(self._text)
        if self.guard is not None:
            self.guard.bind(code for code, _ in pieces)
        if any([code.co_flags & inspect.CO_COROUTINE for code, _ in pieces]) or (
            not all([loops.NEEDING.isdisjoint(code.co_names) for code, _ in pieces])
            and all([loops.REFUSING.isdisjoint(code.co_names) for code, _ in pieces])
        ):
            loops.run_in_session_loop(self._run_async(pieces))
            return
        names, guard = self.user_ns, self.guard
        left = len(pieces)
        for code, shown in pieces:
            left -= 1
            if guard is not None:
                guard.install()
            value = eval(code, names)
            if shown:
                self.displayhook.is_last = not left
                sys.displayhook(value)

    def run_script(self, source: str, name: str) -> None:
        """Run a program as `python` does: no magics, no repairs, no value of the last line."""
        self._tree = self._text = None
        self.displayhook.is_last = False
        linecache.cache[name] = _cached(source, name)
        code = compile(source, name, "exec", dont_inherit=True)
        self._remember(source, source, name)
        if "import" in source:
            first_imports.begin_cell(source)
        if self.guard is not None:
            self.guard.bind([code])
            self.guard.install()
        habits.begin_script()
        atexit._clear()  # functions of the libraries that were loaded before the program
        try:
            exec(code, self.user_ns)
        finally:
            mainfile.end_script()

    @property
    def source(self) -> str | None:
        """The cell as Python, unless it could not be parsed."""
        return self._text

    def assigns(self, name: str) -> bool:
        """Whether the cell assigns to this name, at its top level or below."""
        if self._tree is None:
            if self._text is None or name not in self._text:
                return False
            self._tree = self._ast(self._text, "")
        return any(
            isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
            for node in ast.walk(self._tree)
        )

    async def _run_async(self, pieces: Compiled) -> None:
        for code, shown in pieces:
            if self.guard is not None:
                self.guard.install()
            value = eval(code, self.user_ns)
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
            if shown:
                sys.displayhook(value)

    def _compile_line(self, source: str, cell: str) -> Compiled | None:
        """Compile a line that is evidently Python at once, without building a tree."""
        text = source.rstrip()
        if "\n" in text or "\r" in text or ";" in text or "\\" in text:
            return None
        if self.ast_transformers or self.input_transformers_post:
            return None
        if _STATEMENT.match(text):
            mode = "exec"
        elif _VALUE.match(text) and self.ast_node_interactivity != "none":
            if " = " in text or self._may_be_magic(text):
                return None
            mode = "eval"
        else:
            return None
        linecache.cache[cell] = _cached(source, cell)  # compiling it may warn, and show the line
        try:
            code = self._compile(source, cell, mode)
        except (SyntaxError, ValueError):
            return None
        self._remember(source, source, cell)
        return [(code, mode == "eval")]

    def _compile_cell(self, source: str, cell: str) -> Compiled:
        try:
            text, tree = self._parse(source, cell)
        except SyntaxError:
            mended = None if state.rules else mending.mend(source, lambda t: self._parse(t, cell))
            if mended is None:
                linecache.cache[cell] = _cached(source, cell)
                raise
            (text, tree), sentence = mended
            note("mended", sentence)
        linecache.cache[cell] = _cached(text, cell)
        self._remember(source, text, cell)
        if self.ast_transformers:
            tree = self.transform_ast(tree)
        self._tree = tree
        compiled = []
        for node, shown in self._pieces(tree, text):
            mode = "eval" if isinstance(node, ast.Expression) else "exec"
            compiled.append((self._compile(node, cell, mode), shown))
        return compiled

    def _parse(self, source: str, cell: str) -> tuple[str, ast.Module]:
        """Parse plain Python as it is; anything else goes through IPython's transformers first."""
        if not self.input_transformers_post and not self._may_be_magic(source):
            try:
                return source, self._ast(source, cell)
            except (SyntaxError, ValueError):
                pass
        # IPython drops leading empty lines, which would shift the user's line numbers.
        blank = len(source) - len(source.lstrip("\r\n"))
        text = "\n" * source.count("\n", 0, blank) + self.transform_cell(source)
        return self._parse_transformed(text, cell)

    def _remember(self, source: str, text: str, cell: str) -> None:
        """Keep the source of a cell for `inspect`, other processes and `In`."""
        self._text = text
        mainfile.remember(cell, text)
        history = self.history_manager
        history.input_hist_parsed.append(text)
        history.input_hist_raw.append(source)

    def _may_be_magic(self, source: str) -> bool:
        """`ls -l` or `exit` on a line of its own is valid Python, but not meant as Python."""
        first = _FIRST_WORD.match(source)
        if first is None or "\n" in source.strip():
            return False
        word = first.group()
        if word in ("exit", "quit"):
            return True
        if word in self.user_ns or word in _BUILTINS:  # a name that is in use is not a magic
            return False
        return self.find_line_magic(word) is not None

    def _parse_transformed(self, text: str, cell: str) -> tuple[str, ast.Module]:
        """Handle a bare `pip install x` among Python lines where it is a syntax error."""
        for _ in range(PIP_LINES_MAX):
            linecache.cache[cell] = _cached(text, cell)
            try:
                return text, self._ast(text, cell)
            except SyntaxError as error:
                lines = text.split("\n")
                row = (error.lineno or 1) - 1
                command = packages.COMMAND.match(lines[row]) if row < len(lines) else None
                if command is None:
                    raise
                indent = lines[row][: len(lines[row]) - len(lines[row].lstrip())]
                magic = f"get_ipython().run_line_magic('pip', {command.group(1)!r})"
                lines[row] = indent + magic
                text = "\n".join(lines)
        return text, self._ast(text, cell)

    def _ast(self, text: str, cell: str) -> ast.Module:
        flags = ast.PyCF_ONLY_AST | _AWAIT | (self.compile.flags & _FUTURES)
        tree: ast.Module = compile(text, cell, "exec", flags, True)
        return tree

    def _compile(self, node: Piece | str, cell: str, mode: str) -> types.CodeType:
        flags = _AWAIT | (self.compile.flags & _FUTURES)
        code: types.CodeType = compile(node, cell, mode, flags, True)
        self.compile.flags |= code.co_flags & _FUTURES  # a future statement applies to the session
        return code

    def _pieces(self, tree: ast.Module, text: str) -> Iterator[tuple[Piece, bool]]:
        """The statements, then the last expression, which is displayed unless `;` follows."""
        body = tree.body
        if self.ast_node_interactivity == "all":
            for node in body:
                if isinstance(node, ast.Expr):
                    yield ast.Expression(node.value), True
                else:
                    yield ast.Module([node], []), False
            return
        last = body[-1] if body else None
        if not isinstance(last, ast.Expr) or self.ast_node_interactivity == "none":
            yield tree, False
            return
        if len(body) > 1:
            yield ast.Module(body[:-1], tree.type_ignores), False
        yield ast.Expression(last.value), not _silenced(last, text)

    def showtraceback(self, exc_tuple: Any = None, *_args: Any, **_options: Any) -> None:
        """Magics print their errors; here they become the error of the run."""
        self.shown_error = (exc_tuple or sys.exc_info())[1]

    def showsyntaxerror(self, *_args: Any, **_options: Any) -> None:
        self.showtraceback()

    showindentationerror = showsyntaxerror

    def init_prompts(self) -> None:
        """No `sys.ps1`: libraries take it for an interactive session."""

    def init_virtualenv(self) -> None:
        """The environment is the interpreter's own."""

    def init_user_ns(self) -> None:
        super().init_user_ns()
        if self.user_ns_hidden.pop("open", None):  # it rejects descriptors 0 to 2, used by scripts
            del self.user_ns["open"]
        self.user_ns["_normalize_path"] = self.user_ns_hidden["_normalize_path"] = paths.normalize

    def ask_exit(self) -> None:
        raise SystemExit

    def ask_yes_no(self, *_args: Any, **_options: Any) -> bool:
        return True

    def enable_gui(self, gui: object = None) -> None:
        """Windows are not supported."""

    def enable_matplotlib(self, gui: object = None) -> tuple[str, str]:
        return "inline", "inline"


def create() -> Shell:
    """Create the shell, with everything that user code needs."""
    config = Config()
    config.InteractiveShell.update(
        {"colors": "nocolor" if _version() >= 9 else "NoColor", "autocall": 0, "banner1": ""}
    )
    config.HistoryManager.enabled = False
    config.PlainTextFormatter.max_width = PRETTY_COLUMNS
    shell = Shell.instance(config=config, exiter=Exit())
    shell.exiter._ip = shell
    shell.builtin_trap.__enter__()
    shell.display_trap.__enter__()
    vars(builtins).update(exit=shell.exiter, quit=shell.exiter, datasets=datasets)
    builtins.input = stdin.input
    sys.breakpointhook = _breakpoint
    threading.excepthook = errors.report_thread
    for callbacks in shell.events.callbacks.values():
        callbacks.clear()  # IPython's own keep records that are not used
    shell.set_hook("show_in_pager", _page, 0)
    png = shell.display_formatter.formatters["image/png"]
    png.for_type_by_name("matplotlib.figure", "Figure", figures.png)
    # After the picture, which decides whether a figure is shown at all.
    formatters = shell.display_formatter.formatters
    formatters[charts.MIME] = AsData(charts.MIME, figures.chart)
    formatters[tables.MIME] = AsData(tables.MIME, tables.table)
    habits.install(formatters["text/plain"], formatters["text/html"])
    formats.install(shell.display_formatter)
    paths.install()
    printing.install()
    progress.install()
    loops.install()
    network.install()
    mainfile.install(shell.user_module)
    imports.install()
    return shell


def _silenced(last: ast.Expr, text: str) -> bool:
    lines = text.encode("utf-8", "replace").split(b"\n")[(last.end_lineno or 1) - 1 :]
    lines[0] = lines[0][last.end_col_offset or 0 :]
    return b"\n".join(lines).lstrip(b" \t\r\n)\\").startswith(b";")


def _breakpoint(*_args: object, **_options: object) -> None:
    print("breakpoint() does nothing here: there is nobody at the debugger.", file=sys.stderr)


def _page(_shell: object, data: Any, *_args: object, **_options: object) -> None:
    print(data["text/plain"] if isinstance(data, dict) else data)


def _version() -> int:
    import IPython

    return int(IPython.version_info[0])


def _cached(text: str, cell: str) -> tuple[int, None, list[str], str]:
    """Text for tracebacks; without a final newline, carets of the last line would be off by one."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return len(text), None, lines, cell
