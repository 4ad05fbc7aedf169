"""Datasets of the caller."""

# Made from _async/datasets.py by scripts/make_sync.py: change that file.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from .. import _wire as wire
from .._models import DatasetDescription, DatasetInfo, JsonObject, QueryResult

if TYPE_CHECKING:
    from .sandbox import Sandbox


class Datasets:
    """Datasets: tables of the caller, which SQL can name and all sessions can read."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def load(
        self,
        path: str,
        name: str | None = None,
        *,
        format: str | None = None,
        delimiter: str | None = None,
        encoding: str | None = None,
        header: bool | None = None,
        sheet: str | None = None,
        pages: str | None = None,
        timeout: float | None = None,
    ) -> DatasetInfo:
        """Load a file of the session as a dataset; one of the same name is replaced."""
        connection = self._sandbox._ready()
        body = wire.without_none(
            file_path=path,
            dataset_name=name,
            session_id=self._sandbox.session_id,
            format=format,
            delimiter=delimiter,
            encoding=encoding,
            header=header,
            sheet=sheet,
            pages=pages,
            timeout=timeout,
        )
        request = wire.post("/api/v1/datasets", body, wire.run_timeout(timeout))
        return DatasetInfo._of(connection.json(request))

    def query(
        self,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        limit: int | None = None,
        offset: int | None = None,
        count: bool | None = None,
        timeout: float | None = None,
    ) -> QueryResult:
        """Rows of one SQL statement that reads. `parameters` are for `?` or `$name`."""
        body = self._body(sql, parameters, limit=limit, offset=offset, count=count, timeout=timeout)
        connection = self._sandbox._ready()
        return QueryResult(connection.json(self._query(body, timeout)))

    def export(
        self,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        format: Literal["arrow", "parquet", "csv"] = "arrow",
        limit: int | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """The result of a query as bytes: a file of Arrow, Parquet or CSV."""
        body = self._body(sql, parameters, format=format, limit=limit, timeout=timeout)
        connection = self._sandbox._ready()
        return (connection.send(self._query(body, timeout))).content

    def save(
        self,
        sql: str,
        path: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> int:
        """Write the result of a query into a file of the session, and return its number of rows."""
        session = self._sandbox.session_id
        body = self._body(sql, parameters, save_as=path, session_id=session, timeout=timeout)
        connection = self._sandbox._ready()
        reply = connection.json(self._query(body, timeout))
        rows: int = reply["row_count"]
        return rows

    def _body(self, sql: str, parameters: Any, **fields: Any) -> JsonObject:
        if parameters is not None:
            is_named = isinstance(parameters, Mapping)
            parameters = dict(parameters) if is_named else list(parameters)
        return wire.without_none(sql=sql, parameters=parameters, **fields)

    def _query(self, body: JsonObject, timeout: float | None) -> wire.Request:
        request = wire.post("/api/v1/queries", body, wire.run_timeout(timeout))
        # It only reads, or writes the same file again.
        request.repeatable = True
        return request

    def list(self) -> list[DatasetInfo]:
        """The caller's datasets, by name."""
        connection = self._sandbox._ready()
        found: list[DatasetInfo] = []
        cursor: str | None = None
        while True:
            page = connection.json(wire.get("/api/v1/datasets", limit=1000, cursor=cursor))
            found.extend(DatasetInfo._of(dataset) for dataset in page["datasets"])
            cursor = page.get("next")
            if cursor is None:
                return found

    def get(self, name: str) -> DatasetInfo:
        """A dataset: its columns, size and origin."""
        connection = self._sandbox._ready()
        return DatasetInfo._of(
            connection.json(wire.get(f"/api/v1/datasets/{wire.segment(name)}"))
        )

    def describe(self, name: str) -> DatasetDescription:
        """A dataset with statistics of its columns, and some of its rows."""
        connection = self._sandbox._ready()
        path = f"/api/v1/datasets/{wire.segment(name)}/description"
        return DatasetDescription._of(connection.json(wire.get(path, wire.run_timeout(None))))

    def drop(self, name: str) -> None:
        """Drop a dataset."""
        connection = self._sandbox._ready()
        connection.send(wire.delete(f"/api/v1/datasets/{wire.segment(name)}"))
