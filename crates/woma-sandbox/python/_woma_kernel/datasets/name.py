"""The name `datasets` in user code. It is a builtin: any other thing of that name comes first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

_MEANT = (
    "this is the session's own `datasets`; for the packages of that name, "
    "`from sklearn import datasets` or `import datasets`"
)


class Datasets:
    """The caller's tables: `datasets["sales"]` is a DataFrame, `datasets.sql("SELECT …")` too.

    The files are in `/datasets`; `datasets.register("name", frame_or_path)` adds one.
    """

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        """The dataset as a pandas DataFrame."""
        return _session().frame(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _session().found(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(_session().names())

    def __len__(self) -> int:
        return len(_session().names())

    def keys(self) -> list[str]:
        """The names."""
        return list(_session().names())

    def list(self) -> list[dict[str, Any]]:
        """Name, rows, columns and bytes of each dataset."""
        return list(_session().listed())

    def sql(self, query: str, **parameters: Any) -> Any:
        """Run SQL over datasets and DataFrames of the program; `$name` in it is a parameter."""
        return _session().sql(query, parameters, sys._getframe(1))

    def arrow(self, name: str) -> Any:
        """The dataset as a pyarrow table."""
        return _session().arrow(name)

    def path(self, name: str) -> str:
        """The path of the dataset's Parquet file."""
        return str(_session().path(name))

    def register(self, name: str, data: Any) -> None:
        """Make a DataFrame or a file a dataset, for all sessions, once this run has ended."""
        _session().register(name, data)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self:
            return self[name]
        raise AttributeError(f"there is no dataset {name!r}; {_MEANT}", name=None)

    def __repr__(self) -> str:
        return str(_session().shown())

    def __reduce__(self) -> Any:
        return _the, ()


def _session() -> Any:
    from . import session

    return session


def _the() -> Datasets:
    return datasets


datasets = Datasets()
