"""Datasets in a session: frames, SQL over them and the program's own frames, and new ones.

The engine is the session's own and does what the user says: the sandbox holds it, and `/datasets`
is mounted read-only.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from types import FrameType
from typing import Any

from .. import paths
from ..rules import state
from . import engine
from .trouble import Trouble, count, explained, there_are, unknown

FOLDER = "/datasets"
SPOOL = os.path.join(".woma", "datasets")
SHOWN_MAX = 50
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_ENDING = ".parquet"
_CALL = compile("_woma_connection.sql(_woma_text, params=_woma_values)", __file__, "eval")
_TABLES = frozenset(("DataFrame", "LazyFrame", "Table", "RecordBatchReader", "DuckDBPyRelation"))
_LIBRARIES = frozenset(("pandas", "polars", "pyarrow", "duckdb", "_duckdb"))

Identity = tuple[str, int, int]

_connections: dict[bool, Any] = {}  # by whether it is confined
_views: dict[bool, dict[str, Identity]] = {}


class UnknownDataset(KeyError):
    """A `KeyError` whose message is a sentence."""

    def __str__(self) -> str:
        return str(self.args[0])


UnknownDataset.__module__, UnknownDataset.__qualname__ = "builtins", "KeyError"  # as users see it
UnknownDataset.__name__ = "KeyError"


def names() -> list[str]:
    """The names of the datasets, and of those that this session has registered just now."""
    return sorted(_files(), key=str.lower)


def found(name: str) -> str | None:
    """The path of a dataset; names are compared as SQL does, without case."""
    files = _files()
    by_case = {one.lower(): path for one, path in files.items()}
    return files.get(name) or by_case.get(name.lower())


def path(name: str) -> str:
    """The path of a dataset, or an error that says which there are."""
    file = found(name) if isinstance(name, str) else None
    if file is None:
        trouble = unknown(str(name), _files())
        raise UnknownDataset(f"{trouble.message}; {trouble.hint}")
    return file


def frame(name: str) -> Any:
    """A dataset as a pandas DataFrame."""
    connection, source = _connection(), f"read_parquet({engine.text(path(name))})"
    engine.settle(connection)
    return engine.run(connection, lambda: connection.sql(f"SELECT * FROM {source}").df())


def arrow(name: str) -> Any:
    """A dataset as a pyarrow table."""
    from pyarrow import parquet

    return parquet.read_table(path(name))


def listed() -> list[dict[str, Any]]:
    """What the footers of the files say."""
    files = sorted(_files().items(), key=lambda one: one[0].lower())
    if not files:
        return []
    connection = _connection()
    told = []
    for name, file in files:
        about: dict[str, Any] = {"name": name}
        with suppress(engine.duckdb().Error):  # a damaged file does not hide the others
            source = engine.text(file)
            about["rows"] = connection.execute(
                f"SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata({source})"
            ).fetchone()[0]
            described = connection.execute(f"DESCRIBE SELECT * FROM read_parquet({source})")
            about["columns"] = [row[0] for row in described.fetchall()]
        about["bytes"] = engine.size(file)
        told.append(about)
    return told


def shown() -> str:
    """The text of the name `datasets`."""
    told = listed()
    if not told:
        return "no datasets; `datasets.register('name', frame_or_path)` makes one"
    lines = []
    for one in told[:SHOWN_MAX]:
        columns = ", ".join(one.get("columns", ["it cannot be read"])[:12])
        more = ", …" if len(one.get("columns", ())) > 12 else ""
        lines.append(f"{one['name']}: {count(one.get('rows', 0), 'row')} of {columns}{more}")
    if len(told) > SHOWN_MAX:
        lines.append(f"and {len(told) - SHOWN_MAX} more")
    return "\n".join(lines)


def sql(query: str, parameters: dict[str, Any], caller: FrameType) -> Any:
    """Run SQL for code in this frame, whose variables are tables too."""
    return run_sql(query, parameters, caller.f_globals, caller.f_locals)


def run_sql(
    query: str, parameters: dict[str, Any], outer: dict[str, Any], inner: dict[str, Any]
) -> Any:
    """Run SQL; the last statement's rows as a DataFrame, `None` if it has none.

    DuckDB looks for frames in the namespace that calls it, so the call is made in the user's.
    """
    connection = _connection()
    engine.settle(connection)
    _show_datasets(connection, query, outer, inner)
    engine.settle(connection)
    names = {
        **inner,
        "_woma_connection": connection,
        "_woma_text": query,
        "_woma_values": parameters or None,
    }

    def work() -> Any:
        relation = eval(_CALL, outer, names)
        return None if relation is None else relation.df()

    try:
        return engine.run(connection, work)
    except engine.duckdb().CatalogException as error:
        if "Table with name" not in str(error):
            raise
        said = f"{error}\n{there_are(_files())[:1000]}"
        raise type(error)(said) from None


def parameters_of(query: str, names: dict[str, Any]) -> dict[str, Any]:
    """Values of the variables that a query names as `$name`."""
    wanted: set[str] = set()
    with suppress(Exception):  # the query itself will say what is wrong
        for statement in _connection().extract_statements(query):
            wanted.update(str(name) for name in statement.named_parameters)
    return {name: names[name] for name in wanted if name in names}


def register(name: str, data: Any) -> None:
    """Write a dataset where the server looks for new ones after the run."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be the name of a dataset: letters, digits and _, at most 63, "
            "and no digit first"
        )
    from .load import load
    from .tables import load_table

    folder = os.path.join(paths.home or os.getcwd(), SPOOL)
    os.makedirs(folder, exist_ok=True)
    part = os.path.join(folder, f".{name}{_ENDING}.part")
    request: dict[str, Any] = {"do": "load", "name": name, "path": name, "output": part}
    try:
        if isinstance(data, (str, os.PathLike)):
            request["path"] = paths.for_reading(data) or os.fspath(data)
            reply = load(request)
        else:
            reply = load_table(request, data)
    except Exception as error:
        trouble = error if isinstance(error, Trouble) else explained(error, request)
        if trouble is None or isinstance(error, MemoryError):
            raise
        raise ValueError("; ".join(filter(None, (trouble.message, trouble.hint)))) from None
    about = os.path.join(folder, f".{name}.json.part")
    with paths.open(about, "w", encoding="utf-8") as out:
        json.dump({"name": name, **reply}, out)
    final = os.path.join(folder, name)
    os.replace(part, final + _ENDING)
    os.replace(about, final + ".json")
    size = f"{count(reply['rows'], 'row')}, {count(reply['column_count'], 'column')}"
    print(f"{name}: {size}; a dataset once this run has ended")


def _files() -> dict[str, str]:
    """Paths by name. A file that was registered in this run is not below `/datasets` yet."""
    files: dict[str, str] = {}
    for folder in (FOLDER, os.path.join(paths.home or os.getcwd(), SPOOL)):
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(_ENDING) and not entry.name.startswith("."):
                    files[entry.name.removesuffix(_ENDING)] = entry.path
    return files


def _connection() -> Any:
    """The engine of the session, made when it is first needed.

    Where rules keep user code from importing DuckDB, SQL reaches no file but the datasets.
    """
    is_confined = state.rules is not None and not state.rules.allows("duckdb")
    found = _connections.get(is_confined)
    if found is None:
        try:
            found = engine.connect({}, None if is_confined else paths.home)
        except Trouble as trouble:  # there is no DuckDB
            raise ImportError(trouble.message, name="duckdb") from None
        if is_confined:
            spool = os.path.join(paths.home, SPOOL)
            engine.confine(found, [FOLDER, spool], replaces=True)
        _connections[is_confined], _views[is_confined] = found, {}
    return found


def _show_datasets(
    connection: Any, query: str, outer: dict[str, Any], inner: dict[str, Any]
) -> None:
    """Views for the datasets that a query may name. A frame of the same name comes first."""
    views = next(_views[key] for key, one in _connections.items() if one is connection)
    text, files = query.lower(), _files()
    taken = {name.lower() for place in (outer, inner) for name in _tables_in(place, text)}
    for name in [one for one in views if one not in files or one.lower() in taken]:
        connection.execute(f"DROP VIEW IF EXISTS {engine.name(name)}")
        del views[name]
    for name, file in files.items():
        if name.lower() not in text or name.lower() in taken:
            continue
        found = os.stat(file)
        identity = file, found.st_ino, found.st_mtime_ns
        if views.get(name) == identity:
            continue
        # Not if a table of the user has this name, or if the file is damaged.
        with suppress(engine.duckdb().Error):
            source = f"SELECT * FROM read_parquet({engine.text(file)})"
            connection.execute(f"CREATE OR REPLACE TEMP VIEW {engine.name(name)} AS {source}")
            views[name] = identity


def _tables_in(names: dict[str, Any], text: str) -> list[str]:
    return [
        name
        for name, value in list(names.items())
        if isinstance(name, str)
        and type(value).__name__ in _TABLES
        and type(value).__module__.partition(".")[0] in _LIBRARIES
        and name.lower() in text
    ]
