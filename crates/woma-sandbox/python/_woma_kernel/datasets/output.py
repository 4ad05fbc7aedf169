"""A result into a file, as JSON, CSV, Parquet or Arrow, within a number of rows and bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .values import Convert, converter, encode

CHUNK_ROWS = 2_048
BATCH_ROWS = 65_536
PIECE_ROWS = 64
FOOTER_BYTES = 2_048  # of Parquet and Arrow files, beside what their columns need
FOOTER_COLUMN_BYTES = 512
# Types that Arrow's writer of CSV has no text for, or another one than DuckDB.
_NOT_FLAT = ("STRUCT", "MAP", "UNION", "INTERVAL", "BLOB", "BIT", "UUID")

Column = tuple[str, str]  # name and type


class Written(NamedTuple):
    """`has_more` if the result has more rows; `cut_by_bytes` if they would have made the file too
    large.
    """

    rows: int
    bytes: int
    has_more: bool
    cut_by_bytes: bool = False


class Target(NamedTuple):
    """A file to write, and its bounds."""

    kind: str
    path: str
    rows_max: int
    bytes_max: int


def write(connection: Any, text: str, parameters: Any, to: Target) -> tuple[list[Column], Written]:
    """Run a statement that reads and write its rows: the columns, and what was written."""
    if to.kind != "json":
        relation = connection.sql(text, params=parameters or None)
        columns = _described(relation)
        if to.kind != "csv" or _is_flat(columns):
            opener = {"csv": _csv, "parquet": _parquet, "arrow": _arrow}[to.kind]
            return columns, _batches(relation, opener, to)
    connection.execute(text, parameters) if parameters else connection.execute(text)
    columns = _described(connection)
    return columns, (_json if to.kind == "json" else _csv_of_rows)(connection, columns, to)


def _described(result: Any) -> list[Column]:
    return [(str(one[0]), str(one[1])) for one in result.description or ()]


def chunks(connection: Any, columns: list[Column], rows_max: int) -> Iterator[list[Any]]:
    """The rows, with values as JSON has them, a few thousand at a time."""
    converters = [converter(kind) for _, kind in columns]
    changes = any(one is not None for one in converters)
    while rows_max > 0:
        rows = connection.fetchmany(min(CHUNK_ROWS, rows_max))
        if not rows:
            return
        rows_max -= len(rows)
        yield _converted(rows, converters) if changes else rows


def _converted(rows: list[Any], converters: list[Convert | None]) -> list[Any]:
    """Column by column: most columns need nothing."""
    columns = [
        values if convert is None else [convert(value) for value in values]
        for values, convert in zip(zip(*rows), converters)  # noqa: B905 (equal by construction)
    ]
    return list(zip(*columns))  # noqa: B905


def _json(connection: Any, columns: list[Column], to: Target) -> Written:
    count, total, is_cut = 0, 2, False
    with io.open(to.path, "wb") as file:  # noqa: UP020 (not the session's own `open`)
        file.write(b"[")
        for rows in chunks(connection, columns, to.rows_max):
            data = encode(rows).encode()
            if total + len(data) + 1 > to.bytes_max:
                data, fitting = _fitting(rows, to.bytes_max - total - 1)
                rows, is_cut = rows[:fitting], True
            if data:
                if count:
                    data = b"," + data
                file.write(data)
                total += len(data)
                count += len(rows)
            if is_cut:
                break
        file.write(b"]")
    has_more = is_cut or connection.fetchone() is not None
    return Written(count, total, has_more, is_cut)


def _fitting(rows: list[Any], bytes_max: int) -> tuple[bytes, int]:
    """The first rows that fit, as bytes, and their number."""
    parts: list[bytes] = []
    total = 0
    for row in rows:
        data = encode([row]).encode()
        total += len(data) + 1
        if total > bytes_max:
            break
        parts.append(data)
    return b",".join(parts), len(parts)


def _is_flat(columns: list[Column]) -> bool:
    return not any(kind.endswith("]") or kind.startswith(_NOT_FLAT) for _, kind in columns)


def _csv_of_rows(connection: Any, columns: list[Column], to: Target) -> Written:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for name, _ in columns])
    count, total = 0, 0
    with io.open(to.path, "wb") as file:  # noqa: UP020
        for rows in chunks(connection, columns, to.rows_max):
            for row in rows:
                before = text.tell()
                writer.writerow([_cell(value) for value in row])
                if total + 4 * text.tell() > to.bytes_max and total + _size(text) > to.bytes_max:
                    text.truncate(before)
                    file.write(text.getvalue()[:before].encode())
                    return Written(count, file.tell(), True, True)
                count += 1
            total += file.write(text.getvalue().encode())
            text.seek(0)
            text.truncate()
        total += file.write(text.getvalue().encode())
    return Written(count, total, connection.fetchone() is not None)


def _size(text: io.StringIO) -> int:
    return len(text.getvalue().encode())


def _cell(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return encode([value])
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value


def _batches(relation: Any, open_writer: Callable[..., Any], to: Target) -> Written:
    """Write pieces of batches. CSV may be longer than its piece in memory, so it is cut back."""
    reader = record_batches(relation, BATCH_ROWS)
    is_text = open_writer is _csv
    spare = 0 if is_text else FOOTER_BYTES + FOOTER_COLUMN_BYTES * len(reader.schema)
    count, is_cut, has_more = 0, False, False
    with io.open(to.path, "wb") as file:  # noqa: UP020
        with open_writer(file, reader.schema) as writer:
            for piece in _pieces(reader, to):
                if not piece.num_rows:
                    has_more = True
                    break
                before = file.tell()
                is_cut = before + spare + (0 if is_text else piece.nbytes) > to.bytes_max
                if not is_cut:
                    writer.write_batch(piece)
                    if is_text and file.tell() > to.bytes_max:
                        file.truncate(before)
                        is_cut = True
                if is_cut:
                    break
                count += piece.num_rows
        file.seek(0, io.SEEK_END)
        total = file.tell()
    return Written(count, total, has_more or is_cut, is_cut)


def _pieces(reader: Any, to: Target) -> Iterator[Any]:
    """The batches, in small pieces if a few of them would fill the file. An empty one at the end
    says that there are more rows than wanted.
    """
    left = to.rows_max
    for batch in reader:
        size = batch.num_rows if batch.nbytes * 8 < to.bytes_max else PIECE_ROWS
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, min(size, left))
            start += piece.num_rows
            left -= piece.num_rows
            yield piece
            if not piece.num_rows:
                return


def record_batches(relation: Any, rows: int) -> Any:
    """A reader of the result; the name of the method changed with DuckDB 2."""
    method = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    return method(rows)


def _csv(file: Any, schema: Any) -> Any:
    from pyarrow import csv as arrow_csv

    return arrow_csv.CSVWriter(file, schema)


def _parquet(file: Any, schema: Any) -> Any:
    from pyarrow import parquet

    return parquet.ParquetWriter(file, schema, compression="snappy")


def _arrow(file: Any, schema: Any) -> Any:
    from pyarrow import ipc

    return ipc.new_file(file, schema)
